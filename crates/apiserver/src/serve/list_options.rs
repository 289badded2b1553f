//! Parses and checks the query options of lists and watches (`metav1.ListOptions`). The checks have
//! the same order as in the kube-apiserver. So a request with several errors gets the same error as
//! from the kube-apiserver.

use super::error_status::{ErrorStatus, OptionProblem};
use super::request::Query;
use super::resource::Resource;
use super::selectors::{Selector, UnresolvedSelector};
use crate::Model;

const MATCH: &str = "resourceVersionMatch";

/// The options of a list or a watch, after they were checked.
#[derive(Debug)]
pub struct Options<'a, M: Model> {
    /// The option `limit`. None if it is absent, zero or negative.
    pub limit: Option<usize>,
    /// The option `timeoutSeconds`. None if it is absent or zero.
    pub timeout_seconds: Option<i64>,
    /// The option `sendInitialEvents`. None if it is absent.
    pub send_initial_events: Option<bool>,
    /// The option `resourceVersionMatch`: `Exact`, `NotOlderThan` or empty.
    pub version_match: &'a str,
    /// The option `resourceVersion`. Empty if it is absent.
    pub version: &'a str,
    /// The option `continue`. Empty if it is absent.
    pub continue_token: &'a str,
    /// The options `labelSelector` and `fieldSelector`.
    pub selector: Selector<M>,
}

impl<'a, M: Model> Options<'a, M> {
    /// Parses the options of a list.
    pub fn of_list(query: &'a Query, resource: &Resource<M>) -> Result<Self, ErrorStatus> {
        Self::of(query, resource, Self::problems_of_list)
    }

    /// Parses the options of a watch.
    pub fn of_watch(query: &'a Query, resource: &Resource<M>) -> Result<Self, ErrorStatus> {
        Self::of(query, resource, Self::problems_of_watch)
    }

    fn of(
        query: &'a Query,
        resource: &Resource<M>,
        problems: fn(&Self) -> Vec<OptionProblem>,
    ) -> Result<Self, ErrorStatus> {
        let timeout_seconds = query.number("timeoutSeconds")?;
        let limit = query.number("limit")?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let unresolved = UnresolvedSelector::parse(query)?;
        let mut options = Self {
            limit: limit.filter(|limit| *limit > 0),
            timeout_seconds: timeout_seconds.filter(|seconds| *seconds != 0),
            send_initial_events: query.optional_flag("sendInitialEvents"),
            version_match: query.text(MATCH),
            version: query.text("resourceVersion"),
            continue_token: query.text("continue"),
            selector: Selector::default(),
        };
        let problems = problems(&options);
        if !problems.is_empty() {
            return Err(ErrorStatus::invalid_list_options(problems));
        }
        options.selector = unresolved.resolve(resource)?;
        Ok(options)
    }

    fn problems_of_list(&self) -> Vec<OptionProblem> {
        let mut problems = Vec::new();
        let mut forbidden = |field, why| problems.push(OptionProblem::forbidden(field, why));
        if !self.version_match.is_empty() {
            if self.version.is_empty() {
                forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            self.forbid_continue(&mut forbidden);
            if !matches!(self.version_match, "Exact" | "NotOlderThan") {
                let supported = "\"Exact\", \"NotOlderThan\", \"\"";
                problems.push(OptionProblem::unsupported(
                    MATCH,
                    self.version_match,
                    supported,
                ));
            } else if self.version_match == "Exact" && self.version == "0" {
                forbidden(
                    MATCH,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if self.send_initial_events.is_some() {
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
        if self.send_initial_events.is_some() && self.version_match != "NotOlderThan" {
            forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        // Some watches have neither `sendInitialEvents` nor `resourceVersionMatch`, and their
        // resourceVersion is empty or `0`. The kube-apiserver sets both options for these watches
        // (`SetListOptionsDefaults`). It refuses a continue token together with
        // `resourceVersionMatch`. So this server also refuses a continue token in these watches.
        let sends_by_default =
            self.send_initial_events.is_none() && matches!(self.version, "" | "0");
        if self.version_match.is_empty() {
            if sends_by_default {
                self.forbid_continue(&mut forbidden);
            }
            return problems;
        }
        if self.send_initial_events.is_none() {
            forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if self.version_match != "NotOlderThan" {
            let supported = "\"NotOlderThan\"";
            problems.push(OptionProblem::unsupported(
                MATCH,
                self.version_match,
                supported,
            ));
        }
        let mut forbidden = |field, why| problems.push(OptionProblem::forbidden(field, why));
        self.forbid_continue(&mut forbidden);
        problems
    }

    /// Reports an error if there is a continue token.
    fn forbid_continue(&self, forbidden: &mut impl FnMut(&'static str, &'static str)) {
        if !self.continue_token.is_empty() {
            forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
    }
}
