//! Reports which rule sets may miss operations. The server uses this report for the warning on
//! lists.
//!
//! The leader uses its own report. A follower uses the report that the leader sent to it.

use super::View;
use crate::rules::{IncompleteRuleSets, Reporter};
use ifo_api::completeness::{Completeness, Gaps};

/// Reports, on any replica, which rule sets may miss operations.
///
/// If this replica has read its own rule sets, it uses its own report. Otherwise it uses the
/// leader's report.
#[derive(Clone, Debug)]
pub struct ReplicatedReporter {
    own: Reporter,
    view: View,
}

impl ReplicatedReporter {
    /// Combines `own`, the report of this replica, with the leader's report in `view`.
    pub fn new(own: Reporter, view: View) -> Self {
        Self { own, view }
    }

    /// Returns this replica's own report, which it sends to its followers.
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
