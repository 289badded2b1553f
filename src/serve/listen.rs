//! The TLS listener. Input: connections. Output: requests over HTTP/2 or HTTP/1.1, with the
//! certificates of the peer. At this level, a client can only take one of the limited places for
//! connections from other clients. The server accepts each connection at once, and evicts another
//! one if necessary (`connections` has the rules).

use super::connections::{ClientConnection, Connections, OpenSlot, RequestInFlight};
use super::delivery::{AbortableExchange, STALL_TIMEOUT};
use super::request_log::ClientAddress;
use crate::auth::PeerCertificates;
use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Time limit of a TLS handshake, as in Go's client.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A newcomer without a request is closed after this time. It is also the time limit of the first
/// request. Clients connect when they have a request, and a kubelet opens a connection for each
/// probe.
const NEWCOMER_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time of other HTTP/2 connections, as in the kube-apiserver.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time in which a connection must end after it was asked to.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of headers of one request. The front proxy sends a header for each group and each extra
/// value of a user, and some users have hundreds of groups.
const MAX_HEADERS: usize = 1000;
/// Size of all headers of one request in bytes, as HTTP/2 counts them (32 more for each): 750
/// groups with names of 80 bytes, or 200 groups with names of 400. Go's limit is 1 MiB. It would be
/// too much here, because each connection may hold it before it is authenticated.
const MAX_HEADER_BYTES: u32 = 96 << 10;
/// Bytes of request bodies that a connection may send ahead. It is the smallest value that HTTP/2
/// allows, because bodies are not used.
const STREAM_WINDOW: u32 = 65_535;
/// Concurrent streams of a connection. The aggregator uses one connection for the watches of all
/// clients.
const MAX_STREAMS: u32 = 1000;
/// Bytes of a stream that may wait to be sent before its body is polled again: one frame.
const SEND_BUFFER: usize = 16 << 10;
/// Time in which an HTTP/1.1 client must send the headers, with the idle time before them (idle
/// timeout of the kube-apiserver).
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval of TCP keep-alive probes (15 s in Go).
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// After this silence, an HTTP/2 peer gets a ping.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time in which the peer must answer the ping.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for open requests to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, for example if there are no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is cancelled. Then it accepts no more connections, asks clients to end,
/// and returns when they have ended or after ten seconds. `connections` limits the connections. By
/// ALPN, `tls` offers HTTP/2 and HTTP/1.1.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    admission: Arc<Connections>,
    shutdown: CancellationToken,
) {
    let tls = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    loop {
        // Finished tasks are removed here, so that they do not accumulate.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &admission) => accepted,
        };
        let (stream, peer, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            let ended = tokio::select! {
                ended = connection((stream, peer), &tls, router, &slot.connection, shutdown) => ended,
                () = slot.connection.evicted() => Err(Closed::Evicted),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "connection ended");
            }
            drop(slot);
        });
    }
    drop(listener);
    let drained = tokio::time::timeout(DRAIN_TIMEOUT, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!(open = connections.len(), "connections cut off at shutdown");
        connections.shutdown().await;
    }
}

/// Waits for the next connection and its place.
async fn accept(
    listener: &TcpListener,
    admission: &Arc<Connections>,
) -> io::Result<(TcpStream, SocketAddr, OpenSlot)> {
    let socket = admission.socket().await;
    let (stream, peer) = listener.accept().await?;
    let peer = canonical(peer);
    let slot = admission.enter(peer.ip(), socket);
    Ok((stream, peer, slot))
}

/// Serves the protocol that the TLS handshake negotiated, without waiting for the first byte.
fn protocol(http2: bool) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams);
    if http2 {
        builder = builder.http2_only();
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(MAX_HEADER_BYTES)
            .initial_connection_window_size(STREAM_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_concurrent_streams(MAX_STREAMS)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
    } else {
        builder = builder.http1_only();
        builder
            .http1()
            .timer(TokioTimer::new())
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEADER_BYTES as usize)
            .header_read_timeout(HEADER_TIMEOUT);
    }
    builder
}

/// Runs the streams of HTTP/2 connections. Each stream can be cut off separately.
#[derive(Clone)]
struct Streams;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(Arc::new(AbortableExchange::default()).run(stream));
    }
}

/// Sets what the kernel does for us.
fn tune(stream: &TcpStream) -> io::Result<()> {
    // Events are small and must not wait for each other.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // Detects a lost peer, and a peer that stopped reading. HTTP/2 would wait for both forever,
    // because it is not polled while the socket cannot be written.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(STALL_TIMEOUT))?;
    Ok(())
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("socket options: {0}")]
    Socket(#[source] io::Error),
    #[error("TLS handshake: {0}")]
    Handshake(#[source] io::Error),
    #[error("TLS handshake took too long")]
    HandshakeTimeout,
    #[error("no request came")]
    Silent,
    #[error("the client did not read the answer")]
    Stalled,
    #[error("evicted for another connection")]
    Evicted,
    #[error("HTTP: {0}")]
    Http(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The address of the client. A dual-stack socket shows IPv4 clients as `::ffff:a.b.c.d`.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// One connection from handshake to end.
async fn connection(
    (stream, address): (TcpStream, SocketAddr),
    tls: &TlsAcceptor,
    router: Router,
    client: &Arc<ClientConnection>,
    shutdown: CancellationToken,
) -> Result<(), Closed> {
    tune(&stream).map_err(Closed::Socket)?;
    let stream = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => accepted
            .map_err(|_| Closed::HandshakeTimeout)?
            .map_err(Closed::Handshake)?,
    };
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    let peer = PeerCertificates(
        session
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|certificate| certificate.clone().into_owned())
            .collect(),
    );
    let whose = Arc::clone(client);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(ClientAddress(address));
        request.extensions_mut().insert(Arc::clone(&whose));
        let in_flight = RequestInFlight::of(&whose);
        let answer = router.clone().oneshot(request);
        async { Ok::<_, Infallible>(in_flight.until_sent(answer.await?)) }
    });
    let protocol = protocol(http2);
    let connection = async {
        let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service));
        let stopped = tokio::select! {
            ended = connection.as_mut() => return ended.map_err(Closed::Http),
            () = shutdown.cancelled() => {
                // A client without a request has nothing to finish. If the client has not sent the
                // preface of HTTP/2, a graceful end would wait for it.
                if !client.asked() {
                    return Ok(());
                }
                true
            }
            () = client.refused() => false,
            () = until_idle(client, http2) => {
                if !client.asked() {
                    return Err(Closed::Silent);
                }
                false
            }
        };
        connection.as_mut().graceful_shutdown();
        if stopped {
            return connection.await.map_err(Closed::Http);
        }
        // A client that does not end is disconnected.
        tokio::time::timeout(SHUTDOWN_TIMEOUT, connection)
            .await
            .unwrap_or(Ok(()))
            .map_err(Closed::Http)
    };
    if http2 {
        connection.await
    } else {
        // All of it is one exchange after the other.
        let exchange = Arc::new(AbortableExchange::default());
        exchange
            .run(connection)
            .await
            .unwrap_or(Err(Closed::Stalled))
    }
}

/// Waits until a connection has been idle for as long as its class may be.
async fn until_idle(client: &ClientConnection, http2: bool) {
    let begun = Instant::now();
    loop {
        let now = Instant::now();
        let limit = if client.is_newcomer() {
            NEWCOMER_IDLE_TIMEOUT
        } else if http2 {
            IDLE_TIMEOUT
        } else {
            // HTTP/1.1 has its own limit: the one for headers.
            return std::future::pending().await;
        };
        let due = client.idle_since().unwrap_or(now).max(begun) + limit;
        if due <= now {
            return;
        }
        tokio::time::sleep_until(due).await;
    }
}
