//! Reports which rule sets (`OperationRuleSet` objects) may miss operations. For example, a rule
//! set misses operations if its rules do not compile. The server adds a warning to lists of
//! operations that may be incomplete for this reason.
//!
//! The leader (the replica that detects operations) uses its own report. A follower (a replica that
//! copies the leader's operations) regularly sends a state query to the leader. The leader's answer
//! contains the leader's report, and the follower uses the report in the last answer.

use super::ReplicaStatus;
use crate::rules::{IncompleteRuleSets, Reporter};
use ifo_api::completeness::{Completeness, Gaps};

/// Reports, on the leader and on followers, which rule sets may miss operations.
///
/// - If this replica is the leader and has read the rule sets, it uses its own report.
/// - Otherwise, if it has received a report from a leader, it uses the last received report.
/// - Otherwise, it uses its own report, which says that the rule sets have not been read.
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
    pub fn incomplete_rule_sets(&self) -> IncompleteRuleSets {
        self.own.incomplete_rule_sets()
    }
}

impl Completeness for ReplicatedReporter {
    fn gaps(&self, namespace: &str) -> Gaps {
        let own = self.own.gaps(namespace);
        if own.rule_sets_are_read {
            return own;
        }
        let mirrored = self.replica_status.incomplete_rule_sets();
        mirrored.map_or(own, |mirrored| mirrored.gaps(self.own.wanted(namespace)))
    }
}
