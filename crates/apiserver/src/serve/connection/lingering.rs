//! The socket of a connection. When the server closes the connection, the client can still read the
//! last answer.
//!
//! If a program closes a socket whose last bytes it has not read, the kernel sends a TCP reset, and
//! the client can lose the end of an answer. For example, an HTTP/2 client sends window updates
//! while it reads. So the server first closes only its own direction, and discards what the client
//! sends, until the client closes its direction too. Go's HTTP/2 server waits in the same way.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Longest time that the server waits until the client closes its direction. It is enough for one
/// round trip, as in Go (`goAwayTimeout`).
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// A TCP stream whose `shutdown` waits until the client has closed its direction, but at most
/// [`LINGER_TIMEOUT`].
pub(super) struct LingeringStream {
    stream: TcpStream,
    /// End of the wait. None until the server has closed its own direction.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl From<TcpStream> for LingeringStream {
    fn from(stream: TcpStream) -> Self {
        Self {
            stream,
            deadline: None,
        }
    }
}

impl AsyncRead for LingeringStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LingeringStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, deadline } = &mut *self;
        if deadline.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let deadline = deadline.get_or_insert_with(|| Box::pin(sleep(LINGER_TIMEOUT)));
        let mut discarded = [0; 1024];
        while deadline.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut discarded);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_client_that_still_sends_reads_the_whole_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("the client has connected");
        client.write_all(b"unread").await.expect("it is connected");
        stream.readable().await.expect("the client has sent bytes");

        let server = tokio::spawn(async move {
            let mut stream = LingeringStream::from(stream);
            stream.write_all(b"answer").await?;
            stream.shutdown().await
        });
        let mut answer = [0; 6];
        client.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"answer");
        assert_eq!(client.read(&mut answer).await.expect("no reset"), 0);
        client.write_all(b"more").await.expect("no reset");
        drop(client);
        let ended = server.await.expect("it does not panic");
        ended.expect("the server closes the connection after the client");
    }
}
