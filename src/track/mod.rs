//! The life of operations. Enters: what feeds evaluated, in order for each subject.
//! Leaves: changes of the index. The only owner of operations, and the only writer;
//! so two events of one subject cannot race.

mod arbitrate;
mod end;
mod gone;
mod ledger;
mod operation;
mod restore;
mod retained;
mod subject;
#[cfg(test)]
mod tests;
mod tracker;

pub use restore::MAX_RESTORED;
pub use tracker::{Now, Retention, Settings, Tracker};

use crate::evaluate::{Evaluation, Subject};
use crate::index::{Rv, Stamp, Writer};
use crate::rules::{Bookless, RuleBook};
use ifo_api::live::InFlightOperation;
use ifo_api::{Gvr, Source};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// Messages that may wait for the tracker. When it is full, feeds wait, and so does
/// the connection they read from: nothing is dropped, memory stays bounded.
pub const QUEUE: usize = 1024;

/// Messages taken, and committed to the index, at once. Bounds how long a reader
/// waits for the first of them.
const BATCH: usize = 256;

/// What happened.
#[derive(Debug)]
pub enum Message {
    /// The rules of a target changed, or (None) there are none any more. Comes before
    /// anything that was evaluated with them.
    Rules {
        /// The resource.
        target: Arc<Gvr>,
        /// Its rules.
        book: Option<Arc<RuleBook>>,
        /// Whether it is because the resource is not served any more.
        removed: bool,
    },
    /// From a feed that works with rules of `generation`.
    Feed {
        /// Which feed.
        source: Source,
        /// Generation of the rules that it evaluates with.
        generation: u64,
        /// What it tells.
        event: Event,
    },
    /// What was there before a restart. Comes before any rules.
    Restore {
        /// The operations, from whoever kept them: each is checked.
        operations: Vec<InFlightOperation>,
        /// The version that they were listed at, if it is of this API: all that follow
        /// are above it.
        version: Option<Rv>,
    },
    /// All rule sets that have a book have brought it, but for these.
    Booked(Arc<Bookless>),
    /// A namespace is gone, and what is retained in it goes too.
    NamespaceGone {
        /// Its name.
        name: Arc<str>,
        /// When another one of its name was made, if that is known already.
        again: Option<Timestamp>,
    },
    /// A namespace was made. There may have been one of its name before.
    NamespaceMade {
        /// Its name.
        name: Arc<str>,
        /// `metadata.creationTimestamp`.
        created: Timestamp,
    },
    /// Asks to be told when all messages before this one can be read from the index.
    Flush(oneshot::Sender<()>),
}

/// What a feed tells.
#[derive(Debug)]
pub enum Event {
    /// The whole state follows.
    Reset,
    /// An object was read at `read`, and evaluated.
    Evaluated {
        /// What was found.
        evaluation: Box<Evaluation>,
        /// When the event was read.
        read: Instant,
    },
    /// An object is gone.
    Deleted {
        /// Which.
        subject: Subject,
        /// When the event was read.
        read: Instant,
    },
    /// The feed is up to date: after `Reset`, whatever was not told of is gone.
    Synced {
        /// Where to say what was not told of, if it may be there all the same: the feed
        /// shows a selection of the objects. What happened to each of them is told next.
        missing: Option<oneshot::Sender<Vec<Subject>>>,
    },
    /// The feed has a gap.
    Lost,
}

/// Runs until all senders are gone, and then leaves the index as it is.
pub async fn run(mut tracker: Tracker, mut writer: Writer, mut messages: mpsc::Receiver<Message>) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let deadline = tracker.next_deadline();
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            received = messages.recv_many(&mut batch, BATCH) => if received == 0 { return },
            () = expired => {}
        }
        let now = Now::read();
        let mut reads = Vec::with_capacity(batch.len());
        let mut flushed = Vec::new();
        for message in batch.drain(..) {
            if let Message::Flush(done) = message {
                flushed.push(done);
                continue;
            }
            if let Message::Restore {
                version: Some(version),
                ..
            } = &message
            {
                writer.raise(*version);
            }
            if let Message::Feed {
                event: Event::Evaluated { read, .. } | Event::Deleted { read, .. },
                ..
            } = &message
            {
                reads.push(*read);
            }
            tracker.advance(message, now);
        }
        tracker.expire(now);
        tracker.commit(&mut writer, Stamp::Mint, &reads);
        for done in flushed {
            // Whoever asked may not want to know any more.
            let _ = done.send(());
        }
    }
}
