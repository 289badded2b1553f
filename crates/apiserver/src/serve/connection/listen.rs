//! The TLS listener. Input: TCP connections. Output: requests over HTTP/2 or HTTP/1.1, with the
//! client certificates of the connection. After the answer 101 to a WebSocket watch, the listener also
//! sends the events of the watch (see the module `websocket`).
//!
//! The number of connections is limited. If the limit is reached, the server still accepts each new
//! connection, and evicts (closes) another connection. So no client can block new connections. The
//! module `connections` has the rules for evictions.

use super::connections::{ClientConnection, Connections, OpenSlot, RequestInFlight};
use super::delivery::{AbortableExchange, STALL_TIMEOUT};
use super::websocket::EventSocket;
use crate::auth::PeerCertificates;
use crate::serve::request_log::ClientAddress;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Time limit of a TLS handshake. After this time, the server closes the connection. Go's HTTP
/// client has the same limit.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The server closes a newcomer that has had no open request for this time. A newcomer is a
/// connection without a request so far, or only with requests for `/livez`, `/readyz` or
/// `/healthz`. Clients connect when they have a request to send, and a kubelet opens a new
/// connection for each probe. So no client needs a newcomer without an open request for longer.
const NEWCOMER_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which an idle connection that is not a newcomer is closed. An HTTP/1.1 client must also
/// send the headers of a request within this time. The kube-apiserver has the same limit.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// If the server has asked a client to close its connection, the client has this time to do so.
/// After this time, the server closes the connection.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of headers in one HTTP/1.1 request. A request with more headers gets a 431. The
/// front proxy (the kube-apiserver that forwards the requests of users) sends one header for each
/// group and for each extra value of the user. Some users have hundreds of groups.
const MAX_HEADERS: usize = 1000;
/// Largest size of all headers in one request and its URL, in bytes. A request with larger headers
/// gets a 431. [`header_bytes`] counts them. The limit is enough for 750 groups with names of 80
/// bytes, or for 200 groups with names of 400 bytes.
///
/// Go's limit is 1 MiB. That is too much here, because each connection may hold these bytes before
/// its user is authenticated. An HTTP/1.1 connection may hold twice the limit: hyper compares the
/// size of its buffer with the limit only if the headers in the buffer are incomplete.
const MAX_HEADER_BYTES: u32 = 96 << 10;
/// Size of the HTTP/2 flow-control windows in bytes: a client may send this many bytes of request
/// bodies that the server has not read. The server never reads request bodies, so this is the
/// smallest window that HTTP/2 allows for a connection.
const STREAM_WINDOW: u32 = 65_535;
/// Largest number of concurrent streams on one connection. The server refuses further streams. A
/// kube-apiserver may use one connection for the watches of all its clients.
const MAX_STREAMS: u32 = 1000;
/// Largest number of unsent bytes of one HTTP/2 stream: one frame. While this limit is reached,
/// hyper does not ask the body for more data.
const SEND_BUFFER: usize = 16 << 10;
/// Idle time of a TCP connection after which the kernel sends keep-alive probes. The default in Go
/// is 15 seconds.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// Time without data from an HTTP/2 client after which the server sends a ping.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit for the client to answer the ping. After this time, the server closes the connection.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
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
                sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            let ended = tokio::select! {
                ended = serve_connection((stream, peer), &tls, router, &slot.connection, shutdown) => {
                    ended
                }
                () = slot.connection.wait_until_evicted() => Err("evicted for another connection".into()),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "connection ended");
            }
            drop(slot);
        });
    }
    drop(listener);
    let drained = timeout(DRAIN_TIMEOUT, async {
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

/// Creates the settings of HTTP connections.
fn http_settings() -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES as usize)
        .header_read_timeout(IDLE_TIMEOUT)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_connection_window_size(STREAM_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Runs each stream of an HTTP/2 connection as its own task. If the client reads an answer too
/// slowly, [`AbortableExchange`] ends only the task of this stream. The connection stays open.
#[derive(Clone)]
struct Streams;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(Arc::new(AbortableExchange::default()).run(stream));
    }
}

fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    // Watch events are small. The kernel must send each event at once, and not wait for more data.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // These options close the connection of a client that is unreachable or does not read. HTTP/2
    // pings do not detect such clients, because hyper sends no ping while it cannot write to the
    // socket.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(STALL_TIMEOUT))?;
    Ok(())
}

/// The reason why a connection ended early, for the log.
type Closed = Box<dyn Error + Send + Sync>;

/// Returns the address of a client. For an IPv4 client, a dual-stack socket reports the address
/// `::ffff:a.b.c.d`. This function converts such an address to the IPv4 address.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// Returns the size of the headers and of the URL. As in HTTP/2, each header counts 32 additional
/// bytes. For HTTP/2, the library h2 has compared the size with the limit already. For HTTP/1.1,
/// hyper accepts some requests above the limit.
fn header_bytes<B>(request: &Request<B>) -> usize {
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + 32);
    let path = request.uri().path_and_query();
    headers.sum::<usize>() + path.map_or(0, |path| path.as_str().len())
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
        if header_bytes(&request) > MAX_HEADER_BYTES as usize {
            let refusal = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response();
            return Ok(in_flight.until_sent(refusal));
        }
        let upgrade = hyper::upgrade::on(&mut request);
        let extensions = request.extensions_mut();
        extensions.insert(self.peer.clone());
        extensions.insert(self.address);
        extensions.insert(Arc::clone(&self.client));
        let mut answer = in_flight.until_sent(self.router.clone().oneshot(request).await?);
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let events = std::mem::take(answer.body_mut());
            *self.upgrade() = Some((upgrade, events));
        }
        Ok(answer)
    }

    fn upgrade(&self) -> MutexGuard<'_, Option<(OnUpgrade, Body)>> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the events of the WebSocket watch that the router has accepted. Returns at once if there
    /// is none.
    async fn serve_upgrade(&self, shutdown: &CancellationToken) -> Result<(), Closed> {
        let Some((upgrade, events)) = self.upgrade().take() else {
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
    set_socket_options(&stream)?;
    let stream = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        accepted = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => accepted
            .map_err(|_| "the TLS handshake took too long")?
            .map_err(|error| format!("TLS handshake: {error}"))?,
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|it| it.clone().into_owned());
    let handler = Arc::new(RequestHandler {
        router,
        peer: PeerCertificates(certificates.collect()),
        address: ClientAddress(address),
        client: Arc::clone(client),
        upgrade: Mutex::default(),
    });
    // An HTTP/1.1 connection has only one request at a time. To abort this request, the server closes
    // the connection. In HTTP/2, the exchanges are the streams.
    let exchange = Arc::new(AbortableExchange::default());
    let requests = serve_requests(&handler, stream, &shutdown);
    let ended = Arc::clone(&exchange).run(requests).await;
    ended.unwrap_or_else(|| Err(STALLED.into()))?;
    // The future is boxed, so that other connections need no memory for it.
    let watch = Box::pin(handler.serve_upgrade(&shutdown));
    let ended = exchange.run(watch).await;
    ended.unwrap_or_else(|| Err(STALLED.into()))
}

/// The reason for closing a connection whose client reads too slowly.
const STALLED: &str = "the client did not read the answer";

/// Serves the requests of one connection until its end, or until its upgrade to WebSocket.
async fn serve_requests(
    handler: &Arc<RequestHandler>,
    stream: TlsStream<TcpStream>,
    shutdown: &CancellationToken,
) -> Result<(), Closed> {
    let service = service_fn(|request| Arc::clone(handler).answer(request));
    let settings = http_settings();
    let connection = settings.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let client = &*handler.client;
    let stopped = tokio::select! {
        ended = connection.as_mut() => return ended,
        () = shutdown.cancelled() => {
            // A client that has sent no request has no request to finish. A graceful end would wait
            // for the preface of HTTP/2, which the client may not have sent yet.
            if !client.had_request() {
                return Ok(());
            }
            true
        }
        () = client.wait_until_refused() => false,
        () = wait_until_idle_timeout(client) => {
            if !client.had_request() {
                return Err("the client sent no request".into());
            }
            false
        }
    };
    connection.as_mut().graceful_shutdown();
    if stopped {
        return connection.await;
    }
    // A client that does not close the connection in time is disconnected.
    let ended = timeout(SHUTDOWN_TIMEOUT, connection).await;
    ended.unwrap_or(Ok(()))
}

/// Waits until the connection `client` has had no open request for too long. The limit is
/// [`NEWCOMER_IDLE_TIMEOUT`] for a newcomer, and [`IDLE_TIMEOUT`] for any other connection.
async fn wait_until_idle_timeout(client: &ClientConnection) {
    let started = Instant::now();
    loop {
        let now = Instant::now();
        let limit = if client.is_newcomer_or_evicted() {
            NEWCOMER_IDLE_TIMEOUT
        } else {
            IDLE_TIMEOUT
        };
        let due = client.idle_since().unwrap_or(now).max(started) + limit;
        if due <= now {
            return;
        }
        sleep_until(due).await;
    }
}
