//! Runs the replica: it follows the leader, or it leads.
//!
//! Input: the standing in the election, and the pipeline that detects operations. Output: an index
//! that is written by the mirror or by the pipeline, never by both.
//!
//! A server without an election leads from its start to its end.

use super::{Leader, LeaderView, Leadership, Mirror, Predecessor, View};
use crate::index::{IndexReader, Rv, Writer};
use futures::future::BoxFuture;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Time for which a leader in a handover waits until the Lease is released. The next leader waits
/// no longer than this for a leader that fails to release it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// The tasks of a leader that detect and write operations. They are created for each term.
pub trait Pipeline: Send {
    /// Detects operations and writes them to the index until the leadership is lost. The future can
    /// be dropped at any time. If a task ends that must not end, its name is returned.
    fn run<'a>(
        &'a mut self,
        writer: &'a mut Writer,
        leadership: &'a Leadership,
    ) -> BoxFuture<'a, Option<&'static str>>;

    /// Ends the term and stops all its tasks. In an orderly end, writes that were already sent to
    /// the kube-apiserver may finish.
    fn end(&mut self, in_order: bool) -> BoxFuture<'_, ()>;
}

/// The parts of a replica that stay for several terms.
pub struct ReplicaTask<P> {
    /// The writer of the index.
    pub writer: Writer,
    /// The reader of the index.
    pub operations: IndexReader,
    /// The result of the election.
    pub standing: watch::Receiver<LeaderView>,
    /// The election. None for a server without an election.
    pub mirror: Option<Mirror>,
    /// Loads the operations of a server without a Lease. None if there can be no such server.
    pub predecessor: Option<Predecessor>,
    /// The state of this replica for other replicas.
    pub view: View,
    /// The pipeline that detects operations while this replica leads.
    pub pipeline: P,
    /// Cancelled when this replica must not lead any more.
    pub retire: CancellationToken,
    /// Receives the final version when this replica retires.
    pub release: Option<oneshot::Sender<Rv>>,
    /// Cancelled when the process stops.
    pub shutdown: CancellationToken,
}

impl<P: Pipeline> ReplicaTask<P> {
    /// Runs until the shutdown. If a task of the leader ends that must not end, its name is
    /// returned.
    pub async fn run(mut self) -> Option<&'static str> {
        let shutdown = self.shutdown.clone();
        loop {
            let standing = self.standing.borrow_and_update().clone();
            let ended = match standing {
                LeaderView::Leading(leadership) => self.lead(leadership).await,
                LeaderView::Following(leader) => {
                    self.follow(&leader).await;
                    None
                }
                // The last leader still serves its operations.
                LeaderView::Vacant {
                    last: Some(leader),
                    final_version: Some(last),
                } if self.operations.head() < last => {
                    self.follow(&leader).await;
                    None
                }
                // No replica has led yet, so a server of a release without a Lease may be running.
                LeaderView::Vacant { last: None, .. } => {
                    self.succeed().await;
                    None
                }
                LeaderView::Vacant { .. } | LeaderView::Unknown => {
                    self.standing_changes().await;
                    None
                }
            };
            if ended.is_some() || shutdown.is_cancelled() {
                return ended;
            }
        }
    }

    async fn standing_changes(&mut self) {
        tokio::select! {
            biased;
            changed = self.standing.changed() => if changed.is_err() {
                self.shutdown.cancelled().await;
            },
            () = self.shutdown.cancelled() => {}
        }
    }

    /// Mirrors `leader` until the standing changes.
    async fn follow(&mut self, leader: &Leader) {
        let Some(mirror) = &mut self.mirror else {
            return self.standing_changes().await;
        };
        let other = |standing: &LeaderView| match standing {
            LeaderView::Following(other) => other != leader,
            LeaderView::Vacant {
                last,
                final_version,
            } => last.as_ref() != Some(leader) || final_version.is_none(),
            LeaderView::Leading(_) | LeaderView::Unknown => true,
        };
        tokio::select! {
            biased;
            _ = self.standing.wait_for(other) => {}
            () = self.shutdown.cancelled() => {}
            () = mirror.follow(&mut self.writer, leader) => {}
        }
    }

    /// Loads the operations of a server without a Lease, until a replica leads.
    async fn succeed(&mut self) {
        let Some(predecessor) = &mut self.predecessor else {
            return self.standing_changes().await;
        };
        let other =
            |standing: &LeaderView| !matches!(standing, LeaderView::Vacant { last: None, .. });
        tokio::select! {
            biased;
            _ = self.standing.wait_for(other) => {}
            () = self.shutdown.cancelled() => {}
            () = predecessor.follow(&mut self.writer) => {}
        }
    }

    /// Detects operations until the leadership is lost or released.
    async fn lead(&mut self, leadership: Leadership) -> Option<&'static str> {
        if let Err(error) = self.writer.begin(leadership.start) {
            tracing::error!(%error, "the term cannot begin");
            self.standing_changes().await;
            return None;
        }
        self.view.serve(&leadership.term);
        let mut standing = self.standing.clone();
        let lost = standing.wait_for(|standing| !leads(standing, &leadership));
        let mut failed = None;
        let in_order = tokio::select! {
            biased;
            _ = lost => false,
            () = self.retire.cancelled(), if self.release.is_some() => true,
            () = self.shutdown.cancelled() => true,
            ended = self.pipeline.run(&mut self.writer, &leadership) => {
                failed = ended;
                failed.is_some()
            }
        };
        // From this point on, nothing is written to the index in this term.
        self.writer.reserve(Rv(0));
        self.pipeline.end(in_order).await;
        if in_order && let Some(release) = self.release.take() {
            self.hand_over(&leadership, release).await;
        } else {
            self.view.end_streams(false);
        }
        failed
    }

    /// Releases the Lease, so that another replica leads at once.
    async fn hand_over(&mut self, leadership: &Leadership, release: oneshot::Sender<Rv>) {
        // The election ends only with the process.
        let _ = release.send(self.writer.head());
        let released = self.standing.wait_for(|it| !leads(it, leadership));
        let is_released = tokio::time::timeout(RELEASE_TIMEOUT, released)
            .await
            .is_ok();
        if !is_released {
            tracing::warn!(
                "the Lease could not be released, so another replica leads only when \
                it expires"
            );
        }
        self.view.end_streams(is_released);
    }
}

/// Returns true if this replica leads in the term of `leadership`.
fn leads(standing: &LeaderView, leadership: &Leadership) -> bool {
    matches!(standing, LeaderView::Leading(now) if now.term == leadership.term)
}
