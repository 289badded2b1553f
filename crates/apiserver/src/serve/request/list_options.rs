//! Checks the query options of lists and watches (`metav1.ListOptions`).

use super::selectors::Selector;
use crate::Model;
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::request::Query;
use crate::serve::resource::Resource;

const MATCH: &str = "resourceVersionMatch";

/// Checks the options of a list or of a watch. Returns the first error. If all options are valid,
/// returns the selector from the options `labelSelector` and `fieldSelector`.
pub fn checked_selector<M: Model>(
    query: &Query,
    resource: &Resource<M>,
    is_watch: bool,
) -> Result<Selector<M>, ErrorStatus> {
    query.number("timeoutSeconds")?;
    query.number("limit")?;
    let selector = Selector::parse(query, resource)?;
    if let Some((field, why)) = forbidden(query, is_watch) {
        let why = format!("Forbidden: {why}");
        let reason = "FieldValueForbidden";
        return Err(ErrorStatus::invalid_list_option(field, reason, why));
    }
    let supported = match query.text(MATCH) {
        "" | "NotOlderThan" => return Ok(selector),
        "Exact" if !is_watch => return Ok(selector),
        _ if is_watch => "\"NotOlderThan\"",
        _ => "\"Exact\", \"NotOlderThan\", \"\"",
    };
    let given = query.text(MATCH);
    let why = format!("Unsupported value: {given:?}: supported values: {supported}");
    let reason = "FieldValueNotSupported";
    Err(ErrorStatus::invalid_list_option(MATCH, reason, why))
}

/// Returns an option that is not allowed together with the other options, and the reason. None if
/// all options are allowed.
fn forbidden(query: &Query, is_watch: bool) -> Option<(&'static str, &'static str)> {
    let (version, version_match) = (query.text("resourceVersion"), query.text(MATCH));
    let has_match = !version_match.is_empty();
    let sends = query.given("sendInitialEvents").is_some();
    let sends_by_default = is_watch && !sends && matches!(version, "" | "0");
    let why = match (is_watch, sends) {
        (true, true) if version_match != "NotOlderThan" => {
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        }
        (true, false) if has_match => {
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        }
        (false, true) => {
            return Some((
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        (false, false) if has_match && version.is_empty() => {
            "resourceVersionMatch is forbidden unless resourceVersion is provided"
        }
        (false, false) if version_match == "Exact" && version == "0" => {
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
        }
        _ if (has_match || sends_by_default) && !query.text("continue").is_empty() => {
            "resourceVersionMatch is forbidden when continue is provided"
        }
        _ => return None,
    };
    Some((MATCH, why))
}
