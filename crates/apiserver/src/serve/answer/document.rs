//! Serves documents that do not change while the server runs: discovery and `OpenAPI`.
//!
//! - Input: the header `If-None-Match` of a request.
//! - Output: the document, or a 304 if the client already has the document.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha512};

/// A document, its media type and its entity tag.
#[derive(Clone, Debug)]
pub struct Document {
    body: Bytes,
    content_type: &'static str,
    /// The SHA-512 of the body.
    hash: String,
}

impl Document {
    /// Creates a document from `value`. The body is one line of compact JSON, as in the
    /// kube-apiserver.
    pub fn json(value: &serde_json::Value, content_type: &'static str) -> Self {
        let body = format!("{value}\n");
        Self {
            hash: format!("{:X}", Sha512::digest(&body)),
            body: body.into(),
            content_type,
        }
    }

    /// Returns the SHA-512 of the body in upper-case hexadecimal digits. The entity tag is this
    /// text in quotes.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the document, or a 304 if the client already has the document. The answer has the
    /// header `ETag` in both cases.
    pub fn answer(&self, request: &HeaderMap) -> Response {
        let mut known = request.get_all(IF_NONE_MATCH).iter();
        let is_known = known.any(|tags| tags.to_str().is_ok_and(|tags| tags.contains(&self.hash)));
        let etag = [(ETAG, format!("\"{}\"", self.hash))];
        if is_known {
            return (StatusCode::NOT_MODIFIED, etag).into_response();
        }
        let content_type = [(CONTENT_TYPE, self.content_type)];
        (etag, content_type, self.body.clone()).into_response()
    }
}
