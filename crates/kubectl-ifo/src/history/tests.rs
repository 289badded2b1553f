use super::super::test_fixtures::{OperationFixture as _, now, on};
use super::*;

/// Returns an operation that ended `ended` seconds ago and took `took` seconds.
fn past(kind: &str, name: &str, state: &str, ended: i64, took: i64) -> InFlightOperation {
    on("shop", kind, name, "Migrating")
        .state(state, None)
        .since(ended + took)
        .ended(ended)
}

fn shown(rows: &[Row]) -> Vec<String> {
    let texts = rows.iter().map(|it| {
        let mark = if it.is_member { "-" } else { "" };
        let it = &it.operation;
        format!("{mark}{} {}", it.spec.subject.name, it.status.state.name())
    });
    texts.collect()
}

#[test]
fn the_newest_piece_comes_first_and_has_one_line() {
    let completed = [
        past("Pod", "old", "Failed", 900, 10),
        past("Pod", "a", "Superseded", 500, 10).work("m"),
        past("Pod", "b", "Succeeded", 30, 5).work("m"),
        past("Pod", "new", "Ended", 60, 10),
    ];
    let of = |limits, expand| shown(&rows(&completed, &[], limits, expand).0);
    let all = HistoryLimits::default();
    assert_eq!(of(&all, false), ["a Succeeded", "new Ended", "old Failed"]);
    assert_eq!(
        of(&all, true),
        [
            "a Succeeded",
            "-a Superseded",
            "-b Succeeded",
            "new Ended",
            "old Failed"
        ]
    );
    let failed = HistoryLimits {
        states: vec![State::Failed],
        ..HistoryLimits::default()
    };
    assert_eq!(of(&failed, false), ["old Failed"]);
    // A piece ends with its last member `b`, which ended in the last 60 seconds. The member `a`
    // ended earlier, but the table shows the piece.
    let recent = HistoryLimits {
        earliest_end: Some(now() - SignedDuration::from_secs(60)),
        ..HistoryLimits::default()
    };
    assert_eq!(of(&recent, false), ["a Succeeded", "new Ended"]);
}

#[test]
fn a_piece_with_a_member_in_flight_is_not_over() {
    let completed = [past("Pod", "a", "Succeeded", 30, 5).work("m")];
    let active = [on("shop", "Pod", "b", "Migrating").work("m")];
    let (rows, unfinished) = rows(&completed, &active, &HistoryLimits::default(), false);
    assert!(rows.is_empty());
    assert_eq!(unfinished, 1);
}

#[test]
fn the_reach_says_if_it_is_shorter_than_the_requested_time() {
    for (oldest_end, earliest, line) in [
        (
            Some(now()),
            None,
            "Records reach back to 2026-01-01T12:00:00Z.",
        ),
        (
            Some(now()),
            Some(Timestamp::MIN),
            "Records reach back only to 2026-01-01T12:00:00Z.",
        ),
        (None, None, "There are no records yet."),
    ] {
        assert_eq!(reach_line(oldest_end, earliest), line);
    }
}

#[test]
fn a_piece_is_named_by_its_root_and_not_by_its_first_phase() {
    let phase = |operation: &str, state: &str, ended, took| {
        let mut it = past("Backup", "nightly", state, ended, took).work("b");
        it.spec.operation = operation.into();
        it
    };
    let phases = [
        phase("Queued", "Superseded", 95, 5),
        phase("InProgress", "Superseded", 10, 85),
        phase("Finalizing", "Succeeded", 5, 5),
    ];
    let (rows, _) = rows(&phases, &[], &HistoryLimits::default(), false);
    let names: Vec<&str> = rows
        .iter()
        .map(|it| &*it.operation.spec.operation)
        .collect();
    assert_eq!(names, ["InProgress"]);
}

#[test]
fn a_failed_piece_shows_the_message_of_the_child_that_failed() {
    let mut root = past("VM", "web", "Failed", 10, 60).work("m");
    root.status.message = "The subject reports that the operation failed.".into();
    let mut child = past("Pod", "a", "Failed", 20, 30).work("m");
    (child.status.message, child.status.reason) = ("no space left".into(), "Full".into());
    let mut other = past("Pod", "b", "Succeeded", 30, 30).work("m");
    other.status.message = "copied".into();
    let line = |members: &[&InFlightOperation]| PieceOfWork::new(members).line;
    let shown = line(&[&root, &child, &other]);
    assert_eq!(
        (
            &*shown.spec.subject.name,
            &*shown.status.message,
            &*shown.status.reason
        ),
        ("web", "no space left", "Full")
    );
    // The root also names a cause, but it failed because the child had failed.
    root.status.message = "disk a is not ready".into();
    assert_eq!(&*line(&[&root, &child]).status.message, "no space left");
    child.status.message = "The subject reports that the operation failed.".into();
    assert_eq!(
        &*line(&[&root, &child]).status.message,
        "disk a is not ready"
    );
}
