//! Tests of the retention of completed operations. Clients see a completed operation for a limited
//! time. If the namespace of the operation was deleted, clients do not see the operation.

use super::*;
use crate::track::last_runs::LastRuns;

const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

fn retaining(max_count: usize) -> TrackerFixture {
    fixture_with(TrackerSettings {
        debounce: Duration::ZERO,
        ..settings(Some(Retention {
            max_count,
            ..RETENTION
        }))
    })
}

impl TrackerFixture {
    /// Evaluates the subject `name`. The rule detects a migration that started at `started`.
    fn evaluate_migration_since(&mut self, name: &str, started: Timestamp) {
        let finding = Finding {
            rule_set: self.book.rule_sets[0].clone(),
            operation: "Migrating".into(),
            item: None,
            values: Some(RuleValues {
                started: Some(started),
                ..RuleValues::default()
            }),
        };
        self.evaluate_with(subject(name), vec![finding]);
    }

    fn evaluate_undetected(&mut self, name: &str) {
        self.evaluate(subject(name), &[]);
    }

    fn delete_subject(&mut self, name: &str) {
        self.subject_deleted(subject(name));
    }

    /// Returns one letter for each operation, sorted by the start: `A` for an active operation, and
    /// `C` for a completed operation.
    fn phases(&self) -> String {
        let mut shown = self.shown();
        shown.sort_by_key(|it| it.metadata.creation_timestamp.0);
        let letter = |it: &InFlightOperation| match it.status.phase {
            Phase::Active => 'A',
            Phase::Completed => 'C',
            Phase::Unknown(_) => 'U',
        };
        shown.iter().map(letter).collect()
    }
}

#[test]
fn the_retention_of_a_completed_run_does_not_delete_a_later_run() {
    let mut fixture = retaining(10_000);
    let since = fixture.now.wall - HOUR;
    fixture.evaluate_migration_since("vm", since);
    fixture.advance(HOUR);
    fixture.evaluate_undetected("vm");
    fixture.advance(HOUR + HOUR / 2);
    fixture.evaluate_migration_since("vm", since);
    assert_eq!(
        fixture.phases(),
        "CA",
        "both runs must have different names"
    );
    fixture.take_changes();
    fixture.advance(HOUR * 23);
    assert_eq!(fixture.phases(), "A");
    assert_eq!(fixture.take_changes(), ["-Migrating Ended NotDetected"]);
}

#[test]
fn the_name_of_a_restored_completed_operation_is_reserved_while_it_is_shown() {
    let mut before = retaining(10_000);
    let since = before.now.wall - HOUR;
    before.evaluate_migration_since("vm", since);
    before.evaluate_undetected("vm");
    let settings = before.tracker.shared.settings.clone();
    let mut fixture = before.restarted_with(settings, HOUR * 2, before.shown());
    fixture.set_rules(&[("vm-rules", &["Migrating"])]);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture.evaluate_migration_since("vm", since);
    assert_eq!(fixture.phases(), "CA");
    fixture.advance(HOUR * 22);
    assert_eq!(fixture.phases(), "A");
}

#[test]
fn the_names_of_many_completed_operations_are_all_reserved() {
    let mut fixture = retaining(20_000);
    let since = fixture.now.wall - HOUR;
    fixture.evaluate_migration_since("vm", since);
    fixture.evaluate_undetected("vm");
    for n in 0..10_001 {
        let other = format!("other-{n}");
        fixture.evaluate(subject(&other), &["Migrating"]);
        fixture.evaluate_undetected(&other);
    }
    fixture.evaluate_migration_since("vm", since);
    let shown = fixture.shown();
    let own = shown.iter().filter(|it| it.spec.subject.name == "vm");
    assert_eq!(own.count(), 2);
}

#[test]
fn names_of_retained_operations_stay_reserved_when_an_older_operation_expires() {
    let mut fixture = retaining(10_000);
    let since = fixture.now.wall - HOUR;
    fixture.evaluate_migration_since("vm", since);
    fixture.evaluate_undetected("vm");
    fixture.advance(HOUR * 12);
    fixture.evaluate_migration_since("vm", since);
    fixture.evaluate_undetected("vm");
    assert_eq!(fixture.phases(), "CC");
    fixture.advance(HOUR * 12);
    assert_eq!(fixture.phases(), "C");
    // The name of a run depends on its start. The rule yielded the same start for the first and the
    // second run, so the tracker set the start of the second run to `since + SECOND`. For the third
    // run, the rule yields `since + SECOND`. The tracker still remembers the start of the second
    // run, so it gives the third run another start and another name.
    fixture.evaluate_migration_since("vm", since + SECOND);
    assert_eq!(fixture.phases(), "CA");
    fixture.advance(HOUR * 12);
    assert_eq!(fixture.phases(), "A");
}

#[test]
fn an_active_operation_is_not_deleted_with_a_completed_operation_of_the_same_name() {
    let mut fixture = retaining(10_000);
    let since = fixture.now.wall - HOUR;
    fixture.evaluate_migration_since("vm", since);
    fixture.evaluate_undetected("vm");
    fixture.tracker.shared.last_runs = LastRuns::default();
    fixture.evaluate_migration_since("vm", since);
    assert_eq!(fixture.phases(), "A");
    fixture.advance(HOUR * 25);
    assert_eq!(fixture.phases(), "A");
    // After its end, the operation is retained.
    fixture.evaluate_undetected("vm");
    assert_eq!(fixture.phases(), "C");
    fixture.advance(HOUR * 24);
    assert_eq!(fixture.phases(), "");
}

#[test]
fn operations_that_complete_after_their_namespace_was_deleted_are_not_retained() {
    let mut fixture = retaining(10_000);
    fixture.evaluate_vm(&["Migrating"]);
    fixture.delete_namespace("ns", None);
    assert_eq!(
        fixture.phases(),
        "A",
        "the operation must stay until the deletion of its subject is reported"
    );
    fixture.delete_subject("vm");
    assert_eq!(fixture.phases(), "");
    // An operation that starts after the deletion of its namespace is not retained either.
    fixture.evaluate(subject("late"), &["Migrating"]);
    fixture.delete_subject("late");
    assert_eq!(fixture.phases(), "");
    let other = Subject {
        namespace: Some("other".into()),
        ..subject("other")
    };
    fixture.evaluate(other.clone(), &["Migrating"]);
    fixture.evaluate(other, &[]);
    assert_eq!(
        fixture.phases(),
        "C",
        "operations in other namespaces must be retained"
    );
}

#[test]
fn a_recreated_namespace_retains_operations_that_started_in_it() {
    for is_creation_known in [true, false] {
        let mut fixture = retaining(10_000);
        fixture.evaluate(subject("over"), &["Migrating"]);
        fixture.evaluate_undetected("over");
        fixture.evaluate(subject("old"), &["Migrating"]);
        fixture.advance(Duration::from_mins(1));
        let created = fixture.now.wall;
        fixture.evaluate(subject("new"), &["Migrating"]);
        fixture.evaluate_undetected("new");
        if is_creation_known {
            fixture.delete_namespace("ns", Some(created));
            assert_eq!(
                fixture.phases(),
                "AC",
                "the operation that started in the new namespace must stay"
            );
        } else {
            fixture.delete_namespace("ns", None);
            let name = "ns".into();
            fixture.send(Message::NamespaceCreated { name, created });
            assert_eq!(fixture.phases(), "A");
        }
        fixture.delete_subject("old");
        let before = fixture.phases();
        fixture.evaluate(subject("newer"), &["Migrating"]);
        fixture.delete_subject("newer");
        assert_eq!(fixture.phases(), before + "C");
        // The new namespace is deleted, too.
        fixture.delete_namespace("ns", None);
        fixture.evaluate(subject("newest"), &["Migrating"]);
        fixture.delete_subject("newest");
        assert_eq!(fixture.phases(), "");
    }
}
