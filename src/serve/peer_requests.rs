//! Requests of other replicas. Input: requests that name a term. Output: the state of this replica,
//! and whether it serves mirrors in that term.
//!
//! Mirrors list and watch operations like other clients, with the same paths and the same bytes.
//! The header with the term makes three differences. The request is refused if this replica serves
//! another term. It takes no place of users. Its stream ends with the term.

use super::negotiate::Syntax;
use super::status::ErrorStatus;
use super::{ServerState, respond};
use crate::auth::Attributes;
use crate::replicate::peer::{PEER_PATH, TERM_HEADER};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::HeaderMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Concurrent requests of replicas, with their streams. Each of two other replicas has a stream, a
/// question and a page of a list. The requests of their predecessors may still be open.
pub const MAX_FOLLOWER_STREAMS: usize = 16;

/// The routes of this module.
pub fn routes() -> Router<Arc<ServerState>> {
    Router::new().route(PEER_PATH, get(answer))
}

/// Returns true if a request is that of a replica with the necessary right.
pub fn is_from_replica(headers: &HeaderMap) -> bool {
    headers.contains_key(TERM_HEADER)
}

/// The right that a replica needs.
pub fn attributes() -> Attributes {
    Attributes::NonResource {
        path: PEER_PATH.to_owned(),
        verb: "get".to_owned(),
    }
}

/// The event that ends the answer to a request: the end of the term that it names. None if it names
/// no term.
pub fn term_of(
    shared: &ServerState,
    headers: &HeaderMap,
) -> Result<Option<CancellationToken>, ErrorStatus> {
    let Some(term) = headers.get(TERM_HEADER) else {
        return Ok(None);
    };
    let term = term.to_str().unwrap_or_default();
    let served = shared.server.view.mirrored(term);
    served.map(Some).ok_or_else(ErrorStatus::another_term)
}

async fn answer(State(shared): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    let term = headers.get(TERM_HEADER);
    let term = term.and_then(|term| term.to_str().ok()).unwrap_or_default();
    let server = &shared.server;
    match server.view.answer(term, (server.coverage)()) {
        Some(answer) => {
            let body = serde_json::to_vec(&answer).expect("maps with string keys always encode");
            respond::whole(body, Syntax::Compact)
        }
        None => ErrorStatus::another_term().into_response(),
    }
}
