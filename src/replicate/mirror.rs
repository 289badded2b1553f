//! The mirror is a task of each follower (a replica that does not lead). The mirror copies the
//! leader's index (the operations in memory).
//!
//! The mirror lists and watches the leader's operations. So the follower's index gets the same
//! objects and the same changes, with the same resourceVersions.
//!
//! During an update, replicas of the old and the new release copy each other. The follower keeps
//! fields that only the leader's release knows ([`ifo_api::metadata::UnknownFields`]).
//!
//! If a leader crashes, one follower may have received changes that the next leader has not
//! received. Then the next leader does not know the resourceVersion of this follower's index. So
//! the follower replaces its index by the whole state of the next leader, and these changes are
//! lost.

use super::leader_queries::LeaderQueries;
use super::link::{LeaderEvent, Link, LinkError, LinkFactory, PageStart};
use super::{Leader, Term};
use crate::index::{Error, Key, Object, Rv, VersionAssignment, Write, Writer};
use futures::StreamExt as _;
use ifo_api::Collection;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The time between a failure and the next attempt to connect to the leader.
const RETRY_DELAY: Duration = Duration::from_millis(200);

impl From<Error> for MirrorError {
    fn from(error: Error) -> Self {
        Self::Diverged(error.to_string())
    }
}

/// Keeps the index of this replica equal to the leader's index.
pub struct Mirror {
    links: Arc<dyn LinkFactory>,
    next_start: CopyStart,
    in_sync: watch::Sender<Option<Term>>,
    wake: Arc<Notify>,
    leader_queries: LeaderQueries,
}

/// The start of the next copy of the leader's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyStart {
    /// Only the changes after the resourceVersion of this replica's index. If the index was never
    /// filled, the copy starts as with `Oldest`.
    Resume,
    /// The state at the oldest resourceVersion that the leader has, and the changes after it.
    Oldest,
    /// The newest state of the leader, and the changes after it.
    Latest,
}

/// The reason why a copy was interrupted.
#[derive(Debug, thiserror::Error)]
pub(super) enum MirrorError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("a change that the leader sent contradicts the copy: {0}")]
    Diverged(String),
}

impl Mirror {
    /// Creates a mirror. The copy starts with a call of [`Mirror::follow`].
    ///
    /// At the start of a connection, the leader tells its newest resourceVersion. When this
    /// replica's index has reached this resourceVersion, the mirror sets `in_sync` to the leader's
    /// term. A term is the time for which one leader holds the Lease.
    ///
    /// When the copy is interrupted, the term may be over. So the mirror notifies `wake`, and the
    /// election reads the Lease soon.
    pub fn new(
        links: Arc<dyn LinkFactory>,
        in_sync: watch::Sender<Option<Term>>,
        wake: Arc<Notify>,
        leader_queries: LeaderQueries,
    ) -> Self {
        Self {
            links,
            next_start: CopyStart::Resume,
            in_sync,
            wake,
            leader_queries,
        }
    }

    /// Copies the index of `leader`. The future never completes, but the caller can drop it at any
    /// time. The index always has the whole state of one resourceVersion: a write to the index
    /// contains no await point, so a drop never interrupts a write.
    pub async fn follow(&mut self, writer: &mut Writer, leader: &Leader) {
        let mut logged_reason = String::new();
        self.leader_queries.begin();
        loop {
            let interruption = self.copy(writer, leader).await;
            self.wake.notify_one();
            let unregistered = matches!(interruption, MirrorError::Link(LinkError::NotRegistered));
            self.leader_queries.set_unregistered(unregistered);
            // If several consecutive attempts fail for the same reason, the reason is logged once.
            let reason = interruption.to_string();
            if reason != logged_reason {
                let (address, term) = (&leader.address, &leader.term);
                // Other interruptions usually end without a person, for example when the leader
                // has restarted. Wrong credentials stay wrong.
                if let MirrorError::Link(LinkError::NotAuthorized(_)) = interruption {
                    tracing::warn!(leader = address, %term, reason,
                        "this replica may not copy the operations of the leader");
                } else {
                    tracing::info!(leader = address, %term, reason,
                        "the mirror of the leader is interrupted");
                }
                logged_reason.clone_from(&reason);
            }
            self.leader_queries.set_interruption(Some(reason));
            self.leader_queries.set_asking(false);
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Copies the index until the copy is interrupted, for example because a request fails. Returns
    /// the reason.
    async fn copy(&mut self, writer: &mut Writer, leader: &Leader) -> MirrorError {
        let link = match self.links.connect(leader).await {
            Ok(link) => link,
            Err(error) => return error.into(),
        };
        self.leader_queries.set_unregistered(false);
        let first = match self.leader_queries.first_answer(&*link, &leader.term).await {
            Ok(answer) => answer,
            Err(error) => return error.into(),
        };
        let start = self.next_start;
        let queries = self.leader_queries.send_queries(&*link, &leader.term);
        let (in_sync, next_start) = (&self.in_sync, &mut self.next_start);
        let copied = async {
            load(writer, &*link, start, first.oldest).await?;
            // The index now has a whole state. If the watch is interrupted, the next copy can resume
            // at the resourceVersion of the index.
            *next_start = CopyStart::Resume;
            let mut events = link.watch(writer.head()).await?;
            while let Some(event) = events.next().await {
                apply(writer, event?)?;
                // This replica may have received changes of a crashed leader that the new leader
                // never received. Then this replica is not in sync, even if its own resourceVersion
                // is higher than the leader's. With the first event, the leader confirms that it
                // knows the resourceVersion of this replica's index.
                if writer.head() >= first.head && in_sync.borrow().as_ref() != Some(&leader.term) {
                    in_sync.send_replace(Some(leader.term.clone()));
                }
            }
            Ok(())
        };
        let copied: Result<(), MirrorError> = tokio::select! {
            biased;
            copied = copied => copied,
            error = queries => Err(error.into()),
        };
        let ended = LinkError::Failed("the leader ended the stream".to_owned());
        let interruption = copied.err().unwrap_or(ended.into());
        match (&interruption, start) {
            (MirrorError::Link(LinkError::Gone), CopyStart::Resume)
            | (MirrorError::Diverged(_), _) => self.next_start = CopyStart::Oldest,
            // The copy of a whole state has failed. While this replica was reading the state, the
            // leader dropped changes that the copy still needed. The leader drops the oldest changes
            // first. So the next copy starts from the newest state, which needs only newer changes.
            (MirrorError::Link(LinkError::Gone), _) => self.next_start = CopyStart::Latest,
            _ => {}
        }
        interruption
    }
}

/// Replaces the contents of the index by the leader's state, if `start` requires this. `oldest` is the
/// oldest resourceVersion of the leader.
async fn load(
    writer: &mut Writer,
    link: &dyn Link,
    start: CopyStart,
    oldest: Rv,
) -> Result<(), MirrorError> {
    let start = match start {
        // The index was filled before, so only the later changes are needed. An index that was never
        // filled has the resourceVersion 0.
        CopyStart::Resume if writer.head() > Rv(0) => return Ok(()),
        // Start at the oldest resourceVersion of the leader. Then this replica can serve lists and
        // watches at the same past resourceVersions as the leader.
        CopyStart::Resume | CopyStart::Oldest => PageStart::Exact(oldest),
        CopyStart::Latest => PageStart::Latest,
    };
    let mut page = link.page(start).await?;
    let mut replacement = writer.replacement(page.rv);
    loop {
        for (key, rv, json) in page.objects {
            let object = decode(&key, &json)?;
            replacement.add(key, rv, object);
        }
        match page.next {
            Some(token) => page = link.page(PageStart::Continue(token)).await?,
            None => break,
        }
    }
    writer.replace(replacement);
    Ok(())
}

/// Decodes an object that the leader has sent.
fn decode(key: &Key, json: &[u8]) -> Result<Object, LinkError> {
    Object::decode(json, Collection::of(&key.namespace))
        .map_err(|error| LinkError::Failed(format!("cannot decode {key}: {error}")))
}

/// Applies one change of the leader.
fn apply(writer: &mut Writer, event: LeaderEvent) -> Result<(), MirrorError> {
    let (rv, write) = match event {
        LeaderEvent::Put { rv, key, json } => {
            let object = decode(&key, &json)?;
            (rv, Write::Put { key, object })
        }
        LeaderEvent::Delete { key, .. } if writer.get(&key).is_none() => {
            return Err(MirrorError::Diverged(format!(
                "{key} was deleted, but does not exist in the copy"
            )));
        }
        LeaderEvent::Delete { rv, key } => (rv, Write::Delete { key }),
        // At the start of a leadership term, the leader's index gets a new resourceVersion without a
        // changed object. This resourceVersion arrives in a bookmark. Every other bookmark has a
        // resourceVersion that this index has already reached.
        LeaderEvent::Bookmark(rv) if rv > writer.head() => return Ok(writer.mark(rv)?),
        LeaderEvent::Bookmark(_) => return Ok(()),
    };
    writer.commit(vec![write], VersionAssignment::Exact(rv))?;
    Ok(())
}
