//! Detects operations. This module evaluates rules on the objects that a feed (a watch of one
//! resource) reports. It returns the results as messages for the `Tracker`, which turns them into
//! operations.
//!
//! The input is the time, and the JSON of each object that was listed, changed or deleted. The
//! output is [`FeedEvent`]s:
//!
//! - one for each listed or deleted object whose identity can be decoded,
//! - one for each changed object, but only if the change can affect an operation on the object,
//! - events about the feed itself, such as the beginning and the end of a list.
//!
//! All functions are synchronous.
//!
//! There is one [`Detector`] for each feed. A detector
//!
//! - decodes the fields that rules read,
//! - evaluates the rules within the budgets of evaluation steps and time,
//! - stores the fields of objects whose result can change without a change of the object, so that
//!   it can evaluate them again,
//! - reads the time at which an operation starts or ends from `managedFields`.
//!
//! [`evaluate()`] evaluates the rules on one object without a detector.

mod detector;
mod evaluate;
mod stored_objects;
mod subject;
mod unknown;

#[cfg(test)]
mod tests;

pub use detector::{CheckedEvent, Detector, EvaluatedObject};
pub(crate) use evaluate::labels_of_json;
#[cfg(test)]
pub(crate) use evaluate::unselected;
pub use evaluate::{
    DetectedOutcome, Evaluation, Finding, MAX_OPERATIONS_ON_OBJECT, Nodes, RuleValues, ShownValues,
    evaluate,
};
pub use stored_objects::{MAX_STORED_BYTES, StoredBytes};
pub use subject::{MissingName, Subject};

use std::time::Instant;
use tokio::sync::oneshot;

/// A channel on which the tracker returns missing subjects: objects with operations that the watch
/// no longer reports. A missing subject may still exist with other labels. So the feed checks each
/// missing subject, and sends a further event for it.
///
/// None if the feed has no label selector, or has already checked the subject. Then the missing
/// subjects were deleted.
pub type MissingSubjects = Option<oneshot::Sender<Vec<Subject>>>;

/// A message from a feed to the tracker.
#[derive(Debug)]
pub enum FeedEvent {
    /// A list of all objects begins. An event follows for each listed object whose identity can be
    /// decoded.
    Reset,
    /// The rules were evaluated on an object.
    Evaluated {
        /// Result of the evaluation.
        evaluation: Box<Evaluation>,
        /// Monotonic time at which the feed received the object, or evaluated its stored fields
        /// again.
        read: Instant,
    },
    /// An object was deleted.
    Deleted {
        /// The deleted object.
        subject: Subject,
        /// Monotonic time at which the feed received the deletion.
        read: Instant,
        /// Channel on which the tracker returns the subject, if the subject has operations.
        missing: MissingSubjects,
    },
    /// The feed is up to date, because the list is complete or an interruption of the watch is
    /// over. After a list, a subject (an object with operations) is called missing if the feed has
    /// sent no event for it since `Reset`.
    Synced {
        /// Channel on which the tracker returns the missing subjects.
        missing: MissingSubjects,
    },
    /// The watch is interrupted. Changes can be missed until the next `Synced`.
    Lost,
}
