//! The timing hash of a rule: a hash of the fields that affect the learned duration of the
//! operation. These fields decide:
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

use ifo_api::Text;
use ifo_api::labels;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule};

/// Returns the hash of each rule, in the order of the rules.
pub(super) fn of_rules(spec: &OperationRuleSetSpec) -> Vec<Text> {
    let hash = |rule: &Rule| {
        let hashed = (&spec.target, &spec.variables, timing_fields(rule));
        let json = serde_json::to_vec(&hashed).expect("rules can always be encoded as JSON");
        labels::hash(&json, 8).into()
    };
    spec.rules.iter().map(hash).collect()
}

/// Returns a copy of `rule` without the fields that do not affect the durations of runs. A field
/// that is not named here affects them.
fn timing_fields(rule: &Rule) -> Rule {
    Rule {
        message: None,
        outcome_message: None,
        reason: None,
        progress: None,
        work: None,
        debounce: None,
        expected_duration: None,
        stalled_after: None,
        ..rule.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_affect_durations_change_the_hash() {
        let hashes = |rule: &str| {
            let text = format!(
                "component: a\ntarget: {{group: '', version: v1, resource: pods}}\n\
                 rules: [{{operation: A, {rule}}}]"
            );
            let spec = serde_saphyr::from_str(&text).expect("the YAML is valid");
            of_rules(&spec)
        };
        let first = hashes("expression: \"object.a == 1\"");
        let with_texts = "expression: \"object.a == 1\", message: \"'m'\", expectedDuration: 5m";
        assert_eq!(first, hashes(with_texts));
        assert_ne!(first, hashes("expression: \"object.a == 2\""));
        assert_ne!(
            first,
            hashes("expression: \"object.a == 1\", size: object.b")
        );
    }
}
