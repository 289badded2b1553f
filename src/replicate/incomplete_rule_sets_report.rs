//! Reports which rule sets may miss operations, so that lists of operations get a warning.
//!
//! The leader (the replica that detects operations) uses its own report. A follower (a replica that
//! copies the leader's operations) regularly sends a state query to the leader. The follower uses
//! the report in the last answer.

use super::ReplicaStatus;
use crate::rules::{IncompleteRuleSets, Reporter};
use ifo_api::completeness::{Completeness, Gaps};

/// Reports, on the leader and on followers, which rule sets may miss operations.
///
/// If this replica is the leader and has read the rule sets, the report is its own. Otherwise, the
/// report is the last one that this replica received from a leader. If it has received none, the
/// report is its own, which says that the rule sets have not been read.
#[derive(Clone, Debug)]
pub struct ReplicatedReporter {
    own: Reporter,
    replica_status: ReplicaStatus,
}

impl ReplicatedReporter {
    /// Combines `own`, the report of this replica, with the leader's report in
    /// `replica_status`.
    pub fn new(own: Reporter, replica_status: ReplicaStatus) -> Self {
        Self {
            own,
            replica_status,
        }
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
        let mirrored = self.replica_status.coverage();
        mirrored.map_or(own, |mirrored| mirrored.gaps(self.own.wanted(namespace)))
    }
}
