//! Tests of takeovers, in which a new leader continues from the objects of its own index.

use super::restore::{RULES, identity, initial_state, migrating, settings, spans, two_starts};
use super::*;
use ifo_api::live::StartTimeSource;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

impl World {
    /// The next leader, `away` later. Its index has the objects of this one, and `add` sets the
    /// rest of its initial state.
    fn taken_over_with(
        &self,
        settings: TrackerSettings,
        away: Duration,
        add: impl FnOnce(&mut InitialState, ClockReading),
    ) -> World {
        let mut world = fresh(settings);
        world.objects.clone_from(&self.objects);
        world.now.wall = self.now.wall + away;
        let mut state = initial_state(&world, self.readable().iter());
        for (key, json) in &world.objects {
            state.add_index_object(key, json, world.now);
        }
        add(&mut state, world.now);
        world.message(Message::Resume(Box::new(state)));
        world
    }

    /// The next leader, `away` later, without retention and custom resources.
    pub(super) fn taken_over(&self, away: Duration) -> World {
        self.taken_over_with(settings(None), away, |_, _| {})
    }

    fn readable(&self) -> Vec<InFlightOperation> {
        let all = self.objects.values();
        all.filter_map(|json| serde_json::from_slice(json).ok())
            .collect()
    }

    /// Edits the only object of the index.
    fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        let json = self.objects.values_mut().next().expect("an object");
        let mut object = serde_json::from_slice(json).expect("JSON");
        edit(&mut object);
        *json = object.to_string().into_bytes();
    }
}

/// The subject after a change.
fn changed_at(name: &str, managed: Timestamp) -> Subject {
    Subject {
        managed: Some(managed),
        ..subject(name)
    }
}

fn retaining() -> TrackerSettings {
    settings(Some(RETENTION))
}

/// An operation that completed and is retained.
fn completed() -> World {
    let mut world = world_with(retaining());
    world.vm(&["Migrating"]);
    world.after(10 * SECOND);
    world.vm(&[]);
    world.after(DEBOUNCE);
    assert_eq!(world.one().status.phase, Phase::Completed);
    world
}

#[test]
fn a_takeover_changes_no_object() {
    let mut before = world_with(retaining());
    let node = || Subject {
        namespace: None,
        ..subject("node")
    };
    before.sees(subject("completed"), &["Migrating"]);
    before.sees(subject("completed"), &[]);
    before.after(DEBOUNCE);
    before.sees(subject("settling"), &["Migrating"]);
    before.after(SECOND);
    before.sees(subject("settling"), &[]);
    before.sees(subject("progressing"), &["Migrating", "Stopping"]);
    before.sees(node(), &["Migrating"]);
    before.after(SECOND);
    assert_eq!(before.objects.len(), 5);
    let mut world = before.taken_over_with(retaining(), 2 * SECOND, |_, _| {});
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    for (subject, what) in [
        (subject("completed"), &[] as &[&str]),
        (subject("settling"), &[]),
        (subject("progressing"), &["Migrating", "Stopping"]),
        (node(), &["Migrating"]),
    ] {
        world.sees(subject, what);
    }
    world.synced();
    world.booked(&[], &[]);
    assert_eq!(world.seen(), [""; 0]);
    assert_eq!(world.objects, before.objects);
    // Each operation ends as usual, and retention continues.
    for name in ["progressing", "node"] {
        let gone = Subject {
            namespace: None,
            ..subject(name)
        };
        world.feed(FeedEvent::Deleted {
            subject: gone,
            read: Instant::now(),
        });
    }
    world.after(DEBOUNCE);
    let phases: BTreeSet<_> = world
        .shown()
        .iter()
        .map(|it| it.status.reason.clone())
        .collect();
    assert_eq!(
        phases,
        ["NotDetected".into(), "SubjectDeleted".into()].into()
    );
    world.after(RETENTION.age);
    assert!(world.shown().is_empty());
}

#[test]
fn fields_of_another_release_stay_until_the_operation_changes() {
    let mut before = migrating();
    before.edit(|object| {
        object["status"]["expected"] = json!({"p95": 7});
        object["spec"]["subject"]["zone"] = json!("a");
    });
    let mut world = before.taken_over(SECOND);
    world.lists(&["Migrating"]);
    assert_eq!(world.objects, before.objects);
    let before = world.one();
    world.vm(&[]);
    assert_eq!(world.one().status.state, State::Settling);
    assert_eq!(identity(&world.one()), identity(&before));
}

#[test]
fn values_that_a_custom_resource_may_not_have_are_taken_over_from_the_index() {
    let mut before = migrating();
    let name = before.one().metadata.name;
    before.edit(|object| object["status"]["message"] = "x".repeat(10_000).into());
    // A release that names operations differently.
    before.edit(|object| object["metadata"]["uid"] = "0a1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f".into());
    let mut world = before.taken_over(SECOND);
    assert_eq!(world.objects, before.objects);
    world.lists(&["Migrating"]);
    assert_eq!(world.one().metadata.name, name);
    assert_eq!(world.one().metadata.uid, before.one().metadata.uid);
}

#[test]
fn an_object_that_cannot_be_decoded_is_deleted() {
    let edits: [fn(&mut Value); 6] = [
        |object| *object = json!({"metadata": {}}),
        |object| object["status"]["phase"] = "Paused".into(),
        |object| object["metadata"]["uid"] = "no UUID".into(),
        |object| object["metadata"]["creationTimestamp"] = Value::Null,
        |object| object["spec"]["subject"]["uid"] = Value::Null,
        |object| object["status"]["phase"] = "Completed".into(),
    ];
    for (place, edit) in edits.into_iter().enumerate() {
        let mut before = migrating();
        before.edit(edit);
        let mut world = before.taken_over(SECOND);
        assert!(world.objects.is_empty(), "{place}");
        world.lists(&["Migrating"]);
        assert_eq!(world.shown().len(), 1, "it is detected anew");
    }
}

#[test]
fn a_completed_operation_that_is_not_retained_is_deleted() {
    let before = completed();
    let short = Retention {
        age: Duration::from_mins(1),
        ..RETENTION
    };
    let none = Retention {
        most: 0,
        ..RETENTION
    };
    for (retain, stays) in [
        (Some(RETENTION), true),
        (Some(short), true),
        (Some(none), false),
        (None, false),
    ] {
        let world = before.taken_over_with(settings(retain), SECOND, |_, _| {});
        assert_eq!(world.objects.len(), usize::from(stays), "{retain:?}");
    }
    let later = Duration::from_mins(1);
    let world = before.taken_over_with(settings(Some(short)), later, |_, _| {});
    assert!(world.objects.is_empty());
}

#[test]
fn nothing_is_retained_of_a_namespace_that_was_deleted_before_the_takeover() {
    let later = |world: &World| world.now.wall + Duration::from_hours(1);
    let over = completed();
    let cases = [None, Some(later(&over))];
    for created in cases {
        let take_over = |before: &World| {
            let mut world = fresh(retaining());
            world.objects.clone_from(&before.objects);
            world.now.wall = before.now.wall + Duration::from_hours(2);
            let named = created.map(|created| ("ns".to_owned(), created));
            let namespaces = named.into_iter().collect();
            let mut state = InitialState::new("ifo-system".into(), Some(namespaces));
            for (key, json) in &world.objects {
                state.add_index_object(key, json, world.now);
            }
            world.message(Message::Resume(Box::new(state)));
            world
        };
        assert!(take_over(&over).objects.is_empty());
        // An operation in flight ends when its subject is known to be deleted.
        let mut world = take_over(&migrating());
        assert_eq!(world.one().status.phase, Phase::Active);
        world.rules(&RULES);
        world.feed(FeedEvent::Reset);
        world.synced();
        assert!(
            world
                .seen()
                .contains(&"~Migrating Ended SubjectDeleted".into())
        );
        assert!(world.objects.is_empty());
    }
}

#[test]
fn all_objects_stay_if_the_namespaces_cannot_be_read() {
    for before in [completed(), migrating()] {
        let mut world = fresh(retaining());
        world.objects.clone_from(&before.objects);
        world.now.wall = before.now.wall;
        let mut state = InitialState::new("ifo-system".into(), None);
        for (key, json) in &world.objects {
            state.add_index_object(key, json, world.now);
        }
        world.message(Message::Resume(Box::new(state)));
        assert_eq!(world.objects, before.objects);
        // Only custom resources in flight are used, because their subjects are read.
        let mut world = fresh(retaining());
        world.now.wall = before.now.wall;
        let mut state = InitialState::new("ifo-system".into(), None);
        assert!(state.add_custom_resource(before.one(), world.now));
        world.message(Message::Resume(Box::new(state)));
        let stays = before.one().status.phase == Phase::Active;
        assert_eq!(world.shown().len(), usize::from(stays));
    }
}

#[test]
fn a_takeover_keeps_the_source_of_the_start() {
    for source in ["Expression", "Detected", "ManagedFields", "Restored"] {
        let mut before = migrating();
        before.edit(|object| object["status"]["startTimeSource"] = source.into());
        let mut world = before.taken_over(SECOND);
        world.lists(&[]);
        let after = world.one();
        assert_eq!(after.status.state, State::Settling);
        let shown = format!("{:?}", after.status.start_time_source);
        assert_eq!(shown, source);
    }
    let world = migrating().taken_over(SECOND);
    assert_eq!(
        world.one().status.start_time_source,
        StartTimeSource::Detected
    );
}

#[test]
fn only_the_completion_of_a_custom_resource_wins_over_the_index() {
    let over = completed().one();
    let before = {
        let mut before = world_with(retaining());
        before.vm(&["Migrating"]);
        before.after(10 * SECOND);
        before
    };
    assert_eq!(identity(&before.one()), identity(&over));
    for retain in [Some(RETENTION), None] {
        let told = over.clone();
        let mut world = before.taken_over_with(settings(retain), DEBOUNCE * 2, |state, now| {
            assert!(state.add_custom_resource(told, now));
        });
        let seen = world.seen();
        assert_eq!(seen[0], "~Migrating Ended NotDetected");
        if retain.is_some() {
            assert_eq!(seen.len(), 1);
            assert_eq!(world.one(), over);
        } else {
            assert_eq!(seen[1..], ["-Migrating Ended NotDetected"]);
        }
        // The subject is still detected, so that is another run.
        world.lists(&["Migrating"]);
        let shown = world.shown();
        let active = shown.iter().find(|it| it.status.phase == Phase::Active);
        assert_ne!(active.map(identity), Some(identity(&over)));
    }
    // A custom resource lags behind the index.
    for (before, mut late) in [
        (before, migrating().one()),
        (completed(), migrating().one()),
    ] {
        late.status.message = "late".into();
        let world = before.taken_over_with(retaining(), DEBOUNCE * 2, |state, now| {
            assert!(state.add_custom_resource(late, now));
        });
        assert_eq!(world.objects, before.objects);
    }
}

#[test]
fn of_two_active_runs_the_earlier_is_replaced_by_the_later() {
    let [earlier, later] = two_starts();
    let mut base = world();
    base.after(Duration::from_hours(2));
    let key = |it: &InFlightOperation| {
        let name = it.metadata.name.clone().expect("a name");
        Key::new("ns", name)
    };
    for [indexed, written] in [[&earlier, &later], [&later, &earlier]] {
        let json = serde_json::to_vec(indexed).expect("it encodes");
        base.objects = [(key(indexed), json)].into();
        let mut world = base.taken_over_with(retaining(), Duration::ZERO, |state, now| {
            assert!(state.add_custom_resource(written.clone(), now));
        });
        let spans = spans(&world);
        assert_eq!(spans.len(), 2);
        assert_eq!(spans[0].1, Some(spans[1].0));
        assert_eq!(spans[1].1, None);
        let replaced = world.shown();
        let replaced = replaced
            .iter()
            .find(|it| identity(it) == identity(&earlier));
        assert_eq!(replaced.expect("it is retained").status.reason, "Replaced");
        world.lists(&["Migrating"]);
        let shown = world.shown();
        let active = shown.iter().find(|it| it.status.phase == Phase::Active);
        assert_eq!(active.map(identity), Some(identity(&later)));
    }
}

#[test]
fn an_operation_whose_start_was_lost_comes_back_under_the_same_name() {
    let mut before = world();
    let changed = before.now.wall;
    before.after(SECOND / 2);
    before.sees(changed_at("vm", changed), &["Migrating"]);
    let lost = before.one();
    before.objects.clear();
    let mut world = before.taken_over(10 * SECOND);
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    world.sees(changed_at("vm", changed), &["Migrating"]);
    world.synced();
    assert_eq!(identity(&world.one()), identity(&lost));
}

#[test]
fn a_successor_within_the_same_second_gets_another_name() {
    for retain in [Some(RETENTION), None] {
        let without_debounce = || TrackerSettings {
            debounce: Duration::ZERO,
            ..settings(retain)
        };
        let mut before = world_with(without_debounce());
        let changed = before.now.wall;
        before.sees(changed_at("vm", changed), &["Migrating"]);
        let first = before.one();
        before.sees(changed_at("vm", changed), &[]);
        let deleted: Vec<Vec<u8>> = before
            .changes
            .iter()
            .filter(|(sign, _)| *sign == '-')
            .map(|(_, json)| json.clone())
            .collect();
        assert_eq!(deleted.len(), usize::from(retain.is_none()));
        let mut world = before.taken_over_with(without_debounce(), SECOND, |state, now| {
            for json in &deleted {
                state.add_deleted_object(json, now);
            }
        });
        assert_eq!(world.objects, before.objects);
        world.rules(&RULES);
        world.feed(FeedEvent::Reset);
        world.sees(changed_at("vm", changed), &["Migrating"]);
        let shown = world.shown();
        let second = shown.iter().find(|it| it.status.phase == Phase::Active);
        let start = |it: &InFlightOperation| it.metadata.creation_timestamp.clone();
        assert_ne!(second.map(identity), Some(identity(&first)));
        let next = start(&first).expect("a start").0 + SECOND;
        assert_eq!(
            start(second.expect("it is shown")).map(|it| it.0),
            Some(next)
        );
    }
}

#[test]
fn a_deleted_object_does_not_come_back_with_its_custom_resource() {
    let before = completed();
    let json = before.objects.values().next().expect("an object").clone();
    let told = before.one();
    let mut empty = world();
    empty.now.wall = before.now.wall;
    let world = empty.taken_over_with(retaining(), SECOND, |state, now| {
        state.add_deleted_object(&json, now);
        assert!(state.add_custom_resource(told, now));
    });
    assert!(world.objects.is_empty());
}

#[test]
fn the_time_before_an_operation_appears_counts_from_the_last_change_of_its_subject() {
    let rule = |expression: &str| {
        format!("rules:\n- {{operation: Stuck, expression: '{expression}', appearAfter: 10s}}")
    };
    let timed = "object.stuck && now > timestamp(\"2000-01-01T00:00:00Z\")";
    for (expression, counts) in [("object.stuck", true), (timed, false)] {
        for (unchanged, waits) in [(5, 6), (9, 2), (60, 0)] {
            let mut world = fresh(settings(None));
            world.message(Message::Resume(Box::new(InitialState::new(
                "ifo-system".into(),
                None,
            ))));
            world.spec(&rule(expression));
            let began = world.now.wall - unchanged * SECOND;
            world.lists_after(unchanged * SECOND, json!({"stuck": true}));
            let waits = if counts { waits } else { 10 };
            if waits > 0 {
                world.after((waits - 1) * SECOND);
                assert!(world.shown().is_empty(), "{expression} {unchanged}");
                world.after(SECOND);
            }
            let start = world.one().metadata.creation_timestamp.expect("a start").0;
            assert_eq!(start, began, "{expression} {unchanged}");
        }
    }
}

#[test]
fn a_debounce_continues_from_the_last_detection() {
    let mut before = migrating();
    before.vm(&[]);
    before.after(20 * SECOND);
    let mut world = before.taken_over(4 * SECOND);
    world.lists(&[]);
    assert_eq!(world.objects, before.objects);
    world.after(5 * SECOND);
    assert_eq!(world.shown().len(), 1, "29 s of 30 s");
    world.after(SECOND);
    assert!(world.shown().is_empty());
    // The time ended during the takeover. The operation ends after its subject has been read.
    let mut world = before.taken_over(Duration::from_mins(1));
    world.rules(&RULES);
    world.after(SECOND);
    assert_eq!(world.objects, before.objects);
    world.feed(FeedEvent::Reset);
    world.vm(&[]);
    assert!(world.shown().is_empty());
}

#[test]
fn an_operation_on_a_cluster_scoped_subject_stays_where_the_previous_leader_put_it() {
    let mut before = world();
    let node = || Subject {
        namespace: None,
        ..subject("node")
    };
    before.sees(node(), &["Migrating"]);
    let told = before.one();
    let moved = TrackerSettings {
        cluster_namespace: "elsewhere".into(),
        ..settings(None)
    };
    let mut world = before.taken_over_with(moved.clone(), SECOND, |_, _| {});
    assert_eq!(world.objects, before.objects);
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    world.sees(node(), &["Migrating"]);
    world.synced();
    assert_eq!(world.objects, before.objects);
    // A custom resource of the operation may contain its end. Then the end is shown in the new
    // namespace.
    let mut over = told;
    over.status.phase = Phase::Completed;
    over.status.state = State::Ended;
    over.status.completed = Some(over.status.last_detected.clone());
    let retain = TrackerSettings {
        retain: Some(RETENTION),
        ..moved
    };
    let world = before.taken_over_with(retain, SECOND, |state, now| {
        assert!(state.add_custom_resource(over, now));
    });
    assert_eq!(world.one().metadata.namespace.as_deref(), Some("elsewhere"));
}

#[test]
fn custom_resources_are_limited_and_operations_of_the_index_are_not() {
    let told = |name: &str| {
        let mut world = world();
        world.sees(subject(name), &["Migrating"]);
        world
    };
    let now = told("a").now;
    let mut world = fresh(settings(None));
    let mut state = initial_state(&world, [].iter());
    state.custom_resources = MAX_RESTORED - 1;
    assert!(state.add_custom_resource(told("a").one(), now));
    assert!(!state.add_custom_resource(told("b").one(), now));
    world.objects = told("c").objects;
    for (key, json) in &world.objects {
        state.add_index_object(key, json, now);
    }
    world.message(Message::Resume(Box::new(state)));
    let shown = world.shown();
    let names: BTreeSet<&str> = shown.iter().map(|it| &*it.spec.subject.name).collect();
    assert_eq!(names, ["a", "c"].into());
}

#[test]
fn completed_operations_beyond_the_limit_never_appear() {
    let mut before = world_with(retaining());
    for name in ["a", "b", "c", "d"] {
        before.sees(subject(name), &["Migrating"]);
        before.sees(subject(name), &[]);
        before.after(DEBOUNCE);
    }
    let few = Retention {
        most: 2,
        ..RETENTION
    };
    let mut world = before.restarted_with(settings(Some(few)), SECOND, before.shown());
    let ended = "+Migrating Ended NotDetected";
    assert_eq!(world.seen(), [ended, ended]);
    let names = |world: &World| {
        let shown = world.shown().into_iter();
        shown
            .map(|it| it.spec.subject.name)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&world), ["c".into(), "d".into()].into());
    // The operations that the index lists are deleted.
    let world = before.taken_over_with(settings(Some(few)), SECOND, |_, _| {});
    assert_eq!(names(&world), ["c".into(), "d".into()].into());
}

#[test]
fn an_object_is_tracked_under_its_index_key() {
    let mut before = migrating();
    let json = before.objects.pop_first().expect("an object").1;
    let key = Key::new("ns", "another");
    before.objects.insert(key.clone(), json.clone());
    before.objects.insert(Key::new("ns", "double"), json);
    let mut world = before.taken_over(SECOND);
    assert!(world.objects.keys().eq([&key]), "one UID has one object");
    world.feed(FeedEvent::Lost);
    world.booked(&[], &[]);
    assert!(world.objects.is_empty(), "its rule is gone");
}
