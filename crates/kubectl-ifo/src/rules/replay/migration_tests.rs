//! Replays a recording of four successive live migrations of one virtual machine, with the shipped
//! rules.
//!
//! The rules detect a migration as operations on three objects. The plugin must show these
//! operations as one line, both while the migration runs and when it has ended.

use super::*;
use crate::operations::operation::{InFlightOperation, OperationFacts as _};
use crate::work_groups;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Returns true if the operation is part of a live migration.
fn is_of_migration(operation: &InFlightOperation) -> bool {
    *operation.spec.subject.kind == *"VirtualMachineInstanceMigration"
        || ["Migrating", "LiveMigrating"].contains(&&*operation.spec.operation)
}

/// Groups the operations of migrations by piece of work ([`work_groups`]). Returns the
/// subjects of each piece: the objects that its operations are about. Other operations are left
/// out.
fn pieces<'a>(
    operations: impl Iterator<Item = &'a Arc<InFlightOperation>>,
) -> Vec<BTreeSet<String>> {
    let operations = operations.map(|it| &**it).filter(|it| is_of_migration(it));
    let grouped = work_groups::group_by_work(operations).into_iter();
    let subjects = grouped.map(|it| it.iter().map(|it| it.subject_name()).collect());
    subjects.collect()
}

#[test]
fn each_of_four_migrations_is_one_line_in_flight_and_when_it_has_ended() {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let rules = load(&[repository.join("rules/kubevirt")]).expect("there are rule sets");
    assert!(rules.is_valid);
    let stream = repository.join("tests/fixtures/recorded/kubevirt-migrate-ok.jsonl");
    let text = text(&stream).expect("the recording can be read");
    let (events, faults) = recorded_watch::read(&text, &rules.kinds(&[]));
    assert!(faults.is_empty(), "{faults:?}");
    let (histories, failures) = replay(&rules, &events, Duration::from_secs(30), true);
    assert!(failures.is_empty(), "{failures:?}");

    let mut lines_with_all_subjects = 0;
    for event in &events {
        let states = histories.iter().filter_map(|history| {
            let mut states = history.states.iter().rev();
            states.find(|(t, _)| *t <= event.t)
        });
        let pieces = pieces(states.map(|it| &it.1).filter(|it| it.is_active()));
        assert!(pieces.len() <= 1, "at {}: {pieces:?}", event.t);
        let machine = pieces.iter().find(|it| it.contains("VirtualMachine/mig"));
        lines_with_all_subjects += machine.map_or(0, |it| usize::from(it.len() == 3));
    }
    assert!(
        lines_with_all_subjects > 0,
        "the three subjects were never in one line"
    );
    let last = histories.iter().filter_map(|it| it.states.last());
    let mut ended = pieces(last.map(|it| &it.1));
    ended.sort();
    let expected = ["kubevirt-migrate-vm-dhcck", "mig-1", "mig-3", "mig-4"].map(|name| {
        BTreeSet::from([
            "VirtualMachine/mig".to_owned(),
            "VirtualMachineInstance/mig".to_owned(),
            format!("VirtualMachineInstanceMigration/{name}"),
        ])
    });
    assert_eq!(ended, expected);
}
