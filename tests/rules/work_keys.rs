//! Evaluates the rules on recordings (watch events of real controllers), and checks which
//! operations belong to the same piece of work. For example, a migration causes operations on a
//! VirtualMachineInstanceMigration and on a VirtualMachineInstance. The rules must yield the same
//! `work` key for these operations.

use crate::catalogue::{Shipped, evaluation, read, repository, table};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The operations of each piece of work, by the `work` key. An operation has the form
/// `Kind name: Operation`. Operations without a `work` key are under the empty key.
type Pieces = BTreeMap<String, BTreeSet<String>>;

/// An entry of `work_keys.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    recording: String,
    rule_sets: Vec<String>,
    pieces: Pieces,
}

/// Evaluates each rule set of the case on all objects of its target in the recording. Returns each
/// operation whose rule has a true `expression` or a true `continueWhile`, by its `work` key.
fn pieces(case: &Case) -> Pieces {
    let shipped = Shipped::all().into_iter();
    let shipped = shipped.filter(|it| case.rule_sets.contains(&it.file));
    let books: BTreeMap<_, _> = shipped.map(|it| (it.target(), it.book())).collect();
    assert_eq!(books.len(), case.rule_sets.len(), "each file must exist");
    let file = format!("tests/fixtures/recorded/{}.jsonl", case.recording);
    let mut pieces = Pieces::new();
    for line in read(&repository(&file)).lines() {
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

#[test]
fn the_operations_of_one_piece_of_work_have_one_key() {
    for case in table::<Vec<Case>>("work_keys.yaml") {
        assert_eq!(pieces(&case), case.pieces, "{}", case.recording);
    }
}
