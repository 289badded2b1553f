//! The fields of a rule: which fields have expressions, which results the expressions must have, and
//! which fields affect the learned duration of the operation. [`expressions`] names each field of
//! [`Rule`], so that the compiler asks for a decision when a field is added.
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

use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use ifo_api::{Text, duration, labels};
use ifo_cel::ResultKind::{self, Amount, Bool, Duration, Progress, String, Strings, Time};

/// An expression of a rule: the name of its field, its source, and the result that it must have.
pub(super) type FieldExpression<'r> = (&'static str, &'r str, ResultKind);

/// Returns the expressions of the rule, except `forEach` and `itemKey`. In a rule with `forEach`,
/// the returned expressions can read `item`. A fixed duration such as `30m` is left out, because it
/// is not an expression. `expression` comes last.
pub(super) fn expressions(rule: &Rule) -> impl Iterator<Item = FieldExpression<'_>> {
    let Rule {
        expression,
        message,
        reason,
        state,
        progress,
        started_at,
        queued_at,
        instance,
        continue_while,
        outcome,
        outcome_message,
        expected_duration,
        stalled_after,
        size,
        work,
        initiator,
        cancel,
        operation: _,
        for_each: _,
        item_key: _,
        deletes_subject: _,
        supersedes: _,
        debounce: _,
        appear_after: _,
        state_after: _,
    } = rule;
    let optional = [
        ("message", message, String),
        ("reason", reason, String),
        ("state", state, String),
        ("progress", progress, Progress),
        ("startedAt", started_at, Time),
        ("queuedAt", queued_at, Time),
        ("instance", instance, String),
        ("outcome", outcome, String),
        ("outcomeMessage", outcome_message, String),
        ("size", size, Amount),
        ("work", work, String),
        ("initiator", initiator, String),
        ("cancel", cancel, Strings),
        ("expectedDuration", expected_duration, Duration),
        ("stalledAfter", stalled_after, Duration),
        ("continueWhile", continue_while, Bool),
    ];
    let optional = optional.into_iter();
    optional
        .filter_map(|(field, source, kind)| Some((field, source.as_deref()?, kind)))
        .filter(|(_, source, kind)| *kind != Duration || duration::parse(source).is_none())
        .chain([("expression", &**expression, Bool)])
}

/// Returns the timing hash of a rule of the rule set `spec`.
pub(super) fn timing_hash(rule: &Rule, spec: &OperationRuleSetSpec) -> Text {
    // All other fields can affect durations, such as the fields that decide about the start and the
    // end.
    let timing_fields = Rule {
        message: None,
        outcome_message: None,
        reason: None,
        progress: None,
        queued_at: None,
        work: None,
        initiator: None,
        cancel: None,
        debounce: None,
        expected_duration: None,
        stalled_after: None,
        ..rule.clone()
    };
    let hashed = (&spec.target, &spec.variables, timing_fields);
    let json = serde_json::to_vec(&hashed).expect("rules can always be encoded as JSON");
    labels::hash(&json, 8).into()
}

#[cfg(test)]
mod tests {
    use super::*;

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
