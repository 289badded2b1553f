//! Publishes the role of this replica as a [`ReplicaRole`], and waits until the next turn of the
//! leader election. While no replica leads, and before the first read of the Lease, this replica is
//! neither leader nor follower. This module also logs problems with the Lease.

use super::super::ReplicaRole;
use super::Election;
use super::lease_requests::SeenLease;
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
        let Some(SeenLease {
            record,
            has_expired,
            ..
        }) = &self.seen
        else {
            return ReplicaRole::Vacant(None);
        };
        let is_held = record.holder().is_some() && !has_expired;
        match record.last() {
            Some(last) if is_held && !self.is_own_term(&last.term) => ReplicaRole::Following(last),
            last => ReplicaRole::Vacant(last.zip(record.final_version())),
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

    /// Waits until the next turn of the election is due, at most for `pause`. When `stops` receives a
    /// final version, the turn is due, because this replica must release the Lease.
    pub(super) async fn wait(&self, pause: Duration, stops: &mut watch::Receiver<Option<Rv>>) {
        // The Lease will probably change soon. For example, the stream of changes from the leader has
        // ended.
        let woken = async {
            sleep(WAKE_INTERVAL).await;
            self.inputs.status.wake().notified().await;
        };
        tokio::select! {
            biased;
            Ok(()) = stops.changed() => {}
            () = woken, if self.leading.is_none() => {}
            () = sleep(pause) => {}
        }
    }
}
