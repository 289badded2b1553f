//! The settings of sockets and of HTTP connections: sizes of headers and buffers, and keep-alive.

use super::delivery::{AbortableExchange, STALL_TIMEOUT};
use http::{Request, StatusCode};
use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Largest number of headers in one HTTP/1.1 request. A request with more headers gets a 431. The
/// front proxy (the kube-apiserver that forwards the requests of users) sends one header for each
/// group and for each extra value of the user. Some users have hundreds of groups.
const MAX_HEADERS: usize = 1000;
/// Largest size of the URL and all headers of one request, in bytes. A larger request gets a 431.
/// The limit is enough for 500 groups with names of 80 bytes, or for 140 groups with names of 400
/// bytes. A URL within this limit is always short enough for the crate `http`, which allows 65,534
/// bytes. Otherwise, the library h2 would reset the stream, and the kube-apiserver would repeat the
/// request for a minute.
///
/// Go's limit is 1 MiB. This is too much here, because the server holds these bytes in memory
/// before the user is authenticated. An HTTP/1.1 connection may hold twice the limit, because hyper
/// no longer checks the size of its buffer when the buffer contains all headers of a request.
const MAX_HEADER_BYTES: u32 = 64 << 10;
const _: () = assert!(MAX_HEADER_BYTES - 32 < 65_534);
/// Size of the HTTP/2 flow-control windows in bytes: a client may send this many bytes of request
/// bodies that the server has not read. The server never reads request bodies, so this is the
/// smallest window that HTTP/2 allows for a connection.
const STREAM_WINDOW: u32 = 65_535;
/// Largest number of concurrent streams on one connection. The server refuses further streams. A
/// kube-apiserver may use one connection for the watches of all its clients.
const MAX_STREAMS: u32 = 1000;
/// Largest number of unsent bytes of one HTTP/2 stream: one frame. While this limit is reached,
/// hyper does not request more data from the body.
const SEND_BUFFER: usize = 16 << 10;
/// Time limit for an HTTP/1.1 client to send the headers of a request, including the idle time
/// before the request. After this time, the server closes the connection. The kube-apiserver has
/// the same idle timeout.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// Idle time of a TCP connection after which the kernel sends keep-alive probes. The default in Go
/// is 15 seconds.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// Time without data from an HTTP/2 client after which the server sends a ping.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit for the client to answer the ping. After this time, the server closes the connection.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Creates the settings of HTTP connections.
pub(super) fn http_settings() -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_connection_window_size(STREAM_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .http1()
        .timer(TokioTimer::new())
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES as usize)
        .header_read_timeout(HEADER_TIMEOUT);
    builder
}

/// Runs each stream of an HTTP/2 connection as its own task. If the client reads an answer too
/// slowly, [`AbortableExchange`] ends only the task of this stream. The connection stays open.
#[derive(Clone)]
pub(super) struct Streams;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(Arc::new(AbortableExchange::default()).run(stream));
    }
}

/// Sets the options of the socket of a connection.
pub(super) fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    // Watch events are small. The kernel must send each event at once, and not wait for more data.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // These options close the connection of a client that is unreachable or does not read. HTTP/2
    // pings are not sufficient, because hyper sends no ping while unsent data blocks the socket.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(STALL_TIMEOUT))?;
    Ok(())
}

/// Returns the status code of the refusal if the request cannot be processed:
///
/// - 431: the headers and the URL have more than [`MAX_HEADER_BYTES`]. As in HTTP/2, each header
///   and the URL count 32 additional bytes. For HTTP/2, the library h2 has already applied the
///   limit. For HTTP/1.1, hyper accepts some requests above the limit.
/// - 400: the path does not begin with a slash. When the router removes the slashes at the end of a
///   path, it would add this slash.
pub(super) fn refusal<B>(request: &Request<B>) -> Option<StatusCode> {
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + 32);
    let path = request.uri().path_and_query().map_or("", |it| it.as_str());
    if headers.sum::<usize>() + path.len() + 32 > MAX_HEADER_BYTES as usize {
        Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
    } else {
        (!path.starts_with('/')).then_some(StatusCode::BAD_REQUEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    #[test]
    fn paths_that_cannot_be_processed_are_refused() {
        let of_path = |path: String| {
            let mut parts = http::uri::Parts::default();
            parts.path_and_query = Some(path.parse().expect("http accepts the path"));
            let mut request = Request::new(());
            *request.uri_mut() = Uri::from_parts(parts).expect("the path is complete");
            refusal(&request)
        };
        let long = |first: &str| format!("{first}{}", "a".repeat(65_505 - first.len()));
        assert_eq!(of_path("/apis?a".to_owned()), None);
        assert_eq!(of_path("?a".to_owned()), Some(StatusCode::BAD_REQUEST));
        let too_large = Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(of_path(long("/?")), too_large);
        assert_eq!(of_path(long("?")), too_large);
    }
}
