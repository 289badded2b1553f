//! Tests of restarts in persistence mode. A new tracker continues from custom resources, which any
//! user may have edited.

use super::*;
use crate::rules::RuleSetsWithoutBook;
use ifo_api::live::StartTimeSource;
use serde_json::json;

pub(super) const RULES: [(&str, &[&str]); 1] = [("vm-rules", &["Migrating", "Stopping"])];

pub(super) fn settings(retain: Option<Retention>) -> TrackerSettings {
    TrackerSettings {
        debounce: DEBOUNCE,
        retain,
        cluster_namespace: "ifo-system".into(),
    }
}

/// A state without operations, in which `ns` and the namespaces of these have existed from the
/// start.
pub(super) fn initial_state<'a>(
    world: &World,
    operations: impl Iterator<Item = &'a InFlightOperation>,
) -> InitialState {
    let namespaces = operations.filter_map(|it| it.spec.subject.namespace.clone());
    let namespaces = namespaces
        .chain(["ns".to_owned()])
        .map(|name| (name, Timestamp::UNIX_EPOCH))
        .collect();
    let cluster_namespace = &world.tracker.ledger.settings.cluster_namespace;
    InitialState::new(cluster_namespace.clone(), Some(namespaces))
}

impl World {
    /// A server that starts `away` later, with a custom resource for each operation of this one.
    fn restarted(&self, away: Duration) -> World {
        self.restarted_with(settings(None), away, self.shown())
    }

    pub(super) fn restarted_with(
        &self,
        settings: TrackerSettings,
        away: Duration,
        operations: Vec<InFlightOperation>,
    ) -> World {
        let mut world = fresh(settings);
        world.now.wall = self.now.wall + away;
        let mut state = initial_state(&world, operations.iter());
        for operation in operations {
            assert!(state.add_custom_resource(operation, world.now));
        }
        world.message(Message::Resume(Box::new(state)));
        world
    }

    pub(super) fn booked(&mut self, undecided: &[&str], unserved: &[&str]) {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        self.message(Message::Booked(Arc::new(RuleSetsWithoutBook {
            undecided: names(undecided),
            unserved: names(unserved),
        })));
    }

    pub(super) fn synced(&mut self) {
        self.feed(FeedEvent::Synced { missing: None });
    }

    /// The same as [`World::vm`], as part of the first list.
    pub(super) fn lists(&mut self, what: &[&str]) {
        self.rules(&RULES);
        self.feed(FeedEvent::Reset);
        self.vm(what);
        self.synced();
        self.booked(&[], &[]);
    }
}

/// A world with one operation in flight for ten seconds.
pub(super) fn migrating() -> World {
    let mut world = world();
    world.vm(&["Migrating"]);
    world.after(Duration::from_secs(10));
    world
}

/// The fields that must be the same before and after.
pub(super) fn identity(object: &InFlightOperation) -> impl PartialEq + std::fmt::Debug + use<> {
    let metadata = object.metadata.clone();
    (
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.creation_timestamp,
    )
}

#[test]
fn a_restored_operation_continues_unchanged() {
    let before = migrating();
    let mut world = before.restarted(Duration::from_secs(5));
    let restored = world.one();
    assert_eq!(identity(&restored), identity(&before.one()));
    assert_eq!(restored.status.start_time_source, StartTimeSource::Restored);
    let mut expected = before.one();
    expected.status.start_time_source = StartTimeSource::Restored;
    expected.metadata.resource_version = restored.metadata.resource_version.clone();
    assert_eq!(restored, expected, "nothing else differs");
    let version = world.version;
    world.lists(&["Migrating"]);
    assert_eq!(world.version, version, "seen again, nothing changes");
    // The restored operation behaves like any other.
    world.vm(&[]);
    world.after(DEBOUNCE);
    assert_eq!(
        world.seen(),
        [
            "+Migrating Progressing Migrating",
            "~Migrating Settling Migrating",
            "~Migrating Ended NotDetected",
            "-Migrating Ended NotDetected",
        ]
    );
}

#[test]
fn all_values_of_the_rules_are_restored() {
    let mut before = world();
    let rule_set = before.book.rule_sets[0].clone();
    let says = RuleValues {
        labels: Arc::new([("tier".into(), "gold".into())].into_iter().collect()),
        state: Some(State::Blocked),
        reason: Some("NoNode".into()),
        message: "Waits for a node".into(),
        progress: Some(40),
        started: Some("2026-11-21T09:00:00Z".parse().expect("a time")),
        instance: Some("run-1".into()),
        ..RuleValues::default()
    };
    let told = |world: &mut World, says: RuleValues| {
        let evaluation = Evaluation {
            subject: subject("vm"),
            findings: vec![Finding {
                rule_set: rule_set.clone(),
                operation: "Migrating".into(),
                item: Some("disk".into()),
                says: Some(says),
            }],
            outcomes: Vec::new(),
            unselected: Vec::new(),
            failures: Vec::new(),
            unknown: Vec::new(),
            read_now: false,
        };
        world.feed(FeedEvent::Evaluated {
            evaluation: Box::new(evaluation),
            read: Instant::now(),
        });
    };
    told(&mut before, says.clone());
    let mut world = before.restarted(Duration::from_secs(5));
    let version = world.version;
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    told(&mut world, says.clone());
    assert_eq!(world.version, version, "{:#?}", world.one());
    let object = world.one();
    assert_eq!(
        object.status.start_time_source,
        StartTimeSource::Expression,
        "the rule would say the same again"
    );
    // Another run that started while no server was running is a different operation.
    let mut world = before.restarted(Duration::from_secs(5));
    world.seen();
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    let next = RuleValues {
        instance: Some("run-2".into()),
        started: None,
        ..says
    };
    told(&mut world, next);
    assert_eq!(
        world.seen(),
        [
            "~Migrating Ended Replaced",
            "-Migrating Ended Replaced",
            "+Migrating Blocked NoNode",
        ]
    );
    assert_ne!(world.one().metadata.uid, object.metadata.uid);
}

#[test]
fn a_restored_operation_that_is_not_detected_settles_before_it_completes() {
    let mut world = migrating().restarted(Duration::from_hours(1));
    let back = world.now.wall;
    world.lists(&[]);
    assert_eq!(world.one().status.state, State::Settling);
    world.after(DEBOUNCE / 2);
    assert_eq!(world.one().status.state, State::Settling);
    world.after(DEBOUNCE);
    assert!(world.shown().is_empty());
    let seen = world.seen();
    assert_eq!(seen[2], "~Migrating Ended NotDetected", "{seen:?}");
    assert!(world.now.wall > back);
}

#[test]
fn a_restored_debounce_continues_from_its_start() {
    let mut before = migrating();
    before.vm(&[]);
    before.after(Duration::from_secs(20));
    let mut world = before.restarted(Duration::from_secs(4));
    assert_eq!(world.one().status.state, State::Settling);
    world.lists(&[]);
    world.after(Duration::from_secs(5));
    assert_eq!(world.shown().len(), 1, "29 s of 30 s");
    world.after(Duration::from_secs(1));
    assert!(world.shown().is_empty());
    // The end is withdrawn as usual.
    let mut world = before.restarted(Duration::from_secs(4));
    world.lists(&["Migrating"]);
    world.after(DEBOUNCE * 2);
    assert_eq!(world.one().status.state, State::Progressing);
    assert_eq!(identity(&world.one()), identity(&before.one()));
}

#[test]
fn an_unrecorded_debounce_starts_at_the_last_change_of_the_subject() {
    let before = migrating();
    // Five seconds before the restart it had ended, according to managedFields.
    let back = before.now.wall + Duration::from_secs(5);
    let changed = |at: Timestamp| {
        let mut world = before.restarted(Duration::from_secs(5));
        world.rules(&RULES);
        world.feed(FeedEvent::Reset);
        let subject = Subject {
            managed: Some(at),
            ..subject("vm")
        };
        world.sees(subject, &[]);
        world.synced();
        world.booked(&[], &[]);
        world
    };
    let mut world = changed(before.now.wall);
    let object = world.one();
    assert_eq!(object.status.state, State::Settling);
    let since = before.now.wall + Duration::from_secs(1);
    assert_eq!(condition(&object, "Detected").0, "False");
    assert_eq!(object.status.last_detected.0, since);
    world.after(Duration::from_secs(25));
    assert_eq!(world.shown().len(), 1, "29 s of 30 s");
    // One more restart, after which a custom resource was written, changes nothing.
    let mut again = world.restarted(Duration::ZERO);
    again.lists(&[]);
    assert_eq!(again.shown().len(), 1);
    for mut world in [world, again] {
        world.after(Duration::from_secs(1));
        assert!(world.shown().is_empty());
    }
    // A time long ago is ignored, because the operation was detected later. A time in the future is
    // ignored, too.
    let hours = Duration::from_hours(9);
    for (at, early) in [(back - hours, 15), (back + hours, 0)] {
        let mut world = changed(at);
        let left = DEBOUNCE.saturating_sub(Duration::from_secs(early + 1));
        world.after(left);
        assert_eq!(world.shown().len(), 1, "{at}");
        world.after(Duration::from_secs(1));
        assert!(world.shown().is_empty(), "{at}");
    }
}

#[test]
fn an_expired_debounce_waits_until_the_subject_is_observed() {
    let mut before = migrating();
    before.vm(&[]);
    let mut world = before.restarted(Duration::from_hours(1));
    world.after(Duration::from_secs(1));
    world.rules(&RULES);
    world.after(Duration::from_secs(1));
    world.feed(FeedEvent::Reset);
    world.after(Duration::from_secs(1));
    assert_eq!(world.one().status.state, State::Settling);
    let mut detected = before.restarted(Duration::from_hours(1));
    detected.after(Duration::from_secs(1));
    detected.lists(&["Migrating"]);
    assert_eq!(identity(&detected.one()), identity(&before.one()));
    world.vm(&[]);
    assert!(world.shown().is_empty());
}

#[test]
fn restored_operations_of_a_deleted_subject_complete() {
    let mut world = migrating().restarted(Duration::from_secs(5));
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    world.sees(subject("other"), &[]);
    assert_eq!(world.shown().len(), 1, "the list is not over");
    world.synced();
    assert!(world.shown().is_empty());
    assert!(
        world
            .seen()
            .contains(&"~Migrating Ended SubjectDeleted".into())
    );
    // An operation whose subject is deleted before the list has also ended.
    let mut world = migrating().restarted(Duration::from_secs(5));
    world.rules(&RULES);
    world.feed(FeedEvent::Deleted {
        subject: subject("vm"),
        read: Instant::now(),
    });
    assert!(world.shown().is_empty());
}

#[test]
fn restored_operations_of_a_removed_rule_complete_once_all_rules_are_known() {
    // The rule is removed, but its rule set exists.
    let mut world = migrating().restarted(Duration::from_secs(5));
    world.rules(&[("vm-rules", &["Stopping"])]);
    assert_eq!(world.shown().len(), 1);
    world.booked(&[], &[]);
    assert!(world.shown().is_empty());
    assert!(
        world
            .seen()
            .contains(&"~Migrating Ended RuleRemoved".into())
    );
    // All rules of the target are removed.
    let mut world = migrating().restarted(Duration::from_secs(5));
    world.booked(&[], &[]);
    assert!(
        world
            .seen()
            .contains(&"~Migrating Ended RuleRemoved".into())
    );
    // The resource is removed.
    let mut world = migrating().restarted(Duration::from_secs(5));
    world.booked(&[], &["vm-rules"]);
    assert!(
        world
            .seen()
            .contains(&"~Migrating Ended TargetRemoved".into())
    );
    assert!(world.shown().is_empty());
}

#[test]
fn a_renamed_rule_set_takes_over_restored_operations() {
    let before = migrating();
    let mut world = before.restarted(Duration::from_secs(5));
    world.rules(&[("new", &["Migrating"])]);
    world.feed(FeedEvent::Reset);
    world.booked(&[], &[]);
    assert_eq!(world.shown().len(), 1);
    world.vm(&["new:Migrating"]);
    world.synced();
    let object = world.one();
    assert_eq!(identity(&object), identity(&before.one()));
    assert_eq!(object.status.detected_by, ["new"]);
    assert_eq!(object.status.state, State::Progressing);
}

#[test]
fn restored_operations_of_an_undecided_target_stay_with_detected_unknown() {
    let before = migrating();
    let mut world = before.restarted(Duration::from_secs(5));
    world.booked(&["vm-rules"], &[]);
    let object = world.one();
    assert_eq!(object.status.phase, Phase::Active);
    assert_eq!(condition(&object, "Detected").0, "Unknown");
    world.after(DEBOUNCE * 2);
    // Discovery finally finds the target.
    world.lists(&["Migrating"]);
    let object = world.one();
    assert_eq!(condition(&object, "Detected").0, "True");
    assert_eq!(identity(&object), identity(&before.one()));
    // Or discovery finally finds that the target does not exist.
    let mut world = before.restarted(Duration::from_secs(5));
    world.booked(&["vm-rules"], &[]);
    world.booked(&[], &["vm-rules"]);
    assert!(world.shown().is_empty());
}

#[test]
fn a_feed_that_cannot_start_ends_no_operations() {
    let before = migrating();
    let mut world = before.restarted(Duration::from_secs(5));
    world.rules(&RULES);
    world.feed(FeedEvent::Lost);
    world.booked(&[], &[]);
    world.after(DEBOUNCE * 2);
    assert_eq!(condition(&world.one(), "Detected").0, "Unknown");
    world.feed(FeedEvent::Reset);
    world.vm(&["Migrating"]);
    world.synced();
    assert_eq!(condition(&world.one(), "Detected").0, "True");
    assert_eq!(identity(&world.one()), identity(&before.one()));
}

#[test]
fn rules_that_change_before_their_feed_has_synced_take_over() {
    let before = migrating();
    let mut world = before.restarted(Duration::from_secs(5));
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    world.rules(&[("vm-rules", &["Migrating", "Starting"])]);
    world.booked(&[], &[]);
    world.feed(FeedEvent::Reset);
    world.vm(&["Migrating"]);
    world.synced();
    assert_eq!(identity(&world.one()), identity(&before.one()));
    world.rules(&[("vm-rules", &["Starting"])]);
    assert!(world.shown().is_empty(), "as without a restart");
}

#[test]
fn restored_completed_operations_are_shown_for_the_rest_of_their_retention() {
    let mut before = world_with(settings(Some(RETENTION)));
    before.vm(&["Migrating"]);
    before.after(Duration::from_secs(10));
    before.vm(&[]);
    before.after(DEBOUNCE);
    let over = before.one();
    assert_eq!(over.status.phase, Phase::Completed);
    let away = Duration::from_hours(1);
    let restart = |retain| before.restarted_with(settings(retain), away, before.shown());
    let mut world = restart(Some(RETENTION));
    world.lists(&[]);
    let mut restored = world.one();
    restored
        .metadata
        .resource_version
        .clone_from(&over.metadata.resource_version);
    assert_eq!(restored, over);
    world.after(Duration::from_hours(23) - Duration::from_secs(1));
    assert_eq!(world.shown().len(), 1);
    world.after(Duration::from_secs(1));
    assert!(world.shown().is_empty());
    // It is not shown without retention, or with a shorter retention.
    assert!(restart(None).shown().is_empty());
    let short = Retention {
        age: Duration::from_mins(59),
        ..RETENTION
    };
    assert!(restart(Some(short)).shown().is_empty());
    // It is deleted with its namespace.
    let mut world = restart(Some(RETENTION));
    world.gone("ns", None);
    assert!(world.shown().is_empty());
}

#[test]
fn restored_completed_operations_are_limited_in_any_order() {
    let mut before = world_with(settings(Some(RETENTION)));
    for name in ["a", "b", "c", "d"] {
        before.sees(subject(name), &["Migrating"]);
        before.sees(subject(name), &[]);
        before.after(DEBOUNCE);
    }
    let mut kept = before.shown();
    kept.swap(0, 3);
    let few = Retention {
        most: 2,
        ..RETENTION
    };
    let world = before.restarted_with(settings(Some(few)), Duration::from_secs(1), kept);
    let shown = world.shown();
    let names: Vec<&str> = shown.iter().map(|it| &*it.spec.subject.name).collect();
    assert_eq!(names, ["c", "d"]);
}

#[test]
fn a_successor_in_the_same_second_as_a_restored_operation_has_another_name() {
    let mut before = world_with(settings(Some(RETENTION)));
    before.vm(&["Migrating"]);
    before.rules(&[("vm-rules", &["Stopping"])]);
    let over = before.one();
    let mut world =
        before.restarted_with(settings(Some(RETENTION)), Duration::ZERO, before.shown());
    world.lists(&["Migrating"]);
    let names: BTreeSet<_> = world
        .shown()
        .into_iter()
        .map(|it| it.metadata.name)
        .collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&over.metadata.name));
}

#[test]
fn of_two_custom_resources_with_one_uid_the_first_counts() {
    let before = migrating();
    let mut newer = before.shown();
    newer[0].status.message = "newer".into();
    newer.extend(before.shown());
    let mut world = before.restarted_with(settings(None), Duration::ZERO, newer);
    assert_eq!(world.one().status.message, "newer");
    assert_eq!(world.seen().len(), 1);
}

#[test]
fn a_completed_custom_resource_replaces_an_active_one_with_its_uid() {
    let mut before = world_with(settings(Some(RETENTION)));
    before.vm(&["Migrating"]);
    let goes_on = before.one();
    before.after(Duration::from_secs(10));
    before.vm(&[]);
    before.after(DEBOUNCE);
    let over = before.one();
    assert_eq!(identity(&goes_on), identity(&over));
    for told in [[&goes_on, &over], [&over, &goes_on]] {
        let told = told.map(Clone::clone).to_vec();
        let kept = settings(Some(RETENTION));
        let mut world = before.restarted_with(kept, DEBOUNCE, told.clone());
        // It is detected again, as a different operation.
        world.lists(&["Migrating"]);
        let shown = world.shown();
        assert_eq!(shown.len(), 2, "{shown:?}");
        let mut restored = shown.into_iter().find(|it| identity(it) == identity(&over));
        let restored = restored.as_mut().expect("it is shown");
        let version = &over.metadata.resource_version;
        restored.metadata.resource_version.clone_from(version);
        assert_eq!(*restored, over, "with the end that was told");
        // Without retention it is not shown.
        let world = before.restarted_with(settings(None), DEBOUNCE, told);
        assert!(world.shown().is_empty());
    }
}

#[test]
fn a_run_whose_end_was_not_written_is_replaced_by_a_later_run() {
    let kept = || settings(Some(RETENTION));
    let mut before = world_with(kept());
    before.vm(&["Migrating"]);
    let goes_on = before.one();
    for what in [&[] as &[&str], &["Migrating"], &[]] {
        before.after(Duration::from_secs(10));
        before.vm(what);
        before.after(DEBOUNCE);
    }
    let [first, second]: [InFlightOperation; 2] = before.shown().try_into().unwrap();
    let (over, later) = if identity(&first) == identity(&goes_on) {
        (&first, &second)
    } else {
        (&second, &first)
    };
    let goes_on = &goes_on;
    // Without its end, with its end, and with a repeated end.
    let all: [&[&InFlightOperation]; 10] = [
        &[goes_on, later],
        &[later, goes_on],
        &[goes_on, later, goes_on],
        &[goes_on, later, later],
        &[goes_on, over, later],
        &[goes_on, later, over],
        &[over, goes_on, later],
        &[over, later, goes_on],
        &[later, goes_on, over],
        &[later, over, goes_on],
    ];
    let unversioned = |it: &InFlightOperation| {
        let mut it = it.clone();
        it.metadata.resource_version = None;
        it
    };
    for told in all {
        let operations = told.iter().map(|it| (*it).clone()).collect();
        let mut world = before.restarted_with(kept(), DEBOUNCE, operations);
        let shown = world.shown();
        assert_eq!(shown.len(), 2, "{shown:?}");
        let of = |one: &InFlightOperation| {
            let same = shown.iter().find(|it| identity(it) == identity(one));
            unversioned(same.expect("it is shown"))
        };
        assert_eq!(of(later), unversioned(later));
        let is_told = told.contains(&over);
        if is_told {
            assert_eq!(of(over), unversioned(over), "with the end that was told");
        } else {
            let status = of(goes_on).status;
            assert_eq!(status.reason, "Replaced");
            let start = later.metadata.creation_timestamp.as_ref();
            assert_eq!(status.completed.as_ref(), start);
        }
        // It is detected again as a different operation. The completed one stays for the rest of
        // its time.
        world.lists(&["Migrating"]);
        assert_eq!(world.shown().len(), 3);
        world.after(RETENTION.age);
        let name = &world.one().metadata.name;
        assert!(![&over.metadata.name, &later.metadata.name].contains(&name));
    }
    // The end of an earlier run does not matter.
    before.vm(&["Migrating"]);
    let mut shown = before.shown();
    let in_flight = |it: &&InFlightOperation| it.status.phase == Phase::Active;
    let third = shown.iter().find(in_flight).expect("it is shown").clone();
    for _ in 0..2 {
        let mut world = before.restarted_with(kept(), DEBOUNCE, shown.clone());
        world.lists(&["Migrating"]);
        let shown_again = world.shown();
        let goes_on = shown_again.iter().find(in_flight).expect("it goes on");
        assert_eq!(identity(goes_on), identity(&third));
        shown.reverse();
    }
}

/// The start and end times of the reported operations, in that order. All are in flight when they
/// arrive, and retained after their end.
pub(super) fn spans(world: &World) -> Vec<(Timestamp, Option<Timestamp>)> {
    let span = |it: &InFlightOperation| {
        let start = it.metadata.creation_timestamp.as_ref();
        let end = it.status.completed.as_ref();
        (start.expect("a start").0, end.map(|end| end.0))
    };
    let mut spans: Vec<_> = world.shown().iter().map(span).collect();
    spans.sort();
    spans
}

#[test]
fn a_new_run_found_after_a_restart_completes_the_earlier_run_at_its_own_start() {
    let mut before = migrating().one();
    before.status.instance = Some("a".into());
    let start = migrating().now.wall;
    let minute = Duration::from_mins(1);
    let retain = settings(Some(RETENTION));
    let mut world = migrating().restarted_with(retain, minute, vec![before]);
    world.rules(&RULES);
    world.feed(FeedEvent::Reset);
    let subject = Subject {
        managed: Some(start + Duration::from_secs(20)),
        ..subject("vm")
    };
    let says = RuleValues {
        instance: Some("b".into()),
        ..RuleValues::default()
    };
    let finding = Finding {
        rule_set: world.book.rule_sets[0].clone(),
        operation: "Migrating".into(),
        item: None,
        says: Some(says),
    };
    world.finds(subject, vec![finding]);
    let spans = spans(&world);
    let changed = start + Duration::from_secs(20);
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0].1, Some(changed));
    assert_eq!(spans[1], (changed, None));
}

#[test]
fn of_two_active_runs_the_earlier_is_replaced_when_the_later_starts() {
    let mut both = two_starts();
    both[0].status.instance = Some("a".into());
    both[1].status.instance = Some("b".into());
    let mut later = world();
    later.after(Duration::from_hours(2));
    let retain = settings(Some(RETENTION));
    for _ in 0..2 {
        let world = later.restarted_with(retain.clone(), Duration::ZERO, both.to_vec());
        let spans = spans(&world);
        assert_eq!(spans.len(), 2);
        assert_eq!(spans[0].1, Some(spans[1].0));
        both.reverse();
    }
}

#[test]
fn a_run_that_was_seen_to_settle_after_a_later_one_started_ended_before_that() {
    let retain = || settings(Some(RETENTION));
    let mut before = world_with(retain());
    before.vm(&["Migrating"]);
    before.after(Duration::from_secs(1));
    let other = {
        // The state that another server detected: the operation had ended and started again.
        let mut other = world_with(retain());
        other.after(Duration::from_secs(20));
        other.vm(&["Migrating"]);
        other.after(Duration::from_secs(5));
        other.vm(&[]);
        other.after(DEBOUNCE);
        other.one()
    };
    before.after(Duration::from_secs(24));
    before.vm(&[]);
    let told = vec![before.one(), other];
    let world = before.restarted_with(retain(), DEBOUNCE, told);
    let spans = spans(&world);
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0].1, Some(spans[1].0));
}

/// The operation of [`migrating`], and one that started an hour later.
pub(super) fn two_starts() -> [InFlightOperation; 2] {
    let mut later = world();
    later.after(Duration::from_hours(1));
    later.vm(&["Migrating"]);
    [migrating().one(), later.one()]
}

#[test]
fn an_operation_on_a_cluster_scoped_subject_moves_with_the_setting() {
    let mut before = world();
    before.sees(
        Subject {
            namespace: None,
            ..subject("node")
        },
        &["Migrating"],
    );
    let moved = TrackerSettings {
        cluster_namespace: "elsewhere".into(),
        ..settings(None)
    };
    let world = before.restarted_with(moved, Duration::ZERO, before.shown());
    let object = world.one();
    assert_eq!(object.metadata.namespace.as_deref(), Some("elsewhere"));
    assert_eq!(object.metadata.uid, before.one().metadata.uid);
}

#[test]
fn custom_resources_that_the_server_cannot_have_written_are_ignored() {
    let good = serde_json::to_value(migrating().one()).expect("it encodes");
    let long = "x".repeat(254);
    let edits = [
        ("/metadata/name", json!("another")),
        (
            "/metadata/uid",
            json!("00000000-0000-0000-0000-000000000000"),
        ),
        ("/metadata/uid", json!("")),
        ("/metadata/creationTimestamp", json!("2026-11-21T09:59:59Z")),
        ("/metadata/creationTimestamp", json!("2999-01-01T00:00:00Z")),
        ("/metadata/creationTimestamp", json!(null)),
        ("/metadata/labels", json!({"not a key": "a"})),
        ("/metadata/labels", json!({"a": "not a value"})),
        ("/spec/operation", json!("")),
        ("/spec/operation", json!("Stopping")),
        ("/spec/operation", json!("not an operation")),
        ("/spec/ruleSet", json!("")),
        ("/spec/component", json!(long)),
        ("/spec/subject/uid", json!(null)),
        ("/spec/subject/uid", json!("uid-other")),
        ("/spec/subject/name", json!("other")),
        ("/spec/subject/name", json!(long)),
        ("/spec/subject/kind", json!("")),
        ("/spec/subject/apiVersion", json!(long)),
        ("/spec/subject/namespace", json!("a/b")),
        ("/spec/subject/namespace", json!("")),
        ("/spec/item", json!("")),
        ("/spec/item", json!("disk")),
        ("/status/message", json!("x".repeat(1025))),
        ("/status/progress", json!(101)),
        ("/status/instance", json!(long)),
        ("/status/detectedBy", json!([""])),
        ("/status/detectedBy", json!(vec!["a"; 1000])),
        ("/status/phase", json!("Completed")),
    ];
    for (pointer, value) in edits {
        let mut bad = good.clone();
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        bad.pointer_mut(parent).expect("it is there")[field] = value.clone();
        let bad = serde_json::from_value(bad).expect("still an object");
        let operations = vec![
            bad,
            serde_json::from_value(good.clone()).expect("an object"),
        ];
        let retain = settings(Some(RETENTION));
        let world = migrating().restarted_with(retain, Duration::ZERO, operations);
        assert_eq!(
            world.one().metadata.name,
            migrating().one().metadata.name,
            "{pointer}: {value}"
        );
        assert_eq!(
            world.one().status.phase,
            Phase::Active,
            "{pointer}: {value}"
        );
        assert_eq!(world.one().status.message, "", "{pointer}: {value}");
    }
}

#[test]
fn implausible_times_are_corrected() {
    let mut object = migrating().one();
    let future = "2999-01-01T00:00:00Z".parse().expect("a time");
    object.status.last_detected.0 = future;
    for condition in &mut object.status.conditions {
        condition.last_transition_time.0 = future;
    }
    object.status.state = State::Settling;
    let mut world = migrating().restarted_with(settings(None), Duration::ZERO, vec![object]);
    let now = world.now.wall;
    assert!(world.one().status.last_detected.0 <= now);
    world.lists(&[]);
    world.after(DEBOUNCE);
    assert!(
        world.shown().is_empty(),
        "a debounce is never longer than it is"
    );
}

proptest! {
    /// For any events before and after the restart or takeover: no operation that is not detected
    /// is left in flight, and an operation that the first evaluation detects keeps its name.
    #[test]
    fn no_completion_is_lost_over_a_restart_or_a_takeover(
        before in proptest::collection::vec((0..3_usize, any::<bool>(), 0..40_u64), 0..12),
        away in 0..100_u64,
        has_index in any::<bool>(),
        after in proptest::collection::vec((0..3_usize, any::<bool>()), 3..12),
    ) {
        let mut world = world();
        let names = ["a", "b", "c"];
        for (which, detected, pause) in before {
            let what: &[&str] = if detected { &["Migrating"] } else { &[] };
            world.sees(subject(names[which]), what);
            world.after(Duration::from_secs(pause));
        }
        let kept = world.shown();
        let away = Duration::from_secs(away);
        let mut world = if has_index {
            world.taken_over(away)
        } else {
            world.restarted(away)
        };
        prop_assert_eq!(world.version == 0, has_index || kept.is_empty());
        world.rules(&RULES);
        world.feed(FeedEvent::Reset);
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (which, detected) in after {
            let what: &[&str] = if detected { &["Migrating"] } else { &[] };
            world.sees(subject(names[which]), what);
            first.entry(names[which]).or_insert(detected);
            last.insert(names[which], detected);
        }
        world.synced();
        world.booked(&[], &[]);
        world.after(DEBOUNCE);
        let shown = world.shown();
        let found: BTreeSet<&str> = shown.iter().map(|it| &*it.spec.subject.name).collect();
        let expected: BTreeSet<&str> =
            last.into_iter().filter_map(|(name, detected)| detected.then_some(name)).collect();
        prop_assert_eq!(found, expected);
        for object in &shown {
            let same = |it: &&InFlightOperation| it.spec.subject.name == object.spec.subject.name;
            if let Some(kept) = kept.iter().find(same)
                && first[&*object.spec.subject.name]
            {
                prop_assert_eq!(&kept.metadata.uid, &object.metadata.uid);
            }
        }
    }
}
