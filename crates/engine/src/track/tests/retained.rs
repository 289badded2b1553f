//! Tests of completed operations that are still shown, and of those that must not be shown any
//! more.

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

fn retaining(most: usize) -> World {
    world_with(TrackerSettings {
        debounce: Duration::ZERO,
        retain: Some(Retention { most, ..RETENTION }),
        cluster_namespace: "ifo-system".into(),
    })
}

impl World {
    /// `name` migrates. Its rule yields the start `started`.
    fn migrates_since(&mut self, name: &str, started: Timestamp) {
        let finding = Finding {
            rule_set: self.book.rule_sets[0].clone(),
            operation: "Migrating".into(),
            item: None,
            says: Some(RuleValues {
                started: Some(started),
                ..RuleValues::default()
            }),
        };
        self.finds(subject(name), vec![finding]);
    }

    fn stops(&mut self, name: &str) {
        self.sees(subject(name), &[]);
    }

    fn deletes(&mut self, name: &str) {
        self.feed(FeedEvent::Deleted {
            subject: subject(name),
            read: Instant::now(),
        });
    }

    /// `A` for each active operation, `C` for each completed one, sorted by start.
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
fn an_operation_that_restarts_is_not_removed_with_its_completed_predecessor() {
    let mut world = retaining(10_000);
    let since = world.now.wall - HOUR;
    world.migrates_since("vm", since);
    world.after(HOUR);
    world.stops("vm");
    world.after(HOUR + HOUR / 2);
    world.migrates_since("vm", since);
    assert_eq!(world.phases(), "CA", "each has a name of its own");
    world.seen();
    world.after(HOUR * 23);
    assert_eq!(world.phases(), "A");
    assert_eq!(world.seen(), ["-Migrating Ended NotDetected"]);
}

#[test]
fn the_name_of_a_restored_completed_operation_is_reserved_while_it_is_shown() {
    let mut before = retaining(10_000);
    let since = before.now.wall - HOUR;
    before.migrates_since("vm", since);
    before.stops("vm");
    let settings = before.tracker.ledger.settings.clone();
    let mut world = before.restarted_with(settings, HOUR * 2, before.shown());
    world.rules(&[("vm-rules", &["Migrating"])]);
    world.feed(FeedEvent::Synced { missing: None });
    world.migrates_since("vm", since);
    assert_eq!(world.phases(), "CA");
    world.after(HOUR * 22);
    assert_eq!(world.phases(), "A");
}

#[test]
fn the_names_of_many_completed_operations_are_all_reserved() {
    let mut world = retaining(20_000);
    let since = world.now.wall - HOUR;
    world.migrates_since("vm", since);
    world.stops("vm");
    for n in 0..10_001 {
        let other = format!("other-{n}");
        world.sees(subject(&other), &["Migrating"]);
        world.stops(&other);
    }
    world.migrates_since("vm", since);
    let shown = world.shown();
    let own = shown.iter().filter(|it| it.spec.subject.name == "vm");
    assert_eq!(own.count(), 2);
}

#[test]
fn the_expiry_of_one_completed_operation_keeps_the_names_of_the_others() {
    let mut world = retaining(10_000);
    let since = world.now.wall - HOUR;
    world.migrates_since("vm", since);
    world.stops("vm");
    world.after(HOUR * 12);
    world.migrates_since("vm", since);
    world.stops("vm");
    assert_eq!(world.phases(), "CC");
    world.after(HOUR * 12);
    assert_eq!(world.phases(), "C");
    // The same name as the second of them.
    world.migrates_since("vm", since + SECOND);
    assert_eq!(world.phases(), "CA");
    world.after(HOUR * 12);
    assert_eq!(world.phases(), "A");
}

#[test]
fn an_active_operation_is_never_removed_with_a_completed_one_of_its_name() {
    let mut world = retaining(10_000);
    let since = world.now.wall - HOUR;
    world.migrates_since("vm", since);
    world.stops("vm");
    world.tracker.ledger.forget_starts();
    world.migrates_since("vm", since);
    assert_eq!(world.phases(), "A");
    world.after(HOUR * 25);
    assert_eq!(world.phases(), "A");
    // After its end it is retained as usual.
    world.stops("vm");
    assert_eq!(world.phases(), "C");
    world.after(HOUR * 24);
    assert_eq!(world.phases(), "");
}

#[test]
fn operations_that_complete_after_their_namespace_was_deleted_are_not_retained() {
    let mut world = retaining(10_000);
    world.vm(&["Migrating"]);
    world.gone("ns", None);
    assert_eq!(world.phases(), "A", "until its feed tells");
    world.deletes("vm");
    assert_eq!(world.phases(), "");
    // The same as an operation that was unknown when the namespace was deleted.
    world.sees(subject("late"), &["Migrating"]);
    world.deletes("late");
    assert_eq!(world.phases(), "");
    let other = Subject {
        namespace: Some("other".into()),
        ..subject("other")
    };
    world.sees(other.clone(), &["Migrating"]);
    world.sees(other, &[]);
    assert_eq!(
        world.phases(),
        "C",
        "other namespaces have nothing to do with it"
    );
}

#[test]
fn a_recreated_namespace_retains_operations_that_started_in_it() {
    for told_at_once in [true, false] {
        let mut world = retaining(10_000);
        world.sees(subject("over"), &["Migrating"]);
        world.stops("over");
        world.sees(subject("old"), &["Migrating"]);
        world.after(Duration::from_mins(1));
        let created = world.now.wall;
        world.sees(subject("new"), &["Migrating"]);
        world.stops("new");
        if told_at_once {
            world.gone("ns", Some(created));
            assert_eq!(world.phases(), "AC", "what the new one has stays");
        } else {
            world.gone("ns", None);
            let name = "ns".into();
            world.message(Message::NamespaceMade { name, created });
            assert_eq!(world.phases(), "A");
        }
        world.deletes("old");
        let before = world.phases();
        world.sees(subject("newer"), &["Migrating"]);
        world.deletes("newer");
        assert_eq!(world.phases(), before + "C");
        // It is deleted, too.
        world.gone("ns", None);
        world.sees(subject("newest"), &["Migrating"]);
        world.deletes("newest");
        assert_eq!(world.phases(), "");
    }
}

#[test]
fn a_deleted_namespace_is_remembered_while_it_has_active_operations() {
    let mut world = retaining(10_000);
    world.vm(&["Migrating"]);
    world.gone("ns", None);
    world.gone("empty", None);
    world.feed(FeedEvent::Lost);
    world.after(HOUR);
    world.after(HOUR);
    world.feed(FeedEvent::Reset);
    world.feed(FeedEvent::Synced { missing: None });
    assert_eq!(world.phases(), "", "its end is found out after the gap");
    // At most one hour without retention.
    world.after(HOUR);
    for namespace in ["ns", "empty"] {
        let subject = Subject {
            namespace: Some(namespace.into()),
            ..subject(namespace)
        };
        world.sees(subject.clone(), &["Migrating"]);
        world.sees(subject, &[]);
    }
    assert_eq!(world.phases(), "CC");
}
