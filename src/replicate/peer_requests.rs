//! Answers requests that other replicas (processes of this server) send to the leader. A follower
//! is a replica that copies the leader's operations. The follower lists and watches operations at
//! the leader, and regularly sends a state query to the path `/peer`. A state query asks for values
//! such as the leader's newest resourceVersion.
//!
//! For lists and watches, a follower uses the same paths as other clients. But the follower's
//! requests have the header `ifo-term`, which names a leadership term: the time for which one
//! replica is the leader. The header has three effects:
//!
//! - If this replica does not serve the changes of the term, it answers the request with a 421. The
//!   leader serves the changes of its own term. After a leader has released the Lease, it still
//!   serves the changes of its last term, so that the new leader can copy them.
//! - The request does not count in the limits of users. Requests of replicas have their own limit.
//! - A watch with this header ends when this replica stops leading. If this replica has released
//!   the Lease, followers may then open new watches to read its last changes.

use super::ReplicaStatus;
use super::link::{PEER_PATH, TERM_HEADER};
use aggregated_apiserver::auth::Attributes;
use aggregated_apiserver::serve::ErrorStatus;
use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio_util::sync::CancellationToken;

/// Creates the route of the state query.
pub fn routes(replica_status: ReplicaStatus) -> Router {
    let answer = async move |headers: HeaderMap| answer_state_query(&replica_status, &headers);
    Router::new().route(PEER_PATH, get(answer))
}

/// Returns the right to `get` the path `/peer` if the request names a leadership term, and None for
/// any other request. The requests of followers name a term. But any client can send the header
/// `ifo-term`. So a request counts as the request of another replica only if the user has this
/// right. The `ServiceAccount` of the server has this right.
pub fn required_access(headers: &HeaderMap) -> Option<Attributes> {
    headers
        .contains_key(TERM_HEADER)
        .then(|| Attributes::NonResource {
            path: PEER_PATH.to_owned(),
            verb: "get",
        })
}

/// Returns a token for the leadership term that the request names. When the token is cancelled, a
/// watch of this request must end. Returns None if the request names no term. Returns a 421 if this
/// replica does not serve the changes of the term.
pub fn leadership_end(
    replica_status: &ReplicaStatus,
    headers: &HeaderMap,
) -> Result<Option<CancellationToken>, ErrorStatus> {
    if !headers.contains_key(TERM_HEADER) {
        return Ok(None);
    }
    let end = replica_status.end_of_streams(term(headers));
    end.map(Some).ok_or_else(not_leader_of_term)
}

/// Answers a state query.
fn answer_state_query(replica_status: &ReplicaStatus, headers: &HeaderMap) -> Response {
    match replica_status.answer(term(headers)) {
        Some(answer) => {
            let body = serde_json::to_vec(&answer).expect("all map keys in the answer are strings");
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        None => not_leader_of_term().into_response(),
    }
}

/// Returns the leadership term that the request names.
fn term(headers: &HeaderMap) -> &str {
    let term = headers.get(TERM_HEADER);
    term.and_then(|term| term.to_str().ok()).unwrap_or_default()
}

fn not_leader_of_term() -> ErrorStatus {
    ErrorStatus::misdirected("this replica does not lead in the term that the request names")
}
