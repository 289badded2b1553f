//! From a raw event of a feed to what the tracker hears of it. Enters: a
//! [`RuleBook`](crate::rules::RuleBook), then the JSON of each object that is listed, changes
//! or is deleted, with the time. Leaves: a [`FeedEvent`] for each event that can change an
//! operation. Everything is synchronous.
//!
//! [`Detector`] is the entrance. One exists for each feed, in the server's feed task, in
//! the module `replay` and in the simulation of replicas. It decodes the fields
//! that rules read, evaluates the rules within their budgets, keeps objects whose rules read
//! `now`, reads from `managedFields` when an operation started, and tells objects that left
//! the selection from deleted ones. [`evaluate()`] is one evaluation, without a memory of other
//! objects.

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

/// What a feed tells the tracker.
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
