//! Replays a recording of four successive live migrations of one virtual machine, with the shipped
//! rules.
//!
//! The rules detect a migration as operations on three objects. The plugin must show these
//! operations as one line, both while the migration runs and in the history (the records of
//! completed operations).

use super::*;
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::operation_source::decode;
use crate::work_groups;
use ifo_api::Key;
use ifo_engine::ClockReading;
use ifo_engine::detect::Evaluation;
use ifo_engine::track::Write;
use std::collections::BTreeSet;
use std::path::Path;

/// The operations that a client of the server would see.
#[derive(Default)]
struct ServedOperations {
    in_flight: BTreeMap<Key, InFlightOperation>,
    records: Vec<InFlightOperation>,
}

impl ReplayObserver for ServedOperations {
    fn evaluated(&mut self, evaluation: &Evaluation) {
        assert!(evaluation.failures.is_empty(), "{:?}", evaluation.failures);
    }

    fn changed(&mut self, change: Write, _: ClockReading) {
        let (key, object) = match change {
            Write::Put { key, object } => (key, object),
            Write::Delete { key } => {
                self.in_flight.remove(&key);
                return;
            }
        };
        let mut json = Vec::new();
        object.append_json(1, &mut json);
        let json = String::from_utf8(json).expect("JSON is UTF-8");
        let operation = decode(&json).expect("the JSON is an operation");
        if object.record().is_some() {
            self.records.push(operation);
        } else if operation.is_active() {
            self.in_flight.insert(key, operation);
        }
    }
}

/// Returns true if the operation is part of a live migration.
fn is_of_migration(operation: &InFlightOperation) -> bool {
    *operation.spec.subject.kind == *"VirtualMachineInstanceMigration"
        || ["Migrating", "LiveMigrating"].contains(&&*operation.spec.operation)
}

/// Groups the operations of migrations by piece of work ([`work_groups`]). Returns the
/// subjects of each piece: the objects that its operations are about. Other operations are left
/// out.
fn pieces(operations: &[InFlightOperation]) -> Vec<BTreeSet<String>> {
    let operations = operations.iter().filter(|it| is_of_migration(it));
    let grouped = work_groups::group_by_work(operations).into_iter();
    let subjects = grouped.map(|it| it.iter().map(|it| it.subject_name()).collect());
    subjects.collect()
}

#[test]
fn each_of_four_migrations_is_one_line_in_flight_and_in_the_history() {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut rules = Input::read(&[repository.join("rules/kubevirt")]);
    let loaded = rule_sets::load(&mut rules);
    assert!(rules.faults.is_empty(), "{:?}", rules.faults);
    let targets = rule_sets::by_target(&loaded);
    let stream = repository.join("tests/fixtures/recorded/kubevirt-migrate-ok.jsonl");
    let text = text(&stream).expect("the recording can be read");
    let kinds = KnownKinds::default().with_targets(targets.keys());
    let (events, faults) = recorded_watch::read(&text, &kinds);
    assert!(faults.is_empty(), "{faults:?}");
    let mut lines_with_all_subjects = 0;
    let after = |served: &ServedOperations, t: f64| {
        let in_flight: Vec<InFlightOperation> = served.in_flight.values().cloned().collect();
        let pieces = pieces(&in_flight);
        assert!(pieces.len() <= 1, "at {t}: {pieces:?}");
        let machine = pieces.iter().find(|it| it.contains("VirtualMachine/mig"));
        lines_with_all_subjects += machine.map_or(0, |it| usize::from(it.len() == 3));
    };
    let (debounce, served) = (Duration::from_secs(30), ServedOperations::default());
    let events = (&*events, TimeScale::of(&events));
    let mut replay = replay_with(&targets, events, debounce, served, after);
    assert!(
        lines_with_all_subjects > 0,
        "the three subjects were never in one line"
    );
    while replay.expire_next() {}
    let expected = ["kubevirt-migrate-vm-dhcck", "mig-1", "mig-3", "mig-4"].map(|name| {
        BTreeSet::from([
            "VirtualMachine/mig".to_owned(),
            "VirtualMachineInstance/mig".to_owned(),
            format!("VirtualMachineInstanceMigration/{name}"),
        ])
    });
    let mut recorded = pieces(&replay.observer.records);
    recorded.sort();
    assert_eq!(recorded, expected);
}
