//! State queries and streams between replicas.
//!
//! Input: the address of the leader, and its term. Output: a [`Link`] to that leader, through which
//! its index is listed and watched.
//!
//! A link belongs to one term. Every request names the term, and the other replica refuses a
//! request for a different term. So a follower never mixes the changes of two leaders.
//! term that is not its own: so a follower never mixes the changes of two leaders.

use super::{Leader, Term};
use crate::index::{Key, Rv};
use crate::rules::IncompleteRuleSets;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

/// The header that names the term of the leader that a request is for.
pub const TERM_HEADER: &str = "ifo-term";

/// The audience of the tokens with which replicas authenticate to each other. The kube-apiserver
/// refuses such a token, so a receiver cannot use it there.
pub const AUDIENCE: &str = "ifo-apiserver";

/// The path of the state query. A client that may `get` it may mirror the index.
pub const PEER_PATH: &str = "/peer";

/// The answer to a state query.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerAnswer {
    /// The term in the query.
    pub term: String,
    /// True if the replica leads in that term and its Lease is valid.
    pub leading: bool,
    /// The published version of its index.
    #[serde(with = "decimal")]
    pub head: Rv,
    /// The lower boundary of its ring of changes: a mirror can begin there.
    #[serde(with = "decimal")]
    pub oldest: Rv,
    /// Milliseconds since the kube-apiserver last answered the election of the replica. None if it
    /// never answered.
    #[serde(default)]
    pub cluster_answered: Option<u64>,
    /// The rule sets that may miss operations.
    pub coverage: IncompleteRuleSets,
}

/// Writes versions as JSON strings, as Kubernetes does, because some readers have no 64-bit
/// numbers.
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

/// A request to the leader failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The leader does not have the version that the request names any more.
    #[error("the leader no longer has the version")]
    Gone,
    /// The other replica does not serve the term that the request names.
    #[error("the replica does not lead in this term")]
    AnotherTerm,
    /// The other replica answered with another error.
    #[error("the leader refuses the request: {0}")]
    Refused(String),
    /// There is no answer, or it is malformed.
    #[error("{0}")]
    Failed(String),
}

/// The beginning of a page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// The first page of the state at exactly this version.
    Exact(Rv),
    /// The first page of the newest state.
    Latest,
    /// The page after the page that returned this token.
    Continue(String),
}

/// One page of the leader's state.
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
    /// An object was added or replaced. The JSON has the same bytes as on the leader.
    Put {
        /// Version of the change.
        rv: Rv,
        /// Key of the object.
        key: Key,
        /// The object.
        json: Vec<u8>,
    },
    /// An object was deleted.
    Delete {
        /// Version of the change.
        rv: Rv,
        /// Key of the object.
        key: Key,
    },
    /// All changes up to this version have been delivered.
    Bookmark(Rv),
}

/// The changes of a leader, in order.
pub type Events = BoxStream<'static, Result<LeaderEvent, LinkError>>;

/// A connection to one leader, for one term.
pub trait Link: Send + Sync {
    /// Sends a state query.
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>>;

    /// Reads one page of the objects.
    fn page(&self, start: PageStart) -> BoxFuture<'_, Result<ObjectPage, LinkError>>;

    /// Follows the changes after this version. The first event is a bookmark of this version. It
    /// confirms that the leader still has the version.
    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<Events, LinkError>>;
}

/// Creates links.
pub trait LinkFactory: Send + Sync + 'static {
    /// Returns a link to `leader`. The link can be created without a request to the leader.
    fn connect<'a>(&'a self, leader: &'a Leader)
    -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>>;
}

impl PeerAnswer {
    /// Returns true if the link is to the leader of `term`.
    pub fn is_of(&self, term: &Term) -> bool {
        self.leading && self.term == term.as_str()
    }
}
