//! The TLS listener. Input: TCP connections. Output: requests over HTTP/2 or HTTP/1.1, with the
//! client certificates of the connection. After the answer 101 to a WebSocket watch, the listener
//! also sends the events of the watch (see the module `websocket`).
//!
//! The number of connections is limited. If the limit is reached, the server still accepts each new
//! connection, and evicts (closes) another connection. So no client can block new connections. The
//! module `connections` selects the evicted connection.

use super::connections::{ClientConnection, Connections, OpenSlot, RequestInFlight};
use super::delivery::AbortableExchange;
use super::lingering::LingeringStream;
use super::settings::{http_settings, refusal, set_socket_options};
use super::websocket::EventSocket;
use crate::auth::PeerCertificates;
use crate::serve::request_log::ClientAddress;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Router};
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// Time limit of a TLS handshake. After this time, the server closes the connection. Go's HTTP
/// client has the same limit.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the open requests of a connection, after the server has asked the client to close
/// the connection. After this time, the server closes the connection. The server asks all clients
/// when it stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before the server tries again to accept a connection after an error. For example, no file
/// descriptor was free.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves requests until `shutdown` is cancelled. Then the server accepts no more connections and
/// asks clients to close their connections. After ten seconds, the server closes the remaining
/// connections. The function returns when all connections are closed.
///
/// `connections` limits the number of connections. `tls` must offer HTTP/2 and HTTP/1.1 by ALPN.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    connections: Arc<Connections>,
    shutdown: CancellationToken,
) {
    let tls = TlsAcceptor::from(tls);
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &connections, &shutdown) => accepted,
        };
        let (stream, peer, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let (tls, router) = (tls.clone(), router.clone());
        tasks.spawn(async move {
            let client = &slot.connection;
            let ended = tokio::select! {
                ended = serve_connection((stream, peer), &tls, router, client) => ended,
                () = client.evicted.cancelled() => Err("evicted for another connection".into()),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, error, "connection ended");
            }
            drop(slot);
        });
    }
    drop(listener);
    tasks.close();
    if timeout(CLOSE_TIMEOUT / 2, tasks.wait()).await.is_err() {
        let open = tasks.len();
        tracing::warn!(
            open,
            "connections are still open at shutdown; they are closed soon"
        );
        tasks.wait().await;
    }
}

/// Waits for the next connection, and takes a slot for it.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Connections>,
    shutdown: &CancellationToken,
) -> io::Result<(TcpStream, SocketAddr, OpenSlot)> {
    let (stream, peer) = listener.accept().await?;
    // For an IPv4 client, a dual-stack socket reports the address `::ffff:a.b.c.d`.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let closing = shutdown.child_token();
    let slot = connections.add_newcomer(peer.ip(), closing).await;
    Ok((stream, peer, slot))
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
        let in_flight = Arc::new(RequestInFlight::of(&self.client));
        if let Some(refusal) = refusal(&request) {
            return Ok(refusal.into_response());
        }
        let is_head = request.method() == Method::HEAD;
        let upgrade = hyper::upgrade::on(&mut request);
        let extensions = request.extensions_mut();
        extensions.insert(self.peer.clone());
        extensions.insert(self.address);
        extensions.insert(Arc::clone(&self.client));
        extensions.insert(Arc::clone(&in_flight));
        let mut answer = self.router.clone().oneshot(request).await?;
        if is_head && answer.headers().get(CONTENT_LENGTH) == Some(&HeaderValue::from(0)) {
            // For HEAD requests, axum replaces the body by an empty body, and sets this header. The
            // length of the real body is not known.
            answer.headers_mut().remove(CONTENT_LENGTH);
        }
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer);
        }
        let (head, events) = answer.into_parts();
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, events));
        Ok(Response::from_parts(head, Body::empty()))
    }

    /// Sends the events of the WebSocket watch that the router has accepted. Returns at once if the
    /// router has accepted no WebSocket watch.
    async fn serve_upgrade(&self) -> Result<(), BoxError> {
        let accepted = self
            .upgrade
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some((upgrade, events)) = accepted else {
            return Ok(());
        };
        let socket = EventSocket::open(upgrade).await?;
        socket.serve(events, self.client.closing.cancelled()).await
    }
}

/// Serves one connection, from the TLS handshake to its end.
async fn serve_connection(
    (stream, address): (TcpStream, SocketAddr),
    tls: &TlsAcceptor,
    router: Router,
    client: &Arc<ClientConnection>,
) -> Result<(), BoxError> {
    set_socket_options(&stream)?;
    let stream = tokio::select! {
        biased;
        () = client.closing.cancelled() => return Ok(()),
        accepted = timeout(HANDSHAKE_TIMEOUT, tls.accept(LingeringStream::from(stream))) => accepted??,
    };
    let session = stream.get_ref().1;
    let certificates = session.peer_certificates().unwrap_or_default().iter();
    let handler = Arc::new(RequestHandler {
        router,
        peer: PeerCertificates(certificates.map(|it| it.clone().into_owned()).collect()),
        address: ClientAddress(address),
        client: Arc::clone(client),
        upgrade: Mutex::default(),
    });
    let service = {
        let handler = Arc::clone(&handler);
        hyper::service::service_fn(move |request| Arc::clone(&handler).answer(request))
    };
    // hyper-util recognizes the protocol by the first bytes of the client.
    let settings = http_settings();
    let requests = settings.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut requests = Box::pin(requests);
    let requests = async {
        tokio::select! {
            ended = requests.as_mut() => return ended,
            () = client.closing.cancelled() => {}
            () = client.wait_until_idle_timeout() => {}
        }
        // If the client has sent no request, the connection is closed at once. A graceful shutdown
        // would wait for the first bytes of the client.
        if !client.had_request() {
            return Ok(());
        }
        requests.as_mut().graceful_shutdown();
        timeout(CLOSE_TIMEOUT, requests).await?
    };
    // If a client reads an answer too slowly, the module `delivery` aborts the exchange. In
    // HTTP/1.1, the whole connection is one exchange, because the server can abort a request only
    // by closing the connection. In HTTP/2, each stream is an exchange of its own.
    let exchange = Arc::new(AbortableExchange::default()).run(async {
        requests.await?;
        // Only few connections are WebSocket watches. Without the box, every connection would need
        // memory for this future.
        Box::pin(handler.serve_upgrade()).await
    });
    let ended = exchange.await;
    ended.unwrap_or_else(|| Err("the client did not read the answer".into()))
}
