//! The interface of the link from a follower to the leader: the requests that a follower sends, and
//! the answers. A follower is a replica that copies the leader's index (the operations in memory).
//!
//! The requests are lists, watches and state queries. A state query asks for the values in
//! [`PeerAnswer`], such as the leader's newest resourceVersion.
//!
//! `https_link.rs` implements the interface over HTTPS. The tests implement it with a
//! simulated network.
//!
//! A [`Link`] belongs to one leadership term (the time for which one leader holds the Lease). Each
//! request names this term. A replica refuses requests for every term except the last term in which
//! it led. So a follower never mixes the changes of two leaders.

use super::{Leader, Term};
use crate::index::{Error, Key, Object, Rv, Write};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

/// The request header that names the leadership term of the leader.
pub const TERM_HEADER: &str = "ifo-term";

/// The audience of the tokens with which replicas authenticate to each other. The kube-apiserver
/// refuses tokens with this audience. So if a wrong server receives such a token, it cannot use the
/// token at the kube-apiserver.
pub const AUDIENCE: &str = "ifo-apiserver";

/// The path of the state query. A replica accepts a request with the header [`TERM_HEADER`] only if
/// the client's user may `get` this path.
pub const PEER_PATH: &str = "/peer";

/// The answer to a state query.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerAnswer {
    /// The leadership term that the query named.
    pub term: String,
    /// True if the answering replica leads and its Lease is valid.
    pub leading: bool,
    /// The newest resourceVersion of the answering replica's index.
    #[serde(with = "VersionNumber")]
    pub head: Rv,
    /// The oldest resourceVersion at which the answering replica can serve lists and watches.
    #[serde(with = "VersionNumber")]
    pub oldest: Rv,
    /// Milliseconds since the kube-apiserver last answered a Lease request of the answering
    /// replica. None if the kube-apiserver never answered such a request.
    #[serde(default)]
    pub cluster_answered: Option<u64>,
}

/// The JSON of a resourceVersion: a number.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Rv")]
struct VersionNumber(u64);

/// The reason why a request to the leader failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The leader does not have the requested resourceVersion. The leader has dropped this
    /// resourceVersion, or never had it.
    #[error("the leader does not have the requested resourceVersion")]
    Gone,
    /// The other replica does not serve the requested leadership term.
    #[error("the replica does not serve this leadership term")]
    AnotherTerm,
    /// The other replica does not accept the credentials of this replica, or the user of these
    /// credentials lacks a right. The value is the status of the answer.
    #[error(
        "the leader answers {0}: the file of --peer-token-file must contain a token for the \
         audience ifo-apiserver, and the user of the token must have the right to get the path \
         /peer, and to list and watch inflightoperations.live.ifo.kubevirt.io"
    )]
    NotAuthorized(String),
    /// The other replica answered with another error.
    #[error("the leader refuses the request: {0}")]
    Refused(String),
    /// The `APIService` of this server does not exist, or has no `caBundle`. So the certificate of
    /// the leader cannot be verified.
    #[error("the APIService is not registered, or has no caBundle")]
    NotRegistered,
    /// A change that the leader sent does not fit to the copy of the leader's index.
    #[error("a change that the leader sent contradicts the copy: {0}")]
    Diverged(String),
    /// The request failed for another reason. For example, the leader did not answer, or its answer
    /// is malformed.
    #[error("{0}")]
    Failed(String),
}

impl From<Error> for LinkError {
    fn from(error: Error) -> Self {
        Self::Diverged(error.to_string())
    }
}

/// One page of the leader's state.
#[derive(Clone, Debug)]
pub struct ObjectPage {
    /// The key and the resourceVersion of each object, and the object.
    pub objects: Vec<(Key, Rv, Object)>,
    /// The continue token with which the follower requests the next page. None on the last page.
    pub next: Option<String>,
}

/// A change of the leader's index: its resourceVersion, and the changed object. Without an object,
/// all changes up to this resourceVersion have been sent.
pub type LeaderChange = (Rv, Option<Write>);

/// The changes of the leader's index, in the order of their resourceVersions.
pub type LeaderChanges = BoxStream<'static, Result<LeaderChange, LinkError>>;

/// A connection to the leader of one leadership term.
pub trait Link: Send + Sync {
    /// Sends a state query.
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>>;

    /// Reads one page of the leader's objects at exactly the resourceVersion `at`. `token` is the
    /// continue token of the page, or None for the first page.
    fn page<'a>(
        &'a self,
        at: Rv,
        token: Option<&'a str>,
    ) -> BoxFuture<'a, Result<ObjectPage, LinkError>>;

    /// Watches the changes after the resourceVersion `after`. The first change has no object, and
    /// the resourceVersion `after`. It confirms that the leader knows `after`, and still has all
    /// later changes.
    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<LeaderChanges, LinkError>>;
}

/// Creates links to leaders.
pub trait LinkFactory: Send + Sync + 'static {
    /// Returns a link to `leader`. The leader may be unreachable, because an implementation may
    /// return the link before it sends a request to the leader.
    fn connect<'a>(&'a self, leader: &'a Leader)
    -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>>;
}

impl PeerAnswer {
    /// Returns true if the answer comes from the leader of `term`.
    pub fn is_of(&self, term: &Term) -> bool {
        self.leading && *term == self.term
    }
}
