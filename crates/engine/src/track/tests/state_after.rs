//! Tests of `stateAfter`: the time for which a rule must yield `Blocked` or `Failing` before the
//! operation shows this state.

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
