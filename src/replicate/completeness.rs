//! Reports, on any replica, the rule sets that may miss operations.
//!
//! Input: the report of this replica, and the report that the leader sent.
//! Output: the gaps from which the server makes the warning on lists.

use super::View;
use crate::rules::{IncompleteRuleSets, Reporter};
use ifo_api::completeness::{Completeness, Gaps};

/// Reports gaps in completeness on any replica.
///
/// If this replica leads and has read its own rule sets, it uses their report.
/// Otherwise it uses the leader's report.
#[derive(Clone, Debug)]
pub struct ReplicatedReporter {
    own: Reporter,
    view: View,
}

impl ReplicatedReporter {
    /// Joins `own`, the report of this replica, with the leader's report in `view`.
    pub fn new(own: Reporter, view: View) -> Self {
        Self { own, view }
    }

    /// Returns the report that this replica sends to the other replicas.
    pub fn coverage(&self) -> IncompleteRuleSets {
        self.own.coverage()
    }
}

impl Completeness for ReplicatedReporter {
    fn gaps(&self, namespace: &str) -> Gaps {
        let own = self.own.gaps(namespace);
        if own.read {
            return own;
        }
        let mirrored = self.view.coverage();
        mirrored.map_or(own, |mirrored| mirrored.gaps(self.own.wanted(namespace)))
    }
}
