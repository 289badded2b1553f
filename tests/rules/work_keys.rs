//! Evaluates the rules on recordings (watch events of real controllers), and checks which
//! operations belong to the same piece of work. For example, a migration causes operations on a
//! VirtualMachineInstanceMigration and on a VirtualMachineInstance. The rules must yield the same
//! `work` key for these operations.

use crate::compare_with_expected_operations::book;
use crate::read_shipped_rule_sets::Shipped;
use ifo_cel::Doc;
use ifo_engine::detect::evaluate;
use ifo_engine::rules::RuleBook;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The operations of each piece of work, by the `work` key. An operation has the form
/// `Kind name: Operation`.
type Pieces = BTreeMap<String, BTreeSet<String>>;

/// Evaluates each rule set in `files` on all objects of its target in a recording. Returns each
/// operation whose rule has a true `expression` or a true `continueWhile`, by its `work` key.
/// Operations without a `work` key are under the empty key.
fn pieces(recording: &str, files: &[&str]) -> Pieces {
    let mut books: BTreeMap<String, RuleBook> = BTreeMap::new();
    for shipped in Shipped::all() {
        if files.contains(&shipped.file.as_str()) {
            let target = &shipped.spec.target;
            let version = match target.group.as_str() {
                "" => target.version.clone(),
                group => format!("{group}/{}", target.version),
            };
            let book = book(&shipped.name, &shipped.spec).expect("shipped rule sets compile");
            books.insert(format!("{version}/{}", target.resource), book);
        }
    }
    assert_eq!(
        books.len(),
        files.len(),
        "each file must exist, and no two files may have the same target"
    );
    let path = format!("tests/fixtures/recorded/{recording}.jsonl");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = fs::read_to_string(path).expect("the recording is readable");
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().expect("the text is a time");
    let mut pieces = Pieces::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("each line is JSON");
        let object = &event["object"];
        let kind = object["kind"].as_str().expect("each object has a kind");
        let version = object["apiVersion"]
            .as_str()
            .expect("each object has a version");
        let resource = format!("{version}/{}s", kind.to_lowercase());
        let Some(book) = books.get(&resource) else {
            continue;
        };
        let json = object.to_string();
        let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
        let evaluation = evaluate(book, &doc, now, &()).expect("each object has a name");
        let name = object["metadata"]["name"]
            .as_str()
            .expect("each object has a name");
        for finding in &evaluation.findings {
            let values = finding
                .values
                .as_ref()
                .expect("no rule fails on recorded objects");
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
    assert_eq!(pieces.len(), 1, "{pieces:?}");
    assert!(!pieces.contains_key(""), "{pieces:?}");
    let members: BTreeSet<String> = pieces.into_values().flatten().collect();
    for member in [
        "DataVolume imp: ImportScheduled",
        "DataVolume imp: ImportInProgress",
    ] {
        assert!(members.contains(member), "{member} is not in {members:?}");
    }
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
