//! Answers list requests: all objects at one resourceVersion, as a whole or in pages.
//!
//! The body is encoded in chunks while the client reads it. The answer refers to the objects in the
//! store, and does not copy the objects. So an answer that a client reads slowly takes little
//! memory.
//!
//! Comparing many objects with a selector takes time. So the loops over objects regularly let other
//! tasks run.

use super::wait_until_reached;
use crate::serve::answer::encoder::{Encoder, list_meta};
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::answer::responses::json;
use crate::serve::hooks::{Hooks, Read};
use crate::serve::request::Query;
use crate::serve::request::list_options::checked_selector;
use crate::serve::request::negotiation::{ObjectForm, negotiate};
use crate::serve::request::selectors::Selector;
use crate::serve::resource::Resource;
use crate::serve::visibility::{RestrictedUser, visible_objects};
use crate::store::{Entry, ReadVersion, Rv, Scope};
use crate::{Model, clock};
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::task::coop::consume_budget;

/// Size in bytes after which a chunk of the body ends. This is the size of four HTTP/2 frames, and
/// also the size of the buffer of a TLS connection.
const CHUNK: usize = 64 << 10;

/// A continue token: the place in a list at which the next page starts. As in the kube-apiserver,
/// clients get the token as JSON in base64.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ContinueToken {
    v: String,
    /// The resourceVersion of the previous page. The next page has the same resourceVersion. If
    /// this value is negative, the next page has the newest resourceVersion.
    rv: i64,
    /// A slash, the last key of the previous page, and a zero byte. This text is greater than the
    /// last key, and less than each key that follows. So it is the start of the next page.
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

fn key_in_token<M: Model>(entry: &Entry<M>) -> String {
    format!("/{}", entry.key())
}

impl ContinueToken {
    fn encoded(rv: i64, start: String) -> String {
        let v = TOKEN_VERSION.to_owned();
        let json = serde_json::to_vec(&Self { v, rv, start });
        URL_SAFE_NO_PAD.encode(json.expect("a token can always be encoded"))
    }

    fn decode(text: &str) -> Result<Self, ErrorStatus> {
        let json = URL_SAFE_NO_PAD.decode(text).ok();
        let token: Option<Self> = json.and_then(|json| serde_json::from_slice(&json).ok());
        token
            .filter(|it| it.v == TOKEN_VERSION && it.rv != 0 && it.start.starts_with('/'))
            .ok_or_else(|| {
                ErrorStatus::bad_request("invalid continue token: continue key is not valid")
            })
    }
}

/// The parsed options that select the version and the page of a list.
struct ListRange {
    version: ReadVersion,
    /// The version that the store must have reached before the list is answered. None if any
    /// version is sufficient.
    min_version: Option<u64>,
    token: Option<ContinueToken>,
    limit: Option<usize>,
}

impl ListRange {
    /// Parses the options. `single` is true if the list can have at most one object.
    fn of(query: &Query, single: bool) -> Result<Self, ErrorStatus> {
        // The option `limit` is ignored if the list can have at most one object. As in the
        // kube-apiserver, it is also ignored for the resourceVersion "0", but not for other
        // spellings of zero, such as "00".
        let is_zero = query.text("resourceVersion") == "0";
        let limit = query.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.filter(|_| !is_zero && !single);
        let token = query.text("continue");
        if !token.is_empty() {
            let token = ContinueToken::decode(token)?;
            if !is_zero && !query.text("resourceVersion").is_empty() {
                return Err(ErrorStatus::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let rv = u64::try_from(token.rv).ok();
            return Ok(Self {
                version: rv.map_or(ReadVersion::Latest, |rv| ReadVersion::Exact(Rv(rv))),
                // The token may come from another replica, and this replica's store may be behind.
                // Then the list waits until this store has reached the version.
                min_version: rv,
                token: Some(token),
                limit,
            });
        }
        let rv = query.resource_version()?;
        let version = match (query.text("resourceVersionMatch"), rv) {
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

/// Answers a list request. Also returns the version of the list. `peer` has the hooks of the server
/// if another replica has sent the request.
pub async fn list<M: Model>(
    resource: &Arc<Resource<M>>,
    read: &Read<'_>,
    peer: Option<&dyn Hooks>,
    user: Option<&RestrictedUser<M>>,
) -> Result<(Response, Rv), ErrorStatus> {
    let (request, query) = (read.request, read.query);
    let form = negotiate(read.headers, query)?;
    let selector = checked_selector(query, resource, false)?;
    let mut scope = selector.scope(&request.namespace, resource);
    if let Some(hooks) = peer {
        scope = hooks.scope_of_peer(&resource.info, scope);
    }
    // A list can have at most one object if it selects one name in one namespace, or one name of a
    // cluster-scoped resource. As in the kube-apiserver, only a namespace in the path counts. A
    // namespace in the field selector does not count.
    let has_one_namespace = !request.namespace.is_empty() || !resource.info.namespaced;
    let single = has_one_namespace && matches!(scope, Scope::Object(_));
    let range = ListRange::of(query, single)?;
    let reader = &resource.reader;
    wait_until_reached(reader, range.min_version).await?;
    let (rv, mut entries) = reader
        .list(&scope, range.version)
        .map_err(|_| match &range.token {
            Some(token) => {
                let next = ContinueToken::encoded(-1, token.start.clone());
                ErrorStatus::continue_token_too_old(next)
            }
            None => ErrorStatus::list_too_old(),
        })?;
    entries = visible_objects(user, &scope, rv, entries).await?;
    if let Some(token) = &range.token {
        let start = entries.partition_point(|entry| key_in_token(entry) < token.start);
        entries.drain(..start);
    }
    if !selector.is_everything() {
        entries = select(entries, &selector, range.limit).await;
    }
    let mut meta = list_meta(rv);
    if let Some(limit) = range.limit
        && entries.len() > limit
    {
        let remaining = i64::try_from(entries.len() - limit).ok();
        meta.remaining_item_count = remaining.filter(|_| selector.is_everything());
        entries.truncate(limit);
        let last = entries
            .last()
            .expect("a limit is positive, so the page is not empty");
        let version = i64::try_from(rv.0).unwrap_or(i64::MAX);
        let start = format!("{}\0", key_in_token(last));
        meta.continue_ = Some(ContinueToken::encoded(version, start));
    }
    let mut chunks = Chunks {
        resource: Arc::clone(resource),
        form,
        now: clock::now(),
        head: Some(meta),
        entries: entries.into_iter(),
        is_done: false,
    };
    let first = chunks.next().unwrap_or_default();
    let body = if chunks.is_done {
        Body::from(first)
    } else {
        let chunks = std::iter::once(first).chain(chunks);
        Body::from_stream(futures::stream::iter(chunks.map(Ok::<_, Infallible>)))
    };
    Ok((json(body), rv))
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
    for entry in entries {
        consume_budget().await;
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
    now: Timestamp,
    /// The metadata of the list. None after the first chunk.
    head: Option<ListMeta>,
    /// The entries that have not been written.
    entries: std::vec::IntoIter<Arc<Entry<M>>>,
    is_done: bool,
}

impl<M: Model> Iterator for Chunks<M> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        // The last item of a chunk usually makes the chunk larger than `CHUNK`. The additional
        // capacity is large enough for most items.
        let mut out = Vec::with_capacity(CHUNK + CHUNK / 8);
        let encoder = Encoder {
            resource: &self.resource,
            form: self.form,
            now: self.now,
        };
        if let Some(meta) = self.head.take() {
            encoder.list_head(&meta, true, &mut out);
        }
        while out.len() < CHUNK {
            let Some(entry) = self.entries.next() else {
                out.extend_from_slice(b"]}\n");
                self.is_done = true;
                break;
            };
            encoder.item(&entry, entry.rv(), &mut out);
            if !self.entries.as_slice().is_empty() {
                out.push(b',');
            }
        }
        Some(Bytes::from(out))
    }
}
