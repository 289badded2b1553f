//! Detects operations: evaluates rules on the objects that a watch (feed) reports, and turns the
//! results into messages for the `Tracker`. The tracker turns these messages into operations.
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
//! - stores the fields of objects whose rules read `now` (the current time), and of objects on which
//!   a throttled rule set was skipped, so that these objects can be evaluated regularly,
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

/// A channel on which the tracker returns missing subjects. A missing subject may still exist with
/// other labels, so the feed checks each of them, and sends a further event for it.
///
/// None if the feed has no label selector, or has checked the subject. Then missing subjects were
/// deleted.
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
        /// Channel on which the tracker returns the subject, if it has operations.
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
