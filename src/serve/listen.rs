//! The TLS listener. Enters: connections. Leaves: requests with the certificates of
//! their peer, over HTTP/2 or HTTP/1.1. Nothing a client does at this level costs the
//! others more than one of the bounded places for connections.

use crate::auth::PeerCertificates;
use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Connections at once; further ones wait in the kernel's backlog. The aggregator needs
/// a few, each with up to [`MAX_STREAMS`] requests.
const MAX_CONNECTIONS: usize = 2000;
/// Time for a TLS handshake (what Go's client gives it as well).
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for the first request after it: nobody connects for nothing.
const FIRST_REQUEST: Duration = Duration::from_secs(30);
/// Headers of one request: the front proxy sends one for each group and extra value of
/// the user, and users with hundreds of groups exist.
const MAX_HEADERS: usize = 1000;
/// Bytes of all headers of one request (Go's `DefaultMaxHeaderBytes`).
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Streams of one connection: the aggregator puts all its clients' watches on one.
const MAX_STREAMS: u32 = 1000;
/// Bytes that one stream may have waiting to be sent.
const SEND_BUFFER: usize = 64 << 10;
/// How long an HTTP/1.1 client may take to send headers, idle time before them
/// included (kube-apiserver's idle timeout).
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// A silent TCP peer is asked this often whether it is still there (Go's default is 15 s).
const KEEPALIVE: Duration = Duration::from_secs(30);
/// A connection is cut when its peer has taken nothing for this long although there is
/// something to send.
#[cfg(target_os = "linux")]
const STALLED: Duration = Duration::from_mins(2);
/// An HTTP/2 peer that was silent this long is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long such a peer has to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for open requests to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(10);
/// Pause after a failed accept, such as one without file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is cancelled, then accepts no more, tells clients to finish,
/// and returns when they have or after ten seconds. ALPN of `tls` is set here.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    shutdown: CancellationToken,
) {
    let mut tls = tls.as_ref().clone();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(tls));
    let server = Arc::new(Protocols::new());
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        // The semaphore is never closed.
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
            // Finished tasks are taken out as they finish, or they would pile up.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let (tls, router, server) = (tls.clone(), router.clone(), Arc::clone(&server));
                let shutdown = shutdown.clone();
                connections.spawn(async move {
                    if let Err(error) = connection(stream, &tls, router, &server, shutdown).await {
                        tracing::debug!(%error, "connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(DRAIN, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!(open = connections.len(), "connections cut off at shutdown");
        connections.shutdown().await;
    }
}

/// How to serve either protocol. The TLS handshake has settled which one it is, so
/// nothing waits for a first byte to find out.
struct Protocols {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
}

impl Protocols {
    fn new() -> Self {
        let mut http1 = auto::Builder::new(TokioExecutor::new()).http1_only();
        http1
            .http1()
            .timer(TokioTimer::new())
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEADER_BYTES as usize)
            .header_read_timeout(HEADER_TIMEOUT);
        let mut http2 = auto::Builder::new(TokioExecutor::new()).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_concurrent_streams(MAX_STREAMS)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        Self { http1, http2 }
    }
}

/// Sets what the kernel does for us.
fn tune(stream: &TcpStream) -> io::Result<()> {
    // Events are small and must not wait for one another.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // A peer that vanished, and one that stopped reading, would otherwise stay for ever:
    // nothing above is asked to run while there is nowhere to write to.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(STALLED))?;
    Ok(())
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("socket options: {0}")]
    Socket(#[source] io::Error),
    #[error("TLS handshake: {0}")]
    Handshake(#[source] io::Error),
    #[error("TLS handshake took too long")]
    HandshakeTimeout,
    #[error("no request came")]
    Silent,
    #[error("HTTP: {0}")]
    Http(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// One connection from handshake to end.
async fn connection(
    stream: TcpStream,
    tls: &TlsAcceptor,
    router: Router,
    protocols: &Protocols,
    shutdown: CancellationToken,
) -> Result<(), Ended> {
    tune(&stream).map_err(Ended::Socket)?;
    let stream = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        accepted = tokio::time::timeout(HANDSHAKE, tls.accept(stream)) => accepted
            .map_err(|_| Ended::HandshakeTimeout)?
            .map_err(Ended::Handshake)?,
    };
    let session = stream.get_ref().1;
    let server = if session.alpn_protocol() == Some(b"h2") {
        &protocols.http2
    } else {
        &protocols.http1
    };
    let peer = PeerCertificates(
        session
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|certificate| certificate.clone().into_owned())
            .collect(),
    );
    let asked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request)
    });
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    let mut first = pin!(tokio::time::sleep(FIRST_REQUEST));
    let mut waits = true;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(Ended::Http),
            () = shutdown.cancelled() => break,
            () = first.as_mut(), if waits => {
                if !seen.load(Ordering::Relaxed) {
                    return Err(Ended::Silent);
                }
                waits = false;
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    connection.await.map_err(Ended::Http)
}
