//! Parses the query options of lists and watches, `metav1.ListOptions`. They are checked in the
//! order of kube-apiserver, so that the same one of several errors is reported.

use super::request::Query;
use super::resource::Resource;
use super::select::Selector;
use super::status::{ErrorStatus, OptionProblem};

const MATCH: &str = "resourceVersionMatch";

/// The checked options, as the client wrote them.
#[derive(Debug)]
pub struct Options<'a> {
    /// `limit`. Zero and negative values mean no limit.
    pub limit: Option<usize>,
    /// `timeoutSeconds`. None if absent or zero.
    pub seconds: Option<i64>,
    /// `sendInitialEvents`.
    pub initial: Option<bool>,
    /// `resourceVersionMatch`: `Exact`, `NotOlderThan` or empty.
    pub matching: &'a str,
    /// `resourceVersion`.
    pub version: &'a str,
    /// `continue`.
    pub resume: &'a str,
    /// `labelSelector` and `fieldSelector`.
    pub selector: Selector,
}

impl<'a> Options<'a> {
    /// Parses the options of a list.
    pub fn of_list(query: &'a Query, resource: &Resource) -> Result<Self, ErrorStatus> {
        Self::of(query, resource, Self::problems_of_list)
    }

    /// Parses the options of a watch.
    pub fn of_watch(query: &'a Query, resource: &Resource) -> Result<Self, ErrorStatus> {
        Self::of(query, resource, Self::problems_of_watch)
    }

    fn of(
        query: &'a Query,
        resource: &Resource,
        problems: fn(&Self) -> Vec<OptionProblem>,
    ) -> Result<Self, ErrorStatus> {
        let seconds = query.number("timeoutSeconds")?;
        let limit = query.number("limit")?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let unresolved = Selector::parse(query)?;
        let mut options = Self {
            limit: limit.filter(|limit| *limit > 0),
            seconds: seconds.filter(|seconds| *seconds != 0),
            initial: query.truth("sendInitialEvents"),
            matching: query.text(MATCH),
            version: query.text("resourceVersion"),
            resume: query.text("continue"),
            selector: Selector::default(),
        };
        let problems = problems(&options);
        if !problems.is_empty() {
            return Err(ErrorStatus::options(problems));
        }
        options.selector = unresolved.resolve(resource)?;
        Ok(options)
    }

    fn problems_of_list(&self) -> Vec<OptionProblem> {
        let mut problems = Vec::new();
        let mut forbidden = |field, why| problems.push(OptionProblem::forbidden(field, why));
        if !self.matching.is_empty() {
            if self.version.is_empty() {
                forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            self.no_continue(&mut forbidden);
            if !matches!(self.matching, "Exact" | "NotOlderThan") {
                let supported = "\"Exact\", \"NotOlderThan\", \"\"";
                problems.push(OptionProblem::unsupported(MATCH, self.matching, supported));
            } else if self.matching == "Exact" && self.version == "0" {
                forbidden(
                    MATCH,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if self.initial.is_some() {
            problems.push(OptionProblem::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        problems
    }

    fn problems_of_watch(&self) -> Vec<OptionProblem> {
        let mut problems = Vec::new();
        let mut forbidden = |field, why| problems.push(OptionProblem::forbidden(field, why));
        if self.initial.is_some() && self.matching != "NotOlderThan" {
            forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        // Such a watch starts as if `sendInitialEvents` was true (`SetListOptionsDefaults` in
        // kube-apiserver).
        let defaulted = self.initial.is_none() && matches!(self.version, "" | "0");
        if self.matching.is_empty() {
            if defaulted {
                self.no_continue(&mut forbidden);
            }
            return problems;
        }
        if self.initial.is_none() {
            forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if self.matching != "NotOlderThan" {
            let supported = "\"NotOlderThan\"";
            problems.push(OptionProblem::unsupported(MATCH, self.matching, supported));
        }
        let mut forbidden = |field, why| problems.push(OptionProblem::forbidden(field, why));
        self.no_continue(&mut forbidden);
        problems
    }

    fn no_continue(&self, forbidden: &mut impl FnMut(&'static str, &'static str)) {
        if !self.resume.is_empty() {
            forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
    }
}
