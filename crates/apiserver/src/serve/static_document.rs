//! Serves documents that do not change while the server runs: discovery and `OpenAPI`.
//!
//! - Input: the headers `If-None-Match` and `Accept-Encoding` of a request.
//! - Output: the document, or a 304 if the client already has the document.

use super::content_negotiation::Syntax;
use super::{create_responses, gzip};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha512};
use std::fmt::Write as _;

/// A document, its media type and its entity tag.
#[derive(Clone, Debug)]
pub(super) struct Document {
    body: Bytes,
    /// The body compressed with gzip. None if the document is never compressed.
    compressed: Option<Bytes>,
    content_type: &'static str,
    /// The SHA-512 of the body.
    hash: String,
}

impl Document {
    /// Creates a document from `value`. The body is one line of compact JSON, as in the
    /// kube-apiserver.
    pub(super) fn json(value: &serde_json::Value, content_type: &'static str) -> Self {
        let body = format!("{value}\n");
        let mut hash = String::with_capacity(128);
        for byte in Sha512::digest(&body) {
            write!(hash, "{byte:02X}").expect("writing to a String cannot fail");
        }
        Self {
            body: body.into(),
            compressed: None,
            content_type,
            hash,
        }
    }

    /// Compresses the document with gzip, regardless of its size. Clients that accept gzip and
    /// request compact JSON get the compressed document.
    pub(super) fn with_gzip(mut self) -> Self {
        self.compressed = Some(gzip::compress_bytes(&self.body));
        self
    }

    /// Returns the SHA-512 of the body in upper-case hexadecimal digits. The entity tag is this
    /// text in quotes.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the document in JSON, or a 304 if the client already has the document. The answer
    /// has the header `ETag` in both cases.
    pub(super) fn answer(&self, request: &HeaderMap) -> Response {
        self.tagged(request, || {
            let compressed = self
                .compressed
                .as_ref()
                .filter(|_| gzip::accepts_gzip(request));
            let mut response = compressed.unwrap_or(&self.body).clone().into_response();
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
            if compressed.is_some() {
                gzip::set_headers(headers);
            }
            response
        })
    }

    /// Returns the document in this syntax, or a 304 if the client already has the document. As in
    /// the kube-apiserver, the entity tag does not depend on the syntax.
    pub(super) fn answer_as(&self, syntax: Syntax, request: &HeaderMap) -> Response {
        if syntax == Syntax::Compact {
            return self.answer(request);
        }
        self.tagged(request, || {
            let mut response = create_responses::whole(self.body.to_vec(), syntax);
            let content_type = match syntax {
                Syntax::Yaml => self.content_type.replace("/json", "/yaml"),
                Syntax::Compact | Syntax::Indented => self.content_type.to_owned(),
            };
            let content_type = HeaderValue::try_from(content_type)
                .expect("a media type has only visible ASCII characters");
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        })
    }

    /// Returns `answer`, or a 304 if the client already has the document. Adds the header `ETag` in
    /// both cases.
    fn tagged(&self, request: &HeaderMap, answer: impl FnOnce() -> Response) -> Response {
        let mut response = if self.is_known(request) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            answer()
        };
        let etag = HeaderValue::try_from(format!("\"{}\"", self.hash))
            .expect("hexadecimal digits in quotes are visible ASCII characters");
        response.headers_mut().insert(ETAG, etag);
        response
    }

    /// Returns true if `If-None-Match` contains the entity tag of this document, or `*`. The
    /// comparison is weak (RFC 9110, section 13.1.2).
    fn is_known(&self, request: &HeaderMap) -> bool {
        request
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .any(|tag| {
                let tag = tag.strip_prefix("W/").unwrap_or(tag);
                tag == "*"
                    || tag
                        .strip_prefix('"')
                        .and_then(|tag| tag.strip_suffix('"'))
                        .is_some_and(|tag| tag == self.hash)
            })
    }
}
