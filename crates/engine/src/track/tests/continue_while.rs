//! Tests of `continueWhile`, which keeps an operation in flight but does not start it.

use super::language::world_of;
use super::*;
use serde_json::json;

/// A scale starts with the change of a number, and continues until all pods are ready. A later
/// crash of a pod looks like the end of a scale.
const SCALING: &str = "rules:\n- operation: Scaling\n  expression: object.changed\n  \
    continueWhile: object.ready < object.wanted\n  \
    message: \"'%d of %d'.format([object.ready, object.wanted])\"\n  \
    instance: object.run\n  \
    outcome: \"object.ready == object.wanted ? 'Succeeded' : ''\"\n";

impl World {
    fn scale(&mut self, changed: bool, ready: u64) {
        self.is(json!({"changed": changed, "ready": ready, "wanted": 3}));
    }
}

#[test]
fn an_operation_stays_active_while_continue_while_holds() {
    let mut world = world_of(SCALING);
    world.scale(true, 1);
    assert_eq!(world.one().status.state, State::Progressing);
    world.scale(false, 2);
    let operation = world.one();
    assert_eq!(operation.status.state, State::Progressing);
    assert_eq!(operation.status.message, "2 of 3");
    world.scale(false, 3);
    assert!(world.shown().is_empty(), "it is over");
    let seen = world.seen();
    assert!(
        seen.iter().any(|change| change.contains("Succeeded")),
        "{seen:?}"
    );
}

#[test]
fn continue_while_alone_starts_no_operation() {
    let mut world = world_of(SCALING);
    world.scale(false, 2);
    assert!(world.shown().is_empty());
    world.scale(true, 2);
    world.scale(false, 3);
    world.scale(false, 2);
    assert!(world.shown().is_empty(), "a pod that crashes is no scale");
}

#[test]
fn continue_while_reactivates_a_settling_operation() {
    let mut world = world_of(SCALING);
    world.scale(true, 1);
    // Neither true nor ended: the counters are missing for a moment.
    world.is(json!({"changed": false}));
    assert_eq!(world.one().status.state, State::Settling);
    world.scale(false, 2);
    assert_eq!(world.one().status.state, State::Progressing);
}

#[test]
fn continue_while_continues_an_operation_that_waits_for_appear_after() {
    let mut world = world_of(&format!("{SCALING}  appearAfter: 10s\n"));
    world.scale(true, 1);
    world.scale(false, 2);
    assert!(world.shown().is_empty());
    world.after(Duration::from_secs(10));
    assert_eq!(world.one().status.message, "2 of 3");
}

#[test]
fn a_new_run_may_begin_while_only_continue_while_holds() {
    let mut world = world_of(SCALING);
    world.is(json!({"changed": true, "ready": 1, "wanted": 3, "run": "a"}));
    world.is(json!({"changed": false, "ready": 1, "wanted": 3, "run": "b"}));
    assert_eq!(world.one().status.instance.as_deref(), Some("b"));
    let seen = world.seen();
    assert!(
        seen.iter().any(|change| change.contains("Ended")),
        "{seen:?}"
    );
}
