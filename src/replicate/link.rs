//! Sends the requests of a follower to the leader over HTTPS, and decodes the answers. A follower
//! is a replica that copies the leader's index (the operations in memory).
//!
//! The requests are lists, watches and state queries. A state query asks for the values in
//! [`PeerAnswer`], such as the leader's newest resourceVersion.
//!
//! A [`Link`] belongs to one leadership term (the time for which one leader holds the Lease). Each
//! request names this term. A replica answers requests for one term only: the newest term in which
//! it led. So a follower never mixes the changes of two leaders.

use super::Term;
use crate::index::{Error, Key, Object, Rv, Write, index_key};
use futures::{Stream, StreamExt as _};
use http::{HeaderValue, Request, StatusCode};
use ifo_api::completeness::GAPS_KIND;
use ifo_api::{Collection, LIVE_GROUP, VERSION, activity, live, record};
use ifo_client::error_text::chain;
use ifo_client::list::{ListItems, query};
use kube::Client;
use kube::api::WatchEvent;
use kube::core::PartialObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The number of objects in a page of the leader's list. Such a page usually has about 1 MB. The
/// leader limits each object to about 64 KiB, so a page has at most about 32 MiB.
///
/// The follower does not limit the bytes of a page, because it trusts the leader: it has verified
/// the leader's certificate, and the leader runs the same program.
pub(super) const PAGE_OBJECTS: &str = "500";

/// The request header that names the leadership term of the leader.
pub const TERM_HEADER: &str = "ifo-term";

/// The audience of the tokens with which replicas authenticate to each other. The kube-apiserver
/// refuses tokens with this audience. So if a wrong server receives such a token, it cannot use the
/// token at the kube-apiserver.
pub const AUDIENCE: &str = "ifo-apiserver";

/// The path of the state query. A replica accepts a request with the header [`TERM_HEADER`] only if
/// the client's user may `get` this path.
pub const PEER_PATH: &str = "/peer";

/// The answer to a state query.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerAnswer {
    /// True if the answering replica leads and its Lease is valid.
    pub leading: bool,
    /// The newest resourceVersion of the answering replica's index.
    pub head: u64,
    /// The oldest resourceVersion at which the answering replica can serve lists and watches.
    pub oldest: u64,
}

/// The reason why a request to the leader failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The leader does not have the requested resourceVersion. The leader has dropped this
    /// resourceVersion, or never had it.
    #[error("the leader does not have the requested resourceVersion")]
    Gone,
    /// The other replica does not serve the requested leadership term.
    #[error("the replica does not serve this leadership term")]
    AnotherTerm,
    /// The other replica does not accept the credentials of this replica, or the user of these
    /// credentials lacks a right. The value is the status of the answer.
    #[error(
        "the leader answers {0}: the file of --peer-token-file must contain a token for the \
         audience ifo-apiserver, and the user of the token must have the right to get the path \
         /peer, and to list and watch inflightoperations.live.ifo.kubevirt.io"
    )]
    NotAuthorized(String),
    /// The `APIService` of this server does not exist, or has no `caBundle`. So the certificate of
    /// the leader cannot be verified.
    #[error("the APIService is not registered, or has no caBundle")]
    NotRegistered,
    /// A change that the leader sent contradicts this replica's copy of the index.
    #[error("a change that the leader sent contradicts the copy: {0}")]
    Diverged(String),
    /// The request failed for another reason. For example, the leader did not answer, or its answer
    /// is malformed.
    #[error("{0}")]
    Failed(String),
}

impl From<Error> for LinkError {
    fn from(error: Error) -> Self {
        Self::Diverged(error.to_string())
    }
}

/// An object of the leader, with its key and its resourceVersion.
pub type LeaderObject = (Key, Rv, Object);

/// A change of the leader's index: its resourceVersion, and the write. None instead of a write
/// means that all changes up to this resourceVersion have been sent.
pub type LeaderChange = (Rv, Option<Write>);

/// Sends requests to the leader of one leadership term.
pub struct Link {
    client: Client,
    term: HeaderValue,
}

impl Link {
    /// Creates a link to the leader of `term`. The requests of `client` must go to this leader.
    pub fn new(client: Client, term: &Term) -> Result<Self, LinkError> {
        let term = HeaderValue::from_str(term)
            .map_err(|error| failed("the term is not a valid header value", &error))?;
        Ok(Self { client, term })
    }

    /// Sends a state query.
    pub async fn ask(&self) -> Result<PeerAnswer, LinkError> {
        Ok(self.client.request(self.request(PEER_PATH)?).await?)
    }

    /// Reads one page of the leader's objects at exactly the resourceVersion `at`. `token` is the
    /// continue token of the page, or None for the first page. Returns the objects, and the
    /// continue token of the next page. The returned token is None on the last page.
    pub async fn page(
        &self,
        at: Rv,
        token: Option<&str>,
    ) -> Result<(Vec<LeaderObject>, Option<String>), LinkError> {
        let at = at.to_string();
        let path = match token {
            None => operations(&[
                ("limit", PAGE_OBJECTS),
                ("resourceVersionMatch", "Exact"),
                ("resourceVersion", &at),
            ]),
            Some(token) => operations(&[("limit", PAGE_OBJECTS), ("continue", token)]),
        };
        let page = self.client.request_text(self.request(&path)?).await?;
        let list = ListItems::<&RawValue>::read(page.as_bytes())?;
        let next = list.next();
        let objects: Result<_, LinkError> = list.items.into_iter().map(decode).collect();
        Ok((objects?, next))
    }

    /// Watches the changes after the resourceVersion `after`. The first item of the stream has the
    /// resourceVersion `after`, and no write. With this item, the leader confirms that it knows
    /// `after` and still has all later changes.
    pub async fn watch(
        &self,
        after: Rv,
    ) -> Result<impl Stream<Item = Result<LeaderChange, LinkError>> + use<>, LinkError> {
        let path = operations(&[
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", &after.to_string()),
        ]);
        let events = self.client.request_events(self.request(&path)?).await?;
        Ok(events.map(|event| change(event?)))
    }

    /// Returns a GET for `uri`.
    fn request(&self, uri: &str) -> Result<Request<Vec<u8>>, LinkError> {
        let request = Request::get(uri).header(TERM_HEADER, &self.term);
        let request = request.body(Vec::new());
        request.map_err(|error| failed("invalid request", &error))
    }
}

/// Returns the path of the leader's operations with these options.
fn operations(options: &[(&str, &str)]) -> String {
    let (plural, query) = (live::PLURAL, query(options));
    format!("/apis/{LIVE_GROUP}/{VERSION}/{plural}?{query}")
}

pub(super) fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> LinkError {
    LinkError::Failed(format!("{what}: {}", chain(error)))
}

impl From<serde_json::Error> for LinkError {
    fn from(error: serde_json::Error) -> Self {
        failed("the answer of the leader cannot be decoded", &error)
    }
}

impl From<kube::Error> for LinkError {
    fn from(error: kube::Error) -> Self {
        match &error {
            // kube decodes a watch line that is no event as a Status, whose code is then 0.
            kube::Error::Api(status) if status.code == 0 => {
                Self::Failed("the leader sent a line that is no event".to_owned())
            }
            kube::Error::Api(status) => of_code(status.code),
            _ => Self::Failed(chain(&error)),
        }
    }
}

/// Returns the error for an answer with the HTTP status `code`.
fn of_code(code: u16) -> LinkError {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match status {
        StatusCode::GONE => LinkError::Gone,
        StatusCode::MISDIRECTED_REQUEST => LinkError::AnotherTerm,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            LinkError::NotAuthorized(status.to_string())
        }
        status => LinkError::Failed(format!("the leader refuses the request: {status}")),
    }
}

/// Decodes an object, and returns the object with its key and its resourceVersion.
fn decode(json: &RawValue) -> Result<LeaderObject, LinkError> {
    let PartialObjectMeta {
        types, metadata, ..
    } = serde_json::from_str::<PartialObjectMeta>(json.get())?;
    let collection = match &*types.unwrap_or_default().kind {
        record::KIND => Collection::Records,
        activity::KIND => Collection::Activities,
        GAPS_KIND => Collection::Gaps,
        _ => Collection::Operations,
    };
    let namespace = metadata.namespace.unwrap_or_default();
    let key = collection.key(&namespace, metadata.name.unwrap_or_default());
    let object = Object::decode(json.get().as_bytes(), collection)
        .map_err(|error| failed(&format!("cannot decode {key}"), &error))?;
    let rv = version(&metadata.resource_version.unwrap_or_default())?;
    Ok((index_key(key), rv, object))
}

fn version(text: &str) -> Result<Rv, LinkError> {
    let version = text.parse().map(Rv);
    version.map_err(|error| failed("an object has no valid resourceVersion", &error))
}

/// Decodes the object in an event of the watch.
fn change(event: WatchEvent<Box<RawValue>>) -> Result<LeaderChange, LinkError> {
    Ok(match event {
        WatchEvent::Added(json) | WatchEvent::Modified(json) => {
            let (key, rv, object) = decode(&json)?;
            (rv, Some(Write::Put { key, object }))
        }
        WatchEvent::Deleted(json) => {
            let (key, rv, _) = decode(&json)?;
            (rv, Some(Write::Delete { key }))
        }
        WatchEvent::Bookmark(bookmark) => (version(&bookmark.metadata.resource_version)?, None),
        WatchEvent::Error(status) => return Err(of_code(status.code)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use ifo_api::testing;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::pin::pin;

    #[test]
    fn changes_keep_the_fields_of_a_newer_release() {
        let object = testing::object(&json!({"spec": {"new": 1.5}, "status": {"newer": "x"}}));
        let mut json = Vec::new();
        object.append_json(7, &mut json);
        let json = String::from_utf8(json).unwrap();
        let key = Key::new("default", "vm-migrating-1");
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            let line = format!(r#"{{"type":"{kind}","object":{json}}}"#);
            let (rv, write) = change(serde_json::from_str(&line).unwrap()).unwrap();
            assert_eq!(rv, Rv(7));
            match write.unwrap() {
                Write::Put {
                    key: put,
                    object: copy,
                } => {
                    assert_eq!((put, copy), (key.clone(), object.clone()));
                }
                Write::Delete { key: deleted } => {
                    assert_eq!((deleted, kind), (key.clone(), "DELETED"));
                }
            }
        }
        let bookmark = r#"{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"X","metadata":{"resourceVersion":"9"}}}"#;
        let bookmark = serde_json::from_str(bookmark).unwrap();
        assert!(matches!(change(bookmark), Ok((Rv(9), None))));
    }

    #[test]
    fn errors_in_a_watch_say_what_the_follower_must_do() {
        let error = |code: u16| {
            let line = format!(r#"{{"type":"ERROR","object":{{"code":{code}}}}}"#);
            change(serde_json::from_str(&line).unwrap()).unwrap_err()
        };
        assert_eq!(error(410), LinkError::Gone);
        assert_eq!(error(421), LinkError::AnotherTerm);
        assert!(matches!(error(401), LinkError::NotAuthorized(_)));
        assert!(matches!(error(500), LinkError::Failed(_)));
        let broken = r#"{"type":"ADDED","object":{"metadata":{}}}"#;
        assert!(change(serde_json::from_str(broken).unwrap()).is_err());
    }

    /// Returns the error that a follower receives if the leader sends this line in a watch. None if
    /// the follower ignores the line.
    async fn error_of_line(line: &'static str) -> Option<LinkError> {
        let answer = move |_: Request<Body>| async move {
            let body = Body::from(format!("{line}\n").into_bytes());
            Ok::<_, Infallible>(Response::new(body))
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let link = Link::new(client, &Term::from("a")).unwrap();
        let mut changes = pin!(link.watch(Rv(1)).await.unwrap());
        Some(changes.next().await?.unwrap_err())
    }

    #[tokio::test]
    async fn a_line_that_is_no_event_cannot_be_decoded() {
        let undecodable = LinkError::Failed("the leader sent a line that is no event".to_owned());
        assert_eq!(error_of_line("{}").await, Some(undecodable));
        assert!(matches!(
            error_of_line("[7]").await,
            Some(LinkError::Failed(_))
        ));
        let gone = r#"{"kind":"Status","code":410}"#;
        assert_eq!(error_of_line(gone).await, Some(LinkError::Gone));
        assert_eq!(error_of_line("").await, None);
    }
}
