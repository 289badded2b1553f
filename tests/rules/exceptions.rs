//! Reads `exceptions.yaml`: the results of shipped rules that break a convention of the catalogue
//! for a reason. The keys are the files of the rule sets, such as `generic/pods.yaml`.

use crate::read_shipped_rule_sets::read;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The exceptions of one rule set. Each value is the reason of the exception.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Exceptions {
    /// Why an object without a status has no operation that is `Blocked` or `Failing`.
    pub without_status: Option<String>,
    /// Why the operation that deletes the subject is never `Blocked` or `Failing`.
    pub deletion: Option<String>,
    /// Why an operation is `Progressing` although a condition reports trouble. A key has the form
    /// `Rollout on ReplicaFailure`.
    pub trouble: BTreeMap<String, String>,
    /// Why an operation is not detected without a field that its rule does not need. A key has the
    /// form `Rollout without status.replicas`.
    pub removal: BTreeMap<String, String>,
}

impl Exceptions {
    /// Reads the exceptions of all rule sets.
    pub fn all() -> BTreeMap<String, Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules/exceptions.yaml");
        serde_saphyr::from_str(&read(&path)).expect("the file has the fields of `Exceptions`")
    }
}

/// Compares the breaches of a convention with its exceptions. Returns a line for each breach
/// without an exception, and for each exception that is no longer needed.
pub fn differences(breaches: &BTreeSet<String>, exceptions: &BTreeSet<String>) -> Vec<String> {
    let new = breaches.difference(exceptions);
    let new = new.map(|breach| format!("{breach}: not allowed without an exception"));
    let old = exceptions.difference(breaches);
    let old = old.map(|exception| format!("{exception}: the exception is no longer needed"));
    new.chain(old).collect()
}
