//! Finds the operations that match a label selector, among all operations.
//!
//! Input: operations. Output: those that the server selects. Only the server evaluates selectors.

use crate::operation::{ListedOperation, OperationKey};
use crate::problem::Problem;
use crate::source::OperationSource;
use std::collections::{HashMap, HashSet};

/// The operations that match a selector.
pub(super) struct Selected {
    source: OperationSource,
    /// For each operation: the version that was checked, and the result.
    judged: HashMap<OperationKey, (String, bool)>,
}

impl Selected {
    /// Uses the filters of `source`.
    pub(super) fn by(source: OperationSource) -> Self {
        Self {
            source,
            judged: HashMap::new(),
        }
    }

    /// Asks the server if any of `operations` is new or has changed. If the server does not answer,
    /// the earlier results are kept.
    pub(super) async fn judge(&mut self, operations: &[ListedOperation]) -> Result<(), Problem> {
        let is_judged = |it: &ListedOperation| {
            let judged = self.judged.get(&it.key());
            judged.is_some_and(|(version, _)| *version == it.version)
        };
        if operations.iter().all(is_judged) {
            return Ok(());
        }
        let listed = match self.source.list().await {
            Ok(listed) => listed,
            Err(problem) if self.judged.is_empty() => return Err(problem),
            Err(_) => return Ok(()),
        };
        let listed: HashSet<OperationKey> = listed.iter().map(ListedOperation::key).collect();
        let judged = operations.iter().map(|it| {
            let key = it.key();
            let selected = listed.contains(&key);
            (key, (it.version.clone(), selected))
        });
        self.judged = judged.collect();
        Ok(())
    }

    /// Returns true if `operation` matches.
    pub(super) fn has(&self, operation: &ListedOperation) -> bool {
        let judged = self.judged.get(&operation.key());
        judged.is_some_and(|(_, selected)| *selected)
    }
}
