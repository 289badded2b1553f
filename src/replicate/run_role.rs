//! Runs this replica (process) in its current role. The leader detects operations, such as
//! migrations. A follower copies the leader's index (the operations in memory).
//!
//! The role comes from the election. A server without an election leads from its start to its end.
//!
//! The index has only one writer. [`ReplicaTask`] lends this writer to one task at a time:
//!
//! - the pipeline, which detects operations, while this replica leads
//! - the mirror, which copies the leader's index, while this replica follows

use super::{Leader, Leadership, Mirror, ReplicaRole, ReplicaStatus};
use crate::index::{Rv, Writer};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// When a leader stops, it waits for at most this time until the election has released the Lease.
/// After this time, it stops without the release. Then another replica leads only when the Lease
/// has expired.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// The tasks with which a leader detects operations and writes them to the index.
pub trait Pipeline: Send {
    /// Starts new tasks for the leadership term (the time for which one leader holds the Lease),
    /// and detects operations until one of these events:
    ///
    /// - `stop` is cancelled.
    /// - The leadership is lost.
    /// - A task ends too early: each task must run until the end of the term. In this case, the
    ///   future completes with the name of the task, and otherwise with None.
    ///
    /// Then stops all tasks of the term. If this replica still leads, tasks that write to the
    /// cluster first finish their current writes.
    fn run(
        &mut self,
        writer: &mut Writer,
        leadership: &Leadership,
        stop: &CancellationToken,
    ) -> impl Future<Output = Option<&'static str>> + Send;
}

/// A replica, with everything that it needs in each role.
pub struct ReplicaTask<P> {
    /// The writer of the index.
    pub writer: Writer,
    /// Copies the index of the leader. None for a server without an election.
    pub mirror: Option<Mirror>,
    /// The role of this replica, and how current its index is.
    pub replica_status: ReplicaStatus,
    /// The pipeline that detects operations while this replica leads.
    pub pipeline: P,
    /// Cancelled when this replica must stop leading and release the Lease.
    pub retire: CancellationToken,
    /// Cancelled when the process stops.
    pub shutdown: CancellationToken,
}

impl<P: Pipeline> ReplicaTask<P> {
    /// Runs until the shutdown, or until a task of the leader ends too early. Returns the name of
    /// the task that ended too early, or None after the shutdown.
    pub async fn run(mut self) -> Option<&'static str> {
        let shutdown = self.shutdown.clone();
        while !shutdown.is_cancelled() {
            let role = self.replica_status.role().borrow().clone();
            match &role {
                // A replica that must retire can still acquire the Lease, and then releases it at
                // once. After the release, it does not lead again.
                ReplicaRole::Leading(leadership)
                    if leadership.is_valid()
                        && self.replica_status.final_version().borrow().is_none() =>
                {
                    if let Some(ended) = self.lead(leadership).await {
                        return Some(ended);
                    }
                }
                _ => {
                    let following = self.follow(&role);
                    shutdown.run_until_cancelled(following).await;
                }
            }
        }
        None
    }

    /// If `role` names a replica to copy, copies the index of that replica. Returns when the role
    /// has changed. If the same replica must be copied in the new role, continues to copy instead.
    async fn follow(&mut self, role: &ReplicaRole) {
        let head = self.writer.head();
        let leader = leader_to_copy(role, head);
        let has_changed = |now: &ReplicaRole| match leader {
            Some(_) => leader_to_copy(now, head) != leader,
            None => now != role,
        };
        let mut roles = self.replica_status.role().subscribe();
        let copying = async {
            match (&mut self.mirror, leader) {
                (Some(mirror), Some(leader)) => mirror.follow(&mut self.writer, leader).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = roles.wait_for(has_changed) => {}
            () = copying => {}
        }
    }

    /// Detects operations until this replica stops leading. If a task ended too early, returns its
    /// name.
    async fn lead(&mut self, leadership: &Leadership) -> Option<&'static str> {
        if let Err(error) = self.writer.begin(leadership.start) {
            tracing::error!(%error, "this replica cannot begin to lead: the index rejects the first resourceVersion of this leadership term");
            return Some("index");
        }
        self.replica_status.serve(&leadership.term);
        let running = self
            .pipeline
            .run(&mut self.writer, leadership, &self.retire);
        let ended = running.await;
        let is_released = self.mirror.is_some() && self.release(leadership).await;
        self.replica_status.end_streams(is_released);
        ended
    }

    /// Releases the Lease, so that another replica can lead at once. If a write of the Lease fails,
    /// the election tries again. Returns false if the leadership was already lost, or if the Lease
    /// was not released within [`RELEASE_TIMEOUT`].
    async fn release(&mut self, leadership: &Leadership) -> bool {
        if !leadership.is_valid() {
            return false;
        }
        let status = &self.replica_status;
        let last = status.final_version();
        last.send_replace(Some(self.writer.head()));
        let mut role = status.role().subscribe();
        // Until the Lease is released, the role is `Leading` or, after a failed write,
        // `Vacant(None)`. If the Lease was deleted, the role stays `Vacant(None)`, and this wait
        // ends at its time limit.
        let released = role.wait_for(|role| {
            matches!(
                role,
                ReplicaRole::Vacant(Some(_)) | ReplicaRole::Following(_)
            )
        });
        let is_released = tokio::time::timeout(RELEASE_TIMEOUT, released)
            .await
            .is_ok();
        if !is_released {
            tracing::warn!(
                "the Lease could not be released, so another replica leads only when \
                it expires"
            );
        }
        is_released
    }
}

/// Returns the replica whose index this replica must copy. Usually this is the leader. After a
/// leader has released the Lease, this is still that leader, until this replica has all of its
/// changes. `head` is the newest resourceVersion of this replica's index.
fn leader_to_copy(role: &ReplicaRole, head: Rv) -> Option<&Leader> {
    match role {
        ReplicaRole::Following(leader) => Some(leader),
        ReplicaRole::Vacant(Some((leader, last))) if head < *last => Some(leader),
        ReplicaRole::Vacant(_) | ReplicaRole::Leading(_) => None,
    }
}
