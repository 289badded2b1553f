//! Tests of `stateAfter`: the time for which a rule must yield `Blocked` or `Failing` before the
//! operation shows this state.

use super::rule_fields::fixture_with_rule_set;
use super::*;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// The fields of the rules that [`rule`] creates.
const MOVING: &str = "expression: object.moving, state: object.how, message: object.text, \
                      instance: object.run";

/// Returns a rule set with one rule, which has the fields [`MOVING`] and the additional `fields`.
fn rule(fields: &str) -> String {
    format!("rules:\n- {{operation: Moving, {MOVING}, {fields}}}")
}

fn world_with_state_after_10s() -> TrackerFixture {
    fixture_with_rule_set(&rule("stateAfter: 10s"))
}

impl TrackerFixture {
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

    /// Completes a list of the subjects. The list contains only `object`, whose last change was
    /// `age` ago.
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
fn held_is_shown_at_once_and_ends_without_a_debounce_period() {
    let mut fixture = world_with_state_after_10s();
    fixture.apply_state("Progressing");
    fixture.apply_state("Held");
    assert_eq!(
        fixture.take_changes(),
        ["+Moving Progressing Moving", "~Moving Held Moving"]
    );
    fixture.apply_undetected();
    assert_eq!(
        fixture.take_changes(),
        [
            "~Moving Settling Moving",
            "~Moving Ended NotDetected",
            "-Moving Ended NotDetected"
        ],
        "a removed hold does not flap, so the operation must end at once"
    );
}

#[test]
fn an_operation_that_continues_after_held_is_the_same_operation() {
    let mut fixture = world_with_state_after_10s();
    fixture.apply_state("Held");
    fixture.apply_state("Progressing");
    fixture.apply_undetected();
    assert_eq!(
        fixture.take_changes(),
        [
            "+Moving Held Moving",
            "~Moving Progressing Moving",
            "~Moving Settling Moving"
        ]
    );
}

#[test]
fn the_debounce_of_the_rule_also_applies_after_held() {
    let mut fixture = fixture_with_rule_set(&rule("debounce: 5s"));
    fixture.apply_state("Held");
    fixture.apply_undetected();
    assert_eq!(
        fixture.take_changes(),
        ["+Moving Held Moving", "~Moving Settling Moving"]
    );
    fixture.advance(5 * SECOND);
    assert_eq!(
        fixture.take_changes(),
        ["~Moving Ended NotDetected", "-Moving Ended NotDetected"]
    );
}

#[test]
fn a_held_operation_is_restored_as_held() {
    let mut before = world_with_state_after_10s();
    before.apply_state("Held");
    assert_eq!(before.restarted(SECOND).state(), State::Held);
}

#[test]
fn blocked_and_failing_are_shown_after_state_after_and_progressing_at_once() {
    let mut fixture = world_with_state_after_10s();
    let began = fixture.now.wall;
    fixture.apply_state("Blocked");
    fixture.advance(9 * SECOND);
    assert_eq!(fixture.take_changes(), ["+Moving Progressing Moving"]);
    fixture.advance(SECOND);
    assert_eq!(fixture.take_changes(), ["~Moving Blocked Moving"]);
    let shown = fixture.only_operation();
    assert_eq!(shown.status.last_detected.0, began + 10 * SECOND);
    assert_eq!(shown.metadata.creation_timestamp.0, began);
    fixture.apply_state("Failing");
    fixture.advance(9 * SECOND);
    assert!(
        fixture.take_changes().is_empty(),
        "`Failing` must also wait for `stateAfter`"
    );
    fixture.advance(SECOND);
    assert_eq!(fixture.take_changes(), ["~Moving Failing Moving"]);
    fixture.apply_state("Blocked");
    fixture.advance(10 * SECOND);
    assert_eq!(fixture.take_changes(), ["~Moving Blocked Moving"]);
    fixture.apply_state("Progressing");
    assert_eq!(fixture.take_changes(), ["~Moving Progressing Moving"]);
    assert_eq!(fixture.tracker.next_deadline(), None);
}

#[test]
fn other_values_are_shown_while_a_state_waits() {
    let mut fixture = world_with_state_after_10s();
    fixture.apply_state("Progressing");
    fixture.apply_object(json!({"moving": true, "how": "Blocked", "text": "no room"}));
    let shown = fixture.only_operation();
    assert_eq!(shown.status.state, State::Progressing);
    assert_eq!(shown.status.message, "no room");
    // Other changes of the object do not restart the waiting time.
    fixture.advance(5 * SECOND);
    fixture.apply_object(json!({"moving": true, "how": "Blocked", "text": "still no room"}));
    fixture.advance(4 * SECOND);
    fixture.apply_object(
        json!({"moving": true, "how": "Blocked", "text": "still no room", "more": 1}),
    );
    fixture.take_changes();
    fixture.advance(SECOND);
    assert_eq!(fixture.take_changes(), ["~Moving Blocked Moving"]);
}

#[test]
fn progressing_and_states_without_state_after_are_shown_while_the_watch_is_interrupted() {
    let mut fixture = world_with_state_after_10s();
    fixture.apply_state("Blocked");
    fixture.advance(10 * SECOND);
    fixture.send_event(FeedEvent::Lost);
    fixture.apply_state("Progressing");
    assert_eq!(fixture.state(), State::Progressing);
    let mut fixture = fixture_with_rule_set(&rule("debounce: 30s"));
    fixture.send_event(FeedEvent::Lost);
    fixture.apply_state("Blocked");
    assert_eq!(fixture.state(), State::Blocked);
}

#[test]
fn a_state_that_was_shown_before_the_debounce_period_is_shown_at_once_after_it() {
    let mut fixture = world_with_state_after_10s();
    fixture.apply_state("Blocked");
    fixture.advance(10 * SECOND);
    fixture.apply_undetected();
    fixture.advance(5 * SECOND);
    fixture.take_changes();
    fixture.apply_state("Blocked");
    assert_eq!(fixture.take_changes(), ["~Moving Blocked Moving"]);
}

#[test]
fn an_operation_that_completes_while_a_state_waits_shows_its_final_state() {
    let mut fixture = fixture_with_rule_set(&rule(
        "stateAfter: 10s, outcome: \"object.how == 'Progressing' ? 'Failed' : ''\"",
    ));
    fixture.apply_state("Blocked");
    fixture.apply_undetected();
    assert_eq!(
        fixture.take_changes()[..2],
        ["+Moving Progressing Moving", "~Moving Failed Failed"]
    );
    assert_eq!(fixture.tracker.next_deadline(), None);
    fixture.apply_state("Blocked");
    fixture.subject_deleted(subject("vm"));
    assert_eq!(fixture.tracker.next_deadline(), None);
}

#[test]
fn a_new_run_restarts_the_waiting_time_of_a_state() {
    let mut fixture = world_with_state_after_10s();
    let run = |run: &str| json!({"moving": true, "how": "Blocked", "run": run});
    fixture.apply_object(run("1"));
    fixture.advance(10 * SECOND);
    assert_eq!(fixture.state(), State::Blocked);
    fixture.apply_object(run("2"));
    assert_eq!(fixture.state(), State::Progressing);
    fixture.advance(10 * SECOND);
    assert_eq!(fixture.state(), State::Blocked);
    fixture.advance(SECOND);
    assert_eq!(fixture.tracker.next_deadline(), None);
}

#[test]
fn state_after_counts_while_the_operation_waits_for_appear_after() {
    let mut fixture = fixture_with_rule_set(&rule("appearAfter: 4s, stateAfter: 10s"));
    fixture.apply_state("Blocked");
    fixture.advance(4 * SECOND);
    assert_eq!(fixture.state(), State::Progressing);
    fixture.advance(6 * SECOND);
    assert_eq!(fixture.state(), State::Blocked);
    // When the operation appears, the waiting time of its state is already over.
    let mut fixture = fixture_with_rule_set(&rule("appearAfter: 10s, stateAfter: 4s"));
    fixture.apply_state("Progressing");
    fixture.advance(6 * SECOND);
    fixture.apply_state("Blocked");
    fixture.advance(4 * SECOND);
    assert_eq!(fixture.take_changes(), ["+Moving Blocked Moving"]);
    // An interruption by another state restarts the waiting time.
    let mut fixture = fixture_with_rule_set(&rule("appearAfter: 10s, stateAfter: 5s"));
    for state in ["Blocked", "Progressing", "Blocked"] {
        fixture.apply_state(state);
        fixture.advance(3 * SECOND);
    }
    fixture.advance(SECOND);
    assert_eq!(fixture.take_changes(), ["+Moving Progressing Moving"]);
    fixture.advance(SECOND);
    assert_eq!(fixture.take_changes(), ["~Moving Blocked Moving"]);
}

#[test]
fn state_after_counts_while_the_operation_is_superseded() {
    let mut fixture = fixture_with_rule_set(&format!(
        "rules:\n- {{operation: Moving, {MOVING}, stateAfter: 10s}}\n\
         - {{operation: Stopping, expression: object.stopping, supersedes: [Moving], debounce: 0s}}"
    ));
    let object = |stopping: bool| json!({"moving": true, "how": "Blocked", "stopping": stopping});
    fixture.apply_object(object(false));
    fixture.advance(6 * SECOND);
    fixture.apply_object(object(true));
    fixture.advance(6 * SECOND);
    fixture.take_changes();
    fixture.apply_object(object(false));
    fixture.advance(SECOND);
    let seen = fixture.take_changes();
    assert_eq!(
        seen.last().map(String::as_str),
        Some("+Moving Blocked Moving")
    );
}

#[test]
fn if_another_rule_set_takes_over_its_own_state_after_applies_to_the_waiting_state() {
    let mut fixture = fixture();
    let spec = |wait: &str| format!("rules:\n- {{operation: Moving, expression: 'true', {wait}}}");
    fixture.set_rule_sets(&[
        ("a", &spec("stateAfter: 10s")),
        ("b", &spec("stateAfter: 20s")),
    ]);
    let blocked = |set: usize, fixture: &TrackerFixture| Finding {
        rule_set: fixture.book.rule_sets[set].clone(),
        operation: "Moving".into(),
        item: None,
        values: Some(RuleValues {
            state: Some(State::Blocked),
            ..RuleValues::default()
        }),
    };
    let both = vec![blocked(0, &fixture), blocked(1, &fixture)];
    fixture.evaluate_with(subject("vm"), both);
    fixture.advance(5 * SECOND);
    let second = vec![blocked(1, &fixture)];
    fixture.evaluate_with(subject("vm"), second);
    fixture.advance(14 * SECOND);
    assert_eq!(fixture.state(), State::Progressing);
    fixture.advance(SECOND);
    assert_eq!(fixture.state(), State::Blocked);
    assert_eq!(fixture.tracker.next_deadline(), None);
}

#[test]
fn an_edited_state_after_counts_from_the_time_at_which_the_state_was_first_yielded() {
    for (edited, lasts) in [
        ("stateAfter: 4s", 0),
        ("stateAfter: 15s", 9),
        ("debounce: 30s", 0),
    ] {
        let mut fixture = world_with_state_after_10s();
        fixture.apply_state("Blocked");
        fixture.advance(6 * SECOND);
        fixture.set_rule_set(&rule(edited));
        fixture.send_event(FeedEvent::Reset);
        fixture.apply_state("Blocked");
        fixture.send_event(FeedEvent::Synced { missing: None });
        if lasts > 0 {
            fixture.advance((lasts - 1) * SECOND);
            assert_eq!(fixture.state(), State::Progressing, "{edited}");
            fixture.advance(SECOND);
        }
        assert_eq!(fixture.state(), State::Blocked, "{edited}");
        assert_eq!(fixture.tracker.next_deadline(), None, "{edited}");
    }
}

#[test]
fn a_removed_rule_leaves_no_timer() {
    let mut fixture = world_with_state_after_10s();
    fixture.apply_state("Blocked");
    fixture.set_rule_set("rules:\n- {operation: Other, expression: 'false'}");
    assert!(fixture.shown().is_empty());
    assert_eq!(fixture.tracker.next_deadline(), None);
}

#[test]
fn a_shown_state_stays_when_state_after_is_added_to_its_rule() {
    let mut fixture = fixture_with_rule_set(&rule("debounce: 30s"));
    fixture.apply_state("Blocked");
    fixture.set_rule_set(&rule("stateAfter: 10s"));
    fixture.send_event(FeedEvent::Reset);
    fixture.apply_state("Blocked");
    fixture.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(fixture.state(), State::Blocked);
}

/// Creates a fixture whose tracker has received rules, but no list of objects yet.
fn world_before_first_list(fields: &str) -> TrackerFixture {
    let mut fixture = fixture_without_rules(settings(None));
    fixture.set_rule_set(&rule(fields));
    fixture
}

#[test]
fn state_after_counts_from_the_last_change_of_an_object_in_the_first_list() {
    let mut fixture = world_before_first_list("stateAfter: 10s");
    fixture.list_object_unchanged_for(Duration::from_hours(1), blocked());
    assert_eq!(fixture.take_changes(), ["+Moving Blocked Moving"]);
    // Kubernetes rounds times in `managedFields` down to seconds, so the real change can be up to
    // one second later. The tracker therefore counts 3 s since the change instead of 4 s. So 7 s of
    // `stateAfter` are left.
    let mut fixture = world_before_first_list("stateAfter: 10s");
    fixture.list_object_unchanged_for(4 * SECOND, blocked());
    fixture.advance(6 * SECOND);
    assert_eq!(fixture.state(), State::Progressing);
    fixture.advance(SECOND);
    assert_eq!(fixture.state(), State::Blocked);
    // A time in the future does not prolong the waiting time.
    let mut fixture = world_before_first_list("stateAfter: 10s");
    let later = fixture.now.wall + Duration::from_hours(1);
    let mut object = blocked();
    object["metadata"] = json!({ "managedFields": [{ "time": later.to_string() }] });
    fixture.send_event(FeedEvent::Reset);
    fixture.apply_object(object);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture.advance(10 * SECOND);
    assert_eq!(fixture.state(), State::Blocked);
}

#[test]
fn the_last_change_does_not_count_for_a_rule_that_reads_now() {
    for timed in [
        "expression: object.moving && now > timestamp('2026-01-01T00:00:00Z'), state: object.how",
        "expression: object.moving, state: \"now > timestamp('2026-01-01T00:00:00Z') ? object.how : 'Failing'\"",
    ] {
        let mut fixture = world_before_first_list("stateAfter: 10s");
        fixture.set_rule_set(&format!(
            "rules:\n- {{operation: Moving, stateAfter: 10s, {timed}}}"
        ));
        fixture.list_object_unchanged_for(Duration::from_hours(1), blocked());
        assert_eq!(fixture.state(), State::Progressing, "{timed}");
        fixture.advance(10 * SECOND);
        assert_eq!(fixture.state(), State::Blocked, "{timed}");
    }
}

#[test]
fn the_waiting_time_of_a_state_continues_after_a_restart() {
    let restarted = |unchanged: Duration, how: &str| {
        let mut before = world_with_state_after_10s();
        before.apply_state("Blocked");
        before.advance(6 * SECOND);
        let mut fixture = before.restarted_with(settings(None), SECOND, before.shown());
        fixture.set_rule_set(&rule("stateAfter: 10s"));
        assert_eq!(
            fixture.state(),
            State::Progressing,
            "the state before the restart must still be shown"
        );
        fixture.list_object_unchanged_for(unchanged, json!({"moving": true, "how": how}));
        fixture
    };
    assert_eq!(
        restarted(Duration::from_hours(1), "Blocked").state(),
        State::Blocked
    );
    let mut fixture = restarted(7 * SECOND, "Blocked");
    fixture.advance(3 * SECOND);
    assert_eq!(fixture.state(), State::Progressing);
    fixture.advance(SECOND);
    assert_eq!(fixture.state(), State::Blocked);
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
    let mut fixture = before.restarted_with(settings, SECOND, before.shown());
    fixture.set_rule_set(&rule("stateAfter: 10s"));
    assert_eq!(fixture.state(), State::Blocked);
    let version = fixture.version;
    fixture.list_object_unchanged_for(SECOND, blocked());
    assert_eq!(
        fixture.version, version,
        "the first evaluation must not change the operation"
    );
    fixture.apply_state("Failing");
    assert_eq!(fixture.state(), State::Blocked);
    fixture.advance(10 * SECOND);
    assert_eq!(fixture.state(), State::Failing);
}

#[derive(Clone, Debug)]
enum Step {
    /// The object changes, so that the rule yields this state. None means that the rule does not
    /// detect the operation.
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
        let shown = |fixture: &TrackerFixture| fixture.shown().first().map(|it| it.status.state);
        let mut fixture = world_with_state_after_10s();
        let mut gap = false;
        // The state that the rule yields, the time since which it yields this state, and the last
        // shown state.
        let (mut yields, mut since) = (None, fixture.now.wall);
        let mut before = None;
        for step in steps {
            match step {
                Step::Yields(state) => {
                    if state != yields {
                        (yields, since) = (state, fixture.now.wall);
                    }
                    fixture.apply_object(object(state));
                }
                Step::Waits(seconds) => fixture.advance(u32::from(seconds) * SECOND),
                Step::Lost => {
                    fixture.send_event(FeedEvent::Lost);
                    gap = true;
                }
                Step::Relists => {
                    fixture.send_event(FeedEvent::Reset);
                    fixture.apply_object(object(yields));
                    fixture.send_event(FeedEvent::Synced { missing: None });
                    gap = false;
                }
                Step::Restarts => {
                    let settings = fixture.tracker.shared.settings.clone();
                    fixture = fixture.restarted_with(settings, SECOND, fixture.shown());
                    fixture.set_rule_set(&rule("stateAfter: 10s"));
                    let unchanged = fixture.now.wall.duration_since(since).unsigned_abs();
                    fixture.list_object_unchanged_for(unchanged, object(yields));
                    gap = false;
                }
            }
            match shown(&fixture) {
                // `Settling` is the state of an operation that is no longer detected. If the rule
                // detects the operation again during an interruption of the watch, clients can see
                // `Settling` until the end of the interruption.
                Some(State::Settling) => prop_assert!(gap || yields.is_none()),
                Some(state) => {
                    if state != State::Progressing && before != Some(state) {
                        prop_assert_eq!(yields, Some(state));
                        prop_assert!(fixture.now.wall >= since + 10 * SECOND);
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
        fixture.send_event(FeedEvent::Synced { missing: None });
        fixture.advance(DEBOUNCE);
        prop_assert_eq!(shown(&fixture), yields);
        prop_assert_eq!(fixture.tracker.next_deadline(), None, "a timer is left over");
    }
}
