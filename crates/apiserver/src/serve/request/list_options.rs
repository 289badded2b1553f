//! Parses and checks the query options of lists and watches (`metav1.ListOptions`).

use super::selectors::Selector;
use crate::Model;
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::request::Query;
use crate::serve::resource::Resource;

const MATCH: &str = "resourceVersionMatch";

const FORBIDS_CONTINUE: &str = "resourceVersionMatch is forbidden when continue is provided";

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
    /// Parses and checks the options of a list, or of a watch. Returns the first error.
    pub fn of(
        query: &'a Query,
        resource: &Resource<M>,
        is_watch: bool,
    ) -> Result<Self, ErrorStatus> {
        let timeout_seconds = query.number("timeoutSeconds")?;
        let limit = query.number("limit")?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let selector = Selector::parse(query, resource)?;
        let options = Self {
            limit: limit.filter(|limit| *limit > 0),
            timeout_seconds: timeout_seconds.filter(|seconds| *seconds != 0),
            send_initial_events: query.optional_flag("sendInitialEvents"),
            version_match: query.text(MATCH),
            version: query.text("resourceVersion"),
            continue_token: query.text("continue"),
            selector,
        };
        let problem = if is_watch {
            options.problem_of_watch()
        } else {
            options.problem_of_list()
        };
        if let Some((field, why)) = problem {
            let why = format!("Forbidden: {why}");
            let reason = "FieldValueForbidden";
            return Err(ErrorStatus::invalid_list_option(field, reason, why));
        }
        options.check_match(is_watch)?;
        Ok(options)
    }

    /// Returns an option that a list does not allow, and the reason.
    fn problem_of_list(&self) -> Option<(&'static str, &'static str)> {
        if self.send_initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            return Some(("sendInitialEvents", why));
        }
        let has_match = !self.version_match.is_empty();
        let why = match self.version {
            "" if has_match => {
                "resourceVersionMatch is forbidden unless resourceVersion is provided"
            }
            "0" if self.version_match == "Exact" => {
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
            }
            _ if has_match && !self.continue_token.is_empty() => FORBIDS_CONTINUE,
            _ => return None,
        };
        Some((MATCH, why))
    }

    /// Returns an option that a watch does not allow, and the reason.
    fn problem_of_watch(&self) -> Option<(&'static str, &'static str)> {
        let sends = self.send_initial_events.is_some();
        let has_match = !self.version_match.is_empty();
        let sends_by_default = !sends && matches!(self.version, "" | "0");
        let why = if sends && self.version_match != "NotOlderThan" {
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        } else if has_match && !sends {
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        } else if (has_match || sends_by_default) && !self.continue_token.is_empty() {
            FORBIDS_CONTINUE
        } else {
            return None;
        };
        Some((MATCH, why))
    }

    /// Returns an error if the value of `resourceVersionMatch` is not supported.
    fn check_match(&self, is_watch: bool) -> Result<(), ErrorStatus> {
        let supported = match self.version_match {
            "" | "NotOlderThan" => return Ok(()),
            "Exact" if !is_watch => return Ok(()),
            _ if is_watch => "\"NotOlderThan\"",
            _ => "\"Exact\", \"NotOlderThan\", \"\"",
        };
        let given = self.version_match;
        let why = format!("Unsupported value: {given:?}: supported values: {supported}");
        let reason = "FieldValueNotSupported";
        Err(ErrorStatus::invalid_list_option(MATCH, reason, why))
    }
}
