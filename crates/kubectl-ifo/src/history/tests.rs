use super::super::test_fixtures::{now, on};
use super::*;
use crate::colors::Paint;

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
    assert_eq!(of(all, false), ["a Succeeded", "new Ended", "old Failed"]);
    assert_eq!(
        of(all, true),
        [
            "a Succeeded",
            "-a Superseded",
            "-b Succeeded",
            "new Ended",
            "old Failed"
        ]
    );
    let failed = HistoryLimits {
        only_failed: true,
        ..all
    };
    assert_eq!(of(failed, false), ["old Failed"]);
    // A piece ends with its last member `b`, which ended in the last 60 seconds. The member `a`
    // ended earlier, but the table shows the piece.
    let recent = HistoryLimits {
        earliest_end: Some(now() - SignedDuration::from_secs(60)),
        ..all
    };
    assert_eq!(of(recent, false), ["a Succeeded", "new Ended"]);
}

#[test]
fn a_piece_with_a_member_in_flight_is_not_over() {
    let completed = [of_work(past("Pod", "a", "Succeeded", 30, 5), "m")];
    let active = [of_work(on("shop", "Pod", "b", "Migrating"), "m")];
    let (rows, unfinished) = rows(&completed, &active, HistoryLimits::default(), false);
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
    let (rows_of_completed, _) = rows(&completed, &[], HistoryLimits::default(), true);
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
    let (rows, unfinished) = rows(&last, &active, HistoryLimits::default(), false);
    assert_eq!((rows.len(), unfinished), (0, 1));
}

#[test]
fn the_reach_says_if_it_is_shorter_than_the_requested_time() {
    let oldest_end = Some(now());
    let line = |earliest, namespace| reach_line(oldest_end, earliest, namespace, Served::Live);
    assert_eq!(
        line(None, None),
        "Records reach back to 2026-01-01T12:00:00Z."
    );
    let shop = "shop".to_owned();
    assert_eq!(
        line(Some(Timestamp::MIN), Some(&shop)),
        "Records of namespace shop reach back only to 2026-01-01T12:00:00Z."
    );
    assert_eq!(
        reach_line(None, None, None, Served::Live),
        "Records: there are none yet."
    );
}

#[test]
fn the_table_fits_on_the_terminal() {
    let rows = [
        past(
            "VirtualMachineInstanceMigration",
            "web-with-a-long-name",
            "Failed",
            60,
            125,
        ),
        past("Pod", "a", "Succeeded", 60, 5),
    ];
    let style = |screen| TextStyle {
        screen,
        wide: false,
        paint: Paint::default(),
    };
    assert_eq!(
        table::text(&rows, false, style(None)),
        "\
STARTED                ENDED                  KIND                              SUBJECT                OPERATION   OUTCOME     DURATION   USUAL
2026-01-01T11:56:55Z   2026-01-01T11:59:00Z   VirtualMachineInstanceMigration   web-with-a-long-name   Migrating   Failed      2m5s       -
2026-01-01T11:58:55Z   2026-01-01T11:59:00Z   Pod                               a                      Migrating   Succeeded   5s         -
"
    );
    for width in [80, 100, 120] {
        let text = table::text(&rows, true, style(Some(width)));
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert!(!line.ends_with(' '), "{line:?}");
        }
        assert!(
            text.contains("OUTCOME") && text.contains("DURATION"),
            "{text}"
        );
    }
}
