//! A follower's copy of the leader's index.
//!
//! Input: the list and watch of the leader. Output: the same objects at the same versions in this
//! replica's index, with the same ring of changes.
//!
//! The copy keeps the exact bytes of the objects, so replicas of neighbouring releases can mirror
//! each other. If the leader does not have the version of the copy, the whole state is copied
//! again. So changes that only a lost leader had do not stay in the copy.

use super::peer::{Events, LeaderEvent, Link, LinkError, LinkFactory, ObjectPage, PageStart};
use super::view::LeaderQueries;
use super::{Leader, Term};
use crate::index::{Error, Rv, VersionAssignment, Write, Writer};
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Pause before the leader is contacted again after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(200);

impl From<Error> for MirrorError {
    fn from(error: Error) -> Self {
        Self::Diverged(error.to_string())
    }
}

/// Keeps the index of this replica equal to the leader's index.
pub struct Mirror {
    links: Arc<dyn LinkFactory>,
    begin: CopyStart,
    in_sync: watch::Sender<Option<Term>>,
    wake: Arc<Notify>,
    contact: LeaderQueries,
}

/// The start of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyStart {
    /// From the changes after the version of this replica's index.
    Resume,
    /// From the state at the oldest version that the leader has.
    Oldest,
    /// From the newest state.
    Latest,
}

/// The reason for which a copy does not continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum MirrorError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("a change of the leader does not fit to the mirror: {0}")]
    Diverged(String),
    #[error("the leader does not answer")]
    Silent,
}

impl Mirror {
    /// `in_sync` is set to the leader's term when the copy has reached the leader's head version.
    /// `wake` is notified when the stream from the leader ends, because its term may be over.
    pub fn new(
        links: Arc<dyn LinkFactory>,
        in_sync: watch::Sender<Option<Term>>,
        wake: Arc<Notify>,
        contact: LeaderQueries,
    ) -> Self {
        Self {
            links,
            begin: CopyStart::Resume,
            in_sync,
            wake,
            contact,
        }
    }

    /// Follows `leader`. Never ends. The future can be dropped at any time. The index then equals
    /// the leader's index at some version.
    pub async fn follow(&mut self, writer: &mut Writer, leader: &Leader) {
        let mut told = String::new();
        self.contact.begin();
        loop {
            let ended = self.copy(writer, leader).await;
            self.wake.notify_one();
            // Each reason is logged once, not at every attempt.
            let reason = ended.to_string();
            if reason != told {
                tracing::info!(leader = leader.address, term = %leader.term, reason,
                    "the mirror of the leader is interrupted");
                told = reason;
            }
            self.contact
                .without_link(tokio::time::sleep(RETRY_DELAY))
                .await;
        }
    }

    /// Copies until a request fails or the stream ends.
    async fn copy(&mut self, writer: &mut Writer, leader: &Leader) -> MirrorError {
        let connecting = self.links.connect(leader);
        let link = match self.contact.without_link(connecting).await {
            Ok(link) => link,
            Err(error) => return error.into(),
        };
        let link = &*link;
        let first = match self.contact.first_answer(link, &leader.term).await {
            Ok(answer) => answer,
            Err(error) => return error.into(),
        };
        let reader = self.contact.reader.clone();
        let (in_sync, begin) = (&self.in_sync, &mut self.begin);
        let (known, mut is_known) = watch::channel(false);
        let synced = async {
            // A version that only this replica has can be above the leader's head.
            let _ = is_known.wait_for(|is_known| *is_known).await;
            // The end of a broken stream also ends this copy.
            while !reader.reached(first.head, Duration::from_mins(1)).await {}
            in_sync.send_replace(Some(leader.term.clone()));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = stream(writer, link, first.oldest, begin, &known) => ended,
            () = self.contact.questions(link, &leader.term) => MirrorError::Silent,
            () = synced => MirrorError::Silent,
        }
    }
}

/// Reads the state if necessary, and then applies every change. `known` is set when the leader has
/// confirmed that it has the version of the copy.
async fn stream(
    writer: &mut Writer,
    link: &dyn Link,
    oldest: Rv,
    begin: &mut CopyStart,
    known: &watch::Sender<bool>,
) -> MirrorError {
    let from = *begin;
    let copied = async {
        match from {
            // An index that was never filled has version 0, which no leader issues.
            CopyStart::Resume if writer.head() > Rv(0) => {}
            // Start at the oldest version, so that this replica can serve the same past as the
            // leader.
            CopyStart::Resume | CopyStart::Oldest => {
                load(writer, link, PageStart::Exact(oldest)).await?;
            }
            CopyStart::Latest => load(writer, link, PageStart::Latest).await?,
        }
        // The index now has a state of the leader.
        *begin = CopyStart::Resume;
        let events = link.watch(writer.head()).await?;
        apply(writer, events, known).await
    };
    let interruption = match copied.await {
        Ok(()) => LinkError::Failed("the leader ended the stream".to_owned()).into(),
        Err(interruption) => interruption,
    };
    match (&interruption, from) {
        (MirrorError::Link(LinkError::Gone), CopyStart::Resume) | (MirrorError::Diverged(_), _) => {
            *begin = CopyStart::Oldest;
        }
        // The leader is dropping its oldest changes. The newest ones stay for some time.
        (MirrorError::Link(LinkError::Gone), _) => *begin = CopyStart::Latest,
        _ => {}
    }
    interruption
}

/// Replaces the index by the state of the leader at one version.
async fn load(writer: &mut Writer, link: &dyn Link, start: PageStart) -> Result<(), MirrorError> {
    let page = link.page(start).await?;
    fill(writer, link, page).await
}

/// Replaces the index by the newest state, unless the index has it already.
pub(super) async fn load_newest(writer: &mut Writer, link: &dyn Link) -> Result<(), MirrorError> {
    let page = link.page(PageStart::Latest).await?;
    if page.rv > writer.head() {
        fill(writer, link, page).await?;
    }
    Ok(())
}

/// Replaces the index by the state that begins with this page.
async fn fill(
    writer: &mut Writer,
    link: &dyn Link,
    mut page: ObjectPage,
) -> Result<(), MirrorError> {
    let mut replacement = writer.replacement(page.rv);
    loop {
        for (key, rv, json) in page.objects {
            replacement.add(key, rv, &json)?;
        }
        match page.next {
            Some(token) => page = link.page(PageStart::Continue(token)).await?,
            None => break,
        }
    }
    writer.replace(replacement);
    Ok(())
}

/// Applies changes until the stream ends.
async fn apply(
    writer: &mut Writer,
    mut events: Events,
    known: &watch::Sender<bool>,
) -> Result<(), MirrorError> {
    while let Some(event) = events.next().await {
        let event = event?;
        known.send_replace(true);
        match event {
            LeaderEvent::Put { rv, key, json } => {
                writer.commit(vec![Write::Put { key, json }], VersionAssignment::Exact(rv))?;
            }
            LeaderEvent::Delete { rv, key } => {
                if writer.get(&key).is_none() {
                    return Err(MirrorError::Diverged(format!("{key} is not there")));
                }
                writer.commit(vec![Write::Delete { key }], VersionAssignment::Exact(rv))?;
            }
            // The first bookmark and the bookmarks of each minute can have the current version. The
            // bookmark of a new term has a new version.
            LeaderEvent::Bookmark(rv) if rv > writer.head() => writer.mark(rv)?,
            LeaderEvent::Bookmark(_) => {}
        }
    }
    Ok(())
}
