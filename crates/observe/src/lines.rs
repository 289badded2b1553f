//! Reads the lines of a watch. A line of more than [`MAX_OBJECT`] is an error, so a hostile or broken
//! API server cannot fill the memory.
//!
//! All feeds of a cluster share one permit for large objects and for pages of lists. A feed needs
//! the permit for an object of more than [`SMALL_OBJECT`]. The feed keeps the permit until its
//! consumer has dropped the object. So only one large object at a time is in memory.

use super::{
    InvalidData,
    requests::{Failure, unreachable},
};
use bytes::{Bytes, BytesMut};
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use ifo_client::error_text::chain;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// Maximum size in bytes of an object and of a line. etcd stores at most 1.5 MiB for an object, which
/// JSON can escape to 9 MiB.
pub(super) const MAX_OBJECT: usize = 10 << 20;

/// Number of bytes of an object that a feed may hold without a permit. Few objects are larger.
pub(super) const SMALL_OBJECT: usize = 64 << 10;

/// Time in which a feed with the permit must receive the rest of its object or of its page. After this
/// time, the watch or list fails, and the next feed gets the permit.
pub(super) const LARGE_OBJECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The only permit for large objects and for pages. tokio's semaphore gives it to the waiters in order.
pub(super) type LargeObjects = Arc<Semaphore>;

/// Bytes that keep the permit until the last clone of them is dropped.
struct Permitted {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Permitted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The result of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine {
    /// A line that is not empty, without its line break.
    Line(Bytes),
    /// No line has arrived within the time limit.
    Idle,
    /// The body has ended.
    End,
}

/// The lines of an answer.
pub(super) struct Lines<B> {
    body: B,
    /// The received bytes that are not part of a returned line yet.
    received: BytesMut,
    large_objects: LargeObjects,
}

impl<B: AsyncBufRead + Unpin> Lines<B> {
    pub(super) fn new(body: B, large_objects: LargeObjects) -> Self {
        Self {
            body,
            received: BytesMut::new(),
            large_objects,
        }
    }

    /// Waits at most `limit` for the next line. If the line is large, the reader also waits for the
    /// permit, which the line then keeps. `limit` does not include this wait.
    pub(super) async fn next(&mut self, limit: Duration) -> Result<NextLine, Failure> {
        let mut permit = None;
        let mut until = Instant::now() + limit;
        let mut searched = 0;
        loop {
            while let Some(end) = memchr::memchr(b'\n', &self.received[searched..]) {
                let line = self.received.split_to(searched + end + 1).freeze();
                if line.len() > SMALL_OBJECT {
                    // The line and the remaining bytes share an allocation. The remaining bytes are
                    // copied, so that they do not keep this allocation.
                    self.received = BytesMut::from(&self.received[..]);
                }
                searched = 0;
                // Some servers send empty lines to keep the connection alive.
                let trimmed = line.trim_ascii();
                if trimmed.len() > MAX_OBJECT {
                    return Err(InvalidData::TooLarge.into());
                }
                if !trimmed.is_empty() {
                    let line = line.slice_ref(trimmed);
                    return Ok(NextLine::Line(match permit {
                        Some(permit) => Bytes::from_owner(Permitted {
                            bytes: line,
                            _permit: permit,
                        }),
                        None => line,
                    }));
                }
            }
            searched = self.received.len();
            if searched > MAX_OBJECT {
                return Err(InvalidData::TooLarge.into());
            }
            if searched > SMALL_OBJECT && permit.is_none() {
                // The semaphore is never closed.
                permit = self.large_objects.clone().acquire_owned().await.ok();
                until = Instant::now() + LARGE_OBJECT_TIMEOUT;
            }
            let frame = match timeout_at(until, self.body.fill_buf()).await {
                Ok(Ok(frame)) => frame,
                Ok(Err(error)) => return Err(unreachable(chain(&error))),
                Err(_) if permit.is_some() => {
                    let why = "the rest of a large object did not arrive in time";
                    return Err(unreachable(why));
                }
                Err(_) => return Ok(NextLine::Idle),
            };
            if frame.is_empty() {
                return match searched {
                    0 => Ok(NextLine::End),
                    _ => Err(unreachable("the stream ended within a line")),
                };
            }
            self.received.extend_from_slice(frame);
            let length = frame.len();
            self.body.consume_unpin(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, TryStreamExt as _, stream};
    use std::io;

    const LINE_TIMEOUT: Duration = Duration::from_secs(150);

    fn lines(frames: Vec<Bytes>) -> Lines<impl AsyncBufRead + Unpin> {
        let frames = stream::iter(frames.into_iter().map(Ok::<_, io::Error>));
        Lines::new(frames.into_async_read(), Arc::new(Semaphore::new(1)))
    }

    async fn read_all(frames: Vec<Bytes>) -> (Vec<Bytes>, Result<NextLine, Failure>) {
        let mut lines = lines(frames);
        let mut read = Vec::new();
        loop {
            match lines.next(LINE_TIMEOUT).await {
                Ok(NextLine::Line(line)) => read.push(line),
                end => return (read, end),
            }
        }
    }

    #[tokio::test]
    async fn lines_are_reassembled_from_any_framing() {
        let text = Bytes::from("one\ntwo\r\n\nthree\n");
        let whole = || {
            (
                vec!["one".into(), "two".into(), "three".into()],
                Ok(NextLine::End),
            )
        };
        for cut in 1..text.len() {
            let frames = vec![text.slice(..cut), text.slice(cut..)];
            assert_eq!(read_all(frames).await, whole(), "cut at {cut}");
        }
        let bytes = (0..text.len()).map(|at| text.slice(at..=at));
        assert_eq!(read_all(bytes.collect()).await, whole());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_or_incomplete_is_an_error() {
        let part = Bytes::from(vec![b'x'; 1 << 20]);
        let (read, end) = read_all([vec!["one\n".into()], vec![part; 11]].concat()).await;
        assert_eq!(
            (read, end),
            (vec!["one".into()], Err(InvalidData::TooLarge.into()))
        );
        let (read, end) = read_all(vec!["one\ntw".into()]).await;
        assert_eq!(read, ["one"]);
        assert!(matches!(end, Err(Failure::Lost(_))), "{end:?}");
    }

    #[tokio::test]
    async fn the_memory_of_a_large_line_is_released_with_the_line() {
        let mut lines = lines(vec![vec![b'x'; 1 << 20].into(), "\none\ntwo\n".into()]);
        for _ in 0..3 {
            let line = lines.next(LINE_TIMEOUT).await;
            assert!(matches!(line, Ok(NextLine::Line(_))), "{line:?}");
        }
        lines.received.reserve(1);
        assert!(lines.received.capacity() < SMALL_OBJECT);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_or_empty_lines_do_not_reset_the_time_limit() {
        for drop in ["a", "\n"] {
            let dripping = stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, io::Error>(Bytes::from_static(drop.as_bytes())), ()))
            });
            let body = dripping.boxed().into_async_read();
            let mut lines = Lines::new(body, Arc::new(Semaphore::new(1)));
            let began = Instant::now();
            assert_eq!(
                lines.next(LINE_TIMEOUT).await,
                Ok(NextLine::Idle),
                "{drop:?}"
            );
            assert_eq!(began.elapsed(), LINE_TIMEOUT);
        }
    }
}
