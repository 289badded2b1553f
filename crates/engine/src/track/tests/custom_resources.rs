//! Tests of restarts in persistence mode, in which the server also writes operations to custom
//! resources. After a restart, a new tracker restores the operations from these custom resources.
//! Users may have edited the custom resources.

use super::*;
use crate::rules::RuleSetsWithoutBook;
use serde_json::json;

pub(super) const RULES: [(&str, &[&str]); 1] = [("vm-rules", &["Migrating", "Stopping"])];

/// Returns an initial state without operations. According to this state, the namespace `ns` and the
/// namespaces of the subjects of `operations` exist, and were created in 1970.
pub(super) fn initial_state<'a>(
    fixture: &TrackerFixture,
    operations: impl Iterator<Item = &'a InFlightOperation>,
) -> InitialState {
    let namespaces = operations.filter_map(|it| it.spec.subject.namespace.clone());
    let namespaces = namespaces
        .chain(["ns".into()])
        .map(|name| (name, Timestamp::UNIX_EPOCH))
        .collect();
    let cluster_namespace = &fixture.tracker.shared.settings.cluster_namespace;
    InitialState::new(cluster_namespace.clone(), Some(Arc::new(namespaces)))
}

impl TrackerFixture {
    /// Returns a fixture with a new tracker that starts `away` later. The new tracker restores each
    /// operation of this fixture from a custom resource.
    pub(super) fn restarted(&self, away: Duration) -> TrackerFixture {
        self.restarted_with(settings(None), away, self.shown())
    }

    pub(super) fn restarted_with(
        &self,
        settings: TrackerSettings,
        away: Duration,
        operations: Vec<InFlightOperation>,
    ) -> TrackerFixture {
        let mut fixture = fixture_without_rules(settings);
        fixture.now.wall = self.now.wall + away;
        let mut state = initial_state(&fixture, operations.iter());
        for operation in operations {
            assert!(state.add_custom_resource(operation, fixture.now));
        }
        fixture.send(Message::Resume(Box::new(state)));
        fixture
    }

    /// Tells the tracker that the test has sent all rule books. (A rule book contains the rules for
    /// one resource.) Only the `undecided` and `unserved` rule sets have no rule book. For an
    /// `undecided` rule set, a rule book can still follow. For an `unserved` rule set, the cluster
    /// does not serve the target (the watched resource).
    pub(super) fn complete_rule_books(&mut self, undecided: &[&str], unserved: &[&str]) {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        self.send(Message::AllRuleBooksSent(Arc::new(RuleSetsWithoutBook {
            undecided: names(undecided),
            unserved: names(unserved),
        })));
    }

    pub(super) fn complete_list(&mut self) {
        self.send_event(FeedEvent::Synced { missing: None });
    }

    /// Sends the rules and a first list with one VM. On this VM, the rules detect the operations
    /// `what`. Then tells the tracker that all rule books have been sent.
    pub(super) fn complete_first_list(&mut self, what: &[&str]) {
        self.set_rules(&RULES);
        self.complete_list_with(what);
        self.complete_rule_books(&[], &[]);
    }

    /// Sends a list with one VM. On this VM, the rules detect the operations `what`.
    fn complete_list_with(&mut self, what: &[&str]) {
        self.send_event(FeedEvent::Reset);
        self.evaluate_vm(what);
        self.complete_list();
    }
}

/// Creates a fixture with one operation that has been in flight for ten seconds.
pub(super) fn migrating() -> TrackerFixture {
    let mut fixture = fixture();
    fixture.evaluate_vm(&["Migrating"]);
    fixture.advance(Duration::from_secs(10));
    fixture
}

/// Returns the fields that a restart must not change.
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
fn a_run_whose_end_was_not_written_is_replaced_by_a_later_run() {
    let kept = || settings(Some(RETENTION));
    let mut before = fixture_with(kept());
    before.evaluate_vm(&["Migrating"]);
    let in_progress = before.only_operation();
    for what in [&[] as &[&str], &["Migrating"], &[]] {
        before.advance(Duration::from_secs(10));
        before.evaluate_vm(what);
        before.advance(DEBOUNCE);
    }
    let by_start = |mut all: Vec<InFlightOperation>| {
        all.sort_by_key(|it| it.metadata.creation_timestamp);
        all
    };
    let [completed, later] = by_start(before.shown()).try_into().unwrap();
    // Custom resources in the order in which the tracker receives them: the first run before its end
    // (`p`), the first run after its end (`c`), and the second run after its end (`l`).
    for order in [
        "pl", "lp", "plp", "pll", "pcl", "plc", "cpl", "clp", "lpc", "lcp",
    ] {
        let resource = |letter| match letter {
            'p' => in_progress.clone(),
            'c' => completed.clone(),
            _ => later.clone(),
        };
        let operations = order.chars().map(resource).collect();
        let mut fixture = before.restarted_with(kept(), DEBOUNCE, operations);
        let shown = by_start(fixture.shown());
        assert_eq!(shown.len(), 2, "{order}");
        assert_eq!(shown[1], later, "{order}");
        if order.contains('c') {
            assert_eq!(shown[0], completed, "{order}");
        } else {
            let status = &shown[0].status;
            let end = status.completed.expect("the run must be completed");
            assert_eq!(
                (&*status.reason, end),
                ("Replaced", later.metadata.creation_timestamp)
            );
        }
        // The rule detects the operation again, which starts a third run. The completed runs stay
        // until their retention is over.
        fixture.complete_first_list(&["Migrating"]);
        assert_eq!(fixture.shown().len(), 3);
        fixture.advance(RETENTION.age);
        assert_eq!(fixture.only_operation().status.phase, Phase::Active);
    }
    // If a third run is in flight, it continues after the restart.
    before.evaluate_vm(&["Migrating"]);
    let mut shown = by_start(before.shown());
    let third = identity(&shown[2]);
    for _ in 0..2 {
        let mut fixture = before.restarted_with(kept(), DEBOUNCE, shown.clone());
        fixture.complete_first_list(&["Migrating"]);
        assert_eq!(identity(&by_start(fixture.shown())[2]), third);
        shown.reverse();
    }
}

/// Returns the start and end time of each operation, sorted by the start. The end is None for an
/// operation in flight.
pub(super) fn start_and_end_times(fixture: &TrackerFixture) -> Vec<(Timestamp, Option<Timestamp>)> {
    let span = |it: &InFlightOperation| {
        let end = it.status.completed.as_ref();
        (it.metadata.creation_timestamp.0, end.map(|end| end.0))
    };
    let mut start_and_end_times: Vec<_> = fixture.shown().iter().map(span).collect();
    start_and_end_times.sort();
    start_and_end_times
}

#[test]
fn an_earlier_run_that_stopped_being_detected_after_the_start_of_a_later_run_ends_at_that_start() {
    let retain = || settings(Some(RETENTION));
    let mut before = fixture_with(retain());
    before.evaluate_vm(&["Migrating"]);
    before.advance(Duration::from_secs(1));
    let other = {
        // Another replica detected a second run, which started 20 seconds after the start of the
        // first run.
        let mut other = fixture_with(retain());
        other.advance(Duration::from_secs(20));
        other.evaluate_vm(&["Migrating"]);
        other.advance(Duration::from_secs(5));
        other.evaluate_vm(&[]);
        other.advance(DEBOUNCE);
        other.only_operation()
    };
    before.advance(Duration::from_secs(24));
    before.evaluate_vm(&[]);
    let resources = vec![before.only_operation(), other];
    let fixture = before.restarted_with(retain(), DEBOUNCE, resources);
    let start_and_end_times = start_and_end_times(&fixture);
    assert_eq!(start_and_end_times.len(), 2);
    assert_eq!(start_and_end_times[0].1, Some(start_and_end_times[1].0));
}

/// Returns two runs of an operation: the run of [`migrating`], and a run that started an hour
/// later.
pub(super) fn two_runs() -> [InFlightOperation; 2] {
    let mut later = fixture();
    later.advance(Duration::from_hours(1));
    later.evaluate_vm(&["Migrating"]);
    [migrating().only_operation(), later.only_operation()]
}

#[test]
fn custom_resources_that_the_server_cannot_have_written_are_ignored() {
    let good =
        serde_json::to_value(migrating().only_operation()).expect("an operation can be encoded");
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
        ("/metadata/labels", json!({"not a key": "a"})),
        ("/metadata/labels", json!({"a": "not a value"})),
        ("/spec/operation", json!("")),
        ("/spec/operation", json!("Stopping")),
        ("/spec/operation", json!("not an operation")),
        ("/spec/component", json!(long)),
        ("/spec/component", json!("other")),
        ("/spec/subject/uid", json!(null)),
        ("/spec/subject/uid", json!("uid-other")),
        ("/spec/subject/name", json!("other")),
        ("/spec/subject/name", json!(long)),
        ("/spec/subject/namespace", json!("a/b")),
        ("/spec/subject/namespace", json!("")),
        ("/spec/item", json!("")),
        ("/spec/item", json!("disk")),
        ("/status/instance", json!("x".repeat(64 << 10))),
        ("/status/phase", json!("Completed")),
        ("/status/reason", json!("not a reason")),
        ("/status/message", json!("x".repeat(1025))),
        ("/status/progress", json!(101)),
    ];
    for (pointer, value) in edits {
        let mut bad = good.clone();
        let (parent, field) = pointer
            .rsplit_once('/')
            .expect("a JSON pointer contains a slash");
        bad.pointer_mut(parent).expect("the parent field exists")[field] = value.clone();
        let bad = serde_json::from_value(bad).expect("the edited JSON is still an operation");
        let operations = vec![
            bad,
            serde_json::from_value(good.clone()).expect("the JSON is an operation"),
        ];
        let retain = settings(Some(RETENTION));
        let fixture = migrating().restarted_with(retain, Duration::ZERO, operations);
        let (shown, expected) = (fixture.only_operation(), migrating().only_operation());
        assert_eq!(identity(&shown), identity(&expected), "{pointer}: {value}");
        let values = |it: &InFlightOperation| {
            let status = &it.status;
            let (reason, message) = (status.reason.clone(), status.message.clone());
            (status.phase, reason, message, status.progress)
        };
        assert_eq!(values(&shown), values(&expected), "{pointer}: {value}");
    }
}

#[test]
fn times_in_the_future_are_corrected() {
    let mut object = migrating().only_operation();
    let future = "2999-01-01T00:00:00Z".parse().expect("the time is valid");
    object.status.last_detected.0 = future;
    for condition in &mut object.status.conditions {
        condition.last_transition_time.0 = future;
    }
    object.status.state = State::Settling;
    let mut fixture = migrating().restarted_with(settings(None), Duration::ZERO, vec![object]);
    let now = fixture.now.wall;
    let status = fixture.only_operation().status;
    assert!(status.last_detected.0 <= now);
    fixture.complete_first_list(&[]);
    fixture.advance(DEBOUNCE);
    assert!(
        fixture.shown().is_empty(),
        "a time in the future must not prolong the debounce period"
    );
}

proptest! {
    /// The test evaluates subjects before and after a restart or a takeover. In the end, exactly
    /// those operations are in flight that the last evaluation of each subject detected. If the new
    /// tracker's first evaluation of a subject detects a restored operation, the operation keeps
    /// its UID.
    #[test]
    fn no_completion_is_lost_over_a_restart_or_a_takeover(
        before in proptest::collection::vec((0..3_usize, any::<bool>(), 0..40_u64), 0..12),
        away in 0..100_u64,
        has_index in any::<bool>(),
        after in proptest::collection::vec((0..3_usize, any::<bool>()), 3..12),
    ) {
        let mut fixture = fixture();
        let names = ["a", "b", "c"];
        for (which, detected, pause) in before {
            let what: &[&str] = if detected { &["Migrating"] } else { &[] };
            fixture.evaluate(names[which], what);
            fixture.advance(Duration::from_secs(pause));
        }
        let kept = fixture.shown();
        let away = Duration::from_secs(away);
        let mut fixture = if has_index {
            fixture.taken_over(away)
        } else {
            fixture.restarted(away)
        };
        prop_assert_eq!(fixture.version == 0, has_index || kept.is_empty());
        fixture.set_rules(&RULES);
        fixture.send_event(FeedEvent::Reset);
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (which, detected) in after {
            let what: &[&str] = if detected { &["Migrating"] } else { &[] };
            fixture.evaluate(names[which], what);
            first.entry(names[which]).or_insert(detected);
            last.insert(names[which], detected);
        }
        fixture.complete_list();
        fixture.complete_rule_books(&[], &[]);
        fixture.advance(DEBOUNCE);
        let shown = fixture.shown();
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
