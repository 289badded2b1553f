//! The [`Tracker`] is the state machine that turns the results of rules into operations. It decides
//! when an operation starts, changes and completes. Its inputs are [`Message`]s, such as the
//! evaluation of an object that has changed, new rules, or the initial state of a new leader. Its
//! output is a [`Write`] for each change of an operation. The caller passes the current time to
//! each method that needs it.

mod baselines;
mod books;
mod end_reason;
mod expiring_map;
mod last_runs;
mod operation;
mod operation_limits;
mod refused_operations;
mod retained;
mod shared_state;
mod subject;
mod superseded_operations;
mod takeover;
#[cfg(test)]
mod tests;
mod tracker;

pub use baselines::{BaselinesError, MAX_ENCODED_BYTES, RunKind, SharedBaselines, UsualDuration};
use ifo_api::Text;
pub use operation_limits::{MAX_OPERATIONS, MAX_OPERATIONS_OF_RULE_SET, OperationBounds};
pub use retained::Retention;
pub use shared_state::TrackerSettings;
pub use takeover::{InitialState, MAX_RESTORED};
pub use tracker::{FULL_BATCH, Tracker};

use crate::detect::FeedEvent;
use crate::rules::{RuleBook, RuleSetsWithoutBook};
use ifo_api::completeness::Gaps;
use ifo_api::{Gvr, Key, Object, Source};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A change of the index, which contains all served objects in memory: operations, records and
/// activities. A record is an object with the result of one completed operation. `ifo-apiserver`
/// answers clients from the index.
#[derive(Clone, Debug)]
pub enum Write {
    /// Adds or replaces an object. The index assigns the resourceVersion. If nothing except the
    /// resourceVersion would change, the index ignores the write.
    Put {
        /// The key of the object. The caller must pass the key that belongs to `object`, because
        /// the index does not compare them.
        key: Key,
        /// The object, without a resourceVersion.
        object: Object,
    },
    /// Deletes an object. If the object does not exist, the index ignores the write.
    Delete {
        /// Namespace and name of the object.
        key: Key,
    },
}

/// An event for the tracker.
#[derive(Debug)]
pub enum Message {
    /// The rules for a resource changed. This message must be sent before evaluations with the new
    /// rules.
    Rules(Publication),
    /// A feed, which is the watch of one resource, reports an event.
    Feed {
        /// Identity of the feed.
        source: Source,
        /// Generation of the rule book with which the feed evaluates objects.
        generation: u64,
        /// Event of the feed.
        event: FeedEvent,
    },
    /// A new leader starts with the operations in this state. This message must be sent before the
    /// first [`Message::Rules`].
    Resume(Box<InitialState>),
    /// The server has read all rule sets of the cluster, and has sent all rule books as
    /// [`Message::Rules`]. This message contains the rule sets that are in no rule book. From it,
    /// the tracker knows which rules of restored operations can still arrive.
    AllRuleBooksSent(Arc<RuleSetsWithoutBook>),
    /// The stored durations of earlier runs were added to the baselines
    /// ([`SharedBaselines::load`]). The tracker checks all operations in flight again, because some
    /// of them can be overdue in comparison with these runs.
    BaselinesLoaded,
    /// The namespaces, or the nodes, that exist now. The tracker deletes the retained completed
    /// operations and the records of deleted namespaces. The task that writes the tracker's changes
    /// to the index also reads this message: each existing namespace and node has an activity.
    Existing(Existing),
    /// The rule sets that may miss operations now. The tracker ignores this message. The task that
    /// writes the tracker's changes to the index also writes these gaps, after the changes of all
    /// earlier messages.
    Gaps(Gaps),
    /// A request for an answer as soon as the index contains the changes of all earlier messages.
    /// The task that writes these changes to the index sends the answer. The tracker ignores this
    /// message.
    Flush(oneshot::Sender<()>),
}

/// The new rules for one resource.
#[derive(Clone, Debug)]
pub struct Publication {
    /// Resource that the rules watch.
    pub target: Arc<Gvr>,
    /// New rules. None if no rules for the resource remain.
    pub book: Option<Arc<RuleBook>>,
    /// True if the cluster no longer serves the resource. In this case, the operations that no rule
    /// can detect any more complete with the reason `TargetRemoved` instead of `RuleRemoved`.
    pub removed: bool,
}

/// The names of namespaces, each with its `metadata.creationTimestamp`.
pub type Namespaces = HashMap<Text, Timestamp>;

/// Namespaces or nodes that exist in the cluster.
#[derive(Clone, Debug)]
pub enum Existing {
    /// All namespaces.
    Namespaces(Arc<Namespaces>),
    /// All nodes.
    Nodes(Vec<Text>),
}
