//! Answers list requests: all objects at one resourceVersion, as a whole or in pages.
//!
//! The body is encoded in chunks while the client reads it. The answer refers to the objects in the
//! index (the server's store of objects in memory), and does not copy the objects. So an answer
//! that a client reads slowly takes little memory. Comparing many objects with a selector takes
//! time, so a list pauses regularly to let other requests run.

#[cfg(any(test, feature = "testing"))]
mod fuzzing;

use super::compare_pace::ComparePace;
use super::content_negotiation::{AnswerContent, ChosenClause, ObjectForm, Syntax};
use super::create_responses::{self, Indenter};
use super::encode_objects::{Encoder, ListMeta, VersionedEntry};
use super::error_status::ErrorStatus;
use super::hooks::{Hooks, ListVersion};
use super::list_options::Options;
use super::request::{Query, ResourceRequest};
use super::resource::Resource;
use super::selectors::Selector;
use crate::store::{Entry, ReadVersion, Rv, Scope};
use crate::{Model, clock};
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

mod yaml;

#[cfg(any(test, feature = "testing"))]
pub use self::fuzzing::{check as check_token, options as check_options};

/// Maximum time that a request waits until the index reaches the requested resourceVersion. After
/// this time, the request gets an error. The kube-apiserver's watch cache has the same limit
/// (`blockTimeout`).
pub const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Size in bytes after which a chunk of the body ends. This is the size of four HTTP/2 frames, and
/// also the size of the buffer of a TLS connection.
const CHUNK: usize = 64 << 10;

/// A continue token: the place in a list at which the next page starts. Clients get the token as
/// JSON that is encoded in base64. The kube-apiserver's tokens have the same format, so that other
/// tools can decode this server's tokens.
#[derive(Debug, Serialize, Deserialize)]
struct ContinueToken {
    #[serde(default)]
    v: String,
    /// The resourceVersion of the first page. If it is negative, the list continues at the newest
    /// version.
    #[serde(default)]
    rv: i64,
    /// The last key of the previous page (see [`key_in_token`]), followed by a zero byte. This text
    /// is the smallest possible key of the next page.
    #[serde(default)]
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// Returns the key of an entry in the format of a continue token: `/namespace/name`. In a list of
/// one namespace (`of_namespace`), and for a cluster-scoped object, the key is `/name`. The key is
/// the concatenation of the four returned slices.
fn key_in_token<M: Model>(entry: &Entry<M>, of_namespace: bool) -> [&[u8]; 4] {
    let key = entry.key();
    let name = key.name.as_bytes();
    if of_namespace || key.namespace.is_empty() {
        [b"/", name, b"", b""]
    } else {
        [b"/", key.namespace.as_bytes(), b"/", name]
    }
}

impl ContinueToken {
    /// Returns the token of the page after `entry`, which is the last entry of a page.
    fn after<M: Model>(rv: i64, entry: &Entry<M>, of_namespace: bool) -> Self {
        let key = key_in_token(entry, of_namespace).concat();
        Self::from_key(rv, format!("{}\0", String::from_utf8_lossy(&key)))
    }

    fn from_key(rv: i64, start: String) -> Self {
        Self {
            v: TOKEN_VERSION.to_owned(),
            rv,
            start,
        }
    }

    fn encode(&self) -> String {
        let json = serde_json::to_vec(self).expect("a token can always be encoded");
        URL_SAFE_NO_PAD.encode(json)
    }

    fn decode(text: &str) -> Result<Self, ErrorStatus> {
        let bad = |why: String| {
            ErrorStatus::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| bad(go_base64_error(&error)))?;
        let mut token: Self =
            serde_json::from_slice(&json).map_err(|error| bad(error.to_string()))?;
        if token.v != TOKEN_VERSION {
            return Err(bad(format!(
                "server does not recognize this encoded version {}",
                token.v
            )));
        }
        if token.rv == 0 {
            return Err(bad(format!(
                "incorrect encoded start resourceVersion (version {TOKEN_VERSION})"
            )));
        }
        if token.start.is_empty() {
            return Err(bad(format!(
                "encoded start key empty (version {TOKEN_VERSION})"
            )));
        }
        if !token.start.starts_with('/') {
            token.start.insert(0, '/');
        }
        let mut parts = token.start[1..].split('/');
        if parts.any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad(token.start));
        }
        Ok(token)
    }

    /// Returns true if the entry belongs to a page before the page that this token requests.
    fn is_on_earlier_page<M: Model>(&self, entry: &Entry<M>, of_namespace: bool) -> bool {
        let bytes = key_in_token(entry, of_namespace);
        bytes.into_iter().flatten().lt(self.start.as_bytes().iter())
    }
}

fn go_base64_error(error: &base64::DecodeError) -> String {
    use base64::DecodeError::{InvalidByte, InvalidLastSymbol, InvalidLength, InvalidPadding};
    match error {
        InvalidByte(at, _) | InvalidLength(at) => {
            format!("illegal base64 data at input byte {at}")
        }
        // Go ignores the unused bits of the last symbol, so Go has no text for `InvalidLastSymbol`.
        InvalidLastSymbol(..) | InvalidPadding => "illegal base64 data".to_owned(),
    }
}

/// The parsed options that select the version and the page of a list.
struct ListRange {
    version: ReadVersion,
    /// The version that the index must have reached before the list is answered. None if any
    /// version is sufficient.
    min_version: Option<u64>,
    token: Option<ContinueToken>,
    limit: Option<usize>,
}

impl ListRange {
    /// Parses the options. `single` is true if the list can have at most one object.
    fn of<M: Model>(
        query: &Query,
        options: &Options<'_, M>,
        single: bool,
    ) -> Result<Self, ErrorStatus> {
        // As in the kube-apiserver, the option `limit` is ignored for the resourceVersion "0", but
        // not for other spellings of zero, such as "00". `limit` is also ignored if the list can
        // have at most one object.
        let is_zero = options.version == "0";
        let limit = options.limit.filter(|_| !is_zero && !single);
        if !options.continue_token.is_empty() {
            let token = ContinueToken::decode(options.continue_token)?;
            if !is_zero && !options.version.is_empty() {
                return Err(ErrorStatus::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let rv = u64::try_from(token.rv).ok();
            return Ok(Self {
                version: rv.map_or(ReadVersion::Latest, |rv| ReadVersion::Exact(Rv(rv))),
                // The token may come from a replica whose index is ahead of this index. Then the
                // list must wait until this index has the version.
                min_version: rv,
                token: Some(token),
                limit,
            });
        }
        let rv = query.resource_version()?;
        let version = match (options.version_match, rv) {
            ("Exact", Some(rv)) if rv > 0 => ReadVersion::Exact(Rv(rv)),
            ("", Some(rv)) if rv > 0 && limit.is_some() => ReadVersion::Exact(Rv(rv)),
            _ => ReadVersion::Latest,
        };
        Ok(Self {
            version,
            min_version: rv,
            token: None,
            limit,
        })
    }
}

/// Answers a list request. `peer` has the hooks of the server if another replica sent the request.
pub async fn list<M: Model>(
    resource: &Arc<Resource<M>>,
    request: &ResourceRequest,
    query: &Query,
    headers: &HeaderMap,
    peer: Option<&dyn Hooks>,
) -> Result<Response, ErrorStatus> {
    let chosen = ChosenClause::of(headers, query)?;
    let options = Options::of_list(query, resource)?;
    let mut scope = options.selector.scope(&request.namespace, resource);
    if let Some(hooks) = peer {
        scope = hooks.scope_of_peer(&resource.info, scope);
    }
    // A list can have at most one object if it selects one name in one namespace, or one name of a
    // cluster-scoped resource. As in the kube-apiserver, only a namespace in the path counts. A
    // namespace in the field selector does not count.
    let has_one_namespace = !request.namespace.is_empty() || !resource.info.namespaced;
    let single = has_one_namespace && matches!(scope, Scope::Object(_));
    let range = ListRange::of(query, &options, single)?;
    let selector = options.selector;
    let of_namespace = !request.namespace.is_empty();
    let reader = &resource.reader;
    if let Some(rv) = range.min_version
        && !reader.wait_until_reached(Rv(rv), FRESHNESS_TIMEOUT).await
    {
        return Err(ErrorStatus::version_not_reached(rv, reader.head().0));
    }
    let (rv, mut entries) = reader
        .list(&scope, range.version)
        .map_err(|_| match &range.token {
            Some(token) => ErrorStatus::continue_token_too_old(
                ContinueToken::from_key(-1, token.start.clone()).encode(),
            ),
            None => ErrorStatus::list_too_old(),
        })?;
    let wanted = chosen.form(AnswerContent::List, resource.info.list_kind)?;
    if let Some(token) = &range.token {
        let start = entries.partition_point(|entry| token.is_on_earlier_page(entry, of_namespace));
        entries.drain(..start);
    }
    if !selector.is_everything() {
        entries = select(entries, &selector, range.limit).await;
    }
    let mut meta = ListMeta {
        rv,
        continue_token: String::new(),
        remaining: None,
    };
    if let Some(limit) = range.limit
        && entries.len() > limit
    {
        meta.remaining = selector.is_everything().then_some(entries.len() - limit);
        entries.truncate(limit);
        let last = entries
            .last()
            .expect("a limit is positive, so the page is not empty");
        let version = i64::try_from(rv.0).unwrap_or(i64::MAX);
        meta.continue_token = ContinueToken::after(version, last, of_namespace).encode();
    }
    let chunks = Chunks {
        resource: Arc::clone(resource),
        form: wanted.form,
        syntax: wanted.syntax,
        now: clock::now(),
        meta,
        entries: entries.into_iter(),
        state: ListState::Head,
        indenter: Indenter::default(),
        tail: Vec::new(),
    };
    let stream = futures::stream::iter(chunks.map(Ok::<_, Infallible>));
    let mut response = create_responses::encoded_response(Body::from_stream(stream), wanted.syntax);
    response.extensions_mut().insert(ListVersion(rv));
    Ok(response)
}

/// Returns the entries that match the selector. If there is a limit, the function stops at one
/// entry more than the limit. The additional entry shows that another page follows.
async fn select<M: Model>(
    entries: Vec<Arc<Entry<M>>>,
    selector: &Selector<M>,
    limit: Option<usize>,
) -> Vec<Arc<Entry<M>>> {
    let enough = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
    let mut selected = Vec::new();
    let mut pace = ComparePace::default();
    for entry in entries {
        pace.count_compared(1).await;
        if selector.matches(&entry) {
            selected.push(entry);
            if selected.len() == enough {
                break;
            }
        }
    }
    selected
}

/// The body of a list, which is encoded chunk by chunk. So the body of a large list is never in
/// memory as a whole.
struct Chunks<M: Model> {
    resource: Arc<Resource<M>>,
    form: ObjectForm,
    syntax: Syntax,
    now: Timestamp,
    meta: ListMeta,
    entries: std::vec::IntoIter<Arc<Entry<M>>>,
    state: ListState,
    indenter: Indenter,
    /// The text after the items. It is used only for YAML.
    tail: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListState {
    /// Nothing is written yet.
    Head,
    /// Only in JSON: the text before the items is written, but no item. No comma precedes the next
    /// item.
    First,
    /// In JSON: an item is written, and a comma precedes the next item. In YAML: the text before
    /// the items is written. YAML has no commas between items.
    Rest,
    /// The whole list is written.
    Done,
}

impl<M: Model> Chunks<M> {
    /// Writes the next chunk in compact JSON.
    fn compact(&mut self, out: &mut Vec<u8>) {
        let encoder = Encoder {
            resource: &self.resource,
            form: self.form,
            now: self.now,
        };
        if self.state == ListState::Head {
            encoder.list_head(&self.meta, out);
            self.state = ListState::First;
        }
        while out.len() < CHUNK {
            let Some(entry) = self.entries.next() else {
                encoder.list_tail(&self.meta, out);
                self.state = ListState::Done;
                break;
            };
            if self.state == ListState::Rest {
                out.push(b',');
            }
            self.state = ListState::Rest;
            encoder.item(VersionedEntry::at_own_version(&entry), out);
        }
    }

    /// Writes the next chunk in YAML.
    fn yaml(&mut self, out: &mut Vec<u8>) {
        let encoder = Encoder {
            resource: &self.resource,
            form: self.form,
            now: self.now,
        };
        if self.state == ListState::Head {
            let mut frame = Vec::new();
            encoder.list_head(&self.meta, &mut frame);
            encoder.list_tail(&self.meta, &mut frame);
            let frame = yaml::Frame::of(&frame, self.entries.len() > 0);
            out.extend_from_slice(&frame.head);
            self.tail = frame.tail;
            self.state = ListState::Rest;
        }
        let mut json = Vec::new();
        while out.len() < CHUNK {
            let Some(entry) = self.entries.next() else {
                out.append(&mut self.tail);
                self.state = ListState::Done;
                break;
            };
            json.clear();
            encoder.item(VersionedEntry::at_own_version(&entry), &mut json);
            yaml::item(&json, out);
        }
    }
}

impl<M: Model> Iterator for Chunks<M> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.state == ListState::Done {
            return None;
        }
        // With its last item, a chunk usually exceeds `CHUNK`. The additional capacity is large
        // enough for most items.
        let mut out = Vec::with_capacity(CHUNK + CHUNK / 8);
        match self.syntax {
            Syntax::Compact => self.compact(&mut out),
            Syntax::Indented => {
                let mut json = std::mem::replace(&mut out, Vec::with_capacity(2 * CHUNK));
                self.compact(&mut json);
                // As in the kube-apiserver, indented JSON does not end with a line feed.
                self.indenter.write(json.trim_ascii_end(), &mut out);
            }
            Syntax::Yaml => self.yaml(&mut out),
        }
        Some(Bytes::from(out))
    }
}
