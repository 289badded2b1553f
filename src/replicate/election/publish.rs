//! Publishes the role of this replica as a [`ReplicaRole`], and waits until the next turn of the
//! leader election. While no replica leads, and before the first read of the Lease, this replica is
//! neither leader nor follower. This module also logs problems with the Lease.

use super::super::ReplicaRole;
use super::super::lease::LeaseRecord;
use super::Election;
use crate::index::Rv;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// The shortest time between two reads of the Lease that
/// [`ReplicaStatus::wake`](super::ReplicaStatus::wake) requests.
const WAKE_INTERVAL: Duration = Duration::from_millis(100);

impl Election {
    /// Returns the role of this replica.
    fn role(&self) -> ReplicaRole {
        if let Some(leading) = &self.leading {
            return ReplicaRole::Leading(leading.leadership.clone());
        }
        if !self.has_read {
            return ReplicaRole::Unknown;
        }
        let record = self.seen.as_ref().map(|seen| &seen.record);
        let holder = record.and_then(LeaseRecord::holder);
        let has_expired = self.seen.as_ref().is_some_and(|seen| seen.has_expired);
        match &self.last_leader {
            Some(last)
                if holder.as_ref() == Some(&last.term)
                    && !has_expired
                    && !self.is_own_term(&last.term) =>
            {
                ReplicaRole::Following(last.clone())
            }
            last => ReplicaRole::Vacant {
                last: last.clone(),
                // If the Lease still names this replica's last term as the holder, the Lease has no
                // final version. If this replica has already been asked to release the Lease, it
                // knows the final version itself.
                final_version: if holder.is_some() && holder == self.last_own_term {
                    self.final_version_at_stop()
                } else {
                    record.and_then(LeaseRecord::final_version)
                },
            },
        }
    }

    /// Publishes the role of this replica, if it has changed.
    pub(super) fn publish(&self) {
        let now = self.role();
        let is_leading = matches!(now, ReplicaRole::Leading(_));
        self.inputs.metrics.series.leader.set(is_leading.into());
        self.inputs.status.role().send_if_modified(|before| {
            let is_new = *before != now;
            if is_new {
                if let ReplicaRole::Following(leader) = &now {
                    tracing::info!(term = %leader.term, address = %leader.address, "this replica follows a leader");
                }
                *before = now;
            }
            is_new
        });
    }

    /// Logs `problem` if it differs from the last logged problem. If `problem` is None, logs that
    /// the last problem is over.
    pub(super) fn report_problem(&mut self, problem: Option<String>) {
        if self.logged_problem != problem {
            if let Some(problem) = &problem {
                tracing::warn!("{problem}");
            } else {
                tracing::info!("the Lease can be read and written again");
            }
            self.logged_problem = problem;
        }
    }

    /// Waits until the next turn of the election is due, at most for `pause`. Returns true if this
    /// replica must release the Lease, because `stops` has received a final version.
    pub(super) async fn wait(
        &self,
        pause: Duration,
        stops: &mut watch::Receiver<Option<Rv>>,
    ) -> bool {
        // The Lease will probably change soon. For example, the stream of changes from the leader has
        // ended.
        let woken = async {
            sleep(WAKE_INTERVAL).await;
            self.inputs.status.wake().notified().await;
        };
        tokio::select! {
            biased;
            Ok(()) = stops.changed() => true,
            () = woken, if self.leading.is_none() => false,
            () = sleep(pause) => false,
        }
    }
}
