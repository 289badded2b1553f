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
    self, LeaderChange, LeaderChanges, Link, LinkError, LinkFactory, ObjectPage, PeerAnswer,
};
use crate::index::{Key, Object, Rv, Write, index_key};
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

/// Returns the credentials with which this replica authenticates to other replicas: the token for the
/// audience [`link::AUDIENCE`] in `token_file`. The kubelet renews the token, so the client reads the
/// file again at least once per minute. Without such a file, returns the client certificate in
/// `config`. Returns None if `config` has no client certificate either, because the leader would
/// refuse the requests.
pub fn peer_credentials(token_file: Option<PathBuf>, config: &Config) -> Option<AuthInfo> {
    if let Some(file) = token_file {
        return Some(AuthInfo {
            token_file: Some(file.display().to_string()),
            ..AuthInfo::default()
        });
    }
    let known = config.auth_info.clone();
    let credentials = AuthInfo {
        client_certificate: known.client_certificate,
        client_certificate_data: known.client_certificate_data,
        client_key: known.client_key,
        client_key_data: known.client_key_data,
        ..AuthInfo::default()
    };
    let is_usable =
        credentials.client_certificate.is_some() || credentials.client_certificate_data.is_some();
    is_usable.then_some(credentials)
}

/// Creates [`Link`]s over HTTPS.
pub struct HttpLinkFactory {
    /// Reads the `APIService`.
    pub client: Client,
    /// The name of the `APIService` with the CA bundle.
    pub api_service: &'static str,
    /// The name of our Service. The leader's certificate must be valid for this name.
    pub server_name: String,
    /// The credentials with which this replica authenticates to the leader.
    pub credentials: AuthInfo,
}

impl HttpLinkFactory {
    /// Reads the CA certificates in the `caBundle` of our `APIService`, in DER encoding.
    async fn authorities(&self) -> Result<Vec<Vec<u8>>, LinkError> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let registered = api.get_opt(self.api_service).await?;
        let bundle = registered
            .and_then(|registered| registered.spec?.ca_bundle)
            .ok_or(LinkError::NotRegistered)?;
        CertificateDer::pem_slice_iter(&bundle.0)
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| failed("the caBundle of the APIService cannot be parsed", &error))
    }

    async fn link(&self, leader: &Leader) -> Result<HttpLink, LinkError> {
        let term = HeaderValue::from_str(&leader.term)
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
        config.auth_info = self.credentials.clone();
        config.headers = vec![(HeaderName::from_static(link::TERM_HEADER), term)];
        Ok(HttpLink(Client::try_from(config)?))
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
struct HttpLink(Client);

impl HttpLink {
    /// Sends a GET for `uri`, and returns the body of a successful answer.
    async fn get(&self, uri: &str) -> Result<Body, LinkError> {
        let request = Request::get(uri).body(Body::empty());
        let request = request.map_err(|error| failed("invalid request", &error))?;
        let answer = self.0.send(request).await?;
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
}

impl Link for HttpLink {
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>> {
        async { Ok(serde_json::from_slice(&self.read(link::PEER_PATH).await?)?) }.boxed()
    }

    fn page<'a>(
        &'a self,
        at: Rv,
        token: Option<&'a str>,
    ) -> BoxFuture<'a, Result<ObjectPage, LinkError>> {
        async move {
            let at = at.to_string();
            let path = match token {
                None => operations(&[
                    ("limit", PAGE_OBJECTS),
                    ("resourceVersionMatch", "Exact"),
                    ("resourceVersion", &at),
                ]),
                Some(token) => operations(&[("limit", PAGE_OBJECTS), ("continue", token)]),
            };
            let page = self.read(&path).await?;
            let list = ListItems::<&RawValue>::read(&page)?;
            let objects = list.items.into_iter().map(decode);
            Ok(ObjectPage {
                objects: objects.collect::<Result<_, LinkError>>()?,
                next: list.next,
            })
        }
        .boxed()
    }

    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<LeaderChanges, LinkError>> {
        async move {
            let path = operations(&[
                ("watch", "1"),
                ("allowWatchBookmarks", "true"),
                ("resourceVersion", &after.to_string()),
            ]);
            let bytes = self.get(&path).await?.into_data_stream();
            let reader = StreamReader::new(bytes.map_err(std::io::Error::other));
            let lines = FramedRead::new(reader, LinesCodec::new_with_max_length(MAX_EVENT));
            let changes = lines
                .map(|line| change(&line.map_err(|error| failed("the watch has ended", &error))?));
            Ok(changes.boxed())
        }
        .boxed()
    }
}

/// Returns the path of the leader's operations with these options.
fn operations(options: &[(&str, &str)]) -> String {
    let (plural, query) = (live::PLURAL, query(options));
    format!("/apis/{LIVE_GROUP}/{VERSION}/{plural}?{query}")
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> LinkError {
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
            kube::Error::Api(status) => of_code(status.code),
            _ => Self::Failed(chain(&error)),
        }
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

/// Decodes an object. Returns it with its key and its resourceVersion.
fn decode(json: &RawValue) -> Result<(Key, Rv, Object), LinkError> {
    #[derive(Deserialize)]
    struct VersionedObject {
        kind: String,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: String,
        namespace: String,
        resource_version: String,
    }
    let VersionedObject { kind, metadata } = serde_json::from_str(json.get())?;
    let collection = match &*kind {
        record::KIND => Collection::Records,
        activity::KIND => Collection::Activities,
        GAPS_KIND => Collection::Gaps,
        _ => Collection::Operations,
    };
    let key = collection.key(&metadata.namespace, metadata.name);
    let object = Object::decode(json.get().as_bytes(), collection)
        .map_err(|error| failed(&format!("cannot decode {key}"), &error))?;
    Ok((index_key(key), version(&metadata.resource_version)?, object))
}

fn version(text: &str) -> Result<Rv, LinkError> {
    let version = text.parse().map(Rv);
    version.map_err(|error| failed("an object has no valid resourceVersion", &error))
}

/// Decodes one line of the watch.
fn change(line: &str) -> Result<LeaderChange, LinkError> {
    Ok(match serde_json::from_str(line)? {
        WatchEvent::<Box<RawValue>>::Added(json) | WatchEvent::Modified(json) => {
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
    use ifo_api::example;
    use serde_json::json;

    #[test]
    fn changes_keep_the_fields_of_a_newer_release() {
        let object = example::object(&json!({"spec": {"new": 1.5}, "status": {"newer": "x"}}));
        let mut json = Vec::new();
        object.append_json(7, &mut json);
        let json = String::from_utf8(json).unwrap();
        let key = Key::new("default", "vm-migrating-1");
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            let line = format!(r#"{{"type":"{kind}","object":{json}}}"#);
            let (rv, write) = change(&line).unwrap();
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
        assert!(matches!(change(bookmark), Ok((Rv(9), None))));
    }

    #[test]
    fn error_events_and_malformed_events_are_errors() {
        let error = |code: u16| {
            let line = format!(r#"{{"type":"ERROR","object":{{"code":{code}}}}}"#);
            change(&line).unwrap_err()
        };
        assert_eq!(error(410), LinkError::Gone);
        assert_eq!(error(421), LinkError::AnotherTerm);
        assert!(matches!(error(500), LinkError::Refused(_)));
        assert!(matches!(error(401), LinkError::NotAuthorized(_)));
        assert!(matches!(error(403), LinkError::NotAuthorized(_)));
        assert!(matches!(error(0), LinkError::Refused(_)));
        let metadata = r#"{"namespace":"n","name":"a","resourceVersion":"7"}"#;
        let undecodable = format!(
            r#"{{"type":"ADDED","object":{{"kind":"InFlightOperation","metadata":{metadata}}}}}"#
        );
        let reason = change(&undecodable).unwrap_err().to_string();
        assert!(reason.contains("cannot decode n/a"), "{reason}");
        for broken in ["", "{}", r#"{"type":"ADDED","object":{"metadata":{}}}"#] {
            assert!(change(broken).is_err(), "{broken}");
        }
    }
}
