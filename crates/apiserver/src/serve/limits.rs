//! The limits of concurrent requests and connections. The module `concurrency_limit` has the rules
//! by which clients share a limit.

use super::concurrency_limit::ConcurrencyLimit;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Limits of concurrent requests and connections. A request above a limit gets a 429. If there are
/// too many connections, a new connection makes the server close (evict) another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent requests other than watches. A request counts until its answer
    /// has been sent. This limit never refuses a request of a member of `system:masters`. The
    /// module `concurrency_limit` describes how many of these requests one client may send.
    pub requests: usize,
    /// Maximum number of watches of all clients together.
    pub watches: usize,
    /// Maximum number of watches of one user, or of all `ServiceAccounts` of one namespace. Members
    /// of `system:masters` have no such limit.
    pub watches_per_user: usize,
    /// Maximum number of open connections. While this number is reached, three groups share the
    /// connections. A quarter is for newcomers: connections whose user is not known yet. Three
    /// eighths are for other replicas, and for the kube-apiservers that forward the requests of
    /// users. The rest is for users.
    pub connections: usize,
}

impl Limits {
    /// Smallest allowed value of `connections`. A smaller value would leave too few connections for
    /// users, because some connections are reserved.
    pub const LEAST_CONNECTIONS: usize = 8;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A request takes some milliseconds. More than 100 requests are in flight only if
            // clients read their answers slowly. Each request may have 150 KB of its answer in
            // memory: 15 MB in total.
            requests: 100,
            // Each watch may have 50 KB that its client has not read: 25 MB in total.
            watches: 500,
            // Even a dashboard or a controller with many informers opens fewer than 125 watches.
            // Three clients together cannot use all watches.
            watches_per_user: 125,
            // A kube-apiserver needs only a few connections, because each connection carries up to
            // a thousand streams. Each connection may hold 200 KB of a request that has not been
            // authenticated: 50 MB in total.
            connections: 256,
        }
    }
}

/// The WebSocket watches may use one in four connections. One client may have half of these
/// watches. Each WebSocket watch needs a connection of its own, even if the kube-apiserver forwards
/// the watch. Without this limit, a few dashboards could use all connections that the
/// kube-apiservers may have. Then the kube-apiservers could not forward other requests.
const WEBSOCKET_SHARE: usize = 4;

/// Largest number of concurrent requests of all other replicas, including watches. A further
/// request gets a 429. Two followers need six requests: each follower needs a watch, a query of the
/// newest version and a page of a list. The other ten requests are a reserve: requests of replicas
/// that have been replaced can still be open.
const MAX_REPLICA_REQUESTS: usize = 16;

/// Largest number of requests whose bearer token is being verified. A further request with a token
/// gets a 429. The users of these requests are not known yet, so the limits of each user do not
/// apply to them. Requests through the front proxy have no token.
pub const MAX_AUTHENTICATING: usize = 200;

/// Largest number of small answers that are being sent at the same time. Small answers are those to
/// refused requests, to requests for public paths (paths without authentication) and to health
/// probes. If the number is reached, further errors and answers to probes have no body. Further
/// requests for public paths get a 429.
///
/// An error has at most 5 KB, or 20 KB if JSON escapes every character. Each other answer takes
/// about 5 KB: its body is short, or it is a document that is in memory only once for all answers.
pub const MAX_SMALL_ANSWERS: usize = 400;

/// Largest number of small answers on the connections of kube-apiservers and other replicas. They
/// have a limit of their own, so that other clients cannot keep a kube-apiserver from reading
/// discovery documents.
const MAX_FRONT_PROXY_ANSWERS: usize = 100;

/// The limits of requests and answers, with the slots that are in use.
pub(super) struct LoadLimits {
    /// Limits the concurrent verifications of bearer tokens.
    pub token_reviews: Semaphore,
    pub requests: Arc<ConcurrencyLimit>,
    pub watches: Arc<ConcurrencyLimit>,
    /// Limits the WebSocket watches. Each of them also counts as a watch.
    pub websockets: Arc<ConcurrencyLimit>,
    pub replicas: Arc<ConcurrencyLimit>,
    /// The first semaphore has [`MAX_SMALL_ANSWERS`] permits. The second has
    /// [`MAX_FRONT_PROXY_ANSWERS`] permits, for the connections of kube-apiservers and other
    /// replicas.
    pub small_answers: [Arc<Semaphore>; 2],
}

impl LoadLimits {
    pub fn new(limits: &Limits) -> Self {
        Self {
            token_reviews: Semaphore::new(MAX_AUTHENTICATING),
            requests: ConcurrencyLimit::new("requests (--max-requests-inflight)", limits.requests),
            watches: ConcurrencyLimit::with_clients(
                "watches (--max-watches, --max-watches-per-user)",
                limits.watches,
                limits.watches_per_user,
            ),
            websockets: ConcurrencyLimit::new(
                "watches over WebSocket (a quarter of --max-connections)",
                limits.connections / WEBSOCKET_SHARE,
            ),
            replicas: ConcurrencyLimit::new("requests of replicas", MAX_REPLICA_REQUESTS),
            small_answers: [MAX_SMALL_ANSWERS, MAX_FRONT_PROXY_ANSWERS]
                .map(|most| Arc::new(Semaphore::new(most))),
        }
    }
}
