//! The tracker: turns evaluations into operations that start, change and complete. Enters:
//! evaluations in order for each subject, rules, the operations that a new leader starts
//! from, and what happens to namespaces. Each call states the time. Leaves: a [`Write`] for each change of
//! an operation. The methods take `&mut self`, so two events of one subject cannot race.

mod arbitrate;
mod end;
mod expiring;
mod facts;
mod initial_state;
mod ledger;
mod operation;
mod subject;
#[cfg(test)]
mod tests;
mod tracker;
pub use facts::{DecodedObject, EncodedOperation, ObjectFacts, ObjectTexts, TextField};

pub use initial_state::{InitialState, MAX_RESTORED};
pub use tracker::{Retention, Tracker, TrackerSettings};

use crate::detect::FeedEvent;
use crate::rules::{Bookless, RuleBook};
use ifo_api::{Gvr, Key, Source};
use jiff::Timestamp;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A change of the objects that the server lists.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most writes are of the large variant, and live only until they are committed"
)]
pub enum Write {
    /// Adds or replaces an operation that this process has encoded. The index sets its
    /// resourceVersion. If nothing else differs from the stored object, the write is no change.
    Show {
        /// Namespace and name.
        key: Key,
        /// The operation.
        operation: EncodedOperation,
    },
    /// Adds or replaces an object that the index has to decode, as [`Write::Show`] does.
    Put {
        /// Namespace and name. They are not compared with those inside `json`.
        key: Key,
        /// The object.
        json: Vec<u8>,
    },
    /// Removes an object. If there is none, the write has no effect.
    Delete {
        /// Namespace and name.
        key: Key,
    },
}

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
        event: FeedEvent,
    },
    /// What a new leader starts from. Comes before any rules.
    Resume(Box<InitialState>),
    /// The rule books of all rule sets have arrived, except for those of these rule sets.
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
