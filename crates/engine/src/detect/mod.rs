//! Detection: turns the raw events of a feed into messages for the tracker. Input: a
//! [`RuleBook`](crate::rules::RuleBook), and the JSON of each object that is listed, changed or
//! deleted, with the time. Output: a [`FeedEvent`] for each event that can change an operation. All
//! functions are synchronous.
//!
//! There is one [`Detector`] for each feed: in the server's feed task, in the module `replay` and
//! in the simulation of replicas. The detector
//!
//! - decodes the fields that rules read,
//! - evaluates the rules within their budgets,
//! - keeps objects whose rules read `now`, and evaluates them again,
//! - reads the start of an operation from `managedFields`,
//! - finds objects that may have left the selection and not been deleted.
//!
//! [`evaluate()`] evaluates one object without a detector.

mod detector;
mod evaluate;
mod metadata;
mod subject;
mod unknown_objects;

#[cfg(test)]
mod tests;

pub use detector::{Detector, EvaluatedObject, VanishedObject};
pub(crate) use evaluate::labels_of_json;
#[cfg(test)]
pub(crate) use evaluate::unselected;
pub use evaluate::{DetectedOutcome, Evaluation, FieldFailure, Finding, RuleValues, evaluate};
pub use subject::{MissingName, Subject};

use std::time::Instant;
use tokio::sync::oneshot;

/// A message of a feed to the tracker.
#[derive(Debug)]
pub enum FeedEvent {
    /// The whole state follows.
    Reset,
    /// An object was read at `read` and evaluated.
    Evaluated {
        /// The result.
        evaluation: Box<Evaluation>,
        /// The time at which the event was read.
        read: Instant,
    },
    /// An object was deleted.
    Deleted {
        /// The object.
        subject: Subject,
        /// The time at which the event was read.
        read: Instant,
    },
    /// The feed is up to date. Objects that it has not reported since `Reset` were deleted.
    Synced {
        /// Channel for the subjects that are not in the list and may still exist, because the feed
        /// has a label selector. Events for each of them follow.
        missing: Option<oneshot::Sender<Vec<Subject>>>,
    },
    /// The feed has a gap.
    Lost,
}
