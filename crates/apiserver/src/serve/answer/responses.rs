//! Creates responses from encoded bodies, and shortens texts of clients.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

/// Returns a response with a JSON body.
pub fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Returns a response with plain text, followed by a line feed.
pub fn plain(code: StatusCode, text: impl Into<String>) -> Response {
    let mut text = text.into();
    text.push('\n');
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Returns `text`, shortened to at most `max_bytes` bytes and an ellipsis.
pub fn clip(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
    text
}
