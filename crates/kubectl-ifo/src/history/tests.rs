use super::super::test_fixtures::{now, on};
use super::*;

/// Returns an operation that ended `ended` seconds ago and took `took` seconds.
fn past(kind: &str, name: &str, state: &str, ended: i64, took: i64) -> ListedOperation {
    let mut it = on("shop", kind, name, "Migrating")
        .state(state, None)
        .since(ended + took);
    it.completed = Some(now() - SignedDuration::from_secs(ended));
    it
}

fn of_work(mut it: ListedOperation, key: &str) -> ListedOperation {
    it.work = Some(key.to_owned());
    it
}

fn shown(rows: &[ListedOperation]) -> Vec<String> {
    let texts = rows.iter().map(|it| {
        let mark = if it.is_member_row { "-" } else { "" };
        format!("{mark}{} {}", it.subject.name, it.state)
    });
    texts.collect()
}

#[test]
fn the_newest_piece_comes_first_and_has_one_line() {
    let completed = [
        past("Pod", "old", "Failed", 900, 10),
        of_work(past("Pod", "a", "Superseded", 500, 10), "m"),
        of_work(past("Pod", "b", "Succeeded", 30, 5), "m"),
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
    let completed = [of_work(past("Pod", "a", "Succeeded", 30, 5), "m")];
    let active = [of_work(on("shop", "Pod", "b", "Migrating"), "m")];
    let (rows, unfinished) = rows(&completed, &active, &HistoryLimits::default(), false);
    assert!(rows.is_empty());
    assert_eq!(unfinished, 1);
}

#[test]
fn two_successive_migrations_of_one_machine_are_two_pieces() {
    let machine = |ended, took| of_work(past("VM", "web", "Ended", ended, took), "migration/web/");
    let run = |name: &str, key: &str, ended, took| {
        of_work(past("VMIM", name, "Succeeded", ended, took), key)
    };
    let completed = [
        machine(20, 5),
        machine(40, 5),
        run("first", "migration/web/1", 39, 21),
        run("second", "migration/web/2", 19, 20),
    ];
    let (rows_of_completed, _) = rows(&completed, &[], &HistoryLimits::default(), true);
    assert_eq!(
        shown(&rows_of_completed),
        [
            "second Succeeded",
            "-second Succeeded",
            "-web Ended",
            "first Succeeded",
            "-first Succeeded",
            "-web Ended",
        ]
    );
    // The operation of the machine is over, but the migration is not.
    let active = [of_work(
        on("shop", "VMIM", "third", "Running").since(9),
        "migration/web/3",
    )];
    let last = [machine(1, 5)];
    let (rows, unfinished) = rows(&last, &active, &HistoryLimits::default(), false);
    assert_eq!((rows.len(), unfinished), (0, 1));
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
        let mut it = of_work(past("Backup", "nightly", state, ended, took), "b");
        it.operation = operation.to_owned();
        it
    };
    let phases = [
        phase("Queued", "Superseded", 95, 5),
        phase("InProgress", "Superseded", 10, 85),
        phase("Finalizing", "Succeeded", 5, 5),
    ];
    let (rows, _) = rows(&phases, &[], &HistoryLimits::default(), false);
    let names: Vec<&str> = rows.iter().map(|it| it.operation.as_str()).collect();
    assert_eq!(names, ["InProgress"]);
}

#[test]
fn a_failed_piece_shows_the_message_of_the_child_that_failed() {
    let mut root = of_work(past("VM", "web", "Failed", 10, 60), "m");
    root.message = "The subject reports that the operation failed.".to_owned();
    let mut child = of_work(past("Pod", "a", "Failed", 20, 30), "m");
    (child.message, child.reason) = ("no space left".to_owned(), "Full".to_owned());
    let mut other = of_work(past("Pod", "b", "Succeeded", 30, 30), "m");
    other.message = "copied".to_owned();
    let line = |members: &[&ListedOperation]| PieceOfWork::new(members).line;
    let shown = line(&[&root, &child, &other]);
    assert_eq!(
        (&*shown.subject.name, &*shown.message, &*shown.reason),
        ("web", "no space left", "Full")
    );
    // The root also names a cause, but it failed because the child had failed.
    root.message = "disk a is not ready".to_owned();
    assert_eq!(line(&[&root, &child]).message, "no space left");
    child.message = "The subject reports that the operation failed.".to_owned();
    assert_eq!(line(&[&root, &child]).message, "disk a is not ready");
}
