//! Tests of `stateAfter`: the time for which a state must last before it is shown.

use super::language::world_of;
use super::*;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// The common part of all rules in these tests. `operation` comes first.
const MOVING: &str = "expression: object.moving, state: object.how, message: object.text, \
                      instance: object.run";

/// One rule whose states are shown after 10 seconds, with these additional fields.
fn rule(fields: &str) -> String {
    format!("rules:\n- {{operation: Moving, {MOVING}, {fields}}}")
}

fn world_after_ten_seconds() -> World {
    world_of(&rule("stateAfter: 10s"))
}

impl World {
    /// The rule yields `state`.
    fn yields(&mut self, state: &str) {
        self.is(json!({"moving": true, "how": state}));
    }

    /// The operation is not detected.
    fn rests(&mut self) {
        self.is(json!({"moving": false, "how": "Progressing"}));
    }

    /// The state of the only shown operation.
    fn state(&self) -> State {
        self.one().status.state
    }

    /// The first list, with an object that last changed this long ago.
    pub(super) fn lists_after(&mut self, age: Duration, mut object: Value) {
        let changed = self.now.wall - age;
        object["metadata"] = json!({ "managedFields": [{ "time": changed.to_string() }] });
        self.feed(FeedEvent::Reset);
        self.is(object);
        self.feed(FeedEvent::Synced { missing: None });
    }
}

fn blocked() -> Value {
    json!({"moving": true, "how": "Blocked"})
}

#[test]
fn a_state_is_shown_once_it_has_lasted_and_progressing_at_once() {
    let mut world = world_after_ten_seconds();
    let began = world.now.wall;
    world.yields("Blocked");
    world.after(9 * SECOND);
    assert_eq!(world.seen(), ["+Moving Progressing Moving"]);
    world.after(SECOND);
    assert_eq!(world.seen(), ["~Moving Blocked Moving"]);
    let shown = world.one();
    assert_eq!(shown.status.last_detected.0, began + 10 * SECOND);
    assert_eq!(shown.metadata.creation_timestamp.expect("a start").0, began);
    world.yields("Failing");
    world.after(9 * SECOND);
    assert!(world.seen().is_empty(), "Failing waits, too");
    world.after(SECOND);
    assert_eq!(world.seen(), ["~Moving Failing Moving"]);
    world.yields("Blocked");
    world.after(10 * SECOND);
    assert_eq!(world.seen(), ["~Moving Blocked Moving"]);
    world.yields("Progressing");
    assert_eq!(world.seen(), ["~Moving Progressing Moving"]);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn an_interruption_restarts_the_wait_of_a_state() {
    for other in ["Progressing", "Failing"] {
        let mut world = world_after_ten_seconds();
        for state in ["Blocked", other, "Blocked"] {
            world.yields(state);
            world.after(6 * SECOND);
        }
        assert_eq!(world.seen(), ["+Moving Progressing Moving"], "{other}");
        world.after(4 * SECOND);
        assert_eq!(world.seen(), ["~Moving Blocked Moving"], "{other}");
        assert_eq!(world.tracker.next_deadline(), None, "{other}");
    }
}

#[test]
fn other_details_are_shown_while_a_state_waits() {
    let mut world = world_after_ten_seconds();
    world.yields("Progressing");
    world.is(json!({"moving": true, "how": "Blocked", "text": "no room"}));
    let shown = world.one();
    assert_eq!(shown.status.state, State::Progressing);
    assert_eq!(shown.status.message, "no room");
    // Further changes do not restart the wait, visible or not.
    world.after(5 * SECOND);
    world.is(json!({"moving": true, "how": "Blocked", "text": "still no room"}));
    world.after(4 * SECOND);
    world.is(json!({"moving": true, "how": "Blocked", "text": "still no room", "more": 1}));
    world.seen();
    world.after(SECOND);
    assert_eq!(world.seen(), ["~Moving Blocked Moving"]);
}

#[test]
fn a_change_of_only_the_waiting_state_is_not_visible() {
    let mut world = world_after_ten_seconds();
    world.yields("Progressing");
    world.seen();
    for state in ["Blocked", "Failing", "Progressing"] {
        world.yields(state);
        world.after(SECOND);
    }
    assert!(world.seen().is_empty());
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn the_wait_of_a_state_does_not_elapse_in_a_gap() {
    let mut world = world_after_ten_seconds();
    world.yields("Blocked");
    world.feed(FeedEvent::Lost);
    world.after(20 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.feed(FeedEvent::Reset);
    world.yields("Blocked");
    assert_eq!(world.state(), State::Progressing);
    world.feed(FeedEvent::Synced { missing: None });
    assert_eq!(world.state(), State::Blocked);
    // The list after the gap shows that the state has changed.
    world.yields("Failing");
    world.feed(FeedEvent::Lost);
    world.after(20 * SECOND);
    world.feed(FeedEvent::Reset);
    world.yields("Blocked");
    world.feed(FeedEvent::Synced { missing: None });
    assert_eq!(world.state(), State::Blocked);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn progressing_and_states_without_a_wait_are_shown_in_a_gap_too() {
    let mut world = world_after_ten_seconds();
    world.yields("Blocked");
    world.after(10 * SECOND);
    world.feed(FeedEvent::Lost);
    world.yields("Progressing");
    assert_eq!(world.state(), State::Progressing);
    let mut world = world_of(&rule("debounce: 30s"));
    world.feed(FeedEvent::Lost);
    world.yields("Blocked");
    assert_eq!(world.state(), State::Blocked);
}

#[test]
fn a_state_that_was_shown_before_settling_is_shown_after_it() {
    let mut world = world_after_ten_seconds();
    world.yields("Blocked");
    world.after(10 * SECOND);
    world.rests();
    world.after(5 * SECOND);
    world.seen();
    world.yields("Blocked");
    assert_eq!(world.seen(), ["~Moving Blocked Moving"]);
}

#[test]
fn a_state_that_waits_when_the_operation_settles_waits_from_zero_afterwards() {
    let mut world = world_after_ten_seconds();
    world.yields("Blocked");
    world.after(9 * SECOND);
    world.rests();
    world.after(5 * SECOND);
    assert_eq!(world.state(), State::Settling, "its time is not up");
    world.yields("Blocked");
    world.after(9 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.after(SECOND);
    assert_eq!(world.state(), State::Blocked);
    world.yields("Failing");
    world.rests();
    world.after(DEBOUNCE);
    assert!(world.shown().is_empty());
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn an_operation_that_ends_while_its_state_waits_has_the_state_of_its_end() {
    let mut world = world_of(&rule(
        "stateAfter: 10s, outcome: \"object.how == 'Progressing' ? 'Failed' : ''\"",
    ));
    world.yields("Blocked");
    world.rests();
    assert_eq!(
        world.seen()[..2],
        ["+Moving Progressing Moving", "~Moving Failed Failed"]
    );
    assert_eq!(world.tracker.next_deadline(), None);
    world.yields("Blocked");
    world.feed(FeedEvent::Deleted {
        subject: subject("vm"),
        read: Instant::now(),
    });
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn a_new_run_starts_its_own_state_wait() {
    let mut world = world_after_ten_seconds();
    let run = |run: &str| json!({"moving": true, "how": "Blocked", "run": run});
    world.is(run("1"));
    world.after(10 * SECOND);
    assert_eq!(world.state(), State::Blocked);
    world.is(run("2"));
    assert_eq!(world.state(), State::Progressing);
    world.after(10 * SECOND);
    assert_eq!(world.state(), State::Blocked);
    world.after(SECOND);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn a_state_lasts_while_its_operation_waits_to_appear() {
    let mut world = world_of(&rule("appearAfter: 4s, stateAfter: 10s"));
    world.yields("Blocked");
    world.after(4 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.after(6 * SECOND);
    assert_eq!(world.state(), State::Blocked);
    // The operation appears after its state has lasted longer than necessary.
    let mut world = world_of(&rule("appearAfter: 10s, stateAfter: 4s"));
    world.yields("Progressing");
    world.after(6 * SECOND);
    world.yields("Blocked");
    world.after(4 * SECOND);
    assert_eq!(world.seen(), ["+Moving Blocked Moving"]);
    // An interruption counts.
    let mut world = world_of(&rule("appearAfter: 10s, stateAfter: 5s"));
    for state in ["Blocked", "Progressing", "Blocked"] {
        world.yields(state);
        world.after(3 * SECOND);
    }
    world.after(SECOND);
    assert_eq!(world.seen(), ["+Moving Progressing Moving"]);
    world.after(SECOND);
    assert_eq!(world.seen(), ["~Moving Blocked Moving"]);
}

#[test]
fn a_state_lasts_while_its_operation_is_superseded() {
    let mut world = world_of(&format!(
        "rules:\n- {{operation: Moving, {MOVING}, stateAfter: 10s}}\n\
         - {{operation: Stopping, expression: object.stopping, supersedes: [Moving], debounce: 0s}}"
    ));
    let object = |stopping: bool| json!({"moving": true, "how": "Blocked", "stopping": stopping});
    world.is(object(false));
    world.after(6 * SECOND);
    world.is(object(true));
    world.after(6 * SECOND);
    world.seen();
    world.is(object(false));
    world.after(SECOND);
    let seen = world.seen();
    assert_eq!(
        seen.last().map(String::as_str),
        Some("+Moving Blocked Moving")
    );
}

#[test]
fn a_takeover_by_another_rule_set_keeps_the_state_and_uses_its_wait() {
    let mut world = world();
    let spec = |wait: &str| format!("rules:\n- {{operation: Moving, expression: 'true', {wait}}}");
    world.specs(&[
        ("a", &spec("stateAfter: 10s")),
        ("b", &spec("stateAfter: 20s")),
    ]);
    let blocked = |set: usize, world: &World| Finding {
        rule_set: world.book.rule_sets[set].clone(),
        operation: "Moving".into(),
        item: None,
        says: Some(RuleValues {
            state: Some(State::Blocked),
            ..RuleValues::default()
        }),
    };
    let both = vec![blocked(0, &world), blocked(1, &world)];
    world.finds(subject("vm"), both);
    world.after(5 * SECOND);
    let second = vec![blocked(1, &world)];
    world.finds(subject("vm"), second);
    world.after(14 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.after(SECOND);
    assert_eq!(world.state(), State::Blocked);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn the_wait_of_an_edited_rule_counts_from_when_the_state_was_first_yielded() {
    for (edited, lasts) in [
        ("stateAfter: 4s", 0),
        ("stateAfter: 15s", 9),
        ("debounce: 30s", 0),
    ] {
        let mut world = world_after_ten_seconds();
        world.yields("Blocked");
        world.after(6 * SECOND);
        world.spec(&rule(edited));
        world.feed(FeedEvent::Reset);
        world.yields("Blocked");
        world.feed(FeedEvent::Synced { missing: None });
        if lasts > 0 {
            world.after((lasts - 1) * SECOND);
            assert_eq!(world.state(), State::Progressing, "{edited}");
            world.after(SECOND);
        }
        assert_eq!(world.state(), State::Blocked, "{edited}");
        assert_eq!(world.tracker.next_deadline(), None, "{edited}");
    }
}

#[test]
fn removing_the_rule_drops_its_state_wait() {
    let mut world = world_after_ten_seconds();
    world.yields("Blocked");
    world.spec("rules:\n- {operation: Other, expression: 'false'}");
    assert!(world.shown().is_empty());
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn a_state_that_is_shown_stays_when_its_rule_is_given_a_wait() {
    let mut world = world_of(&rule("debounce: 30s"));
    world.yields("Blocked");
    world.spec(&rule("stateAfter: 10s"));
    world.feed(FeedEvent::Reset);
    world.yields("Blocked");
    world.feed(FeedEvent::Synced { missing: None });
    assert_eq!(world.state(), State::Blocked);
}

/// A world whose server has just started.
fn started(fields: &str) -> World {
    let mut world = fresh(TrackerSettings {
        debounce: DEBOUNCE,
        retain: None,
        cluster_namespace: "ifo-system".into(),
    });
    world.spec(&rule(fields));
    world
}

#[test]
fn managed_fields_of_a_first_listed_object_count_towards_the_state_wait() {
    let mut world = started("stateAfter: 10s");
    world.lists_after(Duration::from_hours(1), blocked());
    assert_eq!(world.seen(), ["+Moving Blocked Moving"]);
    // Times in managedFields are rounded down to seconds, so the change can be one second younger.
    let mut world = started("stateAfter: 10s");
    world.lists_after(4 * SECOND, blocked());
    world.after(6 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.after(SECOND);
    assert_eq!(world.state(), State::Blocked);
    // A clock that is ahead of ours does not prolong the wait.
    let mut world = started("stateAfter: 10s");
    let later = world.now.wall + Duration::from_hours(1);
    let mut object = blocked();
    object["metadata"] = json!({ "managedFields": [{ "time": later.to_string() }] });
    world.feed(FeedEvent::Reset);
    world.is(object);
    world.feed(FeedEvent::Synced { missing: None });
    world.after(10 * SECOND);
    assert_eq!(world.state(), State::Blocked);
}

#[test]
fn managed_fields_do_not_count_for_a_time_dependent_state() {
    for timed in [
        "expression: object.moving && now > timestamp('2026-01-01T00:00:00Z'), state: object.how",
        "expression: object.moving, state: \"now > timestamp('2026-01-01T00:00:00Z') ? object.how : ''\"",
    ] {
        let mut world = started("stateAfter: 10s");
        world.spec(&format!(
            "rules:\n- {{operation: Moving, stateAfter: 10s, {timed}}}"
        ));
        world.lists_after(Duration::from_hours(1), blocked());
        assert_eq!(world.state(), State::Progressing, "{timed}");
        world.after(10 * SECOND);
        assert_eq!(world.state(), State::Blocked, "{timed}");
    }
}

#[test]
fn a_state_wait_continues_after_a_restart() {
    let settings = || TrackerSettings {
        debounce: DEBOUNCE,
        retain: None,
        cluster_namespace: "ifo-system".into(),
    };
    let restarted = |unchanged: Duration, how: &str| {
        let mut before = world_after_ten_seconds();
        before.yields("Blocked");
        before.after(6 * SECOND);
        let mut world = before.restarted_with(settings(), SECOND, before.shown());
        world.spec(&rule("stateAfter: 10s"));
        assert_eq!(world.state(), State::Progressing, "as it was shown");
        world.lists_after(unchanged, json!({"moving": true, "how": how}));
        world
    };
    assert_eq!(
        restarted(Duration::from_hours(1), "Blocked").state(),
        State::Blocked
    );
    let mut world = restarted(7 * SECOND, "Blocked");
    world.after(3 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.after(SECOND);
    assert_eq!(world.state(), State::Blocked);
    assert_eq!(
        restarted(Duration::from_hours(1), "Progressing").state(),
        State::Progressing
    );
}

#[test]
fn a_state_that_was_shown_before_a_restart_is_shown_after_it() {
    let mut before = world_after_ten_seconds();
    before.yields("Blocked");
    before.after(10 * SECOND);
    let settings = before.tracker.ledger.settings.clone();
    let mut world = before.restarted_with(settings, SECOND, before.shown());
    world.spec(&rule("stateAfter: 10s"));
    assert_eq!(world.state(), State::Blocked);
    let version = world.version;
    world.lists_after(SECOND, blocked());
    assert_eq!(world.version, version, "nothing changes");
    world.yields("Failing");
    assert_eq!(world.state(), State::Blocked);
    world.after(10 * SECOND);
    assert_eq!(world.state(), State::Failing);
}

#[derive(Clone, Debug)]
enum Step {
    /// The object changes: the rule yields this state, or does not detect the operation.
    Yields(Option<State>),
    Waits(u8),
    Lost,
    Relists,
    Restarts,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let yielded = prop_oneof![
        Just(None),
        Just(Some(State::Progressing)),
        Just(Some(State::Blocked)),
        Just(Some(State::Failing)),
    ];
    let step = prop_oneof![
        4 => yielded.prop_map(Step::Yields),
        4 => (0..15_u8).prop_map(Step::Waits),
        1 => Just(Step::Lost),
        1 => Just(Step::Relists),
        1 => Just(Step::Restarts),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// For any order of events: a shown state has lasted for its time without interruption,
    /// Progressing is shown at once, and in the end the state that the rule yields is shown.
    #[test]
    fn a_shown_state_has_lasted_for_its_wait_in_any_order_of_events(steps in steps()) {
        let object = |state: Option<State>| match state {
            Some(state) => json!({"moving": true, "how": state.name()}),
            None => json!({"moving": false, "how": "Progressing"}),
        };
        let shown = |world: &World| world.shown().first().map(|it| it.status.state);
        let mut world = world_after_ten_seconds();
        let mut gap = false;
        // The state that the rule yields, its start, and the last shown state.
        let (mut yields, mut since) = (None, world.now.wall);
        let mut before = None;
        for step in steps {
            match step {
                Step::Yields(state) => {
                    if state != yields {
                        (yields, since) = (state, world.now.wall);
                    }
                    world.is(object(state));
                }
                Step::Waits(seconds) => world.after(u32::from(seconds) * SECOND),
                Step::Lost => {
                    world.feed(FeedEvent::Lost);
                    gap = true;
                }
                Step::Relists => {
                    world.feed(FeedEvent::Reset);
                    world.is(object(yields));
                    world.feed(FeedEvent::Synced { missing: None });
                    gap = false;
                }
                Step::Restarts => {
                    let settings = world.tracker.ledger.settings.clone();
                    world = world.restarted_with(settings, SECOND, world.shown());
                    world.spec(&rule("stateAfter: 10s"));
                    let unchanged = world.now.wall.duration_since(since).unsigned_abs();
                    world.lists_after(unchanged, object(yields));
                    gap = false;
                }
            }
            match shown(&world) {
                // During a gap, a settling operation only shows the gap.
                Some(State::Settling) => prop_assert!(gap || yields.is_none()),
                Some(state) => {
                    if state != State::Progressing && before != Some(state) {
                        prop_assert_eq!(yields, Some(state));
                        prop_assert!(world.now.wall >= since + 10 * SECOND);
                        prop_assert!(!gap);
                    }
                    if yields == Some(State::Progressing) {
                        prop_assert_eq!(state, State::Progressing);
                    }
                    before = Some(state);
                }
                None => before = None,
            }
        }
        world.feed(FeedEvent::Synced { missing: None });
        world.after(DEBOUNCE);
        prop_assert_eq!(shown(&world), yields);
        prop_assert_eq!(world.tracker.next_deadline(), None, "no timer is left over");
    }
}
