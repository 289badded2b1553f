//! What goes on in a cluster, or in a folder of manifests, as a stream of raw JSON.
//!
//! In: a [`Source`], which names a resource and perhaps one namespace. Out: a stream of
//! [`Raw`], which carries the JSON of one object at a time and says when the whole state
//! has been read, when there is a gap, and why. Nothing is decoded here beyond the
//! envelope, and nothing is stored but the resourceVersion to continue from.
//!
//! Promises: a feed never ends by itself, never loses a change without saying so
//! ([`Raw::Lost`]), never panics on what a server or a file says, and holds a bounded
//! amount of memory however slow its reader is (the reader's pace is the connection's).
//! All feeds of a cluster together hold no more than a budget of large objects.

mod client;
mod cluster;
mod discovery;
mod files;

mod backoff;
mod bounded;
mod budget;
mod buffered;
mod envelope;
mod follow;
mod input;
mod lines;
mod page;
mod request;
mod scan;

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

/// One message of a feed. The order in which they come:
///
/// ```text
/// Reset (Applied | Deleted)* Synced (Applied | Deleted)*      the state, then its changes
///   … Lost Synced (Applied | Deleted)*                        a gap; nothing was missed
///   … Lost Reset … Synced …    … Reset … Synced …             what happened is not known: state again
/// ```
///
/// `TooLarge` comes where `Applied` would.
///
/// A `Reset` or `Lost` before `Synced` makes what came since the `Reset` before it void:
/// a new `Reset` follows. Several `Lost` may follow each other as the reason changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// The whole state comes now, up to [`Raw::Synced`]. What is not in it was deleted.
    Reset,
    /// The JSON of an object that is there now: it was listed, added or modified.
    /// It may lack `apiVersion` and `kind`, and may be anything if the server is broken:
    /// only the envelope around it was looked at.
    Applied(Bytes),
    /// An object is there, as with [`Raw::Applied`], but is too large to be read.
    TooLarge {
        /// The JSON of an object with what tells it from others in its `metadata`.
        object: Bytes,
        /// How many bytes there were.
        length: u64,
    },
    /// The last known JSON of an object that was deleted; perhaps only its identity.
    Deleted(Bytes),
    /// After [`Raw::Reset`]: the state is complete. Alone, after [`Raw::Lost`]: the gap is
    /// over and nothing was missed; every change made during it follows.
    Synced,
    /// From here on the state may be out of date, until the next [`Raw::Synced`].
    /// The feed goes on trying.
    Lost(Lost),
}

/// Why a feed has a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// 401: the server does not know who we are.
    Unauthorized {
        /// The server's message.
        message: String,
    },
    /// 403: list or watch is not allowed.
    Forbidden {
        /// The server's message, which names the user, verb and resource.
        message: String,
    },
    /// 404: the resource is not served (or no longer, or not yet).
    NotFound {
        /// The server's message.
        message: String,
    },
    /// 429, 5xx or another answer that means: not now.
    Refused {
        /// The HTTP status, or the code of the Status object in an ERROR event.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// There was no answer, or the connection broke.
    Unreachable(String),
    /// The whole state must be read again, and as many lists run already as may at once.
    Queued,
    /// The server sent what is not a watch event, a list or an object, again and again.
    Garbled(Garbled),
}

/// What is wrong with what a server sent, without any of it: a feed's failure is shown in the
/// cluster-scoped status of rule sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// What should be JSON of some form is not.
    #[error(transparent)]
    Json(JsonFault),
    /// A line of a watch is too long to be read.
    #[error("a line of {0} bytes")]
    Line(u64),
    /// An event without an object.
    #[error("an event whose object is not an object")]
    NoObject,
    /// An event of no type that there is.
    #[error("an event of an unknown type")]
    UnknownEvent,
    /// An item of a list is too large, and does not say which object it is.
    #[error("an item of {0} bytes without name and uid")]
    Nameless(u64),
    /// A page of a list has another form than it should have.
    #[error("a list: {0}")]
    List(&'static str),
    /// A list cannot be read to its end.
    #[error("a list without an end or without a resourceVersion")]
    Endless,
}

impl Garbled {
    fn json(error: &serde_json::Error) -> Self {
        Self::Json(error.into())
    }
}

impl fmt::Display for Lost {
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

/// Where subjects come from: a cluster, a folder of manifests, the demo.
pub trait Feed: Send + Sync + 'static {
    /// Follows `source` from its whole state on. The stream never ends by itself; it
    /// works only while it is polled and stops when it is dropped.
    fn follow(&self, source: Source) -> BoxStream<'static, Raw>;

    /// As [`Feed::follow`], for a reader that only wants objects whose labels match
    /// `selection` (a label selector as in a request). A feed that cannot leave the
    /// others out shows them too. One that can shows an object that leaves the selection
    /// as deleted, as kube-apiserver does.
    fn follow_selected(&self, source: Source, _selection: &str) -> BoxStream<'static, Raw> {
        self.follow(source)
    }

    /// Whether an object that [`Feed::follow_selected`] showed as deleted is still there,
    /// and only left the selection.
    fn is_there<'a>(&'a self, _target: &'a Gvr, _object: ObjectNames<'a>) -> BoxFuture<'a, bool> {
        future::ready(false).boxed()
    }
}

/// What tells an object of a resource from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectNames<'a> {
    /// Its namespace; None for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its UID; objects from files may lack one.
    pub uid: Option<&'a str>,
}

/// Finds out whether targets are served. Goes with the [`Feed`] that reads their objects.
pub trait Resolve: Send + Sync + 'static {
    /// Asks discovery. Takes as long as a few unary calls may take.
    fn resolve<'a>(&'a self, target: &'a Gvr) -> BoxFuture<'a, Resolution>;

    /// Fires when an earlier answer may have changed. It works only while it is polled,
    /// never ends, and sums up changes that come close together.
    fn changes(&self) -> BoxStream<'static, ()>;
}

/// A stream of what a future, which never ends, sends: the future runs inside the stream
/// and not as a task, so it works only while it is polled and is gone when it is dropped.
fn inline<F: Future<Output = ()> + Send + 'static>(
    run: impl FnOnce(mpsc::Sender<Raw>) -> F,
) -> BoxStream<'static, Raw> {
    // No slots but the sender's own: what waits here is one message, everything else
    // waits where it comes from.
    let (out, messages) = mpsc::channel(0);
    let running = run(out).into_stream().filter_map(|()| future::ready(None));
    stream::select(messages, running).boxed()
}
