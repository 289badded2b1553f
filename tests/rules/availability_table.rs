//! Checks nine rule sets against `availability_table.yaml`. The table has the operation for each
//! combination of the conditions Available, Progressing and Degraded.

use crate::catalogue::{Shipped, table};
use crate::conventions::{conditions, set_condition, states};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// The files of the rule sets.
const RULE_SETS: [&str; 9] = [
    "kubevirt/aaqs.yaml",
    "kubevirt/cdis.yaml",
    "kubevirt/hostpathprovisioners.yaml",
    "kubevirt/hyperconvergeds.yaml",
    "kubevirt/kubevirts.yaml",
    "kubevirt/networkaddonsconfigs.yaml",
    "kubevirt/ssps.yaml",
    "openshift/clusteroperators.yaml",
    "openshift/clusterversions.yaml",
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

#[test]
fn nine_rule_sets_agree_with_the_table() {
    let rows: Vec<Row> = table("availability_table.yaml");
    let cells = rows
        .iter()
        .map(|row| [&row.available, &row.progressing, &row.degraded]);
    let cells: BTreeSet<[&String; 3]> = cells.collect();
    assert_eq!(
        (rows.len(), cells.len()),
        (27, 27),
        "one row for each combination"
    );
    assert!(rows.iter().all(|row| !row.source.is_empty()));
    let all = Shipped::all();
    let shipped: Vec<_> = all
        .iter()
        .filter(|it| RULE_SETS.contains(&&*it.file))
        .collect();
    assert_eq!(shipped.len(), RULE_SETS.len());
    let mut wrong = Vec::new();
    for shipped in shipped {
        let degraded = match &*shipped.file {
            "openshift/clusterversions.yaml" => "Failing",
            _ => "Degraded",
        };
        let book = shipped.book();
        let mut fixtures = shipped.fixtures().into_iter();
        let healthy =
            fixtures.find(|it| it.operations.is_empty() && !conditions(&it.object).is_empty());
        let healthy = healthy.expect("a fixture has no operation").object;
        // Each Unknown is tried in two ways: with the status Unknown, and without the condition.
        // Without all three conditions, the operator has not reported yet, so there is no status.
        for (row, is_missing) in rows.iter().flat_map(|row| [(row, false), (row, true)]) {
            let mut object = healthy.clone();
            let conditions = [
                ("Available", &row.available),
                ("Progressing", &row.progressing),
                (degraded, &row.degraded),
            ];
            for (name, status) in conditions {
                let status = Some(status.as_str()).filter(|it| !is_missing || *it != "Unknown");
                set_condition(&mut object, name, status);
            }
            let absent = row.absent.as_ref().filter(|_| is_missing);
            if absent.is_some() {
                object["status"] = Value::Null;
            }
            let row_result = (&row.operation, &row.state);
            let (operation, state) =
                absent.map_or(row_result, |absent| (&absent.operation, &absent.state));
            let found = states(&book, &object);
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|(name, state)| (name.as_str(), state.name()))
                .collect();
            let expected = Some((operation.as_str(), state.as_str()));
            let expected: Vec<_> = expected.filter(|it| !it.0.is_empty()).into_iter().collect();
            if found != expected {
                let file = &shipped.file;
                wrong.push(format!(
                    "{file}: {conditions:?}: {found:?}, expected {expected:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
