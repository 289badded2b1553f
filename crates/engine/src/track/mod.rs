//! The tracker: it turns evaluations into operations that start, change and complete. Input:
//! evaluations in the order of each subject, rules, the initial state of a new leader, and changes
//! of namespaces. Each call has the time as an argument. Output: a [`Write`] for each change of an
//! operation. The methods take `&mut self`, so two events of one subject cannot race.

mod arbitrate;
mod end_reason;
mod expiring_map;
mod facts;
mod initial_state;
mod operation;
mod shared_state;
mod subject;
#[cfg(test)]
mod tests;
mod tracker;
pub use facts::{DecodedObject, EncodedOperation, ObjectFacts, ObjectTexts, TextField};

pub use initial_state::{InitialState, MAX_RESTORED};
pub use tracker::{Retention, Tracker, TrackerSettings};

use crate::detect::FeedEvent;
use crate::rules::{RuleBook, RuleSetsWithoutBook};
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
    /// resourceVersion. If only the resourceVersion would change, the index stays as it is.
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
    /// Removes an object. If there is none, the index stays as it is.
    Delete {
        /// Namespace and name.
        key: Key,
    },
}

/// An event for the tracker.
#[derive(Debug)]
pub enum Message {
    /// The rules of a target changed. None means that the target has no rules any more. It is sent
    /// before evaluations with these rules.
    Rules {
        /// The resource.
        target: Arc<Gvr>,
        /// The new rules.
        book: Option<Arc<RuleBook>>,
        /// True if the target is no longer served.
        removed: bool,
    },
    /// An event of a feed that uses the rules of `generation`.
    Feed {
        /// The feed.
        source: Source,
        /// Generation of its rules.
        generation: u64,
        /// The event.
        event: FeedEvent,
    },
    /// The initial state of a new leader. It is sent before all rules.
    Resume(Box<InitialState>),
    /// The rule books of all rule sets have been sent, except those of these rule sets.
    Booked(Arc<RuleSetsWithoutBook>),
    /// A namespace was deleted. Its retained operations are deleted, too.
    NamespaceGone {
        /// Its name.
        name: Arc<str>,
        /// The creation time of a new namespace with the same name, if it is known.
        again: Option<Timestamp>,
    },
    /// A namespace was created. An earlier namespace may have had the same name.
    NamespaceMade {
        /// Its name.
        name: Arc<str>,
        /// `metadata.creationTimestamp`.
        created: Timestamp,
    },
    /// Asks for an answer when all earlier messages can be read from the index.
    Flush(oneshot::Sender<()>),
}
