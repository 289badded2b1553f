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
use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use ifo_api::completeness::GAPS_KIND;
use ifo_api::{Collection, LIVE_GROUP, VERSION, activity, live, record};
use ifo_client::error_text::chain;
use ifo_client::list::{ListItems, query};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::WatchEvent;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

/// The time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of objects in a page of the leader's list. Such a page usually has about 1 MB. The
/// leader limits each object to about 64 KiB, so a page has at most 32 MB.
const PAGE_OBJECTS: &str = "500";

/// The largest accepted size of a page or of the answer to a state query: 64 MiB. A larger answer is an
/// error.
const MAX_ANSWER: usize = 64 << 20;

/// The largest accepted size of a watch event: 1 MiB. If an event is larger, the watch ends with an
/// error.
const MAX_EVENT: usize = 1 << 20;

/// The credentials with which this replica authenticates to other replicas.
#[derive(Clone, Debug)]
pub struct PeerCredentials(Box<AuthInfo>);

impl PeerCredentials {
    /// Uses the token for the audience [`link::AUDIENCE`] in `token_file`. The kubelet renews the
    /// token, so the client reads the file again at least once per minute. Without such a file, uses
    /// the client certificate in `config`. Returns None if `config` has no client certificate
    /// either, because the leader would refuse the requests.
    pub fn new(token_file: Option<PathBuf>, config: &Config) -> Option<Self> {
        let known = &config.auth_info;
        let has_certificate =
            known.client_certificate.is_some() || known.client_certificate_data.is_some();
        let credentials = match token_file {
            Some(file) => AuthInfo {
                token_file: Some(file.display().to_string()),
                ..AuthInfo::default()
            },
            None if has_certificate => AuthInfo {
                client_certificate: known.client_certificate.clone(),
                client_certificate_data: known.client_certificate_data.clone(),
                client_key: known.client_key.clone(),
                client_key_data: known.client_key_data.clone(),
                ..AuthInfo::default()
            },
            None => return None,
        };
        Some(Self(Box::new(credentials)))
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
        let registered = api.get_opt(self.api_service).await.map_err(refused)?;
        let bundle = registered
            .and_then(|registered| registered.spec?.ca_bundle)
            .ok_or(LinkError::NotRegistered)?;
        CertificateDer::pem_slice_iter(&bundle.0)
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| failed("the caBundle of the APIService cannot be parsed", &error))
    }

    async fn link(&self, leader: &Leader) -> Result<HttpLink, LinkError> {
        let term = HeaderValue::from_str(leader.term.as_str())
            .map_err(|error| failed("the term is not a valid header value", &error))?;
        let url = format!("https://{}", leader.address).parse();
        let url = url.map_err(|error: http::uri::InvalidUri| {
            failed("the address of the leader is not valid", &error)
        })?;
        let mut config = Config::new(url);
        config.root_cert = Some(self.authorities().await?);
        config.tls_server_name = Some(self.server_name.clone());
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // A watch can deliver nothing for a long time, so there is no time limit for reads. For
        // state queries, the caller sets a time limit.
        config.read_timeout = None;
        config.default_retry = false;
        config.auth_info = (*self.credentials.0).clone();
        config.headers = vec![(HeaderName::from_static(link::TERM_HEADER), term)];
        Ok(HttpLink(Client::try_from(config).map_err(refused)?))
    }
}

impl LinkFactory for HttpLinkFactory {
    fn connect<'a>(
        &'a self,
        leader: &'a Leader,
    ) -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>> {
        async { Ok(Box::new(self.link(leader).await?) as Box<dyn Link>) }.boxed()
    }
}

/// A [`Link`] over HTTPS.
pub(super) struct HttpLink(pub(super) Client);

/// Returns the path of the leader's operations with these options.
fn operations(options: &[(&str, &str)]) -> String {
    let (plural, query) = (live::PLURAL, query(options));
    format!("/apis/{LIVE_GROUP}/{VERSION}/{plural}?{query}")
}

impl HttpLink {
    /// Sends a GET for `uri`, and returns the body of a successful answer.
    async fn get(&self, uri: &str) -> Result<Body, LinkError> {
        let request = Request::get(uri).header(http::header::ACCEPT, "application/json");
        let request = request.body(Body::empty());
        let request = request.map_err(|error| failed("invalid request", &error))?;
        let answer = self.0.send(request).await.map_err(refused)?;
        if answer.status().is_success() {
            Ok(answer.into_body())
        } else {
            Err(of_code(answer.status().as_u16()))
        }
    }

    /// Sends a GET for `uri`, and returns the whole answer, which has at most [`MAX_ANSWER`] bytes.
    async fn read(&self, uri: &str) -> Result<Bytes, LinkError> {
        let body = Limited::new(self.get(uri).await?, MAX_ANSWER);
        let body = body.collect().await;
        let body = body.map_err(|error| failed("the answer cannot be read", &*error))?;
        Ok(body.to_bytes())
    }

    async fn objects(&self, start: PageStart) -> Result<ObjectPage, LinkError> {
        let limit = ("limit", PAGE_OBJECTS);
        let path = match start {
            PageStart::Exact(rv) => operations(&[
                limit,
                ("resourceVersionMatch", "Exact"),
                ("resourceVersion", &rv.to_string()),
            ]),
            PageStart::Latest => operations(&[limit]),
            PageStart::Continue(token) => operations(&[limit, ("continue", &token)]),
        };
        let page = self.read(&path).await?;
        let list = ListItems::<&RawValue>::read(&page).map_err(undecodable)?;
        let rv = list.version.and_then(|text| text.parse().ok());
        let missing = || LinkError::Failed("the list has no valid resourceVersion".to_owned());
        let objects = list.items.into_iter().map(|json| {
            let (key, rv) = key_and_version(json)?;
            Ok((key, rv, json.get().into()))
        });
        Ok(ObjectPage {
            rv: Rv(rv.ok_or_else(missing)?),
            objects: objects.collect::<Result<_, LinkError>>()?,
            next: list.next,
        })
    }

    async fn events(&self, after: Rv) -> Result<Events, LinkError> {
        let path = operations(&[
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", &after.to_string()),
        ]);
        let bytes = self.get(&path).await?.into_data_stream();
        let reader = StreamReader::new(bytes.map_err(std::io::Error::other));
        let lines = FramedRead::new(reader, LinesCodec::new_with_max_length(MAX_EVENT));
        let events = lines.map(|line| {
            let line = line.map_err(|error| failed("the watch has ended", &error))?;
            event(serde_json::from_str(&line).map_err(undecodable)?)
        });
        Ok(events.boxed())
    }
}

impl Link for HttpLink {
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>> {
        async {
            let answer = self.read(link::PEER_PATH).await?;
            serde_json::from_slice(&answer).map_err(undecodable)
        }
        .boxed()
    }

    fn page(&self, start: PageStart) -> BoxFuture<'_, Result<ObjectPage, LinkError>> {
        self.objects(start).boxed()
    }

    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<Events, LinkError>> {
        self.events(after).boxed()
    }
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> LinkError {
    LinkError::Failed(format!("{what}: {}", chain(error)))
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` needs"
)]
fn undecodable(error: serde_json::Error) -> LinkError {
    failed("the answer of the leader cannot be decoded", &error)
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` needs"
)]
fn refused(error: kube::Error) -> LinkError {
    match &error {
        kube::Error::Api(status) => of_code(status.code),
        _ => LinkError::Failed(chain(&error)),
    }
}

/// Returns the error for an answer with this status code.
fn of_code(code: u16) -> LinkError {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match status {
        StatusCode::GONE => LinkError::Gone,
        StatusCode::MISDIRECTED_REQUEST => LinkError::AnotherTerm,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            LinkError::NotAuthorized(status.to_string())
        }
        status => LinkError::Refused(status.to_string()),
    }
}

/// Returns the key and the resourceVersion of an object.
fn key_and_version(json: &RawValue) -> Result<(Key, Rv), LinkError> {
    #[derive(Deserialize)]
    struct VersionedObject {
        #[serde(default)]
        kind: String,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: String,
        #[serde(default)]
        namespace: String,
        resource_version: String,
    }
    let VersionedObject { kind, metadata } =
        serde_json::from_str(json.get()).map_err(undecodable)?;
    let collection = match &*kind {
        record::KIND => Collection::Records,
        activity::KIND => Collection::Activities,
        GAPS_KIND => Collection::Gaps,
        _ => Collection::Operations,
    };
    let key = index_key(collection.key(&metadata.namespace, &*metadata.name));
    Ok((key, version(&metadata.resource_version)?))
}

fn version(text: &str) -> Result<Rv, LinkError> {
    let version = text.parse().map(Rv);
    version.map_err(|error| failed("an object has no valid resourceVersion", &error))
}

fn event(event: WatchEvent<Box<RawValue>>) -> Result<LeaderEvent, LinkError> {
    Ok(match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            let (key, rv) = key_and_version(&object)?;
            let json = object.get().into();
            LeaderEvent::Put { rv, key, json }
        }
        WatchEvent::Deleted(object) => {
            let (key, rv) = key_and_version(&object)?;
            LeaderEvent::Delete { rv, key }
        }
        WatchEvent::Bookmark(bookmark) => {
            LeaderEvent::Bookmark(version(&bookmark.metadata.resource_version)?)
        }
        WatchEvent::Error(status) => return Err(of_code(status.code)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_event(line: &str) -> Result<LeaderEvent, LinkError> {
        event(serde_json::from_str(line).map_err(undecodable)?)
    }

    #[test]
    fn events_keep_the_bytes_of_the_leader() {
        let object = r#"{"spec":{"new": 1.50},"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}"#;
        let line = |kind: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
        let put = LeaderEvent::Put {
            rv: Rv(7),
            key: Key::new("n", "a"),
            json: object.into(),
        };
        assert_eq!(line_event(&line("ADDED")), Ok(put.clone()));
        assert_eq!(line_event(&line("MODIFIED")), Ok(put));
        let delete = LeaderEvent::Delete {
            rv: Rv(7),
            key: Key::new("n", "a"),
        };
        assert_eq!(line_event(&line("DELETED")), Ok(delete));
        let bookmark = r#"{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"X","metadata":{"resourceVersion":"9"}}}"#;
        assert_eq!(line_event(bookmark), Ok(LeaderEvent::Bookmark(Rv(9))));
    }

    #[test]
    fn error_events_and_malformed_events_are_errors() {
        let error = |code: u16| format!(r#"{{"type":"ERROR","object":{{"code":{code}}}}}"#);
        assert_eq!(line_event(&error(410)), Err(LinkError::Gone));
        assert_eq!(line_event(&error(421)), Err(LinkError::AnotherTerm));
        assert!(matches!(
            line_event(&error(500)),
            Err(LinkError::Refused(_))
        ));
        for code in [401, 403] {
            let refused = line_event(&error(code));
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
            assert!(line_event(broken).is_err(), "{broken}");
        }
    }
}
