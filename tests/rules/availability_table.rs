//! Checks nine rule sets against `availability_table.yaml`. The table has the operation for each
//! combination of the conditions Available, Progressing and Degraded.

use crate::compare_with_expected_operations::book;
use crate::read_fixtures;
use crate::read_shipped_rule_sets::{Shipped, read};
use crate::troubled_objects::{conditions, set_condition, states};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// The files of the rule sets, each with the type of the condition that stands for Degraded.
const RULE_SETS: [(&str, &str); 9] = [
    ("kubevirt/aaqs.yaml", "Degraded"),
    ("kubevirt/cdis.yaml", "Degraded"),
    ("kubevirt/hostpathprovisioners.yaml", "Degraded"),
    ("kubevirt/hyperconvergeds.yaml", "Degraded"),
    ("kubevirt/kubevirts.yaml", "Degraded"),
    ("kubevirt/networkaddonsconfigs.yaml", "Degraded"),
    ("kubevirt/ssps.yaml", "Degraded"),
    ("openshift/clusteroperators.yaml", "Degraded"),
    ("openshift/clusterversions.yaml", "Failing"),
];

/// A row of the table. A status is `True`, `False` or `Unknown`, which also stands for a missing
/// condition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    available: String,
    progressing: String,
    degraded: String,
    /// The name of the operation. Empty if there is none.
    operation: String,
    state: String,
    /// The reason for the operation and its state.
    source: String,
    /// The result if the object has no status.
    #[serde(default)]
    absent: Option<Absent>,
}

#[derive(Deserialize)]
struct Absent {
    operation: String,
    state: String,
}

fn table() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules/availability_table.yaml");
    serde_saphyr::from_str(&read(&path)).expect("the file is a list of rows")
}

#[test]
fn the_table_has_a_row_with_a_source_for_each_combination() {
    let rows = table();
    let statuses = ["True", "False", "Unknown"];
    let cells: BTreeSet<[&str; 3]> = rows
        .iter()
        .map(|row| [&*row.available, &row.progressing, &row.degraded])
        .collect();
    assert_eq!((rows.len(), cells.len()), (27, 27));
    assert!(cells.iter().flatten().all(|it| statuses.contains(it)));
    assert!(rows.iter().all(|row| !row.source.is_empty()));
}

/// Sets a condition, or removes it if `status` is None.
fn with_status(object: &mut Value, name: &str, status: Option<&str>) {
    let condition = json!({
        "type": name, "status": status, "reason": format!("{name}Changed"),
        "message": format!("{name} has changed"), "lastTransitionTime": "2026-11-21T11:00:00Z",
    });
    set_condition(object, condition);
    if status.is_none()
        && let Some(all) = object["status"]["conditions"].as_array_mut()
    {
        all.pop();
    }
}

#[test]
fn nine_rule_sets_agree_with_the_table() {
    let rows = table();
    let all = Shipped::all();
    let mut wrong = Vec::new();
    for (file, degraded) in RULE_SETS {
        let shipped = all.iter().find(|shipped| shipped.file == file);
        let shipped = shipped.expect("the rule set is shipped");
        let book = book(&shipped.name, &shipped.spec).expect("shipped rule sets compile");
        let fixtures = read_fixtures::of_rule_set(shipped);
        let is_healthy = |it: &&read_fixtures::Fixture| {
            it.operations.is_empty() && !conditions(&it.object).is_empty()
        };
        let healthy = fixtures.iter().find(is_healthy);
        let healthy = &healthy.expect("a fixture has no operation").object;
        // Each Unknown is tried in two ways: with the status Unknown, and without the condition.
        // Without all three conditions, the operator has not reported yet, so there is no status.
        for (row, is_missing) in rows.iter().flat_map(|row| [(row, false), (row, true)]) {
            let mut object = healthy.clone();
            for (name, status) in [
                ("Available", &row.available),
                ("Progressing", &row.progressing),
                (degraded, &row.degraded),
            ] {
                let status = Some(status.as_str()).filter(|it| !is_missing || *it != "Unknown");
                with_status(&mut object, name, status);
            }
            let absent = row.absent.as_ref().filter(|_| is_missing);
            if absent.is_some() {
                object["status"] = Value::Null;
            }
            let (operation, state) = match absent {
                Some(absent) => (&absent.operation, &absent.state),
                None => (&row.operation, &row.state),
            };
            let found = states(&book, &object);
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|(name, state)| (name.as_str(), state.name()))
                .collect();
            let expected = Some((operation.as_str(), state.as_str()));
            let expected: Vec<_> = expected.filter(|it| !it.0.is_empty()).into_iter().collect();
            if found != expected {
                let cell = [&row.available, &row.progressing, &row.degraded];
                wrong.push(format!(
                    "{file}: {cell:?}, missing: {is_missing}: {found:?}, expected {expected:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
