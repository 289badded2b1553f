//! What the rule sets that ship find in the objects of the demo.

use crate::clock;
use crate::demo::kinds::{self, Kind};
use crate::demo::rules::shipped;
use ifo_cel::Doc;
use ifo_engine::detect::evaluate;
use ifo_engine::rules::{RuleBook, compile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The status of a condition; empty if it is not there.
pub(super) fn status<'a>(object: &'a Value, condition: &str) -> &'a str {
    field(object, condition, "status")
}

/// The reason of a condition; empty if it is not there.
pub(super) fn reason<'a>(object: &'a Value, condition: &str) -> &'a str {
    field(object, condition, "reason")
}

fn field<'a>(object: &'a Value, condition: &str, field: &str) -> &'a str {
    object["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["type"] == condition))
        .and_then(|c| c[field].as_str())
        .unwrap_or("")
}

/// The rules for each kind.
static BOOKS: LazyLock<BTreeMap<&'static str, RuleBook>> = LazyLock::new(|| {
    kinds::ALL
        .iter()
        .map(|kind| (kind.kind, book(kind)))
        .collect()
});

fn book(kind: &Kind) -> RuleBook {
    let sets = shipped()
        .into_iter()
        .filter(|set| {
            let target = &set.spec.target;
            (&*target.group, &*target.version, &*target.resource)
                == (kind.group, kind.version, kind.resource)
        })
        .map(|set| Arc::new(compile(&set.metadata.name.unwrap(), &set.spec).unwrap()))
        .collect();
    RuleBook::new(1, kind.gvr(), kind.kind.into(), kind.namespaced, sets)
}

/// The operations that rules detect on an object, on which none of them fails.
pub(super) fn operations(kind: &str, object: &Value) -> Vec<String> {
    let book = &BOOKS[kind];
    let json = object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).unwrap();
    let evaluation = evaluate(book, &doc, clock::now(), &()).unwrap();
    assert!(
        evaluation.failures.is_empty(),
        "{:?}: {json}",
        evaluation.failures
    );
    let findings = evaluation.findings.iter();
    findings
        .filter(|finding| finding.says.as_ref().is_some_and(|says| !says.continues))
        .map(|finding| finding.operation.to_string())
        .collect()
}
