//! Creates responses from encoded bodies. Also cuts off long texts from clients.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

/// Returns a response with a JSON body.
pub fn json(body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// Returns a response with plain text.
pub fn plain(code: StatusCode, text: impl Into<Body>) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (code, headers, text.into()).into_response()
}

/// Returns `text`. If it is longer than `max_bytes` bytes, cuts it off and appends an ellipsis.
pub fn clip(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
    text
}
