//! Tests of the retention of completed operations: they are shown for a limited time, and not if
//! their namespace was deleted.

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

fn retaining(most: usize) -> World {
    world_with(TrackerSettings {
        debounce: Duration::ZERO,
        retain: Some(Retention { most, ..RETENTION }),
        records: 0,
        cluster_namespace: "ifo-system".into(),
    })
}

impl World {
    /// Evaluates the subject `name`. The rule detects a migration that started at `started`.
    fn evaluate_migration_since(&mut self, name: &str, started: Timestamp) {
        let finding = Finding {
            rule_set: self.book.rule_sets[0].clone(),
            operation: "Migrating".into(),
            item: None,
            says: Some(RuleValues {
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
        self.send_event(FeedEvent::Deleted {
            subject: subject(name),
            read: Instant::now(),
        });
    }

    /// Returns one letter for each operation, sorted by the start: `A` for an active operation, and
    /// `C` for a completed operation.
    fn phases(&self) -> String {
        let mut shown = self.shown();
        shown.sort_by_key(|it| it.metadata.creation_timestamp.clone().map(|at| at.0));
        let letter = |it: &InFlightOperation| match it.status.phase {
            Phase::Active => 'A',
            Phase::Completed => 'C',
        };
        shown.iter().map(letter).collect()
    }
}

#[test]
fn the_retention_of_a_completed_run_does_not_delete_a_later_run() {
    let mut world = retaining(10_000);
    let since = world.now.wall - HOUR;
    world.evaluate_migration_since("vm", since);
    world.advance(HOUR);
    world.evaluate_undetected("vm");
    world.advance(HOUR + HOUR / 2);
    world.evaluate_migration_since("vm", since);
    assert_eq!(world.phases(), "CA", "both runs must have different names");
    world.take_changes();
    world.advance(HOUR * 23);
    assert_eq!(world.phases(), "A");
    assert_eq!(world.take_changes(), ["-Migrating Ended NotDetected"]);
}

#[test]
fn the_name_of_a_restored_completed_operation_is_reserved_while_it_is_shown() {
    let mut before = retaining(10_000);
    let since = before.now.wall - HOUR;
    before.evaluate_migration_since("vm", since);
    before.evaluate_undetected("vm");
    let settings = before.tracker.shared.settings.clone();
    let mut world = before.restarted_with(settings, HOUR * 2, before.shown());
    world.set_rules(&[("vm-rules", &["Migrating"])]);
    world.send_event(FeedEvent::Synced { missing: None });
    world.evaluate_migration_since("vm", since);
    assert_eq!(world.phases(), "CA");
    world.advance(HOUR * 22);
    assert_eq!(world.phases(), "A");
}

#[test]
fn the_names_of_many_completed_operations_are_all_reserved() {
    let mut world = retaining(20_000);
    let since = world.now.wall - HOUR;
    world.evaluate_migration_since("vm", since);
    world.evaluate_undetected("vm");
    for n in 0..10_001 {
        let other = format!("other-{n}");
        world.evaluate(subject(&other), &["Migrating"]);
        world.evaluate_undetected(&other);
    }
    world.evaluate_migration_since("vm", since);
    let shown = world.shown();
    let own = shown.iter().filter(|it| it.spec.subject.name == "vm");
    assert_eq!(own.count(), 2);
}

#[test]
fn names_of_retained_operations_stay_reserved_when_an_older_operation_expires() {
    let mut world = retaining(10_000);
    let since = world.now.wall - HOUR;
    world.evaluate_migration_since("vm", since);
    world.evaluate_undetected("vm");
    world.advance(HOUR * 12);
    world.evaluate_migration_since("vm", since);
    world.evaluate_undetected("vm");
    assert_eq!(world.phases(), "CC");
    world.advance(HOUR * 12);
    assert_eq!(world.phases(), "C");
    // Without the remembered start, this run would have the same name as the second run.
    world.evaluate_migration_since("vm", since + SECOND);
    assert_eq!(world.phases(), "CA");
    world.advance(HOUR * 12);
    assert_eq!(world.phases(), "A");
}

#[test]
fn an_active_operation_is_not_deleted_with_a_completed_operation_of_the_same_name() {
    let mut world = retaining(10_000);
    let since = world.now.wall - HOUR;
    world.evaluate_migration_since("vm", since);
    world.evaluate_undetected("vm");
    world.tracker.shared.forget_starts();
    world.evaluate_migration_since("vm", since);
    assert_eq!(world.phases(), "A");
    world.advance(HOUR * 25);
    assert_eq!(world.phases(), "A");
    // After its end, the operation is retained.
    world.evaluate_undetected("vm");
    assert_eq!(world.phases(), "C");
    world.advance(HOUR * 24);
    assert_eq!(world.phases(), "");
}

#[test]
fn operations_that_complete_after_their_namespace_was_deleted_are_not_retained() {
    let mut world = retaining(10_000);
    world.evaluate_vm(&["Migrating"]);
    world.delete_namespace("ns", None);
    assert_eq!(
        world.phases(),
        "A",
        "the operation must stay until the deletion of its subject is reported"
    );
    world.delete_subject("vm");
    assert_eq!(world.phases(), "");
    // An operation that starts after the deletion of its namespace is not retained either.
    world.evaluate(subject("late"), &["Migrating"]);
    world.delete_subject("late");
    assert_eq!(world.phases(), "");
    let other = Subject {
        namespace: Some("other".into()),
        ..subject("other")
    };
    world.evaluate(other.clone(), &["Migrating"]);
    world.evaluate(other, &[]);
    assert_eq!(
        world.phases(),
        "C",
        "operations in other namespaces must be retained"
    );
}

#[test]
fn a_recreated_namespace_retains_operations_that_started_in_it() {
    for is_created_known in [true, false] {
        let mut world = retaining(10_000);
        world.evaluate(subject("over"), &["Migrating"]);
        world.evaluate_undetected("over");
        world.evaluate(subject("old"), &["Migrating"]);
        world.advance(Duration::from_mins(1));
        let created = world.now.wall;
        world.evaluate(subject("new"), &["Migrating"]);
        world.evaluate_undetected("new");
        if is_created_known {
            world.delete_namespace("ns", Some(created));
            assert_eq!(
                world.phases(),
                "AC",
                "the operation that started in the new namespace must stay"
            );
        } else {
            world.delete_namespace("ns", None);
            let name = "ns".into();
            world.send(Message::NamespaceMade { name, created });
            assert_eq!(world.phases(), "A");
        }
        world.delete_subject("old");
        let before = world.phases();
        world.evaluate(subject("newer"), &["Migrating"]);
        world.delete_subject("newer");
        assert_eq!(world.phases(), before + "C");
        // The new namespace is deleted, too.
        world.delete_namespace("ns", None);
        world.evaluate(subject("newest"), &["Migrating"]);
        world.delete_subject("newest");
        assert_eq!(world.phases(), "");
    }
}

#[test]
fn a_deleted_namespace_is_remembered_while_it_has_active_operations() {
    let mut world = retaining(10_000);
    world.evaluate_vm(&["Migrating"]);
    world.delete_namespace("ns", None);
    world.delete_namespace("empty", None);
    world.send_event(FeedEvent::Lost);
    world.advance(HOUR);
    world.advance(HOUR);
    world.send_event(FeedEvent::Reset);
    world.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(
        world.phases(),
        "",
        "an operation that ended during the interruption must not be retained"
    );
    // One hour later, the deleted namespaces have been forgotten.
    world.advance(HOUR);
    for namespace in ["ns", "empty"] {
        let subject = Subject {
            namespace: Some(namespace.into()),
            ..subject(namespace)
        };
        world.evaluate(subject.clone(), &["Migrating"]);
        world.evaluate(subject, &[]);
    }
    assert_eq!(world.phases(), "CC");
}
