//! Tests of `stateAfter`: the time for which a rule must yield `Blocked` or `Failing` before the
//! operation shows this state.

use super::rule_fields::world_with_rule_set;
use super::*;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// The fields that all rules in these tests have.
const MOVING: &str = "expression: object.moving, state: object.how, message: object.text, \
                      instance: object.run";

/// Returns a rule set with one rule, which has these additional fields.
fn rule(fields: &str) -> String {
    format!("rules:\n- {{operation: Moving, {MOVING}, {fields}}}")
}

fn world_with_state_after_10s() -> World {
    world_with_rule_set(&rule("stateAfter: 10s"))
}

impl World {
    /// Evaluates an object for which the rule yields `state`.
    fn apply_state(&mut self, state: &str) {
        self.apply_object(json!({"moving": true, "how": state}));
    }

    /// Evaluates an object on which the rule does not detect the operation.
    fn apply_undetected(&mut self) {
        self.apply_object(json!({"moving": false, "how": "Progressing"}));
    }

    /// Returns the state of the only operation.
    fn state(&self) -> State {
        self.only_operation().status.state
    }

    /// Completes the first list, which contains `object`. The object last changed `age` ago.
    pub(super) fn list_object_unchanged_for(&mut self, age: Duration, mut object: Value) {
        let changed = self.now.wall - age;
        object["metadata"] = json!({ "managedFields": [{ "time": changed.to_string() }] });
        self.send_event(FeedEvent::Reset);
        self.apply_object(object);
        self.send_event(FeedEvent::Synced { missing: None });
    }
}

fn blocked() -> Value {
    json!({"moving": true, "how": "Blocked"})
}

#[test]
fn blocked_and_failing_are_shown_after_state_after_and_progressing_at_once() {
    let mut world = world_with_state_after_10s();
    let began = world.now.wall;
    world.apply_state("Blocked");
    world.advance(9 * SECOND);
    assert_eq!(world.take_changes(), ["+Moving Progressing Moving"]);
    world.advance(SECOND);
    assert_eq!(world.take_changes(), ["~Moving Blocked Moving"]);
    let shown = world.only_operation();
    assert_eq!(shown.status.last_detected.0, began + 10 * SECOND);
    assert_eq!(
        shown
            .metadata
            .creation_timestamp
            .expect("an operation has a start")
            .0,
        began
    );
    world.apply_state("Failing");
    world.advance(9 * SECOND);
    assert!(
        world.take_changes().is_empty(),
        "`Failing` must also wait for `stateAfter`"
    );
    world.advance(SECOND);
    assert_eq!(world.take_changes(), ["~Moving Failing Moving"]);
    world.apply_state("Blocked");
    world.advance(10 * SECOND);
    assert_eq!(world.take_changes(), ["~Moving Blocked Moving"]);
    world.apply_state("Progressing");
    assert_eq!(world.take_changes(), ["~Moving Progressing Moving"]);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn another_state_restarts_the_waiting_time() {
    for other in ["Progressing", "Failing"] {
        let mut world = world_with_state_after_10s();
        for state in ["Blocked", other, "Blocked"] {
            world.apply_state(state);
            world.advance(6 * SECOND);
        }
        assert_eq!(
            world.take_changes(),
            ["+Moving Progressing Moving"],
            "{other}"
        );
        world.advance(4 * SECOND);
        assert_eq!(world.take_changes(), ["~Moving Blocked Moving"], "{other}");
        assert_eq!(world.tracker.next_deadline(), None, "{other}");
    }
}

#[test]
fn other_values_are_shown_while_a_state_waits() {
    let mut world = world_with_state_after_10s();
    world.apply_state("Progressing");
    world.apply_object(json!({"moving": true, "how": "Blocked", "text": "no room"}));
    let shown = world.only_operation();
    assert_eq!(shown.status.state, State::Progressing);
    assert_eq!(shown.status.message, "no room");
    // Other changes of the object do not restart the waiting time.
    world.advance(5 * SECOND);
    world.apply_object(json!({"moving": true, "how": "Blocked", "text": "still no room"}));
    world.advance(4 * SECOND);
    world.apply_object(
        json!({"moving": true, "how": "Blocked", "text": "still no room", "more": 1}),
    );
    world.take_changes();
    world.advance(SECOND);
    assert_eq!(world.take_changes(), ["~Moving Blocked Moving"]);
}

#[test]
fn a_change_of_only_the_waiting_state_is_not_visible() {
    let mut world = world_with_state_after_10s();
    world.apply_state("Progressing");
    world.take_changes();
    for state in ["Blocked", "Failing", "Progressing"] {
        world.apply_state(state);
        world.advance(SECOND);
    }
    assert!(world.take_changes().is_empty());
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn a_waiting_state_does_not_appear_while_the_watch_is_interrupted() {
    let mut world = world_with_state_after_10s();
    world.apply_state("Blocked");
    world.send_event(FeedEvent::Lost);
    world.advance(20 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.send_event(FeedEvent::Reset);
    world.apply_state("Blocked");
    assert_eq!(world.state(), State::Progressing);
    world.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(world.state(), State::Blocked);
    // The rule yields another state in the list after the interruption.
    world.apply_state("Failing");
    world.send_event(FeedEvent::Lost);
    world.advance(20 * SECOND);
    world.send_event(FeedEvent::Reset);
    world.apply_state("Blocked");
    world.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(world.state(), State::Blocked);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn progressing_and_states_without_state_after_are_shown_while_the_watch_is_interrupted() {
    let mut world = world_with_state_after_10s();
    world.apply_state("Blocked");
    world.advance(10 * SECOND);
    world.send_event(FeedEvent::Lost);
    world.apply_state("Progressing");
    assert_eq!(world.state(), State::Progressing);
    let mut world = world_with_rule_set(&rule("debounce: 30s"));
    world.send_event(FeedEvent::Lost);
    world.apply_state("Blocked");
    assert_eq!(world.state(), State::Blocked);
}

#[test]
fn a_state_that_was_shown_before_the_debounce_period_is_shown_at_once_after_it() {
    let mut world = world_with_state_after_10s();
    world.apply_state("Blocked");
    world.advance(10 * SECOND);
    world.apply_undetected();
    world.advance(5 * SECOND);
    world.take_changes();
    world.apply_state("Blocked");
    assert_eq!(world.take_changes(), ["~Moving Blocked Moving"]);
}

#[test]
fn the_debounce_period_restarts_the_waiting_time_of_a_state() {
    let mut world = world_with_state_after_10s();
    world.apply_state("Blocked");
    world.advance(9 * SECOND);
    world.apply_undetected();
    world.advance(5 * SECOND);
    assert_eq!(
        world.state(),
        State::Settling,
        "the debounce period must not be over"
    );
    world.apply_state("Blocked");
    world.advance(9 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.advance(SECOND);
    assert_eq!(world.state(), State::Blocked);
    world.apply_state("Failing");
    world.apply_undetected();
    world.advance(DEBOUNCE);
    assert!(world.shown().is_empty());
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn an_operation_that_completes_while_a_state_waits_shows_its_final_state() {
    let mut world = world_with_rule_set(&rule(
        "stateAfter: 10s, outcome: \"object.how == 'Progressing' ? 'Failed' : ''\"",
    ));
    world.apply_state("Blocked");
    world.apply_undetected();
    assert_eq!(
        world.take_changes()[..2],
        ["+Moving Progressing Moving", "~Moving Failed Failed"]
    );
    assert_eq!(world.tracker.next_deadline(), None);
    world.apply_state("Blocked");
    world.send_event(FeedEvent::Deleted {
        subject: subject("vm"),
        read: Instant::now(),
    });
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn a_new_run_restarts_the_waiting_time_of_a_state() {
    let mut world = world_with_state_after_10s();
    let run = |run: &str| json!({"moving": true, "how": "Blocked", "run": run});
    world.apply_object(run("1"));
    world.advance(10 * SECOND);
    assert_eq!(world.state(), State::Blocked);
    world.apply_object(run("2"));
    assert_eq!(world.state(), State::Progressing);
    world.advance(10 * SECOND);
    assert_eq!(world.state(), State::Blocked);
    world.advance(SECOND);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn state_after_counts_while_the_operation_waits_for_appear_after() {
    let mut world = world_with_rule_set(&rule("appearAfter: 4s, stateAfter: 10s"));
    world.apply_state("Blocked");
    world.advance(4 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.advance(6 * SECOND);
    assert_eq!(world.state(), State::Blocked);
    // When the operation appears, the waiting time of its state is already over.
    let mut world = world_with_rule_set(&rule("appearAfter: 10s, stateAfter: 4s"));
    world.apply_state("Progressing");
    world.advance(6 * SECOND);
    world.apply_state("Blocked");
    world.advance(4 * SECOND);
    assert_eq!(world.take_changes(), ["+Moving Blocked Moving"]);
    // An interruption by another state restarts the waiting time.
    let mut world = world_with_rule_set(&rule("appearAfter: 10s, stateAfter: 5s"));
    for state in ["Blocked", "Progressing", "Blocked"] {
        world.apply_state(state);
        world.advance(3 * SECOND);
    }
    world.advance(SECOND);
    assert_eq!(world.take_changes(), ["+Moving Progressing Moving"]);
    world.advance(SECOND);
    assert_eq!(world.take_changes(), ["~Moving Blocked Moving"]);
}

#[test]
fn state_after_counts_while_the_operation_is_superseded() {
    let mut world = world_with_rule_set(&format!(
        "rules:\n- {{operation: Moving, {MOVING}, stateAfter: 10s}}\n\
         - {{operation: Stopping, expression: object.stopping, supersedes: [Moving], debounce: 0s}}"
    ));
    let object = |stopping: bool| json!({"moving": true, "how": "Blocked", "stopping": stopping});
    world.apply_object(object(false));
    world.advance(6 * SECOND);
    world.apply_object(object(true));
    world.advance(6 * SECOND);
    world.take_changes();
    world.apply_object(object(false));
    world.advance(SECOND);
    let seen = world.take_changes();
    assert_eq!(
        seen.last().map(String::as_str),
        Some("+Moving Blocked Moving")
    );
}

#[test]
fn if_another_rule_set_takes_over_its_own_state_after_applies_to_the_waiting_state() {
    let mut world = world();
    let spec = |wait: &str| format!("rules:\n- {{operation: Moving, expression: 'true', {wait}}}");
    world.set_rule_sets(&[
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
    world.evaluate_with(subject("vm"), both);
    world.advance(5 * SECOND);
    let second = vec![blocked(1, &world)];
    world.evaluate_with(subject("vm"), second);
    world.advance(14 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.advance(SECOND);
    assert_eq!(world.state(), State::Blocked);
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn an_edited_state_after_counts_from_the_time_at_which_the_state_was_first_yielded() {
    for (edited, lasts) in [
        ("stateAfter: 4s", 0),
        ("stateAfter: 15s", 9),
        ("debounce: 30s", 0),
    ] {
        let mut world = world_with_state_after_10s();
        world.apply_state("Blocked");
        world.advance(6 * SECOND);
        world.set_rule_set(&rule(edited));
        world.send_event(FeedEvent::Reset);
        world.apply_state("Blocked");
        world.send_event(FeedEvent::Synced { missing: None });
        if lasts > 0 {
            world.advance((lasts - 1) * SECOND);
            assert_eq!(world.state(), State::Progressing, "{edited}");
            world.advance(SECOND);
        }
        assert_eq!(world.state(), State::Blocked, "{edited}");
        assert_eq!(world.tracker.next_deadline(), None, "{edited}");
    }
}

#[test]
fn a_removed_rule_leaves_no_timer() {
    let mut world = world_with_state_after_10s();
    world.apply_state("Blocked");
    world.set_rule_set("rules:\n- {operation: Other, expression: 'false'}");
    assert!(world.shown().is_empty());
    assert_eq!(world.tracker.next_deadline(), None);
}

#[test]
fn a_shown_state_stays_when_state_after_is_added_to_its_rule() {
    let mut world = world_with_rule_set(&rule("debounce: 30s"));
    world.apply_state("Blocked");
    world.set_rule_set(&rule("stateAfter: 10s"));
    world.send_event(FeedEvent::Reset);
    world.apply_state("Blocked");
    world.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(world.state(), State::Blocked);
}

/// Creates a world whose server has just started and has not listed objects yet.
fn world_before_first_list(fields: &str) -> World {
    let mut world = world_without_rules(TrackerSettings {
        debounce: DEBOUNCE,
        retain: None,
        records: 0,
        cluster_namespace: "ifo-system".into(),
    });
    world.set_rule_set(&rule(fields));
    world
}

#[test]
fn state_after_counts_from_the_last_change_of_an_object_in_the_first_list() {
    let mut world = world_before_first_list("stateAfter: 10s");
    world.list_object_unchanged_for(Duration::from_hours(1), blocked());
    assert_eq!(world.take_changes(), ["+Moving Blocked Moving"]);
    // Times in `managedFields` are rounded down to seconds, so the change can be up to one second
    // later.
    let mut world = world_before_first_list("stateAfter: 10s");
    world.list_object_unchanged_for(4 * SECOND, blocked());
    world.advance(6 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.advance(SECOND);
    assert_eq!(world.state(), State::Blocked);
    // A time in the future does not prolong the waiting time.
    let mut world = world_before_first_list("stateAfter: 10s");
    let later = world.now.wall + Duration::from_hours(1);
    let mut object = blocked();
    object["metadata"] = json!({ "managedFields": [{ "time": later.to_string() }] });
    world.send_event(FeedEvent::Reset);
    world.apply_object(object);
    world.send_event(FeedEvent::Synced { missing: None });
    world.advance(10 * SECOND);
    assert_eq!(world.state(), State::Blocked);
}

#[test]
fn the_last_change_does_not_count_for_a_rule_that_reads_now() {
    for timed in [
        "expression: object.moving && now > timestamp('2026-01-01T00:00:00Z'), state: object.how",
        "expression: object.moving, state: \"now > timestamp('2026-01-01T00:00:00Z') ? object.how : ''\"",
    ] {
        let mut world = world_before_first_list("stateAfter: 10s");
        world.set_rule_set(&format!(
            "rules:\n- {{operation: Moving, stateAfter: 10s, {timed}}}"
        ));
        world.list_object_unchanged_for(Duration::from_hours(1), blocked());
        assert_eq!(world.state(), State::Progressing, "{timed}");
        world.advance(10 * SECOND);
        assert_eq!(world.state(), State::Blocked, "{timed}");
    }
}

#[test]
fn the_waiting_time_of_a_state_continues_after_a_restart() {
    let settings = || TrackerSettings {
        debounce: DEBOUNCE,
        retain: None,
        records: 0,
        cluster_namespace: "ifo-system".into(),
    };
    let restarted = |unchanged: Duration, how: &str| {
        let mut before = world_with_state_after_10s();
        before.apply_state("Blocked");
        before.advance(6 * SECOND);
        let mut world = before.restarted_with(settings(), SECOND, before.shown());
        world.set_rule_set(&rule("stateAfter: 10s"));
        assert_eq!(
            world.state(),
            State::Progressing,
            "the state before the restart must still be shown"
        );
        world.list_object_unchanged_for(unchanged, json!({"moving": true, "how": how}));
        world
    };
    assert_eq!(
        restarted(Duration::from_hours(1), "Blocked").state(),
        State::Blocked
    );
    let mut world = restarted(7 * SECOND, "Blocked");
    world.advance(3 * SECOND);
    assert_eq!(world.state(), State::Progressing);
    world.advance(SECOND);
    assert_eq!(world.state(), State::Blocked);
    assert_eq!(
        restarted(Duration::from_hours(1), "Progressing").state(),
        State::Progressing
    );
}

#[test]
fn a_state_that_was_shown_before_a_restart_is_shown_after_it() {
    let mut before = world_with_state_after_10s();
    before.apply_state("Blocked");
    before.advance(10 * SECOND);
    let settings = before.tracker.shared.settings.clone();
    let mut world = before.restarted_with(settings, SECOND, before.shown());
    world.set_rule_set(&rule("stateAfter: 10s"));
    assert_eq!(world.state(), State::Blocked);
    let version = world.version;
    world.list_object_unchanged_for(SECOND, blocked());
    assert_eq!(
        world.version, version,
        "the first evaluation must not change the operation"
    );
    world.apply_state("Failing");
    assert_eq!(world.state(), State::Blocked);
    world.advance(10 * SECOND);
    assert_eq!(world.state(), State::Failing);
}

#[derive(Clone, Debug)]
enum Step {
    /// The object changes. The rule yields this state, or does not detect the operation (None).
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

    /// For any order of events:
    ///
    /// - `Blocked` and `Failing` are shown only after the rule has yielded them for `stateAfter`.
    /// - `Progressing` is shown at once.
    /// - In the end, the state that the rule yields is shown.
    #[test]
    fn states_are_shown_after_state_after_in_any_order_of_events(steps in steps()) {
        let object = |state: Option<State>| match state {
            Some(state) => json!({"moving": true, "how": state.name()}),
            None => json!({"moving": false, "how": "Progressing"}),
        };
        let shown = |world: &World| world.shown().first().map(|it| it.status.state);
        let mut world = world_with_state_after_10s();
        let mut gap = false;
        // The state that the rule yields, the time since which it yields this state, and the last
        // shown state.
        let (mut yields, mut since) = (None, world.now.wall);
        let mut before = None;
        for step in steps {
            match step {
                Step::Yields(state) => {
                    if state != yields {
                        (yields, since) = (state, world.now.wall);
                    }
                    world.apply_object(object(state));
                }
                Step::Waits(seconds) => world.advance(u32::from(seconds) * SECOND),
                Step::Lost => {
                    world.send_event(FeedEvent::Lost);
                    gap = true;
                }
                Step::Relists => {
                    world.send_event(FeedEvent::Reset);
                    world.apply_object(object(yields));
                    world.send_event(FeedEvent::Synced { missing: None });
                    gap = false;
                }
                Step::Restarts => {
                    let settings = world.tracker.shared.settings.clone();
                    world = world.restarted_with(settings, SECOND, world.shown());
                    world.set_rule_set(&rule("stateAfter: 10s"));
                    let unchanged = world.now.wall.duration_since(since).unsigned_abs();
                    world.list_object_unchanged_for(unchanged, object(yields));
                    gap = false;
                }
            }
            match shown(&world) {
                // During an interruption, an operation that is detected again keeps `Settling`.
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
        world.send_event(FeedEvent::Synced { missing: None });
        world.advance(DEBOUNCE);
        prop_assert_eq!(shown(&world), yields);
        prop_assert_eq!(world.tracker.next_deadline(), None, "a timer is left over");
    }
}
