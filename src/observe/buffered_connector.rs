//! Opens connections that read ahead: each read from the socket fills a buffer, and TLS reads from
//! this buffer.
//!
//! rustls reads at most 4 KiB from the socket at a time. A watch event is often larger, so it would
//! need several system calls. With the buffer, one system call reads up to 18 KiB of the data that
//! has arrived.

use futures::TryFutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::BufReader;
use tower::Service;

/// Size of the buffer in bytes. The largest TLS record (16 KiB and a header) fits into it.
const READ_AHEAD: usize = 18 << 10;

/// Opens connections with the connector `C`, and adds a read buffer to each connection.
#[derive(Clone, Debug)]
pub(super) struct BufferedConnector<C>(pub(super) C);

impl<C> Service<Uri> for BufferedConnector<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Response: Read + Write + Unpin,
{
    type Response = BufferedConnection<C::Response>;
    type Error = C::Error;
    type Future = BoxFuture<'static, Result<Self::Response, C::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.0.call(uri).map_ok(|connection| {
            let reader = BufReader::with_capacity(READ_AHEAD, TokioIo::new(connection));
            BufferedConnection(TokioIo::new(reader))
        }))
    }
}

/// A connection that reads ahead. Writes are not buffered.
#[derive(Debug)]
pub(super) struct BufferedConnection<T>(TokioIo<BufReader<TokioIo<T>>>);

impl<T: Connection + Read> Connection for BufferedConnection<T> {
    fn connected(&self) -> Connected {
        self.0.inner().get_ref().inner().connected()
    }
}

impl<T: Read + Unpin> Read for BufferedConnection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<T: Read + Write + Unpin> Write for BufferedConnection<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, parts)
    }
}
