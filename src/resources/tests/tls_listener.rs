//! Tests of the TLS listener with real TLS connections over loopback. This file also has
//! [`Listening`], the running listener that other tests use.

use super::*;
use aggregated_apiserver::auth::{PeerCertificates, client_certificate_verifier};
use aggregated_apiserver::serve::Connections;
use aggregated_apiserver::serve::listen;
use axum::extract::Extension;
use axum::routing::any;
use http::Version;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A self-signed certificate for the DNS name `localhost`, and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Creates a certificate whose common name is `name`.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.self_signed(&key).unwrap().der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }

    /// Returns the trust store of a client that trusts only this certificate.
    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }
}

/// A running listener on a loopback address.
pub struct Listening {
    pub address: SocketAddr,
    /// The certificate of the server. Some tests also use this certificate as a client certificate
    /// that belongs to no known user.
    identity: Identity,
    /// A client certificate that the simulated authenticator accepts as a certificate of the front
    /// proxy.
    pub front_proxy: Identity,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Listening {
    pub async fn start(router: Router, shutdown: CancellationToken) -> Self {
        Self::within(Limits::default().connections, router, shutdown).await
    }

    /// Starts a listener that keeps at most `connections` connections open.
    pub async fn within(connections: usize, router: Router, shutdown: CancellationToken) -> Self {
        let identity = Identity::new("localhost");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(client_certificate_verifier())
            .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(listen::serve(
            listener,
            Arc::new(tls),
            router,
            Connections::new(connections),
            shutdown.clone(),
        ));
        Self {
            address,
            identity,
            front_proxy: Identity::new("front-proxy"),
            shutdown,
            task,
        }
    }

    /// Opens a TLS connection. The client offers only `protocol`. If `has_certificate` is true, the
    /// client sends a certificate that belongs to no known user.
    pub async fn connect(&self, protocol: &[u8], has_certificate: bool) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let certificate = has_certificate.then_some(&self.identity);
        let stream = self.handshake(protocol, certificate, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        stream
    }

    pub async fn handshake(
        &self,
        protocol: &[u8],
        certificate: Option<&Identity>,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.identity.roots());
        let mut tls = if let Some(identity) = certificate {
            let chain = vec![identity.certificate.clone()];
            tls.with_client_auth_cert(chain, identity.key.clone_key())
                .unwrap()
        } else {
            tls.with_no_client_auth()
        };
        tls.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(tls))
            .connect(name, stream)
            .await
    }

    pub async fn http2(&self) -> http2::SendRequest<Body> {
        let io = TokioIo::new(self.connect(b"h2", false).await);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

/// Creates a router that answers each request with its protocol, the number of its `x-remote-group`
/// headers, and the number of client certificates.
pub fn echo() -> Router {
    Router::new().fallback(any(
        |Extension(peer): Extension<PeerCertificates>, request: Request<Body>| async move {
            let groups = request.headers().get_all("x-remote-group").iter().count();
            format!("{:?} {groups} {}", request.version(), peer.0.len())
        },
    ))
}

/// Creates a request of a user in many groups. The name of each group has 80 bytes. As HTTP/2
/// counts, each group takes 126 bytes of the headers.
fn request_with_groups(groups: usize) -> Request<Body> {
    let mut request = request("GET", "https://localhost/", &[("host", "localhost")]);
    for number in 0..groups {
        let group = format!("{number:080}");
        request
            .headers_mut()
            .append("x-remote-group", group.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn http1_and_http2_have_the_same_limit_of_headers() {
    let listening = Listening::start(echo(), CancellationToken::new()).await;
    for (groups, code) in [(500, 200), (530, 431), (600, 431)] {
        let io = TokioIo::new(listening.connect(b"http/1.1", true).await);
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let mut asked = request_with_groups(groups);
        *asked.uri_mut() = "/".parse().unwrap();
        *asked.version_mut() = Version::HTTP_11;
        let answer = sender.send_request(asked).await.unwrap();
        assert_eq!(answer.status(), code, "HTTP/1.1 with {groups} groups");

        let mut sender = listening.http2().await;
        let mut asked = request_with_groups(groups);
        asked.headers_mut().remove("host");
        let answer = sender.send_request(asked).await.unwrap();
        assert_eq!(answer.status(), code, "HTTP/2 with {groups} groups");
    }
}

#[tokio::test]
async fn a_hundred_watches_share_a_connection_and_end_cleanly_at_shutdown() {
    let fixture = Fixture::filled();
    let listening = Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await;
    let mut sender = listening.http2().await;
    let mut bodies = Vec::new();
    for _ in 0..100 {
        let path =
            format!("https://localhost{BASE}/inflightoperations?watch=1&resourceVersion=104");
        let answer = sender
            .send_request(request("GET", &path, &[]))
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let mut body = answer.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.starts_with(b"{\"type\":\"ADDED\""));
        bodies.push(body);
    }
    listening.shutdown.cancel();
    for body in bodies {
        // `unwrap` fails if the server resets the stream instead of ending it.
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
    }
    drop(sender);
    listening.task.await.unwrap();
    assert!(TcpStream::connect(listening.address).await.is_err());
}
