//! The annotation of an object with the expected operations.

use crate::operation::ListedOperation;
use ifo_client::manifest::Object;
use std::collections::BTreeSet;

/// Names of operations, separated by commas. An item follows a slash. Empty for no operation.
const ANNOTATION: &str = "ifo.kubevirt.io/expect";

/// Returns the operations that `object` expects. None without the annotation.
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

/// Formats the name of an operation as in the annotation.
pub(super) fn name(operation: &ListedOperation) -> String {
    match &operation.item {
        Some(item) => format!("{}/{item}", operation.operation),
        None => operation.operation.clone(),
    }
}

/// Formats names for messages.
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
