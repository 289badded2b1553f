//! Which operations a label selector means, where the others are known as well. Enters:
//! operations. Leaves: which of them the server selects: it alone says what selectors are.

use crate::operation::{ListedOperation, OperationKey};
use crate::problem::Problem;
use crate::source::OperationSource;
use std::collections::{HashMap, HashSet};

/// What a selector means.
pub(super) struct Selected {
    source: OperationSource,
    /// Of each operation: in which version it was judged, and how.
    judged: HashMap<OperationKey, (String, bool)>,
}

impl Selected {
    /// Those that `source` lists.
    pub(super) fn by(source: OperationSource) -> Self {
        Self {
            source,
            judged: HashMap::new(),
        }
    }

    /// Asks the server, if any of `operations` is new or other than before. Where it does
    /// not answer any more, what it said stays.
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

    /// Whether `operation` is one of them.
    pub(super) fn has(&self, operation: &ListedOperation) -> bool {
        let judged = self.judged.get(&operation.key());
        judged.is_some_and(|(_, selected)| *selected)
    }
}
