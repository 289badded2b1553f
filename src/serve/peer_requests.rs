//! Answers requests that other replicas (processes of this server) send to the leader. A follower
//! is a replica that copies the leader's operations. The follower lists and watches operations at
//! the leader. It also regularly sends a state query to the path `/peer`. A state query asks for
//! values such as the leader's newest resourceVersion.
//!
//! For lists and watches, a follower uses the same paths as other clients. But the follower's
//! requests have the header `ifo-term`, which names a leadership term: the time for which one
//! replica is the leader. The header has three effects:
//!
//! - If this replica does not serve the changes of the term, it answers the request with a 421. The
//!   leader serves the changes of its own term. A replica that has led and has released the Lease
//!   still serves the changes of its last term, so that the new leader can copy them.
//! - The request does not count in the limits of users. Requests of replicas have their own limit.
//! - A watch with this header ends when this replica stops leading. If this replica has released
//!   the Lease, followers may then open new watches to read its last changes.

use super::content_negotiation::Syntax;
use super::error_status::ErrorStatus;
use super::{ServerState, create_responses};
use crate::auth::Attributes;
use crate::replicate::link::{PEER_PATH, TERM_HEADER};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::HeaderMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Largest number of concurrent requests of all other replicas, including watches. A further
/// request gets a 429. Two followers need six requests: each follower needs a watch, a state query
/// and a page of a list. The other ten requests are a reserve: requests of replicas that have been
/// replaced can still be open.
pub const MAX_REPLICA_REQUESTS: usize = 16;

/// Creates the route of the state query.
pub fn routes() -> Router<Arc<ServerState>> {
    Router::new().route(PEER_PATH, get(answer_state_query))
}

/// Returns true if the request names a leadership term. The requests of followers name a term. But
/// any client can send the header `ifo-term`. So the server must check that the user has the
/// [`required_access`], before it treats the request as the request of a follower.
pub fn names_term(headers: &HeaderMap) -> bool {
    headers.contains_key(TERM_HEADER)
}

/// Returns the right to `get` the path `/peer`. Only a request of a user with this right counts as
/// the request of another replica. The ServiceAccount of the server has this right.
pub fn required_access() -> Attributes {
    Attributes::NonResource {
        path: PEER_PATH.to_owned(),
        verb: "get".to_owned(),
    }
}

/// Returns a token for the leadership term that the request names. When the token is cancelled, a
/// watch of this request must end. Returns None if the request names no term. Returns a 421 if this
/// replica does not serve the changes of the term.
pub fn leadership_end(
    shared: &ServerState,
    headers: &HeaderMap,
) -> Result<Option<CancellationToken>, ErrorStatus> {
    let Some(term) = headers.get(TERM_HEADER) else {
        return Ok(None);
    };
    let term = term.to_str().unwrap_or_default();
    let end = shared.server.replica_status.end_of_streams(term);
    end.map(Some).ok_or_else(ErrorStatus::not_leader_of_term)
}

/// Answers a state query.
async fn answer_state_query(
    State(shared): State<Arc<ServerState>>,
    headers: HeaderMap,
) -> Response {
    let term = headers.get(TERM_HEADER);
    let term = term.and_then(|term| term.to_str().ok()).unwrap_or_default();
    let server = &shared.server;
    match server.replica_status.answer(term) {
        Some(answer) => {
            let body = serde_json::to_vec(&answer).expect("all map keys in the answer are strings");
            create_responses::whole(body, Syntax::Compact)
        }
        None => ErrorStatus::not_leader_of_term().into_response(),
    }
}
