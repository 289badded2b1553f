//! Sends the requests of a follower (a replica that copies the leader's operations) to the leader
//! over HTTPS.
//!
//! The leader authenticates with a serving certificate for the name of our Service. The follower
//! verifies this certificate with the `caBundle` of our `APIService`.
//!
//! The follower authenticates with a client certificate, or with a token for the audience
//! [`link::AUDIENCE`]. The follower does not send its token for the
//! kube-apiserver, because the leader's address comes from the Lease. A user who can edit the Lease
//! can write another address. If a server at this address also had a certificate for our Service,
//! the server would receive this token.

use super::Leader;
use super::link::{
    self, Events, LeaderEvent, Link, LinkError, LinkFactory, ObjectPage, PageStart, PeerAnswer,
};
use crate::index::{Key, Rv, index_key};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use ifo_api::completeness::GAPS_KIND;
use ifo_api::{Collection, LIVE_GROUP, VERSION, activity, live, record};
use ifo_client::error_text::chain;
use ifo_client::list::{ListError, ListItems, ListPager, ListRequest, ListStart};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

/// The time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of objects in a page of the leader's list. Such a page usually has about 1 MB.
const PAGE_OBJECTS: usize = 500;

/// The largest accepted size of a page. A page of a leader of this release has at most 500
/// operations of 64 KiB, which is about half of this limit.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// If a page has more than [`MAX_PAGE_BYTES`], the follower requests this page and all later pages
/// with this number of objects. Only a leader of another release can send such a large page.
const SMALL_PAGE_OBJECTS: usize = 50;

/// The largest accepted size of the answer to a state query: 4 MiB. If an answer is larger than the
/// limit, the request fails with [`LinkError::Failed`]. The limit also applies to readiness reports.
const MAX_ANSWER: usize = 4 << 20;

/// The largest accepted size of one watch event: 1 MiB. If an event is larger, the watch fails with
/// [`LinkError::Failed`].
const MAX_EVENT: usize = 1 << 20;

/// The credentials with which this replica authenticates to other replicas.
#[derive(Clone, Debug)]
pub enum PeerCredentials {
    /// A file with a token for the audience [`link::AUDIENCE`]. The kubelet renews
    /// the token, so the client reads the file again at least once per minute.
    TokenFile(PathBuf),
    /// The client certificate of the kubeconfig.
    ClientCertificate(Box<AuthInfo>),
}

impl PeerCredentials {
    /// Uses the token in `token_file`. Without such a file, uses the client certificate in
    /// `config`. Returns None if `config` has no client certificate either. The leader would refuse
    /// the requests of a replica without credentials.
    pub fn new(token_file: Option<PathBuf>, config: &Config) -> Option<Self> {
        if let Some(file) = token_file {
            return Some(Self::TokenFile(file));
        }
        let known = &config.auth_info;
        if known.client_certificate.is_none() && known.client_certificate_data.is_none() {
            return None;
        }
        Some(Self::ClientCertificate(Box::new(AuthInfo {
            client_certificate: known.client_certificate.clone(),
            client_certificate_data: known.client_certificate_data.clone(),
            client_key: known.client_key.clone(),
            client_key_data: known.client_key_data.clone(),
            ..AuthInfo::default()
        })))
    }

    fn auth_info(&self) -> AuthInfo {
        match self {
            Self::TokenFile(file) => AuthInfo {
                token_file: Some(file.display().to_string()),
                ..AuthInfo::default()
            },
            Self::ClientCertificate(known) => (**known).clone(),
        }
    }
}

/// Creates [`Link`]s over HTTPS.
#[derive(Clone)]
pub struct HttpLinkFactory {
    client: Client,
    api_service: &'static str,
    server_name: String,
    credentials: PeerCredentials,
}

impl HttpLinkFactory {
    /// Creates a factory. With `client`, the factory reads the CA bundle from the `APIService`
    /// named `api_service`. The leader's certificate must be valid for `server_name`, the name of
    /// our Service.
    pub fn new(
        client: Client,
        api_service: &'static str,
        server_name: String,
        credentials: PeerCredentials,
    ) -> Self {
        Self {
            client,
            api_service,
            server_name,
            credentials,
        }
    }

    /// Reads the CA certificates in the `caBundle` of our `APIService`, in DER encoding.
    async fn authorities(&self) -> Result<Vec<Vec<u8>>, LinkError> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let registered = api.get_opt(self.api_service).await;
        let registered = registered.map_err(|error| failed(&error))?;
        let bundle = registered
            .and_then(|registered| registered.spec?.ca_bundle)
            .ok_or(LinkError::NotRegistered)?;
        let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bundle.0)
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect();
        parsed.map_err(|error| {
            LinkError::Failed(format!(
                "the caBundle of the APIService cannot be parsed: {error}"
            ))
        })
    }

    /// Returns the client configuration for connections to `address`, without credentials.
    async fn config(&self, address: &str) -> Result<Config, LinkError> {
        let url = format!("https://{address}");
        let url = url.parse::<http::Uri>();
        let url =
            url.map_err(|_| LinkError::Failed(format!("{address:?} is not a valid address")))?;
        let mut config = Config::new(url);
        config.root_cert = Some(self.authorities().await?);
        config.tls_server_name = Some(self.server_name.clone());
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // A watch can deliver nothing for a long time, so there is no time limit for reads. For
        // state queries, the caller sets a time limit.
        config.read_timeout = None;
        config.default_retry = false;
        Ok(config)
    }

    async fn link(&self, leader: &Leader) -> Result<Box<dyn Link>, LinkError> {
        let term = HeaderValue::from_str(leader.term.as_str())
            .map_err(|_| LinkError::Failed("the term is not a valid header value".to_owned()))?;
        let mut config = self.config(&leader.address).await?;
        config.auth_info = self.credentials.auth_info();
        config.headers = vec![(HeaderName::from_static(link::TERM_HEADER), term)];
        Ok(Box::new(Self::through(client(config)?)))
    }

    /// Returns a link that sends all requests with `client`.
    fn through(client: Client) -> HttpLink {
        let path = format!("/apis/{LIVE_GROUP}/{VERSION}/{}", live::PLURAL);
        HttpLink {
            pager: ListPager::new(client.clone(), &path, Some(PAGE_OBJECTS))
                .accepting("application/json")
                .bounded(MAX_PAGE_BYTES, SMALL_PAGE_OBJECTS),
            client,
            path,
        }
    }
}

impl LinkFactory for HttpLinkFactory {
    fn connect<'a>(
        &'a self,
        leader: &'a Leader,
    ) -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>> {
        self.link(leader).boxed()
    }
}

/// A [`Link`] over HTTPS.
pub(super) struct HttpLink {
    client: Client,
    pager: ListPager,
    path: String,
}

impl HttpLink {
    /// Sends a GET for `uri`, and returns the body of a successful answer.
    async fn get(&self, uri: &str) -> Result<Body, LinkError> {
        let answer = send(&self.client, uri).await?;
        if answer.status().is_success() {
            Ok(answer.into_body())
        } else {
            Err(refused(answer.status()))
        }
    }

    async fn answer(&self) -> Result<PeerAnswer, LinkError> {
        let answer = read(self.get(link::PEER_PATH).await?).await?;
        serde_json::from_slice(&answer).map_err(|error| failed(&error))
    }

    async fn objects(&self, start: PageStart) -> Result<ObjectPage, LinkError> {
        let version;
        let start = match &start {
            PageStart::Exact(rv) => {
                version = rv.to_string();
                ListStart::Exact(&version)
            }
            PageStart::Latest => ListStart::First,
            PageStart::Continue(token) => ListStart::Continue(token),
        };
        let request = ListRequest {
            start,
            ..ListRequest::default()
        };
        let page = self
            .pager
            .page(request)
            .await
            .map_err(|error| match error {
                ListError::Refused(answer) => refused(answer.status()),
                error => failed(&error),
            })?;
        let list = ListItems::<&RawValue>::read(&page.body).map_err(|error| failed(&error))?;
        let version = list.version.and_then(|text| text.parse().ok());
        let rv = version.ok_or_else(|| malformed("the list has no valid resourceVersion"))?;
        let objects = list.items.into_iter().map(object);
        Ok(ObjectPage {
            rv: Rv(rv),
            objects: objects.collect::<Result<_, _>>()?,
            next: list.next,
        })
    }

    async fn events(&self, after: Rv) -> Result<Events, LinkError> {
        let uri = format!(
            "{}?watch=1&allowWatchBookmarks=true&resourceVersion={after}",
            self.path
        );
        let body = self.get(&uri).await?;
        let bytes = body.into_data_stream().map_err(std::io::Error::other);
        let lines = FramedRead::new(
            StreamReader::new(bytes),
            LinesCodec::new_with_max_length(MAX_EVENT),
        );
        let events = lines.map(|line| event(&line.map_err(|error| failed(&error))?));
        Ok(events.boxed())
    }
}

impl Link for HttpLink {
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>> {
        self.answer().boxed()
    }

    fn page(&self, start: PageStart) -> BoxFuture<'_, Result<ObjectPage, LinkError>> {
        self.objects(start).boxed()
    }

    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<Events, LinkError>> {
        self.events(after).boxed()
    }
}

fn client(config: Config) -> Result<Client, LinkError> {
    Client::try_from(config).map_err(|error| failed(&error))
}

/// Sends a GET for `uri`, and returns the answer with any status code.
async fn send(client: &Client, uri: &str) -> Result<Response<Body>, LinkError> {
    let request = Request::get(uri).body(Body::empty());
    let request = request.map_err(|error| failed(&error))?;
    client.send(request).await.map_err(|error| failed(&error))
}

/// Reads a body of at most [`MAX_ANSWER`] bytes.
async fn read(body: Body) -> Result<Bytes, LinkError> {
    let read = Limited::new(body, MAX_ANSWER).collect().await;
    let read = read.map_err(|error| LinkError::Failed(chain(&*error)))?;
    Ok(read.to_bytes())
}

fn failed(error: &(dyn std::error::Error + 'static)) -> LinkError {
    LinkError::Failed(chain(error))
}

fn malformed(reason: &str) -> LinkError {
    LinkError::Failed(reason.to_owned())
}

fn refused(status: StatusCode) -> LinkError {
    match status {
        StatusCode::GONE => LinkError::Gone,
        StatusCode::MISDIRECTED_REQUEST => LinkError::AnotherTerm,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            LinkError::NotAuthorized(status.to_string())
        }
        status => LinkError::Refused(status.to_string()),
    }
}

#[derive(Deserialize)]
struct VersionedObject<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    /// The collection of the index that contains the object.
    #[serde(skip)]
    collection: Option<Collection>,
}

impl Metadata<'_> {
    fn key(&self) -> Key {
        let collection = self.collection.unwrap_or(Collection::Operations);
        index_key(collection.key(&self.namespace, &*self.name))
    }

    fn rv(&self) -> Result<Rv, LinkError> {
        let parsed = self.resource_version.parse();
        parsed
            .map(Rv)
            .map_err(|_| malformed("an object has no valid resourceVersion"))
    }
}

fn metadata(json: &RawValue) -> Result<Metadata<'_>, LinkError> {
    let object: VersionedObject<'_> =
        serde_json::from_str(json.get()).map_err(|error| failed(&error))?;
    Ok(Metadata {
        collection: match &*object.kind {
            record::KIND => Some(Collection::Records),
            activity::KIND => Some(Collection::Activities),
            GAPS_KIND => Some(Collection::Gaps),
            _ => None,
        },
        ..object.metadata
    })
}

fn object(json: &RawValue) -> Result<(Key, Rv, Vec<u8>), LinkError> {
    let metadata = metadata(json)?;
    Ok((metadata.key(), metadata.rv()?, json.get().into()))
}

/// Parses one line of a watch.
fn event(line: &str) -> Result<LeaderEvent, LinkError> {
    #[derive(Deserialize)]
    struct WatchLine<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct WatchErrorObject {
        code: u16,
    }
    let line: WatchLine<'_> = serde_json::from_str(line).map_err(|error| failed(&error))?;
    if line.kind == "ERROR" {
        let status: WatchErrorObject =
            serde_json::from_str(line.object.get()).map_err(|error| failed(&error))?;
        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Err(refused(code));
    }
    let metadata = metadata(line.object)?;
    let rv = metadata.rv()?;
    match &*line.kind {
        "ADDED" | "MODIFIED" => Ok(LeaderEvent::Put {
            rv,
            key: metadata.key(),
            json: line.object.get().into(),
        }),
        "DELETED" => Ok(LeaderEvent::Delete {
            rv,
            key: metadata.key(),
        }),
        "BOOKMARK" => Ok(LeaderEvent::Bookmark(rv)),
        other => Err(LinkError::Failed(format!(
            "{other:?} is not a known type of watch event"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_the_bytes_of_the_leader() {
        let object = r#"{"spec":{"new": 1.50},"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}"#;
        let line = |kind: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
        let put = LeaderEvent::Put {
            rv: Rv(7),
            key: Key::new("n", "a"),
            json: object.into(),
        };
        assert_eq!(event(&line("ADDED")), Ok(put.clone()));
        assert_eq!(event(&line("MODIFIED")), Ok(put));
        let delete = LeaderEvent::Delete {
            rv: Rv(7),
            key: Key::new("n", "a"),
        };
        assert_eq!(event(&line("DELETED")), Ok(delete));
        let bookmark =
            r#"{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"9"}}}"#;
        assert_eq!(event(bookmark), Ok(LeaderEvent::Bookmark(Rv(9))));
    }

    #[test]
    fn error_events_and_malformed_events_are_errors() {
        let error = |code: u16| format!(r#"{{"type":"ERROR","object":{{"code":{code}}}}}"#);
        assert_eq!(event(&error(410)), Err(LinkError::Gone));
        assert_eq!(event(&error(421)), Err(LinkError::AnotherTerm));
        assert!(matches!(event(&error(500)), Err(LinkError::Refused(_))));
        for code in [401, 403] {
            let refused = event(&error(code));
            assert!(
                matches!(refused, Err(LinkError::NotAuthorized(_))),
                "{refused:?}"
            );
        }
        for broken in [
            "",
            "{}",
            r#"{"type":"ADDED","object":{"metadata":{}}}"#,
            &error(0),
        ] {
            assert!(event(broken).is_err(), "{broken}");
        }
    }
}
