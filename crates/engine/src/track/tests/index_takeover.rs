//! Tests of takeovers, in which a new leader restores operations from its own index. The index is
//! the operations in memory, and the records of completed operations. The new leader was a
//! follower, so its index contains the operations and records of the previous leader.

use super::custom_resources::{
    RULES, identity, initial_state, migrating, start_and_end_times, two_runs,
};
use super::*;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

impl TrackerFixture {
    /// Creates a new leader with the index of this leader. `away` is the time without a leader: the
    /// new leader starts this long after the current time of this leader. `add` adds further
    /// operations to the initial state of the new leader.
    pub(super) fn taken_over_with(
        &self,
        settings: TrackerSettings,
        away: Duration,
        add: impl FnOnce(&mut InitialState, ClockReading),
    ) -> TrackerFixture {
        let mut fixture = fixture_without_rules(settings);
        fixture.objects.clone_from(&self.objects);
        fixture.records.clone_from(&self.records);
        fixture.now.wall = self.now.wall + away;
        let mut state = initial_state(&fixture, self.shown().iter());
        for (key, object) in fixture.objects.iter().chain(&fixture.records) {
            state.add_index_object(key, object, fixture.now);
        }
        add(&mut state, fixture.now);
        fixture.send(Message::Resume(Box::new(state)));
        fixture
    }

    /// Like [`Self::taken_over_with`], without retention and without further operations.
    pub(super) fn taken_over(&self, away: Duration) -> TrackerFixture {
        self.taken_over_with(settings(None), away, |_, _| {})
    }

    /// Edits the only operation in the index.
    fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        let mut objects = self.objects.values_mut();
        let object = objects.next().expect("the index has one object");
        let mut json = json_of(object);
        edit(&mut json);
        *object =
            Object::decode(json.to_string().as_bytes(), ifo_api::Collection::Operations).unwrap();
    }
}

fn retaining() -> TrackerSettings {
    settings(Some(RETENTION))
}

/// Creates a fixture with one completed operation, which the tracker retains.
fn world_with_completed() -> TrackerFixture {
    let mut fixture = fixture_with(retaining());
    fixture.evaluate_vm(&["Migrating"]);
    fixture.advance(10 * SECOND);
    fixture.evaluate_vm(&[]);
    fixture.advance(DEBOUNCE);
    assert_eq!(fixture.only_operation().status.phase, Phase::Completed);
    fixture
}

#[test]
fn fields_of_a_newer_release_stay_until_the_operation_changes() {
    let mut before = migrating();
    before.edit(|object| {
        object["status"]["forecast"] = json!({"p95": 7});
        object["spec"]["subject"]["zone"] = json!("a");
    });
    let mut fixture = before.taken_over(SECOND);
    fixture.complete_first_list(&["Migrating"]);
    assert_eq!(fixture.objects, before.objects);
    let before = fixture.only_operation();
    fixture.evaluate_vm(&[]);
    assert_eq!(fixture.only_operation().status.state, State::Settling);
    assert_eq!(identity(&fixture.only_operation()), identity(&before));
}

#[test]
fn values_from_the_index_are_taken_over_without_checks() {
    let mut before = migrating();
    let name = before.only_operation().metadata.name;
    before.edit(|object| object["status"]["message"] = "x".repeat(10_000).into());
    // This release of ifo would compute another UID for the operation. A leader of another release
    // could have written the edited UID.
    before.edit(|object| object["metadata"]["uid"] = "0a1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f".into());
    let mut fixture = before.taken_over(SECOND);
    assert_eq!(fixture.objects, before.objects);
    fixture.complete_first_list(&["Migrating"]);
    assert_eq!(fixture.only_operation().metadata.name, name);
    assert_eq!(
        fixture.only_operation().metadata.uid,
        before.only_operation().metadata.uid
    );
}

#[test]
fn an_operation_that_cannot_be_restored_is_deleted() {
    let edits: [fn(&mut Value); 3] = [
        |object| object["metadata"]["uid"] = "no UUID".into(),
        |object| object["spec"]["subject"]["uid"] = Value::Null,
        |object| object["status"]["phase"] = "Completed".into(),
    ];
    for (index, edit) in edits.into_iter().enumerate() {
        let mut before = migrating();
        before.edit(edit);
        let mut fixture = before.taken_over(SECOND);
        assert!(fixture.objects.is_empty(), "{index}");
        fixture.complete_first_list(&["Migrating"]);
        assert_eq!(
            fixture.shown().len(),
            1,
            "the operation must be detected again"
        );
    }
}

#[test]
fn operations_of_a_namespace_that_was_deleted_before_the_takeover_are_not_retained() {
    let later = |fixture: &TrackerFixture| fixture.now.wall + Duration::from_hours(1);
    let completed = world_with_completed();
    let cases = [None, Some(later(&completed))];
    for created in cases {
        let take_over = |before: &TrackerFixture| {
            let mut fixture = fixture_without_rules(retaining());
            fixture.objects.clone_from(&before.objects);
            fixture.now.wall = before.now.wall + Duration::from_hours(2);
            let named = created.map(|created| ("ns".into(), created));
            let namespaces = named.into_iter().collect();
            let mut state = InitialState::new("ifo-system".into(), Some(Arc::new(namespaces)));
            for (key, object) in &fixture.objects {
                state.add_index_object(key, object, fixture.now);
            }
            fixture.send(Message::Resume(Box::new(state)));
            fixture
        };
        assert!(take_over(&completed).objects.is_empty());
        // An operation in flight stays until the end of the first list. The list does not contain
        // its subject, so the operation completes.
        let mut fixture = take_over(&migrating());
        assert_eq!(fixture.only_operation().status.phase, Phase::Active);
        fixture.set_rules(&RULES);
        fixture.send_event(FeedEvent::Reset);
        fixture.complete_list();
        let changes = fixture.described_changes();
        assert!(changes.contains("~Migrating Ended SubjectDeleted"));
        assert!(fixture.objects.is_empty());
    }
}

#[test]
fn a_completed_operation_stays_if_its_namespace_is_older_than_its_end() {
    let before = world_with_completed();
    let mut fixture = fixture_without_rules(retaining());
    fixture.objects.clone_from(&before.objects);
    fixture.now.wall = before.now.wall;
    // The clocks of the kube-apiserver and of the server can differ by some seconds.
    let created = before.only_operation().metadata.creation_timestamp.0 + SECOND;
    let namespaces = Arc::new([("ns".into(), created)].into());
    let mut state = InitialState::new("ifo-system".into(), Some(namespaces));
    for (key, object) in &fixture.objects {
        state.add_index_object(key, object, fixture.now);
    }
    fixture.send(Message::Resume(Box::new(state)));
    assert_eq!(fixture.objects, before.objects);
    // The leader reads the namespaces again.
    fixture.list_namespaces("ns", Some(created));
    assert_eq!(fixture.objects, before.objects);
}

/// Returns the state of a leader that takes over the objects of `fixture` and could not read the
/// namespaces.
fn without_namespaces(fixture: &TrackerFixture) -> InitialState {
    let mut state = InitialState::new("ifo-system".into(), None);
    for (key, object) in &fixture.objects {
        state.add_index_object(key, object, fixture.now);
    }
    state
}

#[test]
fn all_objects_stay_while_the_namespaces_are_unknown() {
    for before in [world_with_completed(), migrating()] {
        let mut fixture = fixture_without_rules(retaining());
        fixture.objects.clone_from(&before.objects);
        fixture.now.wall = before.now.wall;
        fixture.send(Message::Resume(Box::new(without_namespaces(&fixture))));
        assert_eq!(fixture.objects, before.objects);
        // If the namespaces cannot be read, the leader restores only custom resources of operations
        // in flight. The first list shows whether their subjects still exist. For a completed
        // operation, nothing shows whether its namespace still exists.
        let mut fixture = fixture_without_rules(retaining());
        fixture.now.wall = before.now.wall;
        let mut state = InitialState::new("ifo-system".into(), None);
        assert!(state.add_custom_resource(before.only_operation(), fixture.now));
        fixture.send(Message::Resume(Box::new(state)));
        let stays = before.only_operation().status.phase == Phase::Active;
        assert_eq!(fixture.shown().len(), usize::from(stays));
        // When the namespaces are known, the completed operations of deleted ones go.
        let mut fixture = fixture_without_rules(retaining());
        fixture.objects.clone_from(&before.objects);
        fixture.send(Message::Resume(Box::new(without_namespaces(&fixture))));
        fixture.list_namespaces("ns", None);
        assert_eq!(fixture.shown().len(), usize::from(stays));
    }
}

#[test]
fn a_custom_resource_replaces_an_object_of_the_index_only_if_it_is_completed() {
    let completed = world_with_completed().only_operation();
    let before = {
        let mut before = fixture_with(retaining());
        before.evaluate_vm(&["Migrating"]);
        before.advance(10 * SECOND);
        before
    };
    assert_eq!(identity(&before.only_operation()), identity(&completed));
    for retain in [Some(RETENTION), None] {
        let custom_resource = completed.clone();
        let mut fixture = before.taken_over_with(settings(retain), DEBOUNCE * 2, |state, now| {
            assert!(state.add_custom_resource(custom_resource, now));
        });
        let seen = fixture.described_changes();
        if retain.is_some() {
            assert_eq!(seen, "~Migrating Ended NotDetected");
            assert_eq!(fixture.only_operation(), completed);
        } else {
            assert_eq!(seen, "~Migrating Ended NotDetected, -Migrating");
        }
        // The rule still detects the operation, so the tracker starts another run.
        fixture.complete_first_list(&["Migrating"]);
        let shown = fixture.shown();
        let active = shown.iter().find(|it| it.status.phase == Phase::Active);
        assert_ne!(active.map(identity), Some(identity(&completed)));
    }
    // The custom resource of an operation in flight does not replace the object in the index.
    for (before, mut late) in [
        (before, migrating().only_operation()),
        (world_with_completed(), migrating().only_operation()),
    ] {
        late.status.message = "late".into();
        let fixture = before.taken_over_with(retaining(), DEBOUNCE * 2, |state, now| {
            assert!(state.add_custom_resource(late, now));
        });
        assert_eq!(fixture.objects, before.objects);
    }
}

#[test]
fn of_two_runs_in_index_and_custom_resource_the_earlier_is_replaced() {
    let [earlier, later] = two_runs();
    let mut base = fixture();
    base.advance(Duration::from_hours(2));
    let key = |it: &InFlightOperation| Key::new("ns", it.metadata.name.clone());
    for [indexed, written] in [[&earlier, &later], [&later, &earlier]] {
        base.objects = [(key(indexed), indexed.clone().into())].into();
        let mut fixture = base.taken_over_with(retaining(), Duration::ZERO, |state, now| {
            assert!(state.add_custom_resource(written.clone(), now));
        });
        let start_and_end_times = start_and_end_times(&fixture);
        assert_eq!(start_and_end_times.len(), 2);
        assert_eq!(start_and_end_times[0].1, Some(start_and_end_times[1].0));
        assert_eq!(start_and_end_times[1].1, None);
        let replaced = fixture.shown();
        let replaced = replaced
            .iter()
            .find(|it| identity(it) == identity(&earlier));
        assert_eq!(
            replaced
                .expect("the operation must be retained")
                .status
                .reason,
            "Replaced"
        );
        fixture.complete_first_list(&["Migrating"]);
        let shown = fixture.shown();
        let active = shown.iter().find(|it| it.status.phase == Phase::Active);
        assert_eq!(active.map(identity), Some(identity(&later)));
    }
}

#[test]
fn a_custom_resource_does_not_restore_an_operation_that_was_deleted_from_the_index() {
    let with_records = || TrackerSettings {
        max_records: 10,
        ..settings(None)
    };
    let mut before = fixture_with(with_records());
    before.evaluate_vm(&["Migrating"]);
    let in_flight = before.only_operation();
    before.advance(10 * SECOND);
    before.evaluate_vm(&[]);
    let settling = before.only_operation();
    before.advance(DEBOUNCE);
    assert_eq!((before.objects.len(), before.records.len()), (0, 1));
    for custom_resource in [in_flight, settling] {
        let mut fixture = before.taken_over_with(with_records(), SECOND, |state, now| {
            assert!(state.add_custom_resource(custom_resource, now));
        });
        fixture.complete_first_list(&[]);
        fixture.advance(DEBOUNCE);
        assert!(fixture.changes.is_empty(), "{:?}", fixture.changes);
        assert_eq!(fixture.records, before.records);
    }
}

#[test]
fn another_run_within_the_same_second_gets_another_name() {
    let without_debounce = || TrackerSettings {
        debounce: Duration::ZERO,
        ..retaining()
    };
    let mut before = fixture_with(without_debounce());
    let changed = before.now.wall;
    let run = |what: &[&str]| changed_at(changed, json!({ "ops": what }));
    before.apply_object(run(&["Migrating"]));
    let first = before.only_operation();
    before.apply_object(run(&[]));
    let mut fixture = before.taken_over_with(without_debounce(), SECOND, |_, _| {});
    assert_eq!(fixture.objects, before.objects);
    fixture.set_rules(&RULES);
    fixture.send_event(FeedEvent::Reset);
    fixture.apply_object(run(&["Migrating"]));
    let shown = fixture.shown();
    let second = shown.iter().find(|it| it.status.phase == Phase::Active);
    let start = |it: &InFlightOperation| it.metadata.creation_timestamp;
    assert_ne!(second.map(identity), Some(identity(&first)));
    let next = start(&first).0 + SECOND;
    let second = second.expect("the operation must be shown");
    assert_eq!(start(second).0, next);
}

#[test]
fn custom_resources_are_limited_and_operations_of_the_index_are_not() {
    let world_with_operation_on = |name: &str| {
        let mut fixture = fixture();
        fixture.evaluate(name, &["Migrating"]);
        fixture
    };
    let now = world_with_operation_on("a").now;
    let mut fixture = fixture_without_rules(settings(None));
    let mut state = initial_state(&fixture, [].iter());
    state.custom_resource_count = MAX_RESTORED - 1;
    assert!(state.add_custom_resource(world_with_operation_on("a").only_operation(), now));
    assert!(!state.add_custom_resource(world_with_operation_on("b").only_operation(), now));
    fixture.objects = world_with_operation_on("c").objects;
    for (key, json) in &fixture.objects {
        state.add_index_object(key, json, now);
    }
    fixture.send(Message::Resume(Box::new(state)));
    let shown = fixture.shown();
    let names: BTreeSet<&str> = shown.iter().map(|it| &*it.spec.subject.name).collect();
    assert_eq!(names, ["a", "c"].into());
}
