//! Tests of `continueWhile`, which keeps an operation in flight but does not start it.

use super::rule_fields::fixture_with_rule_set;
use super::*;
use serde_json::json;

/// A rule for scaling. The operation starts when the wanted number of pods changes, and continues
/// until all pods are ready. A pod that crashes later must not start the operation, although not
/// all pods are ready then.
const SCALING: &str = "rules:\n- operation: Scaling\n  expression: object.changed\n  \
    continueWhile: object.ready < object.wanted\n  \
    message: \"'%d of %d'.format([object.ready, object.wanted])\"\n  \
    instance: object.run\n  \
    outcome: \"object.ready == object.wanted ? 'Succeeded' : ''\"\n";

impl TrackerFixture {
    fn apply_scale(&mut self, changed: bool, ready: u64) {
        self.apply_object(json!({"changed": changed, "ready": ready, "wanted": 3}));
    }
}

#[test]
fn an_operation_stays_active_while_continue_while_is_true() {
    let mut fixture = fixture_with_rule_set(SCALING);
    fixture.apply_scale(true, 1);
    assert_eq!(fixture.only_operation().status.state, State::Progressing);
    fixture.apply_scale(false, 2);
    let operation = fixture.only_operation();
    assert_eq!(operation.status.state, State::Progressing);
    assert_eq!(operation.status.message, "2 of 3");
    fixture.apply_scale(false, 3);
    assert!(
        fixture.shown().is_empty(),
        "the operation must complete when all pods are ready"
    );
    let seen = fixture.take_changes();
    assert!(
        seen.iter().any(|change| change.contains("Succeeded")),
        "{seen:?}"
    );
}

#[test]
fn continue_while_alone_starts_no_operation() {
    let mut fixture = fixture_with_rule_set(SCALING);
    fixture.apply_scale(false, 2);
    assert!(fixture.shown().is_empty());
    fixture.apply_scale(true, 2);
    fixture.apply_scale(false, 3);
    fixture.apply_scale(false, 2);
    assert!(
        fixture.shown().is_empty(),
        "a crash of a pod must not start the operation"
    );
}

#[test]
fn continue_while_cancels_the_debounce_period() {
    let mut fixture = fixture_with_rule_set(SCALING);
    fixture.apply_scale(true, 1);
    // The object has neither `ready` nor `wanted`. So `continueWhile` is false, and `outcome`
    // yields no value.
    fixture.apply_object(json!({"changed": false}));
    assert_eq!(fixture.only_operation().status.state, State::Settling);
    fixture.apply_scale(false, 2);
    assert_eq!(fixture.only_operation().status.state, State::Progressing);
}

#[test]
fn continue_while_continues_an_operation_that_waits_for_appear_after() {
    let mut fixture = fixture_with_rule_set(&format!("{SCALING}  appearAfter: 10s\n"));
    fixture.apply_scale(true, 1);
    fixture.apply_scale(false, 2);
    assert!(fixture.shown().is_empty());
    fixture.advance(Duration::from_secs(10));
    assert_eq!(fixture.only_operation().status.message, "2 of 3");
}

#[test]
fn a_new_run_starts_if_the_instance_changes_while_only_continue_while_is_true() {
    let mut fixture = fixture_with_rule_set(SCALING);
    fixture.apply_object(json!({"changed": true, "ready": 1, "wanted": 3, "run": "a"}));
    fixture.apply_object(json!({"changed": false, "ready": 1, "wanted": 3, "run": "b"}));
    assert_eq!(
        fixture.only_operation().status.instance.as_deref(),
        Some("b")
    );
    let seen = fixture.take_changes();
    assert!(
        seen.iter().any(|change| change.contains("Ended")),
        "{seen:?}"
    );
}
