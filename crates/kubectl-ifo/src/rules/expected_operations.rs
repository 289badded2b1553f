//! Reads the annotation with the operations that the rules are expected to detect on an object.
//! `rules test --expect` compares the annotation with the detected operations.

use crate::listed_operation::ListedOperation;
use ifo_client::manifest::Object;
use std::collections::BTreeSet;

/// The key of the annotation. The value contains the names of operations, separated by commas. If
/// an operation is about an item of the object, such as a disk, the item follows after a slash:
/// `Importing/disk-0`. An empty value means that no operation is expected.
const ANNOTATION: &str = "ifo.kubevirt.io/expect";

/// Returns the operations in the annotation of `object`. None if the object does not have the
/// annotation.
pub(super) fn expected(object: &Object) -> Option<BTreeSet<String>> {
    let annotations = object.json.get("metadata")?.get("annotations")?;
    Some(names(annotations.get(ANNOTATION)?.as_str()?))
}

fn names(text: &str) -> BTreeSet<String> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Formats an operation as in the annotation: `Migrating` or `Importing/disk-0`.
pub(super) fn name(operation: &ListedOperation) -> String {
    match &operation.item {
        Some(item) => format!("{}/{item}", operation.operation),
        None => operation.operation.clone(),
    }
}

/// Formats the names of operations for a message. Returns `nothing` if there are no names.
pub(super) fn list(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_commas() {
        assert!(names("").is_empty());
        assert_eq!(list(&names(" B, A/x ,B")), "A/x, B");
        assert_eq!(list(&names("")), "nothing");
    }
}
