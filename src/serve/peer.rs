//! What other replicas ask. Enters: requests that name a term. Leaves: the state of this
//! replica, and whether it serves mirrors in that term.
//!
//! Mirrors list and watch operations like any client, by the same paths and with the same
//! bytes. The header with the term makes three differences: the request is refused if this
//! replica serves another term, it takes none of the places for users, and its stream ends
//! with the term.

use super::negotiate::Syntax;
use super::status::ErrorStatus;
use super::{ServerState, respond};
use crate::auth::Attributes;
use crate::replicate::peer::{PATH, TERM_HEADER};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::HeaderMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Requests of replicas at once, streams included: each of two others has a stream, a
/// question and a page of a list, and their predecessors may still be there.
pub const PLACES: usize = 16;

/// The routes of this file.
pub fn routes() -> Router<Arc<ServerState>> {
    Router::new().route(PATH, get(answer))
}

/// Whether a request is that of a replica, if it may say so.
pub fn is_from_replica(headers: &HeaderMap) -> bool {
    headers.contains_key(TERM_HEADER)
}

/// What a replica must be allowed to do.
pub fn attributes() -> Attributes {
    Attributes::NonResource {
        path: PATH.to_owned(),
        verb: "get".to_owned(),
    }
}

/// What ends the answer to a request: None for one that names no term, and else the end of
/// that term.
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
