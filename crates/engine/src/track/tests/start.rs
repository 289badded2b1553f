//! Tests of the start time of a detected operation.

use super::*;
use ifo_api::live::StartTimeSource;

/// The subject after a change.
fn changed(name: &str, managed: Timestamp) -> Subject {
    Subject {
        managed: Some(managed),
        ..subject(name)
    }
}

fn start(object: &InFlightOperation) -> Timestamp {
    let created = object.metadata.creation_timestamp.as_ref();
    created.expect("a start").0
}

#[test]
fn operations_found_by_the_first_list_start_at_the_newest_managed_time() {
    let mut world = world();
    world.rules(&[("vm-rules", &["Migrating"])]);
    world.feed(FeedEvent::Reset);
    let earlier: Timestamp = "2026-11-21T08:00:00Z".parse().expect("a time");
    let later = world.now.wall + Duration::from_hours(1);
    world.sees(
        Subject {
            managed: Some(earlier),
            ..subject("a")
        },
        &["Migrating"],
    );
    world.sees(
        Subject {
            managed: Some(later),
            ..subject("b")
        },
        &["Migrating"],
    );
    world.feed(FeedEvent::Synced { missing: None });
    world.sees(
        Subject {
            managed: Some(earlier),
            ..subject("c")
        },
        &["Migrating"],
    );
    let starts: Vec<_> = world
        .shown()
        .into_iter()
        .map(|object| object.metadata.creation_timestamp.expect("a start").0)
        .collect();
    assert_eq!(
        starts,
        [earlier, world.now.wall, world.now.wall],
        "never later than now, and only at the first sync"
    );
}

#[test]
fn an_operation_first_seen_in_an_event_starts_at_the_time_of_that_change() {
    // 0.7 s after a full second, with changes at full seconds, as the kube-apiserver writes them.
    let started = |change: i64| {
        let mut world = world();
        let began = world.now.wall;
        world.after(Duration::from_millis(700));
        let managed = began + jiff::SignedDuration::from_secs(change);
        world.sees(changed("vm", managed), &["Migrating"]);
        let shown = world.one();
        assert_eq!(shown.status.start_time_source, StartTimeSource::Detected);
        start(&shown).as_second() - began.as_second()
    };
    assert_eq!(started(0), 0);
    assert_eq!(started(-1), -1);
    assert_eq!(started(-9), -9);
    assert_eq!(started(-10), 0, "it was held up");
    assert_eq!(started(1), 0, "nothing starts in the future");
}

#[test]
fn two_replicas_that_see_one_event_in_different_seconds_give_the_same_name() {
    let names = |late: Duration| {
        let mut world = world_with(TrackerSettings {
            debounce: DEBOUNCE,
            retain: Some(RETENTION),
            cluster_namespace: "ifo-system".into(),
        });
        let began = world.now.wall;
        world.after(late);
        world.sees(changed("vm", began), &["Migrating"]);
        // Another run is a different operation for both servers.
        world.after(DEBOUNCE);
        world.sees(changed("vm", began + DEBOUNCE), &[]);
        world.after(DEBOUNCE);
        world.sees(changed("vm", began + DEBOUNCE * 2), &["Migrating"]);
        let shown = world.shown();
        assert_eq!(shown.len(), 2);
        let identity = |it: InFlightOperation| (it.metadata.name, it.metadata.uid);
        shown.into_iter().map(identity).collect::<Vec<_>>()
    };
    let early = names(Duration::from_millis(900));
    assert_eq!(early, names(Duration::from_millis(1_100)));
    assert_eq!(early, names(Duration::from_secs(9)));
}

#[test]
fn an_operation_ends_at_the_time_of_the_change_on_all_replicas() {
    let ends = |late: Duration| {
        let mut world = world_with(TrackerSettings {
            debounce: DEBOUNCE,
            retain: Some(RETENTION),
            cluster_namespace: "ifo-system".into(),
        });
        world.spec(
            "rules:\n\
             - {operation: Migrating, expression: 'true', supersedes: ['*']}\n\
             - {operation: Stopping, expression: 'true', supersedes: ['*']}",
        );
        world.feed(FeedEvent::Reset);
        world.feed(FeedEvent::Synced { missing: None });
        let began = world.now.wall;
        world.after(late);
        world.sees(changed("vm", began), &["Migrating"]);
        world.after(DEBOUNCE);
        // One server takes over, and the operation is then not detected any more.
        world.sees(changed("vm", began + DEBOUNCE), &["Stopping"]);
        world.after(DEBOUNCE);
        world.sees(changed("vm", began + DEBOUNCE * 2), &[]);
        world.after(DEBOUNCE);
        let seconds = |at: Timestamp| at.as_second() - began.as_second();
        let mut spans: Vec<[i64; 2]> = world
            .shown()
            .iter()
            .map(|it| {
                let completed = it.status.completed.as_ref().expect("it is over").0;
                [start(it), completed].map(seconds)
            })
            .collect();
        spans.sort_unstable();
        spans
    };
    let early = ends(Duration::from_millis(900));
    assert_eq!(early, [[0, 30], [30, 60]]);
    assert_eq!(early, ends(Duration::from_millis(1_100)));
    assert_eq!(early, ends(Duration::from_secs(9)));
}

#[test]
fn no_operation_ends_before_its_start() {
    let mut world = world_with(TrackerSettings {
        debounce: Duration::ZERO,
        retain: Some(RETENTION),
        cluster_namespace: "ifo-system".into(),
    });
    let began = world.now.wall;
    // The second run within a second is shown with a start in the next second.
    for operations in [&["Migrating"], &[][..], &["Migrating"], &[]] {
        world.after(Duration::from_millis(100));
        world.sees(changed("vm", began), operations);
    }
    let shown = world.shown();
    assert_eq!(shown.len(), 2);
    for it in shown {
        let completed = it.status.completed.as_ref().expect("it is over").0;
        assert!(completed >= start(&it), "{completed} {}", start(&it));
    }
}

#[test]
fn the_time_of_a_change_is_not_stored_with_the_subject() {
    let mut world = world();
    world.sees(changed("vm", world.now.wall), &["Migrating"]);
    let tracked = world
        .tracker
        .subjects
        .values()
        .next()
        .expect("it is tracked");
    assert_eq!(tracked.view.subject.managed, None);
    // An operation that is detected hours later does not get the time of that change as its start.
    world.after(Duration::from_hours(3));
    world.sees(subject("vm"), &["Migrating", "Stopping"]);
    let shown = world.shown();
    let stopping = shown.iter().find(|it| it.spec.operation == "Stopping");
    assert_eq!(stopping.map(start), Some(world.now.wall));
}

#[test]
fn a_run_starts_no_earlier_than_the_reported_end_of_the_previous_run() {
    let mut world = world_with(TrackerSettings {
        debounce: Duration::from_secs(3),
        retain: Some(RETENTION),
        cluster_namespace: "ifo-system".into(),
    });
    let began = world.now.wall;
    let at = |second| began + jiff::SignedDuration::from_secs(second);
    world.sees(changed("vm", began), &["Migrating"]);
    world.after(Duration::from_secs(12));
    // The event was delayed, so the operation ends now. Later events were delayed less.
    world.sees(changed("vm", at(1)), &[]);
    world.after(Duration::from_secs(4));
    world.sees(changed("vm", at(11)), &["Migrating"]);
    let mut shown = world.shown();
    shown.sort_by_key(start);
    let ended = shown[0].status.completed.as_ref().map(|time| time.0);
    assert_eq!(ended, Some(at(12)));
    assert_eq!(start(&shown[1]), at(12));
}
