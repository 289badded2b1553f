//! The questions and streams between replicas. Enters: the address of the leader, and its
//! term. Leaves: a [`Link`] to that leader, on which its index is listed and watched.
//!
//! A link belongs to one term. Every request names the term, and the other side refuses a
//! term that is not its own: so a follower never mixes the changes of two leaders.

use super::{Leader, Term};
use crate::index::{Key, Rv};
use crate::rules::Coverage;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

/// The header that names the term of the leader that a request is for.
pub const TERM_HEADER: &str = "ifo-term";

/// The audience of the tokens by which replicas know each other. The kube-apiserver refuses
/// such a token, so nobody who receives it can use it there.
pub const AUDIENCE: &str = "ifo-apiserver";

/// The path of the question. Whoever may `get` it may mirror the index.
pub const PATH: &str = "/peer";

/// What a replica answers to the question for its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerAnswer {
    /// The term that the question was for.
    pub term: String,
    /// Whether the replica leads in that term, and its Lease is valid.
    pub leading: bool,
    /// The published version of its index.
    #[serde(with = "decimal")]
    pub head: Rv,
    /// The lower boundary of its ring of changes: a mirror can begin there.
    #[serde(with = "decimal")]
    pub oldest: Rv,
    /// Milliseconds since the kube-apiserver last answered the election of the replica. None
    /// if it never did.
    #[serde(default)]
    pub cluster_answered: Option<u64>,
    /// Which rule sets may miss operations.
    pub coverage: Coverage,
}

/// Versions are strings in JSON, as in Kubernetes: not every reader has 64 bits for a number.
mod decimal {
    use crate::index::Rv;
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands over a reference"
    )]
    pub fn serialize<S: Serializer>(rv: &Rv, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(rv)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rv, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Rv).map_err(de::Error::custom)
    }
}

/// Why a request to the leader failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The leader does not know the version that the request names.
    #[error("the leader does not know the version")]
    Gone,
    /// The other replica does not serve the term that the request names.
    #[error("the replica does not lead in this term")]
    AnotherTerm,
    /// The other replica answers, but not to this request.
    #[error("the leader refuses the request: {0}")]
    Refused(String),
    /// There is no answer, or a broken one.
    #[error("{0}")]
    Failed(String),
}

/// Where a page of a list begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// The first page of the state at exactly this version.
    Exact(Rv),
    /// The first page of the newest state.
    Latest,
    /// The page after the one that gave this token.
    Continue(String),
}

/// A part of the leader's state.
#[derive(Clone, Debug)]
pub struct ObjectPage {
    /// The version of the whole state.
    pub rv: Rv,
    /// Key, version of the last change, and JSON of each object.
    pub objects: Vec<(Key, Rv, Vec<u8>)>,
    /// The token for the next page, if there is one.
    pub next: Option<String>,
}

/// A change of the leader's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderEvent {
    /// An object was added or replaced. The JSON is that of the leader, byte for byte.
    Put {
        /// Version of the change.
        rv: Rv,
        /// Which object.
        key: Key,
        /// The object.
        json: Vec<u8>,
    },
    /// An object was removed.
    Delete {
        /// Version of the change.
        rv: Rv,
        /// Which object.
        key: Key,
    },
    /// All changes up to this version have been delivered.
    Bookmark(Rv),
}

/// The changes of a leader, in order.
pub type Events = BoxStream<'static, Result<LeaderEvent, LinkError>>;

/// The way to one leader, for one term.
pub trait Link: Send + Sync {
    /// Asks for the leader's state.
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>>;

    /// Reads a part of its objects.
    fn page(&self, start: PageStart) -> BoxFuture<'_, Result<ObjectPage, LinkError>>;

    /// Follows its changes after this version. The first event is a bookmark of this version:
    /// then the leader knows it.
    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<Events, LinkError>>;
}

/// Makes links.
pub trait Links: Send + Sync + 'static {
    /// A link to `leader`. It need not talk to the leader yet.
    fn connect<'a>(&'a self, leader: &'a Leader)
    -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>>;
}

impl PeerAnswer {
    /// Whether it is that of the leader of `term`.
    pub fn is_of(&self, term: &Term) -> bool {
        self.leading && self.term == term.as_str()
    }
}
