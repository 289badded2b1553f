//! Turns the raw events of a feed into messages for the tracker. Enters: a
//! [`RuleBook`](crate::rules::RuleBook), then the JSON of each object that is listed, changes
//! or is deleted, with the time. Leaves: a [`FeedEvent`] for each event that can change an
//! operation. Everything is synchronous.
//!
//! There is one [`Detector`] for each feed: in the server's feed task, in the module `replay`
//! and in the simulation of replicas. The detector
//!
//! - decodes the fields that rules read,
//! - evaluates the rules within their budgets,
//! - keeps objects whose rules read `now`, and evaluates them again,
//! - reads from `managedFields` when an operation started,
//! - finds out which objects may have left the selection and not been deleted.
//!
//! [`evaluate()`] evaluates one object without a detector.

mod detector;
mod evaluate;
mod metadata;
mod subject;
mod unknown;

#[cfg(test)]
mod tests;

pub use detector::{Detector, EvaluatedObject, VanishedObject};
pub(crate) use evaluate::labels_of_json;
#[cfg(test)]
pub(crate) use evaluate::unselected;
pub use evaluate::{DetectedOutcome, Evaluation, FieldFailure, Finding, Says, evaluate};
pub use subject::{Nameless, Subject};

use std::time::Instant;
use tokio::sync::oneshot;

/// A message of a feed to the tracker.
#[derive(Debug)]
pub enum FeedEvent {
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
    /// The feed is up to date. Objects that it has not reported since `Reset` were deleted.
    Synced {
        /// Where to send the subjects that the list lacks although they may exist, because the
        /// feed shows a selection of the objects. What happened to each of them comes next.
        missing: Option<oneshot::Sender<Vec<Subject>>>,
    },
    /// The feed has a gap.
    Lost,
}
