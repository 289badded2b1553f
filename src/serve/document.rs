//! Bodies that are computed once and never change while the server runs: discovery and
//! `OpenAPI`. What enters is a request's `If-None-Match` and `Accept-Encoding`; what leaves
//! is the body, or 304 for a client that has it already.

use super::gzip;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha512};
use std::fmt::Write as _;

/// A body with its media type and entity tag.
#[derive(Clone, Debug)]
pub(super) struct Document {
    body: Bytes,
    /// The body compressed, where that is offered.
    compressed: Option<Bytes>,
    content_type: HeaderValue,
    hash: String,
}

impl Document {
    /// Encodes `value` as one line of compact JSON, as Kubernetes' servers do.
    pub(super) fn json(value: &serde_json::Value, content_type: &'static str) -> Self {
        let body = format!("{value}\n");
        let mut hash = String::with_capacity(128);
        for byte in Sha512::digest(&body) {
            write!(hash, "{byte:02X}").expect("writing to a String cannot fail");
        }
        Self {
            body: body.into(),
            compressed: None,
            content_type: HeaderValue::from_static(content_type),
            hash,
        }
    }

    /// The same, compressed for whoever takes that, whatever its size.
    pub(super) fn with_gzip(mut self) -> Self {
        self.compressed = Some(gzip::whole(&self.body));
        self
    }

    /// The SHA-512 of the body in upper-case hexadecimal; in quotes it is the entity tag.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// The body, or 304 if the request names its entity tag. Both carry the tag.
    pub(super) fn answer(&self, request: &HeaderMap) -> Response {
        let mut response = if self.is_known(request) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let compressed = self.compressed.as_ref().filter(|_| gzip::accepted(request));
            let mut response = compressed.unwrap_or(&self.body).clone().into_response();
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, self.content_type.clone());
            if compressed.is_some() {
                gzip::mark(headers);
            }
            response
        };
        let etag = HeaderValue::try_from(format!("\"{}\"", self.hash))
            .expect("quoted hexadecimal is a header value");
        response.headers_mut().insert(ETAG, etag);
        response
    }

    /// Whether `If-None-Match` names this body (RFC 9110, 13.1.2: weak comparison).
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

/// One clause of an `Accept` header, such as `application/json;v=v2`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clause<'a>(&'a str);

impl<'a> Clause<'a> {
    /// The media type without parameters.
    pub(super) fn media_type(self) -> &'a str {
        self.0.split(';').next().unwrap_or_default().trim()
    }

    /// The value of a parameter.
    pub(super) fn parameter(self, name: &str) -> Option<&'a str> {
        self.0.split(';').skip(1).find_map(|parameter| {
            let (key, value) = parameter.split_once('=')?;
            (key.trim() == name).then(|| value.trim().trim_matches('"'))
        })
    }

    /// Whether JSON is in the clause's range.
    pub(super) fn takes_json(self) -> bool {
        matches!(
            self.media_type(),
            "application/json" | "application/*" | "*/*"
        )
    }
}

/// What `choose` makes of the first clause that it takes; a request that accepts
/// nothing in particular accepts everything. As upstream, the order decides, not `q`.
pub(super) fn accepted<T>(
    request: &HeaderMap,
    mut choose: impl FnMut(Clause<'_>) -> Option<T>,
) -> Option<T> {
    let mut named = false;
    for value in request.get_all(ACCEPT) {
        // A header that is not text names no media type that we have.
        let Ok(value) = value.to_str() else {
            named = true;
            continue;
        };
        for clause in value.split(',').filter(|clause| !clause.trim().is_empty()) {
            named = true;
            if let Some(choice) = choose(Clause(clause)) {
                return Some(choice);
            }
        }
    }
    if named { None } else { choose(Clause("*/*")) }
}
