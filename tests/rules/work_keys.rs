//! Evaluates the rules on recordings (watch events of real controllers), and checks which
//! operations belong to the same piece of work. For example, a migration causes operations on a
//! VirtualMachineInstanceMigration and on a VirtualMachineInstance. The rules must yield the same
//! `work` key for these operations.

use crate::catalogue::{Shipped, evaluation, read, repository};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The operations of each piece of work, by the `work` key. An operation has the form
/// `Kind name: Operation`.
type Pieces = BTreeMap<String, BTreeSet<String>>;

/// Evaluates each rule set in `files` on all objects of its target in a recording. Returns each
/// operation whose rule has a true `expression` or a true `continueWhile`, by its `work` key.
/// Operations without a `work` key are under the empty key.
fn pieces(recording: &str, files: &[&str]) -> Pieces {
    let shipped = Shipped::all().into_iter();
    let shipped = shipped.filter(|it| files.contains(&&*it.file));
    let books: BTreeMap<_, _> = shipped.map(|it| (it.target(), it.book())).collect();
    assert_eq!(books.len(), files.len(), "each file must exist");
    let text = read(&repository(&format!(
        "tests/fixtures/recorded/{recording}.jsonl"
    )));
    let mut pieces = Pieces::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("each line is JSON");
        let object = &event["object"];
        let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let [kind, version, name] = ["/kind", "/apiVersion", "/metadata/name"]
            .map(|pointer| field(pointer).expect("each object has a kind and a name"));
        let Some(book) = books.get(&format!("{version}/{}s", kind.to_lowercase())) else {
            continue;
        };
        for finding in evaluation(book, object).findings {
            let values = finding.values.expect("no rule fails on recorded objects");
            let work = values.shown.work.as_deref().unwrap_or_default().to_owned();
            let operation = format!("{kind} {name}: {}", finding.operation);
            pieces.entry(work).or_default().insert(operation);
        }
    }
    pieces
}

/// Adds the subject, such as `VirtualMachine mig`, to the names of its operations. For example, the
/// name `Migrating` gives `VirtualMachine mig: Migrating`.
fn operations(subject: &str, names: &[&str]) -> BTreeSet<String> {
    let names = names.iter();
    names.map(|name| format!("{subject}: {name}")).collect()
}

/// The phases of a VirtualMachineInstanceMigration that succeeds. The rules detect one operation
/// for each phase.
const PHASES: [&str; 6] = [
    "Pending",
    "Scheduling",
    "Scheduled",
    "PreparingTarget",
    "TargetReady",
    "Running",
];

#[test]
fn phases_of_a_migration_and_the_operation_of_its_instance_are_one_piece_of_work() {
    let files = [
        "kubevirt/virtualmachineinstancemigrations.yaml",
        "kubevirt/virtualmachineinstances.yaml",
        "kubevirt/virtualmachines.yaml",
    ];
    let mut pieces = pieces("kubevirt-migrate-ok", &files);
    let others = pieces.remove("").expect("starts and stops have no key");
    assert!(!others.iter().any(|it| it.contains("Migrating")));
    assert!(
        !others
            .iter()
            .any(|it| it.starts_with("VirtualMachineInstanceMigration "))
    );
    let migrations = [
        ("7da7c77d-9380-43ca-ba4a-10ae6b02ae3d", "mig-1"),
        (
            "15785537-1dfc-4720-850c-b0d0a2b9635c",
            "kubevirt-migrate-vm-dhcck",
        ),
        ("5724139f-510b-4e62-9019-263f1bad57b2", "mig-3"),
        ("7227557f-4422-4430-89d3-25742e01201f", "mig-4"),
    ];
    let prefix = "migration/migrate-ok/mig/";
    let mut expected = Pieces::from(migrations.map(|(uid, name)| {
        let subject = format!("VirtualMachineInstanceMigration {name}");
        let mut members = operations(&subject, &PHASES);
        members.extend(operations("VirtualMachineInstance mig", &["LiveMigrating"]));
        (format!("{prefix}{uid}"), members)
    }));
    // No field of a VirtualMachine contains the UID of its migration. So the rule for the
    // VirtualMachine yields a key that is only the beginning of the other keys.
    expected.insert(
        prefix.to_owned(),
        operations("VirtualMachine mig", &["Migrating"]),
    );
    assert_eq!(pieces, expected);
}

#[test]
fn phases_of_an_import_are_one_piece_of_work() {
    let pieces = pieces("cdi-import-populator", &["kubevirt/datavolumes.yaml"]);
    let [(key, members)] = &pieces.iter().collect::<Vec<_>>()[..] else {
        panic!("{pieces:?}");
    };
    assert!(!key.is_empty());
    let phases = ["ImportScheduled", "ImportInProgress"];
    assert!(
        members.is_superset(&operations("DataVolume imp", &phases)),
        "{members:?}"
    );
    assert!(
        members.iter().all(|it| it.contains(" imp: ")),
        "{members:?}"
    );
}

#[test]
fn a_clone_and_its_snapshot_and_restore_are_one_piece_of_work() {
    let files = [
        "kubevirt/virtualmachineclones.yaml",
        "kubevirt/virtualmachinerestores.yaml",
        "kubevirt/virtualmachines.yaml",
        "kubevirt/virtualmachinesnapshots.yaml",
    ];
    let pieces = pieces("kubevirt-snapshot-restore-clone", &files);
    let of = |member: &str| {
        let mut found = pieces
            .iter()
            .filter(|(_, members)| members.contains(member));
        let (key, members) = found
            .next()
            .unwrap_or_else(|| panic!("{member} is not found"));
        assert!(found.next().is_none(), "{member} has two keys");
        assert!(!key.is_empty(), "{member} has no key");
        (key, members)
    };
    let (_, clone) = of("VirtualMachineClone clone1: SnapshotInProgress");
    for kind in ["VirtualMachineSnapshot tmp-", "VirtualMachineRestore tmp-"] {
        assert!(clone.iter().any(|it| it.starts_with(kind)), "{clone:?}");
    }
    // The key of a snapshot or restore ends with its UID. The VirtualMachine shows only the name of
    // its snapshot or restore. So the key of the VirtualMachine is the same text without the UID.
    for (object, machine) in [
        (
            "VirtualMachineSnapshot snap-online: InProgress",
            "Snapshotting",
        ),
        ("VirtualMachineRestore restore1: InProgress", "Restoring"),
    ] {
        let (key, _) = of(object);
        let (beginning, uid) = key.split_at(key.rfind('/').map_or(0, |at| at + 1));
        assert_eq!(uid.len(), 36, "{key}");
        let members = &pieces[beginning];
        assert_eq!(*members, operations("VirtualMachine db", &[machine]));
    }
}
