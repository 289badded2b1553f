//! Feeds: the objects of a cluster or of a folder of manifests as streams of JSON. Input: a
//! [`Source`], which names a resource and sometimes a namespace. Output: a stream of [`Raw`]
//! events, with the JSON of one object each. The stream also reports when the whole state has been
//! read, and when there is a gap and why. The objects are not decoded here, and only the
//! resourceVersion is stored.
//!
//! A feed never ends by itself. It reports every possible loss of a change ([`Raw::Lost`]). It does
//! not panic on any input. Its memory is limited, because the connection waits for the reader. All
//! feeds of a cluster share a budget for large objects.

mod client;
mod cluster;
mod discovery;
mod files;

mod backoff;
mod budget;
mod envelope;
mod folder_scan;
mod follow;
mod input;
mod lines;
mod page_reader;
mod read_ahead;
mod request;
mod time_limits;

pub use client::{ConnectError, ConnectOptions, Connection, connect};
pub use cluster::ClusterFeed;
pub use discovery::Discovery;
pub use files::{Folder, FolderError};

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

/// One event of a feed. Events have this order:
///
/// ```text
/// Reset (Applied | Deleted)* Synced (Applied | Deleted)*      the state, then its changes
///   … Lost Synced (Applied | Deleted)*                        a gap; nothing was missed
///   … Lost Reset … Synced …    … Reset … Synced …             changes were missed: the whole state again
/// ```
///
/// `TooLarge` can occur wherever `Applied` can.
///
/// A `Reset` or `Lost` before `Synced` discards the events since the previous `Reset`, and a new
/// `Reset` follows. Several `Lost` may follow each other if the reason changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// The whole state follows, up to [`Raw::Synced`]. Objects that are not in it were deleted.
    Reset,
    /// The JSON of an object that was listed, added or modified. It may lack `apiVersion` and
    /// `kind`. It may have any content if the server is broken, because only its envelope was
    /// checked.
    Applied(Bytes),
    /// As [`Raw::Applied`], but the object is too large to be read.
    TooLarge {
        /// The identity of the object as the JSON of an object.
        object: Bytes,
        /// Size of the object in bytes.
        length: u64,
    },
    /// The last known JSON of a deleted object, or only its identity.
    Deleted(Bytes),
    /// After [`Raw::Reset`]: the state is complete. After [`Raw::Lost`] without a `Reset`: the gap
    /// is over, nothing was missed, and all changes during the gap follow.
    Synced,
    /// From now on the state may be out of date, until the next [`Raw::Synced`]. The feed keeps
    /// trying.
    Lost(GapReason),
}

/// The reason of a gap.
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
    /// The whole state must be read again, and the largest number of lists is already running.
    Queued,
    /// The server repeatedly sent data that is no watch event, list or object.
    Garbled(InvalidData),
}

/// The error of data that a server sent. It does not contain the data, because the failure of a
/// feed is shown in the status of rule sets, which is cluster-scoped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidData {
    /// The data is not JSON of the expected form.
    #[error(transparent)]
    Json(JsonFault),
    /// A line of a watch is too long to be read.
    #[error("a line of {0} bytes")]
    Line(u64),
    /// An event without an object.
    #[error("an event whose object is not an object")]
    NoObject,
    /// An event of an unknown type.
    #[error("an event of an unknown type")]
    UnknownEvent,
    /// An item of a list is too large, and its beginning does not contain its identity.
    #[error("an item of {0} bytes without name and uid")]
    Nameless(u64),
    /// A page of a list does not have the expected form.
    #[error("a list: {0}")]
    List(&'static str),
    /// A list cannot be read to its end.
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

/// A source of subjects: a cluster, a folder of manifests, or the demo.
pub trait Feed: Send + Sync + 'static {
    /// Follows `source`, beginning with its whole state. The stream never ends by itself. It works
    /// only while it is polled, and stops when it is dropped.
    fn follow(&self, source: Source) -> BoxStream<'static, Raw>;

    /// As [`Feed::follow`], but only for objects whose labels match `selection`, a label selector
    /// as in a request. A feed that does not support selectors also sends the other objects. A feed
    /// that supports them sends a deletion for an object that leaves the selection, as the
    /// kube-apiserver does.
    fn follow_selected(&self, source: Source, _selection: &str) -> BoxStream<'static, Raw> {
        self.follow(source)
    }

    /// Returns true if an object that [`Feed::follow_selected`] reported as deleted still exists
    /// and only left the selection.
    fn is_there<'a>(&'a self, _target: &'a Gvr, _object: ObjectNames<'a>) -> BoxFuture<'a, bool> {
        future::ready(false).boxed()
    }
}

/// The identity of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectNames<'a> {
    /// The namespace. None for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
    /// The UID. Objects from files may lack one.
    pub uid: Option<&'a str>,
}

/// Finds out whether targets are served. It belongs to the [`Feed`] that reads their objects.
pub trait Resolve: Send + Sync + 'static {
    /// Reads discovery. It takes as long as a few requests.
    fn resolve<'a>(&'a self, target: &'a Gvr) -> BoxFuture<'a, Resolution>;

    /// Fires when an earlier answer may have changed. It works only while it is polled, never ends,
    /// and merges changes that are close together.
    fn changes(&self) -> BoxStream<'static, ()>;
}

/// A stream of the values that a future sends. The future runs inside the stream and not as a task,
/// so it works only while the stream is polled, and is dropped with the stream.
fn inline<F: Future<Output = ()> + Send + 'static>(
    run: impl FnOnce(mpsc::Sender<Raw>) -> F,
) -> BoxStream<'static, Raw> {
    // The channel has only the sender's own slot. One value waits here, and all others wait at
    // their origin.
    let (out, messages) = mpsc::channel(0);
    let running = run(out).into_stream().filter_map(|()| future::ready(None));
    stream::select(messages, running).boxed()
}
