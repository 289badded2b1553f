//! Tests of the start and end times of operations. If possible, these times come from the object's
//! `managedFields`, which contain the times of its changes.

use super::*;
use ifo_api::live::StartTimeSource;

/// Returns a subject that last changed at `managed`.
fn subject_changed_at(name: &str, managed: Timestamp) -> Subject {
    Subject {
        managed: Some(managed),
        ..subject(name)
    }
}

fn start(object: &InFlightOperation) -> Timestamp {
    object.metadata.creation_timestamp.0
}

#[test]
fn operations_found_by_the_first_list_start_at_the_newest_managed_time() {
    let mut fixture = fixture();
    fixture.set_rules(&[("vm-rules", &["Migrating"])]);
    fixture.send_event(FeedEvent::Reset);
    let earlier: Timestamp = "2026-11-21T08:00:00Z".parse().expect("the time is valid");
    let later = fixture.now.wall + Duration::from_hours(1);
    fixture.evaluate(
        Subject {
            managed: Some(earlier),
            ..subject("a")
        },
        &["Migrating"],
    );
    fixture.evaluate(
        Subject {
            managed: Some(later),
            ..subject("b")
        },
        &["Migrating"],
    );
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture.evaluate(
        Subject {
            managed: Some(earlier),
            ..subject("c")
        },
        &["Migrating"],
    );
    let starts: Vec<_> = fixture
        .shown()
        .into_iter()
        .map(|object| object.metadata.creation_timestamp.0)
        .collect();
    assert_eq!(
        starts,
        [earlier, fixture.now.wall, fixture.now.wall],
        "a start must not be in the future, and old times count only in the first list"
    );
}

#[test]
fn an_operation_starts_at_the_time_of_the_change_that_is_reported() {
    // The tracker detects the operation 0.7 s after the full second `began`. The kube-apiserver
    // rounds the time of a change down to a full second. So a change 10 s before `began` is 10.7 s
    // old. If a change is older than 10 s, the tracker uses the current time as the start.
    let started = |change: i64| {
        let mut fixture = fixture();
        let began = fixture.now.wall;
        fixture.advance(Duration::from_millis(700));
        let managed = began + jiff::SignedDuration::from_secs(change);
        fixture.evaluate(subject_changed_at("vm", managed), &["Migrating"]);
        let shown = fixture.only_operation();
        assert_eq!(shown.status.start_time_source, StartTimeSource::Detected);
        start(&shown).as_second() - began.as_second()
    };
    assert_eq!(started(0), 0);
    assert_eq!(started(-1), -1);
    assert_eq!(started(-9), -9);
    assert_eq!(started(-10), 0, "a change that is too old must not count");
    assert_eq!(started(1), 0, "a start must not be in the future");
}

#[test]
fn replicas_that_receive_an_event_in_different_seconds_give_operations_the_same_name() {
    let names = |late: Duration| {
        let mut fixture = fixture_with(settings(Some(RETENTION)));
        let began = fixture.now.wall;
        fixture.advance(late);
        fixture.evaluate(subject_changed_at("vm", began), &["Migrating"]);
        // Replicas must also give the same name to the next run.
        fixture.advance(DEBOUNCE);
        fixture.evaluate(subject_changed_at("vm", began + DEBOUNCE), &[]);
        fixture.advance(DEBOUNCE);
        fixture.evaluate(
            subject_changed_at("vm", began + DEBOUNCE * 2),
            &["Migrating"],
        );
        let shown = fixture.shown();
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
    let start_and_end_seconds = |late: Duration| {
        let mut fixture = fixture_with(settings(Some(RETENTION)));
        fixture.set_rule_set(
            "rules:\n\
             - {operation: Migrating, expression: 'true', supersedes: ['*']}\n\
             - {operation: Stopping, expression: 'true', supersedes: ['*']}",
        );
        fixture.send_event(FeedEvent::Reset);
        fixture.send_event(FeedEvent::Synced { missing: None });
        let began = fixture.now.wall;
        fixture.advance(late);
        fixture.evaluate(subject_changed_at("vm", began), &["Migrating"]);
        fixture.advance(DEBOUNCE);
        // `Stopping` supersedes `Migrating`. The next evaluation detects no operation.
        fixture.evaluate(subject_changed_at("vm", began + DEBOUNCE), &["Stopping"]);
        fixture.advance(DEBOUNCE);
        fixture.evaluate(subject_changed_at("vm", began + DEBOUNCE * 2), &[]);
        fixture.advance(DEBOUNCE);
        let seconds = |at: Timestamp| at.as_second() - began.as_second();
        let mut spans: Vec<[i64; 2]> = fixture
            .shown()
            .iter()
            .map(|it| {
                let completed = it
                    .status
                    .completed
                    .as_ref()
                    .expect("the operation must be completed")
                    .0;
                [start(it), completed].map(seconds)
            })
            .collect();
        spans.sort_unstable();
        spans
    };
    let early = start_and_end_seconds(Duration::from_millis(900));
    assert_eq!(early, [[0, 30], [30, 60]]);
    assert_eq!(early, start_and_end_seconds(Duration::from_millis(1_100)));
    assert_eq!(early, start_and_end_seconds(Duration::from_secs(9)));
}

#[test]
fn no_operation_ends_before_its_start() {
    let mut fixture = fixture_with(TrackerSettings {
        debounce: Duration::ZERO,
        ..settings(Some(RETENTION))
    });
    let began = fixture.now.wall;
    // Both runs start within the same second, so the tracker moves the start of the later run to
    // the next second.
    for operations in [&["Migrating"], &[][..], &["Migrating"], &[]] {
        fixture.advance(Duration::from_millis(100));
        fixture.evaluate(subject_changed_at("vm", began), operations);
    }
    let shown = fixture.shown();
    assert_eq!(shown.len(), 2);
    for it in shown {
        let completed = it
            .status
            .completed
            .as_ref()
            .expect("the operation must be completed")
            .0;
        assert!(completed >= start(&it), "{completed} {}", start(&it));
    }
}

#[test]
fn the_time_of_a_change_is_not_stored_with_the_subject() {
    let mut fixture = fixture();
    fixture.evaluate(subject_changed_at("vm", fixture.now.wall), &["Migrating"]);
    let tracked = fixture
        .tracker
        .subjects
        .values()
        .next()
        .expect("the tracker must have a subject");
    assert_eq!(tracked.view.subject.managed, None);
    // An operation that is detected hours later must not start at the time of the old change.
    fixture.advance(Duration::from_hours(3));
    fixture.evaluate(subject("vm"), &["Migrating", "Stopping"]);
    let shown = fixture.shown();
    let stopping = shown.iter().find(|it| it.spec.operation == "Stopping");
    assert_eq!(stopping.map(start), Some(fixture.now.wall));
}

#[test]
fn a_run_starts_no_earlier_than_the_reported_end_of_the_previous_run() {
    let mut fixture = fixture_with(TrackerSettings {
        debounce: Duration::from_secs(3),
        retain: Some(RETENTION),
        max_records: 0,
        cluster_namespace: "ifo-system".into(),
    });
    let began = fixture.now.wall;
    let at = |second| began + jiff::SignedDuration::from_secs(second);
    fixture.evaluate(subject_changed_at("vm", began), &["Migrating"]);
    fixture.advance(Duration::from_secs(12));
    // All times count from `began`. The first run ends at 1 s, but the tracker receives this change
    // at 12 s. The change is older than 10 s, so the tracker uses the current time, 12 s, as the
    // end.
    //
    // The second run starts at 11 s, and the tracker receives this change at 16 s. The change is
    // not too old, but 11 s is before the end of the first run. So the tracker uses 12 s as the
    // start.
    fixture.evaluate(subject_changed_at("vm", at(1)), &[]);
    fixture.advance(Duration::from_secs(4));
    fixture.evaluate(subject_changed_at("vm", at(11)), &["Migrating"]);
    let mut shown = fixture.shown();
    shown.sort_by_key(start);
    let ended = shown[0].status.completed.as_ref().map(|time| time.0);
    assert_eq!(ended, Some(at(12)));
    assert_eq!(start(&shown[1]), at(12));
}
