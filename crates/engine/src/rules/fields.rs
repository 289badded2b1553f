//! Lists the fields of a rule that have expressions, with the results that the expressions must
//! have. Also computes the timing hash of a rule.
//!
//! The timing hash of a rule is a hash of the fields that affect the learned duration. These fields
//! decide:
//!
//! - when the operation starts and ends
//! - which state it has, because a duration contains only the time in the state `Progressing`
//! - which outcome it has, because durations are learned only from successful runs
//! - which size it has, because a duration is learned for one unit of the size
//!
//! A run is one occurrence of an operation, from its start to its end. If the hash changes,
//! durations of earlier runs can no longer be compared with durations of new runs. So
//! `ifo-apiserver` forgets the usual duration, and learns it again.
//!
//! The hash is computed from the source texts of the expressions. A hash of compiled expressions
//! could change with each release of `ifo-apiserver`.

use super::validate::is_duration;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use ifo_api::{Text, labels};
use ifo_cel::ResultKind;
use serde_json::{Value, json};

/// The fields with expressions, except `forEach` and `itemKey`. A test checks that no such field of
/// the schema is missing. Each entry has the name of the field, the result that the expression must
/// have, and true if the field affects durations.
const EXPRESSIONS: [(&str, ResultKind, bool); 17] = [
    ("message", ResultKind::String, false),
    ("reason", ResultKind::String, false),
    ("state", ResultKind::String, true),
    ("progress", ResultKind::Progress, false),
    ("startedAt", ResultKind::Time, true),
    ("queuedAt", ResultKind::Time, false),
    ("instance", ResultKind::String, true),
    ("outcome", ResultKind::String, true),
    ("outcomeMessage", ResultKind::String, false),
    ("size", ResultKind::Amount, true),
    ("work", ResultKind::String, false),
    ("initiator", ResultKind::String, false),
    ("cancel", ResultKind::Strings, false),
    ("expectedDuration", ResultKind::Duration, false),
    ("stalledAfter", ResultKind::Duration, false),
    ("continueWhile", ResultKind::Bool, true),
    ("expression", ResultKind::Bool, true),
];

/// Returns the expressions of a rule in the fields of [`EXPRESSIONS`]. Each entry has the name of
/// the field, the source, and the result that the expression must have. In a rule with `forEach`,
/// these expressions can read `item`. Fixed durations such as `30m` are left out, because they are
/// not expressions.
pub(super) fn expressions(
    rule: &Rule,
) -> impl Iterator<Item = (&'static str, String, ResultKind)> + use<> {
    let mut rule = json!(rule);
    EXPRESSIONS.into_iter().filter_map(move |(field, kind, _)| {
        let Value::String(source) = rule[field].take() else {
            return None;
        };
        let is_fixed = kind == ResultKind::Duration && is_duration(&source);
        (!is_fixed).then_some((field, source, kind))
    })
}

/// Returns the timing hash of a rule of the rule set `spec`.
pub(super) fn timing_hash(rule: &Rule, spec: &OperationRuleSetSpec) -> Text {
    let mut rule = json!(rule);
    let has_no_effect = EXPRESSIONS.iter().filter(|(_, _, has_effect)| !has_effect);
    for field in has_no_effect.map(|(field, ..)| *field).chain(["debounce"]) {
        rule[field].take();
    }
    let hashed = json!([spec.target, spec.variables, rule]).to_string();
    labels::hash(hashed.as_bytes(), 8).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_documentation_lists_the_fields_that_do_not_affect_durations() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rules.md");
        let page = std::fs::read_to_string(page).expect("the page can be read");
        let (_, list) = page
            .split_once("These fields are exceptions: ")
            .expect("the page has the list");
        let list = list.split(" |").next().unwrap_or_default();
        let documented: BTreeSet<&str> = list.split(", ").map(|it| it.trim_matches('`')).collect();
        let without_effect = EXPRESSIONS.iter().filter(|(_, _, has_effect)| !has_effect);
        let without_effect = without_effect.map(|(field, ..)| *field);
        let without_effect: BTreeSet<&str> = without_effect.chain(["debounce"]).collect();
        assert_eq!(documented, without_effect);
    }

    #[test]
    fn only_fields_that_affect_durations_change_the_hash() {
        let hash = |rule: &str| {
            let text = format!(
                "component: a\ntarget: {{group: '', version: v1, resource: pods}}\n\
                 rules: [{{operation: A, {rule}}}]"
            );
            let spec: OperationRuleSetSpec =
                serde_saphyr::from_str(&text).expect("the YAML is valid");
            timing_hash(&spec.rules[0], &spec)
        };
        let first = hash("expression: \"object.a == 1\"");
        let with_texts = "expression: \"object.a == 1\", message: \"'m'\", expectedDuration: 5m";
        assert_eq!(first, hash(with_texts));
        assert_ne!(first, hash("expression: \"object.a == 2\""));
        assert_ne!(first, hash("expression: \"object.a == 1\", size: object.b"));
    }
}
