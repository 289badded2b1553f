//! The mirror is a task of each follower (a replica that does not lead). The mirror copies the
//! leader's index (the operations in memory).
//!
//! The mirror lists and watches the leader's operations. So the follower's index gets the same
//! objects and the same changes, with the same resourceVersions.
//!
//! During an update of the server, the leader and a follower can have different releases. The
//! follower keeps fields that only the leader's release knows
//! ([`ifo_api::metadata::UnknownFields`]).
//!
//! If a leader crashes, one follower may have received changes that the next leader has not
//! received. Then the next leader does not know the resourceVersion of this follower's index. So
//! the follower replaces its index by the whole state of the next leader. The changes that only
//! this follower has received are lost.

use super::link::{LeaderChange, Link, LinkError};
use super::{Leader, ReplicaStatus, Term};
use crate::index::{Rv, VersionAssignment, Write, Writer};
use crate::telemetry::FailureLog;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::Client;
use std::pin::pin;
use std::time::Duration;

/// The time between a failure and the next attempt to connect to the leader.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Returns a client that sends its requests to the leader with this `HOST:PORT`. The leader may be
/// unreachable.
pub type Connect =
    Box<dyn Fn(String) -> BoxFuture<'static, Result<Client, LinkError>> + Send + Sync>;

/// Keeps the index of this replica equal to the leader's index.
pub struct Mirror {
    /// Creates the client of each connection to a leader.
    connect: Connect,
    /// The role of this replica, and how current its index is. The mirror updates this status.
    status: ReplicaStatus,
    /// Where the next copy starts.
    next_start: CopyStart,
    /// Where the next copy starts if the current copy fails with [`LinkError::Gone`].
    start_if_gone: CopyStart,
    failures: FailureLog,
}

fn new_failure_log() -> FailureLog {
    FailureLog::new("the mirror copies the operations of the leader again")
}

/// Where a copy of the leader's index starts.
#[derive(Clone, Copy)]
enum CopyStart {
    /// Only the changes after the resourceVersion of this replica's index. If the index was never
    /// filled, the copy starts as with `Oldest`.
    Resume,
    /// The state at the oldest resourceVersion that the leader has, and the changes after it. Then
    /// this replica can serve lists and watches at the same past resourceVersions as the leader.
    Oldest,
    /// The newest state of the leader, and the changes after it.
    Newest,
}

impl Mirror {
    /// Creates the mirror of a replica. `connect` creates the clients of the mirror's connections.
    pub fn new(connect: Connect, status: ReplicaStatus) -> Self {
        Self {
            connect,
            status,
            next_start: CopyStart::Resume,
            start_if_gone: CopyStart::Oldest,
            failures: new_failure_log(),
        }
    }

    /// Copies the index of `leader`. The future never completes, but the caller can drop it at any
    /// time. A drop never leaves a partial state in the index, because a write to the index
    /// contains no await point.
    pub async fn follow(&mut self, writer: &mut Writer, leader: &Leader) {
        self.status.begin_following();
        self.failures = new_failure_log();
        loop {
            let ended =
                |()| Err::<(), _>(LinkError::Failed("the leader ended the stream".to_owned()));
            let copied = self.copy(writer, leader).await.and_then(ended);
            if let Some(reason) = self.failures.record(&copied) {
                let (address, term) = (&leader.address, &leader.term);
                // Missing or wrong credentials are a warning, because an administrator must correct
                // them. Other interruptions usually end without an administrator, for example when
                // the leader has restarted.
                if let LinkError::NotAuthorized(_) = reason {
                    tracing::warn!(leader = address, %term, %reason,
                        "this replica may not copy the operations of the leader");
                } else {
                    tracing::info!(leader = address, %term, %reason,
                        "the mirror of the leader is interrupted");
                }
            }
            self.status.set_interruption(copied.err());
            self.status.set_asking(false);
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Copies the index until the copy is interrupted, for example because a request fails.
    async fn copy(&mut self, writer: &mut Writer, leader: &Leader) -> Result<(), LinkError> {
        let client = (self.connect)(leader.address.clone()).await?;
        let link = Link::new(client, &leader.term)?;
        let status = self.status.clone();
        let first = status.ask(&link).await?;
        let at = match self.next_start {
            // The index was filled before, so only the later changes are needed. An index that was
            // never filled has the resourceVersion 0.
            CopyStart::Resume if writer.head() > Rv(0) => None,
            CopyStart::Resume | CopyStart::Oldest => Some(Rv(first.oldest)),
            CopyStart::Newest => Some(Rv(first.head)),
        };
        // If the copy of a whole state fails with `Gone`, the leader has dropped changes that the
        // copy still needed. The leader drops the oldest changes first. So the next copy starts
        // from the newest state, which needs only newer changes.
        self.start_if_gone = at.map_or(CopyStart::Oldest, |_| CopyStart::Newest);
        let copying = self.copy_from(at, Rv(first.head), writer, &link, &leader.term);
        let copied = tokio::select! {
            biased;
            copied = copying => copied,
            error = status.send_queries(&link) => Err(error),
        };
        match copied {
            Err(LinkError::Gone) => self.next_start = self.start_if_gone,
            Err(LinkError::Diverged(_)) => self.next_start = CopyStart::Oldest,
            _ => {}
        }
        copied
    }

    /// If `at` is given, first replaces the index by the leader's state at the resourceVersion
    /// `at`. Then copies the later changes. This replica is in sync when it has the resourceVersion
    /// `in_sync`.
    async fn copy_from(
        &mut self,
        at: Option<Rv>,
        in_sync: Rv,
        writer: &mut Writer,
        link: &Link,
        term: &Term,
    ) -> Result<(), LinkError> {
        if let Some(at) = at {
            self.load(writer, link, at).await?;
        }
        // The index now has a whole state. If the watch is interrupted, the next copy can resume
        // at the resourceVersion of the index.
        self.next_start = CopyStart::Resume;
        let mut changes = pin!(link.watch(writer.head()).await?);
        while let Some(change) = changes.next().await {
            apply(writer, change?)?;
            self.start_if_gone = CopyStart::Oldest;
            // This replica may have received changes of a crashed leader that the new leader
            // never received. So a high resourceVersion alone does not prove that this replica is
            // in sync, and this check comes after the first item of the stream. With this item, the
            // leader confirms that it knows the resourceVersion of this replica's index.
            if writer.head() >= in_sync {
                self.failures.record(&Ok::<_, LinkError>(()));
                let synced = Some(term.clone());
                self.status.in_sync().send_if_modified(|before| {
                    let is_new = *before != synced;
                    *before = synced;
                    is_new
                });
            }
        }
        Ok(())
    }

    /// Replaces the contents of the index by the leader's state at the resourceVersion `at`.
    async fn load(&self, writer: &mut Writer, link: &Link, at: Rv) -> Result<(), LinkError> {
        let mut objects = Vec::new();
        let mut token = None;
        loop {
            let (page, next) = link.page(at, token.as_deref()).await?;
            self.status.record_progress();
            objects.extend(page);
            token = next;
            if token.is_none() {
                writer.replace(at, objects);
                return Ok(());
            }
        }
    }
}

/// Applies one change of the leader.
fn apply(writer: &mut Writer, (rv, write): LeaderChange) -> Result<(), LinkError> {
    match write {
        Some(Write::Delete { key }) if writer.get(&key).is_none() => {
            return Err(LinkError::Diverged(format!(
                "{key} was deleted, but does not exist in the copy"
            )));
        }
        Some(write) => {
            writer.commit([write], VersionAssignment::Exact(rv))?;
        }
        // At the start of a leadership term, the leader's index gets a new resourceVersion without
        // a changed object.
        None if rv > writer.head() => writer.mark(rv)?,
        // A bookmark that only confirms a resourceVersion of this index.
        None => {}
    }
    Ok(())
}
