//! List: the state at one version, whole or in pages. Bodies are written in chunks as
//! the client reads them, from entries shared with the index, so a slow client holds
//! references and no copy.

#[cfg(any(fuzzing, test))]
mod fuzzing;

use super::encode::{Encoder, ListMeta};
use super::negotiate::{Form, Shape, Syntax, negotiate};
use super::quoted::Quoted;
use super::request::{Query, Request};
use super::resource::Resource;
use super::respond;
use super::select::Selector;
use super::status::Failure;
use crate::index::{At, Entry, Rv};
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(fuzzing, test))]
pub use self::fuzzing::{check as check_token, options as check_options};

/// How long a request for a version that is yet to come waits (upstream's
/// `blockTimeout` of the watch cache).
pub const FRESH_WAIT: Duration = Duration::from_secs(3);

/// Bytes of a chunk: a few HTTP/2 frames, and no more than one TLS connection buffers.
pub const CHUNK: usize = 64 << 10;

/// A continue token, as upstream writes it, so that tools which look into one can.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    v: String,
    /// Version of the first page, or -1 to go on at the newest.
    rv: i64,
    /// `/namespace/name` and a zero byte: the first key that may come.
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl Token {
    fn after(rv: i64, entry: &Entry) -> Self {
        Self::at(
            rv,
            format!("/{}/{}\0", entry.key().namespace, entry.key().name),
        )
    }

    fn at(rv: i64, start: String) -> Self {
        Self {
            v: TOKEN_VERSION.to_owned(),
            rv,
            start,
        }
    }

    fn encode(&self) -> String {
        let json = serde_json::to_vec(self).expect("a token has only string keys");
        URL_SAFE_NO_PAD.encode(json)
    }

    fn decode(text: &str) -> Result<Self, Failure> {
        let bad = |why: String| {
            Failure::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| bad(error.to_string()))?;
        let token: Self = serde_json::from_slice(&json).map_err(|error| bad(error.to_string()))?;
        if token.v != TOKEN_VERSION {
            return Err(bad(format!(
                "server does not recognize this encoded version {}",
                Quoted(&token.v)
            )));
        }
        if token.rv == 0 || !token.start.starts_with('/') {
            return Err(bad("incorrect encoded start resourceVersion".to_owned()));
        }
        Ok(token)
    }

    /// Whether the entry belongs to an earlier page.
    fn is_past(&self, entry: &Entry) -> bool {
        let key = entry.key();
        let bytes = [b"/", key.namespace.as_bytes(), b"/", key.name.as_bytes()];
        bytes.into_iter().flatten().lt(self.start.as_bytes().iter())
    }
}

/// What state is asked for, from which key on, and how much of it.
struct Page {
    at: At,
    /// At least this version must have been reached.
    fresh: Option<u64>,
    token: Option<Token>,
    limit: Option<usize>,
}

impl Page {
    fn of(query: &Query) -> Result<Self, Failure> {
        const MATCH: &str = "resourceVersionMatch";
        if query.given("sendInitialEvents").is_some() {
            return Err(Failure::option_forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        let limit = query
            .number("limit")?
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| *limit > 0);
        let matching = query.text(MATCH);
        let resume = query.text("continue");
        if !matching.is_empty() {
            if !resume.is_empty() {
                return Err(Failure::option_forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden with continue",
                ));
            }
            if query.text("resourceVersion").is_empty() {
                return Err(Failure::option_forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
        }
        let rv = query.resource_version()?;
        if !resume.is_empty() {
            if rv.unwrap_or_default() != 0 {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = Token::decode(resume)?;
            return Ok(Self {
                at: u64::try_from(token.rv).map_or(At::Latest, |rv| At::Exact(Rv(rv))),
                fresh: None,
                token: Some(token),
                limit,
            });
        }
        let (at, limit) = match (matching, rv) {
            ("Exact", Some(0)) => {
                return Err(Failure::option_forbidden(
                    MATCH,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
            ("" | "NotOlderThan", Some(0)) => (At::Latest, None),
            ("Exact", Some(rv)) => (At::Exact(Rv(rv)), limit),
            ("", Some(rv)) if limit.is_some() => (At::Exact(Rv(rv)), limit),
            ("" | "NotOlderThan", _) => (At::Latest, limit),
            (other, _) => {
                return Err(Failure::option_unsupported(
                    MATCH,
                    other,
                    "\"Exact\", \"NotOlderThan\", \"\"",
                ));
            }
        };
        Ok(Self {
            at,
            fresh: rv,
            token: None,
            limit,
        })
    }
}

/// Answers a list.
pub async fn list(
    resource: &Arc<Resource>,
    request: &Request,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let wanted = negotiate(headers, query, Shape::List, resource.list_kind)?;
    let page = Page::of(query)?;
    let selector = Selector::of(query, resource)?;
    let reader = &resource.reader;
    if let Some(rv) = page.fresh
        && !reader.reached(Rv(rv), FRESH_WAIT).await
    {
        return Err(Failure::too_large(rv, reader.head().0));
    }
    let scope = selector.scope(&request.namespace, resource.namespaced);
    let (rv, mut entries) = reader
        .list(&scope, page.at)
        .map_err(|_| match &page.token {
            Some(token) => Failure::continue_too_old(Token::at(-1, token.start.clone()).encode()),
            None => Failure::list_too_old(),
        })?;
    if let Some(token) = &page.token {
        let past = entries.partition_point(|entry| token.is_past(entry));
        entries.drain(..past);
    }
    if !selector.is_everything() {
        entries.retain(|entry| selector.matches(entry));
    }
    let mut meta = ListMeta {
        rv,
        resume: String::new(),
        remaining: None,
    };
    if let Some(limit) = page.limit
        && entries.len() > limit
    {
        meta.remaining = selector.is_everything().then_some(entries.len() - limit);
        entries.truncate(limit);
        let last = entries.last().expect("a limit is at least one");
        let version = i64::try_from(rv.0).unwrap_or(i64::MAX);
        meta.resume = Token::after(version, last).encode();
    }
    let chunks = Chunks::new(Arc::clone(resource), wanted.form, meta, entries);
    if wanted.syntax == Syntax::Compact {
        let stream = futures::stream::iter(chunks.map(Ok::<_, Infallible>));
        return Ok(respond::data(Body::from_stream(stream), wanted.syntax));
    }
    Ok(respond::whole(chunks.flatten().collect(), wanted.syntax))
}

/// A list's body, chunk by chunk.
struct Chunks {
    resource: Arc<Resource>,
    form: Form,
    now: Timestamp,
    meta: ListMeta,
    entries: std::vec::IntoIter<Arc<Entry>>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// The first item has no comma before it.
    First,
    Rest,
    Done,
}

impl Chunks {
    fn new(resource: Arc<Resource>, form: Form, meta: ListMeta, entries: Vec<Arc<Entry>>) -> Self {
        Self {
            resource,
            form,
            now: Timestamp::now(),
            meta,
            entries: entries.into_iter(),
            state: State::Head,
        }
    }
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.state == State::Done {
            return None;
        }
        let encoder = Encoder {
            resource: &self.resource,
            form: self.form,
            now: self.now,
        };
        // The last item reaches beyond the chunk; it rarely has to grow for that.
        let mut out = Vec::with_capacity(CHUNK + CHUNK / 8);
        if self.state == State::Head {
            encoder.list_head(&self.meta, &mut out);
            self.state = State::First;
        }
        while out.len() < CHUNK {
            let Some(entry) = self.entries.next() else {
                encoder.list_tail(&self.meta, &mut out);
                self.state = State::Done;
                break;
            };
            if self.state == State::Rest {
                out.push(b',');
            }
            self.state = State::Rest;
            encoder.item(&entry, &mut out);
        }
        Some(Bytes::from(out))
    }
}
