//! The TLS listener. Input: TCP connections. Output: requests over HTTP/2 or HTTP/1.1, with the
//! client certificates of the connection. After the answer 101 to a WebSocket watch, the listener
//! also sends the events of the watch (see the module `websocket`).
//!
//! The number of connections is limited. If the limit is reached, the server still accepts each new
//! connection, and evicts (closes) another connection. So no client can block new connections. The
//! module `connections` has the rules for evictions.

use super::connections::{ClientConnection, Connections, OpenSlot, RequestInFlight};
use super::delivery::AbortableExchange;
use super::settings::{has_too_large_headers, http1_settings, http2_settings, set_socket_options};
use super::websocket::{EventSocket, SocketError};
use crate::auth::PeerCertificates;
use crate::serve::request_log::ClientAddress;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Time limit of a TLS handshake. After this time, the server closes the connection. Go's HTTP
/// client has the same limit.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The server closes a newcomer that has had no open request for this time. A newcomer is a
/// connection without an authenticated request so far. No client needs such a connection for
/// longer. Clients connect when they have a request to send. A kubelet opens a new connection for
/// each probe.
const NEWCOMER_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which an idle HTTP/2 connection that is not a newcomer is closed. The kube-apiserver
/// has the same limit.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// If the server has asked a client to close its connection, the client has this time to do so.
/// After this time, the server closes the connection.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// When the server stops, open requests have this time to end. After this time, the server closes
/// their connections.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the server could not accept a connection, for example because no file descriptor was
/// free.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves requests until `shutdown` is cancelled. Then the server accepts no more connections and
/// asks clients to close their connections. After ten seconds, the server closes the remaining
/// connections. The function returns when all connections are closed.
///
/// `admission` limits the number of connections. `tls` must offer HTTP/2 and HTTP/1.1 by ALPN.
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
        // Tasks of closed connections are removed here, so that they do not accumulate.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &admission) => accepted,
        };
        let (stream, peer, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            let ended = tokio::select! {
                ended = serve_connection((stream, peer), &tls, router, &slot.connection, shutdown) => {
                    ended
                }
                () = slot.connection.wait_until_evicted() => Err(Closed::Evicted),
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
        tracing::warn!(
            open = connections.len(),
            "closed the connections that were still open at shutdown"
        );
        connections.shutdown().await;
    }
}

/// Waits for the next connection, and takes a slot for it.
async fn accept(
    listener: &TcpListener,
    admission: &Arc<Connections>,
) -> io::Result<(TcpStream, SocketAddr, OpenSlot)> {
    let socket = admission.wait_for_socket().await;
    let (stream, peer) = listener.accept().await?;
    let peer = canonical(peer);
    let slot = admission.add_newcomer(peer.ip(), socket);
    Ok((stream, peer, slot))
}

/// The reason why a connection ended early.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("socket options: {0}")]
    Socket(#[source] io::Error),
    #[error("TLS handshake: {0}")]
    Handshake(#[source] io::Error),
    #[error("TLS handshake took too long")]
    HandshakeTimeout,
    #[error("the client sent no request")]
    Silent,
    #[error("the client did not read the answer")]
    Stalled,
    #[error("evicted for another connection")]
    Evicted,
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    WebSocket(#[from] SocketError),
}

/// Returns the address of a client. For an IPv4 client, a dual-stack socket reports the address
/// `::ffff:a.b.c.d`. This function converts such an address to the IPv4 address.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// Answers the requests of one connection.
struct RequestHandler {
    router: Router,
    peer: PeerCertificates,
    address: ClientAddress,
    client: Arc<ClientConnection>,
    /// The upgrade of the connection, and the events of the WebSocket watch. None until the router
    /// has accepted a WebSocket watch.
    upgrade: Mutex<Option<(OnUpgrade, Body)>>,
}

impl RequestHandler {
    async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let in_flight = RequestInFlight::of(&self.client);
        if has_too_large_headers(&request) {
            let mut refusal = Response::new(Body::empty());
            *refusal.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Ok(in_flight.until_sent(refusal));
        }
        let upgrade = hyper::upgrade::on(&mut request);
        let extensions = request.extensions_mut();
        extensions.insert(self.peer.clone());
        extensions.insert(self.address);
        extensions.insert(Arc::clone(&self.client));
        let answer = in_flight.until_sent(self.router.clone().oneshot(request).await?);
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer);
        }
        let (head, events) = answer.into_parts();
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, events));
        let answer = Response::from_parts(head, Body::empty());
        Ok(RequestInFlight::of(&self.client).until_sent(answer))
    }

    /// Sends the events of the WebSocket watch that the router has accepted. Returns at once if
    /// there is none.
    async fn serve_upgrade(&self, shutdown: &CancellationToken) -> Result<(), Closed> {
        let accepted = self
            .upgrade
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some((upgrade, events)) = accepted else {
            return Ok(());
        };
        let going_away = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.client.wait_until_refused() => {}
            }
        };
        let socket = EventSocket::open(upgrade).await?;
        Ok(socket.serve(events, going_away).await?)
    }
}

/// Serves one connection, from the TLS handshake to its end.
async fn serve_connection(
    (stream, address): (TcpStream, SocketAddr),
    tls: &TlsAcceptor,
    router: Router,
    client: &Arc<ClientConnection>,
    shutdown: CancellationToken,
) -> Result<(), Closed> {
    set_socket_options(&stream).map_err(Closed::Socket)?;
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
    let handler = Arc::new(RequestHandler {
        router,
        peer,
        address: ClientAddress(address),
        client: Arc::clone(client),
        upgrade: Mutex::default(),
    });
    let service = {
        let handler = Arc::clone(&handler);
        hyper::service::service_fn(move |request| Arc::clone(&handler).answer(request))
    };
    let io = TokioIo::new(stream);
    // The TLS handshake has negotiated the protocol. The automatic detection of hyper-util would
    // wait for the first bytes of the client.
    if http2 {
        let connection = http2_settings().serve_connection(io, service);
        let finish = http2::Connection::graceful_shutdown;
        return serve_requests(connection, finish, client, http2, &shutdown).await;
    }
    let connection = http1_settings()
        .serve_connection(io, service)
        .with_upgrades();
    let finish = http1::UpgradeableConnection::graceful_shutdown;
    let requests = serve_requests(connection, finish, client, http2, &shutdown);
    // An HTTP/1.1 connection has only one request at a time. To abort this request, the server
    // closes the connection.
    let exchange = Arc::new(AbortableExchange::default());
    let ended = Arc::clone(&exchange).run(requests).await;
    ended.unwrap_or(Err(Closed::Stalled))?;
    // The future is boxed, so that other connections need no memory for it.
    let watch = Box::pin(handler.serve_upgrade(&shutdown));
    let ended = exchange.run(watch).await;
    ended.unwrap_or(Err(Closed::Stalled))
}

/// Serves the requests of one connection until its end. `finish` makes the connection end after its
/// open requests.
async fn serve_requests<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    finish: impl FnOnce(Pin<&mut C>),
    client: &ClientConnection,
    http2: bool,
    shutdown: &CancellationToken,
) -> Result<(), Closed> {
    let mut connection = pin!(connection);
    let stopped = tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = shutdown.cancelled() => {
            // A client that has sent no request has no request to finish. A graceful end would wait
            // for the preface of HTTP/2, which the client may not have sent yet.
            if !client.had_request() {
                return Ok(());
            }
            true
        }
        () = client.wait_until_refused() => false,
        () = wait_until_idle_timeout(client, http2) => {
            if !client.had_request() {
                return Err(Closed::Silent);
            }
            false
        }
    };
    finish(connection.as_mut());
    if stopped {
        return Ok(connection.await?);
    }
    // A client that does not close the connection in time is disconnected.
    let ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, connection).await;
    Ok(ended.unwrap_or(Ok(()))?)
}

/// Waits until the connection `client` has had no open request for too long. The limit is
/// [`NEWCOMER_IDLE_TIMEOUT`] for a newcomer, and [`IDLE_TIMEOUT`] for any other HTTP/2 connection.
/// For any other HTTP/1.1 connection, this function never returns.
async fn wait_until_idle_timeout(client: &ClientConnection, http2: bool) {
    let started = Instant::now();
    loop {
        let now = Instant::now();
        let limit = if client.is_newcomer_or_evicted() {
            NEWCOMER_IDLE_TIMEOUT
        } else if http2 {
            IDLE_TIMEOUT
        } else {
            // For HTTP/1.1, hyper limits the idle time to `HEADER_TIMEOUT`.
            return std::future::pending().await;
        };
        let due = client.idle_since().unwrap_or(now).max(started) + limit;
        if due <= now {
            return;
        }
        tokio::time::sleep_until(due).await;
    }
}
