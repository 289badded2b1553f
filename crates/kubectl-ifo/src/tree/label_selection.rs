//! Finds the operations that are selected by the label selector of the user (`-l`).
//!
//! A tree is built from all operations, because operations that do not match can connect operations
//! that match. `tree` does not evaluate the selector itself. It lists the matching operations with
//! a separate request that contains the selector.

use crate::listed_operation::{ListedOperation, OperationKey};
use crate::operation_source::OperationSource;
use crate::problem::Problem;
use std::collections::{HashMap, HashSet};

/// Remembers for each operation whether it matches the label selector.
pub(super) struct LabelSelection {
    pub(super) source: OperationSource,
    /// One value for each operation: the resourceVersion for which the result is valid, and true if
    /// the operation matches.
    results: HashMap<OperationKey, (String, bool)>,
}

impl LabelSelection {
    /// Creates an empty set. `source` lists only operations that match the label selector.
    pub(super) fn by(source: OperationSource) -> Self {
        Self {
            source,
            results: HashMap::new(),
        }
    }

    /// Lists the matching operations again if one of `operations` is new or has changed. If the
    /// request fails, the earlier results are kept. If there are no earlier results, the error is
    /// returned.
    pub(super) async fn update(&mut self, operations: &[ListedOperation]) -> Result<(), Problem> {
        let is_current = |it: &ListedOperation| {
            let results = self.results.get(&it.key());
            results.is_some_and(|(version, _)| *version == it.resource_version)
        };
        if operations.iter().all(is_current) {
            return Ok(());
        }
        let listed = match self.source.list().await {
            Ok(listed) => listed,
            Err(problem) if self.results.is_empty() => return Err(problem),
            Err(_) => return Ok(()),
        };
        let listed: HashSet<OperationKey> = listed.iter().map(ListedOperation::key).collect();
        let results = operations.iter().map(|it| {
            let key = it.key();
            let selected = listed.contains(&key);
            (key, (it.resource_version.clone(), selected))
        });
        self.results = results.collect();
        Ok(())
    }

    /// Returns true if `operation` matched the selector in the last successful request. Returns
    /// false if the operation did not exist yet at this request.
    pub(super) fn has(&self, operation: &ListedOperation) -> bool {
        let results = self.results.get(&operation.key());
        results.is_some_and(|(_, selected)| *selected)
    }
}
