use super::*;
use crate::test_fixtures::{OperationFixture as _, condition, on};
use ifo_api::live::{Expected, ExpectedSource};
use ifo_api::metadata::UnknownFields;
use jiff::SignedDuration;

/// Returns an operation of the piece of work `key`.
fn part(key: &str, kind: &str, name: &str, operation: &str) -> InFlightOperation {
    on("shop", kind, name, operation).work(key)
}

/// Returns the members of a migration. The VirtualMachine owns the VirtualMachineInstance. The
/// VirtualMachineInstanceMigration has two successive operations.
fn migration() -> Vec<InFlightOperation> {
    let mut instance = part("m", "VirtualMachineInstance", "web", "Migrating")
        .owned_by("VirtualMachine", "web")
        .state("Progressing", Some(45))
        .since(50);
    instance.status.message = "copies memory".into();
    instance.status.nodes = ["a", "b"].map(Text::from).into();
    vec![
        part("m", "VirtualMachineInstanceMigration", "x", "Pending")
            .state("Succeeded", None)
            .since(60),
        part("m", "VirtualMachineInstanceMigration", "x", "Running").since(40),
        instance,
        part("m", "VirtualMachine", "web", "Migrating").since(55),
    ]
}

fn only_line(operations: &[InFlightOperation]) -> InFlightOperation {
    let pieces = pieces_of_work(operations);
    assert_eq!(pieces.len(), 1, "{pieces:?}");
    pieces[0].line.clone()
}

#[test]
fn operations_of_two_components_are_never_one_piece_of_work() {
    let taken = |key: &str| part(key, "VirtualMachine", "owner", "Taking").of("other");
    for key in ["m", "m/1", "m/"] {
        let mut operations = migration();
        let alone = pieces_of_work(&operations);
        operations.push(taken(key));
        operations.push(part("m/1", "Pod", "web", "Moving"));
        operations.push(part("m/", "Pod", "web", "Waiting"));
        let mut pieces = pieces_of_work(&operations);
        pieces.sort_by_key(|it| it.line.subject_name());
        let names = |piece: &PieceOfWork| piece.line.subject_name();
        let subjects: Vec<String> = pieces.iter().map(names).collect();
        assert_eq!(
            subjects,
            ["Pod/web", "VirtualMachine/owner", "VirtualMachine/web"],
            "{key}"
        );
        assert_eq!(pieces[2].members.len(), alone[0].members.len());
    }
}

/// Returns an operation of the piece of work `key` that ended `ended` seconds ago, and started
/// `started` seconds ago.
fn past(key: &str, kind: &str, name: &str, started: i64, ended: i64) -> InFlightOperation {
    part(key, kind, name, "Migrating")
        .state("Ended", None)
        .since(started)
        .ended(ended)
}

/// Returns the names of the subjects of each piece, the root first.
fn subjects(operations: &[InFlightOperation]) -> Vec<Vec<String>> {
    let name = |it: &&InFlightOperation| it.spec.subject.name.to_string();
    let grouped = group_by_work(operations).into_iter();
    grouped.map(|it| it.iter().map(name).collect()).collect()
}

#[test]
fn an_open_key_joins_the_run_that_was_in_flight_at_the_same_time() {
    let runs = || {
        vec![
            past("migration/a/1", "Migration", "first", 100, 80),
            past("migration/a/2", "Migration", "second", 80, 60),
            part("migration/a/3", "Migration", "third", "Running").since(30),
            part("migration/ab/1", "Migration", "other", "Running").since(30),
        ]
    };
    let with = |machine: InFlightOperation| {
        let mut operations = runs();
        operations.push(machine);
        subjects(&operations)
    };
    let alone = |name: &str| vec![name.to_owned()];
    let joined = |name: &str| vec![name.to_owned(), "machine".to_owned()];
    let open = "migration/a/";
    let cases = [
        (past(open, "Machine", "machine", 95, 81), 0),
        // The first run ended one second before the operation started, so only the second run was
        // in flight at the same time.
        (past(open, "Machine", "machine", 79, 60), 1),
        (part(open, "Machine", "machine", "Migrating").since(25), 2),
        // The operation started before the third run. No other run whose key begins with the open
        // key was in flight at the same time.
        (part(open, "Machine", "machine", "Migrating").since(40), 2),
        // Two runs were in flight at the same time. The second one started before the operation.
        (part(open, "Machine", "machine", "Migrating").since(70), 1),
    ];
    for (machine, run) in cases {
        let mut expected = ["first", "second", "third", "other"].map(alone);
        expected[run] = joined(["first", "second", "third"][run]);
        let (pair, run) = (&mut expected[run], &runs()[run]);
        let ends_later = machine.is_active() && !run.is_active();
        if machine.started() < run.started() || ends_later {
            pair.reverse();
        }
        assert_eq!(with(machine.clone()), expected, "{machine:?}");
    }
    // The operation is a piece of its own if it was in flight between two runs, or if there is no
    // run.
    let between = past(open, "Machine", "machine", 50, 40);
    assert!(with(between).contains(&alone("machine")));
    let only = past(open, "Machine", "machine", 50, 40);
    let next = past(open, "Machine", "again", 30, 20);
    assert_eq!(subjects(&[only, next]), [["machine"], ["again"]]);
}

#[test]
fn the_root_owns_a_member_then_started_first_then_is_first_by_name() {
    let root = |operations: &[InFlightOperation]| only_line(operations).subject_name();
    let a = part("m", "Pod", "a", "Moving").since(5);
    let b = part("m", "Pod", "b", "Moving").since(9);
    assert_eq!(root(&[a.clone(), b.clone()]), "Pod/b");
    let c = part("m", "Pod", "c", "Moving").since(5);
    assert_eq!(root(&[c.clone(), a.clone()]), "Pod/a");
    let owned = part("m", "Disk", "d", "Moving")
        .owned_by("Pod", "a")
        .since(99);
    assert_eq!(root(&[b.clone(), owned, a.clone()]), "Pod/a");
}

#[test]
fn an_ownership_cycle_has_a_root() {
    let a = part("m", "Pod", "a", "Moving").owned_by("Pod", "b");
    let b = part("m", "Pod", "b", "Moving")
        .owned_by("Pod", "a")
        .since(9);
    assert_eq!(only_line(&[a, b]).subject_name(), "Pod/b");
    let own = part("m", "Pod", "c", "Moving").owned_by("Pod", "c");
    assert_eq!(only_line(&[own.clone(), own]).subject_name(), "Pod/c");
}

#[test]
fn the_worst_state_of_the_members_in_flight_decides() {
    let state = |states: &[&str]| {
        let operations: Vec<InFlightOperation> = states
            .iter()
            .enumerate()
            .map(|(number, state)| {
                part("m", "Pod", &number.to_string(), "Moving").state(state, None)
            })
            .collect();
        let line = only_line(&operations);
        (line.status.state.name(), line.is_active())
    };
    for (states, expected, active) in [
        (&["Progressing", "Blocked", "Failing"][..], "Failing", true),
        (&["Settling", "Blocked", "Progressing"], "Blocked", true),
        (&["Settling", "Progressing"], "Progressing", true),
        (&["Failed", "Settling"], "Settling", true),
        (&["Succeeded", "Failed", "Ended"], "Failed", false),
        (&["Superseded", "Succeeded", "Ended"], "Succeeded", false),
        (&["Superseded", "Ended"], "Ended", false),
    ] {
        assert_eq!(state(states), (expected, active), "{states:?}");
    }
}

#[test]
fn the_success_of_a_phase_is_not_the_success_of_an_aborted_work() {
    let phase = |operation: &str, state: &str, started: i64, ended: i64| {
        let mut it = past("w", "Job", "a", started, ended).state(state, None);
        it.spec.operation = operation.into();
        it
    };
    let approved = phase("WaitingForApproval", "Succeeded", 90, 60);
    for last in ["Ended", "Superseded", "Failed", "Succeeded"] {
        let line = only_line(&[approved.clone(), phase("Running", last, 60, 30)]);
        assert_eq!(line.status.state.name(), last);
    }
    // The failure of an earlier phase remains the result of the whole work.
    let failed = phase("Copying", "Failed", 90, 60);
    let line = only_line(&[failed, phase("Cleaning", "Succeeded", 60, 30)]);
    assert_eq!(line.status.state.name(), "Failed");
    // If the last phase has no progress, the line has the progress of an earlier phase.
    let copied = phase("Copying", "Succeeded", 90, 60).state("Succeeded", Some(100));
    let line = only_line(&[copied, phase("Cleaning", "Succeeded", 60, 30)]);
    assert_eq!(
        (line.status.state.name(), line.status.progress),
        ("Succeeded", Some(100))
    );
    // A phase whose end is unknown is not known to be an earlier one.
    let mut without_end = approved.clone();
    without_end.status.completed = None;
    let line = only_line(&[without_end, phase("Running", "Ended", 60, 30)]);
    assert_eq!(line.status.state.name(), "Succeeded");
    // Another subject that shows no outcome does not change the result.
    let other = past("w", "Machine", "b", 90, 10);
    let line = only_line(&[approved.clone(), other]);
    assert_eq!(line.status.state.name(), "Succeeded");
    // An element of a list is not a phase of another element.
    let element = |name: &str, mut it: InFlightOperation| {
        it.spec.item = Some(name.into());
        it
    };
    let line = only_line(&[
        element("disk-1", approved),
        element("disk-2", phase("Copying", "Ended", 60, 30)),
    ]);
    assert_eq!(line.status.state.name(), "Succeeded");
}

#[test]
fn markers_the_usual_duration_and_the_initiator_come_from_any_member() {
    let mut operations = migration();
    let expected = |typical_seconds| Expected {
        typical_seconds,
        p95_seconds: None,
        runs: None,
        source: ExpectedSource::Rule,
        unknown: UnknownFields::new(),
    };
    operations[1].status.expected = Some(expected(10));
    operations[2].status.expected = Some(expected(300));
    operations[2].spec.initiator = Some("ann".into());
    for (number, seconds) in [(1, 7), (2, 9)] {
        let started = operations[number].started();
        let queued = started - SignedDuration::from_secs(seconds);
        operations[number].status.queued_at = Some(Time(queued));
    }
    operations[2].status.conditions = vec![condition("Stalled", "True")];
    let line = only_line(&operations);
    assert_eq!(line.marked_state(), "Progressing (stalled)");
    assert_eq!(line.usual_duration(), "limit 5m");
    assert_eq!(line.spec.initiator, Some("ann".into()));
    assert_eq!(line.in_queue(), Some(9));
    operations[3].status.expected = Some(expected(200));
    assert_eq!(only_line(&operations).usual_duration(), "limit 3m20s");
}
