//! Reads the objects of a cluster or of a folder of manifests as streams of JSON. A feed is such a
//! stream for one [`Source`], which is a resource or one namespace of it. The feed sends [`Raw`]
//! events: objects, deletions, the end of the state, and interruptions of the watch with their
//! reason. Objects are not decoded here. Only their resourceVersion is read.
//!
//! A feed never ends by itself. It reports each interruption in which changes can be missed
//! ([`Raw::Lost`]). It does not panic on any input. Its memory is limited, because the connection
//! waits until the reader takes the next event. All feeds of a cluster share a budget for large
//! objects.

mod client;
mod cluster;
mod discovery;
mod folder_feed;

mod backoff;
mod body_parts;
mod folder_scan;
mod lines;
mod list_and_watch;
mod page_reader;
mod read_ahead;
mod request;
mod shared_limits;
mod time_limits;
mod watch_event;

pub use client::{ConnectError, ConnectOptions, Connection, connect};
pub use cluster::ClusterFeed;
pub use discovery::Discovery;
pub use folder_feed::{Folder, FolderError};

use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    channel::mpsc,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use ifo_api::{Gvr, Resolution, Source};
use ifo_cel::JsonFault;
use std::fmt;

/// One event of a feed. Events have the following order. A gap is an interruption of the watch.
///
/// ```text
/// Reset (Applied | Deleted)* Synced (Applied | Deleted)*      the state, then its changes
///   … Lost Synced (Applied | Deleted)*                        a gap; nothing was missed
///   … Lost Reset … Synced …    … Reset … Synced …             changes were missed: the whole state again
/// ```
///
/// `TooLarge` can occur wherever `Applied` can.
///
/// If a `Reset` or `Lost` precedes `Synced`, the events since the previous `Reset` are void, and a
/// new `Reset` follows. If the reason of a gap changes, another `Lost` follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// The whole state follows, up to [`Raw::Synced`]. Objects that are missing in this state have
    /// been deleted.
    Reset,
    /// The JSON of an object that was listed, added or modified. It may lack `apiVersion` and
    /// `kind`. The object itself is not checked, so a broken server can send any JSON.
    Applied(Bytes),
    /// An object that was listed, added or modified, and is too large to be read.
    TooLarge {
        /// JSON that contains only the identity of the object.
        object: Bytes,
        /// Size of the object in bytes.
        length: u64,
    },
    /// The last known JSON of a deleted object, or JSON that contains only its identity.
    Deleted(Bytes),
    /// After [`Raw::Reset`]: the state is complete. After [`Raw::Lost`] without a `Reset`: the
    /// watch continues without a missed change, and the changes during the interruption follow.
    Synced,
    /// The watch is interrupted. Until the next [`Raw::Synced`], the state may be out of date. The
    /// feed keeps trying to continue.
    Lost(GapReason),
}

/// The reason of a gap, that is, of an interruption of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// 401: the server does not accept the credentials.
    Unauthorized {
        /// The server's message.
        message: String,
    },
    /// 403: the user may not list or watch the resource.
    Forbidden {
        /// The server's message, which names the user, verb and resource.
        message: String,
    },
    /// 404: the resource is not served.
    NotFound {
        /// The server's message.
        message: String,
    },
    /// 429, 5xx or another temporary failure.
    Refused {
        /// The HTTP status, or the code of the Status object in an ERROR event.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// There was no answer, or the connection broke.
    Unreachable(String),
    /// The whole state must be read again, but the maximum number of lists is already running.
    Queued,
    /// The server has repeatedly sent data that is no watch event, list or object.
    Garbled(InvalidData),
}

/// The error in data that a server has sent. It does not contain the data, because it is shown in
/// the status of a rule set. A user who may read the status need not have access to the data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidData {
    /// The data is not JSON of the expected form.
    #[error(transparent)]
    Json(JsonFault),
    /// A line of a watch is too long to be read. The value is its length in bytes.
    #[error("a line of {0} bytes")]
    Line(u64),
    /// A watch event has no object.
    #[error("an event whose object is not an object")]
    NoObject,
    /// A watch event has an unknown type.
    #[error("an event of an unknown type")]
    UnknownEvent,
    /// An item of a list is too large, and its beginning does not contain its name and UID.
    #[error("an item of {0} bytes without name and uid")]
    Nameless(u64),
    /// A page of a list does not have the expected form.
    #[error("a list: {0}")]
    List(&'static str),
    /// A list repeats a page forever, or has no resourceVersion.
    #[error("a list without an end or without a resourceVersion")]
    Endless,
}

impl InvalidData {
    fn json(error: &serde_json::Error) -> Self {
        Self::Json(error.into())
    }
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthorized { message } => write!(f, "unauthorized: {message}"),
            Self::Forbidden { message } => write!(f, "forbidden: {message}"),
            Self::NotFound { message } => write!(f, "not found: {message}"),
            Self::Refused { code, message } => write!(f, "refused with {code}: {message}"),
            Self::Unreachable(message) => write!(f, "unreachable: {message}"),
            Self::Queued => f.write_str("waiting for the lists of other resources to end"),
            Self::Garbled(garbled) => write!(f, "unintelligible: {garbled}"),
        }
    }
}

/// A source of objects: a cluster, a folder of manifests, or the demo.
pub trait Feed: Send + Sync + 'static {
    /// Returns the events of `source`, beginning with its whole state. The stream never ends by
    /// itself. It makes progress only while it is polled, and stops when it is dropped.
    fn follow(&self, source: Source) -> BoxStream<'static, Raw>;

    /// Returns the events of [`Feed::follow`] for objects whose labels match `selection`, a label
    /// selector as in a request. A feed that does not support selectors also sends the other
    /// objects. A feed that supports them sends a deletion when an object no longer matches, as the
    /// kube-apiserver does.
    fn follow_selected(&self, source: Source, _selection: &str) -> BoxStream<'static, Raw> {
        self.follow(source)
    }

    /// Returns true if an object still exists, although [`Feed::follow_selected`] has reported its
    /// deletion. Such an object only no longer matches the selection.
    fn is_there<'a>(&'a self, _target: &'a Gvr, _object: ObjectNames<'a>) -> BoxFuture<'a, bool> {
        future::ready(false).boxed()
    }
}

/// The identity of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectNames<'a> {
    /// The namespace. `None` for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
    /// The UID. An object from a file may have none.
    pub uid: Option<&'a str>,
}

/// Looks up whether a resource is served. Each implementation belongs to the [`Feed`] that reads
/// the objects of the resource.
pub trait Resolve: Send + Sync + 'static {
    /// Looks up a resource in discovery. This takes as long as a few requests.
    fn resolve<'a>(&'a self, target: &'a Gvr) -> BoxFuture<'a, Resolution>;

    /// Returns a stream that yields a value when an earlier result may have changed. It makes
    /// progress only while it is polled, never ends, and merges changes that are close together.
    fn changes(&self) -> BoxStream<'static, ()>;
}

/// Returns a stream of the events that a future sends. The future runs inside the stream and not as
/// a task. So it makes progress only while the stream is polled, and is dropped with the stream.
fn inline<F: Future<Output = ()> + Send + 'static>(
    run: impl FnOnce(mpsc::Sender<Raw>) -> F,
) -> BoxStream<'static, Raw> {
    // A channel with capacity 0 has one slot for its sender. So only one event waits here, and the
    // sender waits before it reads the next one.
    let (out, messages) = mpsc::channel(0);
    let running = run(out).into_stream().filter_map(|()| future::ready(None));
    stream::select(messages, running).boxed()
}
