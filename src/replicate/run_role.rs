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
use futures::future::BoxFuture;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// When a leader stops, it waits for at most this time until the election has released the Lease.
/// After this time, it stops without the release. Then another replica leads only when the Lease
/// has expired.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// The tasks with which a leader detects operations and writes them to the index. [`Pipeline::run`]
/// starts new tasks for each leadership term (the time for which one leader holds the Lease).
pub trait Pipeline: Send {
    /// Detects operations and writes them to the index until the leadership is lost. The future can
    /// be dropped at any time.
    ///
    /// Each task must run until the end of the term. If a task ends earlier, the future completes
    /// with the name of this task. If the leadership is lost, the future completes with None.
    fn run<'a>(
        &'a mut self,
        writer: &'a mut Writer,
        leadership: &'a Leadership,
    ) -> BoxFuture<'a, Option<&'static str>>;

    /// Stops all tasks of the term. If `is_orderly` is true, tasks that write to the cluster may
    /// first finish their current writes. If `is_orderly` is false, because the leadership was
    /// lost, all tasks stop at once.
    fn end(&mut self, is_orderly: bool) -> BoxFuture<'_, ()>;
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
    /// Cancelled when this replica must stop leading and release the Lease. A server without an
    /// election ignores it.
    pub retire: CancellationToken,
    /// Cancelled when the process stops.
    pub shutdown: CancellationToken,
}

impl<P: Pipeline> ReplicaTask<P> {
    /// Runs until the shutdown, or until a task of the leader ends too early. Returns the name of
    /// the task that ended too early, or None after the shutdown.
    pub async fn run(mut self) -> Option<&'static str> {
        let shutdown = self.shutdown.clone();
        loop {
            let role = self.replica_status.role().borrow().clone();
            let ended = match &role {
                ReplicaRole::Leading(leadership) => self.lead(leadership).await,
                ReplicaRole::Following(leader) => {
                    self.follow(leader).await;
                    None
                }
                // The last leader has released the Lease, and still serves its last changes. This
                // replica lacks some of these changes, so it copies them from the last leader.
                ReplicaRole::Vacant {
                    last: Some(leader),
                    final_version: Some(last),
                } if self.writer.head() < *last => {
                    self.follow(leader).await;
                    None
                }
                ReplicaRole::Vacant { .. } | ReplicaRole::Unknown => {
                    self.until_role(|now| *now != role).await;
                    None
                }
            };
            if ended.is_some() || shutdown.is_cancelled() {
                return ended;
            }
        }
    }

    /// Waits until the role of this replica is such a role, or until the process stops.
    async fn until_role(&mut self, is_wanted: impl FnMut(&ReplicaRole) -> bool) {
        let mut role = self.replica_status.role().subscribe();
        tokio::select! {
            biased;
            _ = role.wait_for(is_wanted) => {}
            () = self.shutdown.cancelled() => {}
        }
    }

    /// Copies the index of `leader` until the role of this replica changes. If `leader` releases
    /// the Lease, the copying continues, because `leader` still serves its last changes.
    async fn follow(&mut self, leader: &Leader) {
        let has_changed = |role: &ReplicaRole| match role {
            ReplicaRole::Following(other) => other != leader,
            ReplicaRole::Vacant {
                last,
                final_version,
            } => last.as_ref() != Some(leader) || final_version.is_none(),
            ReplicaRole::Leading(_) | ReplicaRole::Unknown => true,
        };
        // A server without an election never follows.
        let Some(mirror) = &mut self.mirror else {
            return;
        };
        let mut role = self.replica_status.role().subscribe();
        tokio::select! {
            biased;
            _ = role.wait_for(has_changed) => {}
            () = self.shutdown.cancelled() => {}
            () = mirror.follow(&mut self.writer, leader) => {}
        }
    }

    /// Detects operations until this replica stops leading. If a task ended too early, returns its
    /// name.
    async fn lead(&mut self, leadership: &Leadership) -> Option<&'static str> {
        if let Err(error) = self.writer.begin(leadership.start) {
            tracing::error!(%error, "this replica cannot begin to lead: the index rejects the first resourceVersion of this leadership term");
            self.until_role(|role| !leads_in_term(role, leadership))
                .await;
            return None;
        }
        self.replica_status.serve(&leadership.term);
        let mut role = self.replica_status.role().subscribe();
        let lost = role.wait_for(|role| !leads_in_term(role, leadership));
        let mut failed = None;
        let is_orderly = tokio::select! {
            biased;
            _ = lost => false,
            () = self.retire.cancelled(), if self.mirror.is_some() => true,
            () = self.shutdown.cancelled() => true,
            ended = self.pipeline.run(&mut self.writer, leadership) => {
                failed = ended;
                failed.is_some()
            }
        };
        // The index accepts only changes with a reserved resourceVersion. After this call, no
        // resourceVersion is reserved, so the index refuses all further changes.
        self.writer.reserve(Rv(0));
        self.pipeline.end(is_orderly).await;
        if is_orderly && self.mirror.is_some() {
            self.hand_over(leadership).await;
        } else {
            self.replica_status.end_streams(false);
        }
        failed
    }

    /// Releases the Lease, so that another replica can lead at once. The election publishes the new
    /// role after it has written the Lease, or has failed to.
    async fn hand_over(&mut self, leadership: &Leadership) {
        let status = &self.replica_status;
        status
            .final_version()
            .send_replace(Some(self.writer.head()));
        let mut role = status.role().subscribe();
        let released = role.wait_for(|it| !leads_in_term(it, leadership));
        let is_released = tokio::time::timeout(RELEASE_TIMEOUT, released)
            .await
            .is_ok();
        if !is_released {
            tracing::warn!(
                "the Lease could not be released, so another replica leads only when \
                it expires"
            );
        }
        self.replica_status.end_streams(is_released);
    }
}

/// Returns true if this replica leads in the term of `leadership`.
fn leads_in_term(role: &ReplicaRole, leadership: &Leadership) -> bool {
    matches!(role, ReplicaRole::Leading(now) if now.term == leadership.term)
}
