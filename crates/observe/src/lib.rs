//! Reads objects from a cluster.
//!
//! A feed watches one [`Source`]: a resource, in all namespaces or in one namespace. The feed is a
//! stream of [`Raw`] events. An event is an object as JSON, a deletion, the beginning or the end of
//! a list, or an interruption of the watch. An implementation of [`Feed`] creates feeds.
//!
//! The feeds of a cluster do not decode objects. They read only the resourceVersion of each object.
//!
//! - A feed never ends by itself.
//! - If the watch of a feed fails, the feed reports an interruption ([`Raw::Lost`]). If the feed
//!   may have missed changes, it sends all objects again ([`Raw::Reset`]).
//! - A feed does not panic on any input.
//! - The memory of a feed is limited. The feed reads the next event after its consumer has taken
//!   the previous event. Only one feed of a cluster at a time holds a large object (more than
//!   64 KiB) or a page of a list.

mod cluster_feeds;
mod connection;
mod discovery;

mod lines;
mod list;
mod requests;
#[cfg(test)]
mod tests;
mod watch_event;
mod watch_task;

pub use cluster_feeds::ClusterFeed;
pub use connection::{ConnectError, Connection, connect};
pub use discovery::Discovery;

use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    channel::mpsc,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use ifo_api::live::SubjectReference;
use ifo_api::{Gvr, Resolution, Source};
use ifo_cel::JsonFault;
use std::{fmt, sync::Arc};

/// One event of a feed. A feed sends its events in the following order. `…` stands for the events
/// before or after the shown ones.
///
/// ```text
/// Reset (Applied | Deleted)* Synced (Applied | Deleted)*   all objects, then their changes
/// … Lost Synced (Applied | Deleted)*                       an interruption without missed changes
/// … Lost Reset (Applied | Deleted)* Synced …               an interruption with missed changes
/// … Reset (Applied | Deleted)* Synced …                    missed changes without an interruption
/// ```
///
/// If the feed fails between `Reset` and `Synced`, it has sent only some of the objects. The feed
/// then begins again with a new `Reset`. It can send `Lost` before the new `Reset`.
///
/// During an interruption, the feed sends `Lost` for each failed attempt to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// All objects follow, up to [`Raw::Synced`]. If an object that the feed has sent earlier is
    /// not among them, the object was deleted, or no longer matches the label selector of the feed.
    Reset,
    /// The JSON of an object that was listed, added or modified. The items of a list can lack
    /// `apiVersion` and `kind`. The feed does not parse the objects of a watch. If the
    /// kube-apiserver is broken, these bytes may not be JSON.
    Applied(Bytes),
    /// The last JSON of a deleted object.
    Deleted(Bytes),
    /// After [`Raw::Reset`], `Synced` means that all objects have been sent. After [`Raw::Lost`]
    /// without a `Reset`, `Synced` means that the watch continues and no change was missed. The
    /// changes during the interruption follow.
    Synced,
    /// The watch is interrupted. Until the next [`Raw::Synced`], the objects that the feed has sent
    /// may be out of date. The feed retries until the watch works again.
    Lost(GapReason),
}

/// The reason for the interruption of a watch, which is also called a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// The kube-apiserver has refused the request.
    Refused {
        /// The code of the Status object in the answer or in an ERROR event.
        code: u16,
        /// For 401, 403, 404, 429, 503 and 504: the message of the kube-apiserver. For other codes:
        /// the standard text of the code, because the message may quote an object.
        message: String,
    },
    /// There was no answer, the connection broke, or the watch ended too early. The value is the
    /// text of the error.
    Unreachable(String),
    /// The kube-apiserver has sent data that cannot be decoded.
    Garbled(InvalidData),
}

/// The error in data that the kube-apiserver has sent. The error does not contain the data, because
/// the status of an `OperationRuleSet` shows the error. Some users may read the status, but not the
/// data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidData {
    /// The data is not JSON of the expected form.
    #[error(transparent)]
    Json(JsonFault),
    /// The field `object` of a watch event, or an item of a list, is not a JSON object.
    #[error("a value that is not a JSON object")]
    NoObject,
    /// A watch event has an unknown type.
    #[error("an event of an unknown type")]
    UnknownEvent,
    /// An object has more than 10 MiB.
    #[error("an object of more than 10 MiB")]
    TooLarge,
    /// A page of a list has the same continue token as the previous page, or the list has no
    /// resourceVersion.
    #[error("a list without an end or without a resourceVersion")]
    Endless,
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code: 401, message } => write!(f, "unauthorized: {message}"),
            Self::Refused { code: 403, message } => write!(f, "forbidden: {message}"),
            Self::Refused { code: 404, message } => write!(f, "not found: {message}"),
            Self::Refused { code, message } => write!(f, "refused with {code}: {message}"),
            Self::Unreachable(message) => write!(f, "unreachable: {message}"),
            Self::Garbled(garbled) => write!(f, "invalid data from the kube-apiserver: {garbled}"),
        }
    }
}

/// Creates feeds. The implementations read objects from a cluster, or from the store of the demo.
pub trait Feed: Send + Sync + 'static {
    /// Creates a feed of the objects in `source` whose labels match the label selector `selector`,
    /// such as `tier=db,!old`. `None` selects all objects. When the labels of an object no longer
    /// match, the feed sends [`Raw::Deleted`], as the kube-apiserver does. A feed without support
    /// for selectors sends all objects.
    ///
    /// The stream begins with all objects, and never ends by itself. The feed makes progress only while
    /// the stream is polled. When the stream is dropped, the feed stops.
    fn follow(&self, source: Source, selector: Option<&str>) -> BoxStream<'static, Raw>;

    /// Returns true if the object still exists with the same UID, or if the server cannot check
    /// this.
    ///
    /// A feed with a label selector also sends [`Raw::Deleted`] when the labels of an object no
    /// longer match. With this method, the caller finds out whether the object was really deleted.
    ///
    /// The default implementation returns false, because a feed without support for selectors
    /// reports only real deletions.
    fn exists<'a>(&'a self, _: &'a Gvr, _object: &'a SubjectReference) -> BoxFuture<'a, bool> {
        future::ready(false).boxed()
    }
}

/// A resource, and the result of its look-up.
pub type ResolvedTarget = (Arc<Gvr>, Resolution);

/// Looks up whether resources are served. [`Discovery`] implements this trait for a cluster.
pub trait Resolve: Send + Sync + 'static {
    /// Looks up these resources. In a cluster, a look-up takes three requests, for any number of
    /// resources.
    fn resolve(&self, targets: Vec<Arc<Gvr>>) -> BoxFuture<'static, Vec<ResolvedTarget>>;

    /// Returns a stream that yields a value when an earlier result of [`Resolve::resolve`] may have
    /// changed. The stream never ends. It makes progress only while it is polled.
    fn resolution_changes(&self) -> BoxStream<'static, ()>;
}

/// Returns a stream of the events that a future sends. The stream contains the future, and no task
/// is spawned. So the future makes progress only while the stream is polled, and is dropped with
/// the stream.
fn inline<F: Future<Output = ()> + Send + 'static>(
    run: impl FnOnce(mpsc::Sender<Raw>) -> F,
) -> BoxStream<'static, Raw> {
    // A channel with capacity 0 has one slot for its sender, so it holds at most one event. The
    // future can send the next event after the consumer has taken this event.
    let (out, messages) = mpsc::channel(0);
    let running = run(out).into_stream().filter_map(|()| future::ready(None));
    stream::select(messages, running).boxed()
}
