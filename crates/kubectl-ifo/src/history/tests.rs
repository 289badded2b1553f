use super::super::test_fixtures::{OperationFixture as _, on};
use super::*;

/// Returns an operation that ended `ended` seconds ago and took `took` seconds.
fn past(kind: &str, name: &str, state: &str, ended: i64, took: i64) -> InFlightOperation {
    on("shop", kind, name, "Migrating")
        .state(state, None)
        .since(ended + took)
        .ended(ended)
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
