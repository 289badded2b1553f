//! Reads the body of an answer: the lines of a watch, or a whole page of a list.
//!
//! The reader keeps at most [`MAX_PART`] bytes of a line or page, and drops the rest. So a hostile
//! or broken API server cannot fill the memory. If a line has more than four times this size,
//! reading fails. So a line cannot be endless.

use super::read_budget::{LargeObjectPermit, ReadBudget, SMALL_OBJECT};
use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use ifo_client::error_text::chain;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum size in bytes of a line or page that is kept. etcd stores at most 1.5 MiB for an object.
pub(super) const MAX_PART: usize = 8 << 20;

/// If a line has more than this number times the maximum size, reading fails.
const UNTERMINATED: u64 = 4;

/// A line or a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyPart {
    /// The whole line or page. If it is large, these bytes hold the permit for large objects.
    Whole(Bytes),
    /// A line or page that is too long.
    TooLong {
        /// For a line, its length in bytes. For a page, the number of bytes that have arrived.
        length: u64,
        /// The beginning.
        head: Bytes,
    },
}

/// The reason why there is no further part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body has ended.
    Closed,
    /// The part did not arrive within the time limit.
    Idle,
    /// The connection broke, or the API server sent a line without an end.
    Broken(String),
}

/// Reads a stream of frames. A frame is a chunk of the body, as it arrives from the connection.
#[derive(Debug)]
pub(super) struct PartReader<S> {
    frames: S,
    max: usize,
    /// The unread rest of the latest frame.
    frame: Bytes,
    /// The beginning of the current part, at most `max` bytes. A line within one frame is not
    /// copied to this buffer.
    begun: BytesMut,
    /// Number of bytes of the current part that have been taken from frames.
    length: u64,
    budget: ReadBudget,
    permit: Option<LargeObjectPermit>,
}

impl<S, E> PartReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error,
{
    /// Creates a reader of `frames` that keeps at most `max` bytes of each part.
    pub(super) fn new(frames: S, max: usize, budget: ReadBudget) -> Self {
        Self {
            frames,
            max,
            frame: Bytes::new(),
            begun: BytesMut::new(),
            length: 0,
            budget,
            permit: None,
        }
    }

    /// Returns the next line without its line break. Skips empty lines. If there is no further
    /// line, returns the reason as an error.
    ///
    /// Waits at most `limit` for the whole line. If the line is large, the reader also waits for a
    /// permit of the [`ReadBudget`]. `limit` does not include this waiting time. Cancel-safe.
    pub(super) async fn line(&mut self, limit: Duration) -> Result<BodyPart, BodyEnd> {
        let mut until = Instant::now() + limit;
        loop {
            if let Some(line) = self.take_line() {
                return Ok(line);
            }
            match self.read(&mut until).await {
                Err(BodyEnd::Closed) if self.length > 0 => {
                    return Err(BodyEnd::Broken("the stream ended within a line".into()));
                }
                read => read?,
            }
        }
    }

    /// Returns the whole body. If the body is too long, reads only its beginning. The time limit is
    /// the same as for [`PartReader::line`].
    pub(super) async fn page(&mut self, limit: Duration) -> Result<BodyPart, BodyEnd> {
        let mut until = Instant::now() + limit;
        loop {
            let frame = std::mem::take(&mut self.frame);
            self.add(&frame);
            if self.length > self.max as u64 {
                return Ok(self.finish());
            }
            match self.read(&mut until).await {
                Err(BodyEnd::Closed) => return Ok(self.finish()),
                read => read?,
            }
        }
    }

    /// Takes the next line from the current frame. Returns `None` if the frame contains no further
    /// line break. Then the rest of the frame is kept as the beginning of the next line.
    fn take_line(&mut self) -> Option<BodyPart> {
        while !self.frame.is_empty() {
            let Some(end) = memchr::memchr(b'\n', &self.frame) else {
                let rest = std::mem::take(&mut self.frame);
                self.add(&rest);
                return None;
            };
            let part = self.frame.split_to(end);
            self.frame.advance(1);
            let line = if self.length == 0 && part.len() <= self.max {
                BodyPart::Whole(part)
            } else {
                self.add(&part);
                self.finish()
            };
            let BodyPart::Whole(line) = line else {
                return Some(line);
            };
            // Some servers send empty lines to keep the connection alive.
            let trimmed = line.trim_ascii();
            if !trimmed.is_empty() {
                return Some(BodyPart::Whole(line.slice_ref(trimmed)));
            }
        }
        None
    }

    /// Waits for the next frame, at most until `until`. If the current part is large, this method
    /// first waits for a permit, and moves `until` by the waiting time.
    async fn read(&mut self, until: &mut Instant) -> Result<(), BodyEnd> {
        if self.length > UNTERMINATED * self.max as u64 {
            return Err(BodyEnd::Broken(format!(
                "{} bytes have arrived without the end of the line",
                self.length
            )));
        }
        if self.begun.len() > SMALL_OBJECT && self.permit.is_none() {
            let began = Instant::now();
            self.permit = Some(self.budget.large_object_permit().await);
            *until += began.elapsed();
        }
        let deadline = match &self.permit {
            Some(permit) => permit.receive_deadline.min(*until),
            None => *until,
        };
        // `timeout_at` alone never times out if each frame is already there.
        let frame = if Instant::now() < deadline {
            timeout_at(deadline, self.frames.next()).await.ok()
        } else {
            None
        };
        match frame {
            Some(Some(Ok(frame))) => {
                self.frame = frame;
                Ok(())
            }
            Some(Some(Err(error))) => Err(BodyEnd::Broken(chain(&error))),
            Some(None) => Err(BodyEnd::Closed),
            None if deadline < *until => Err(BodyEnd::Broken(
                "the rest of a large object did not arrive in time".into(),
            )),
            None => Err(BodyEnd::Idle),
        }
    }

    fn add(&mut self, part: &Bytes) {
        let room = self.max - self.begun.len();
        self.begun
            .extend_from_slice(part.get(..room).unwrap_or(part));
        self.length += part.len() as u64;
    }

    fn finish(&mut self) -> BodyPart {
        let length = std::mem::take(&mut self.length);
        let mut bytes = std::mem::take(&mut self.begun).freeze();
        if let Some(permit) = self.permit.take() {
            bytes = permit.bind_to(bytes);
        }
        if length > self.max as u64 {
            let head = bytes;
            BodyPart::TooLong { length, head }
        } else {
            BodyPart::Whole(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use std::io;

    const LINE_TIMEOUT: Duration = Duration::from_secs(150);

    fn lines(
        frames: Vec<&'static str>,
        max: usize,
    ) -> PartReader<impl Stream<Item = Result<Bytes, io::Error>> + Unpin> {
        PartReader::new(
            stream::iter(
                frames
                    .into_iter()
                    .map(|f| Ok(Bytes::from_static(f.as_bytes()))),
            ),
            max,
            ReadBudget::default(),
        )
    }

    async fn read_all(frames: Vec<&'static str>, max: usize) -> (Vec<BodyPart>, BodyEnd) {
        let mut lines = lines(frames, max);
        let mut got = Vec::new();
        loop {
            match lines.line(LINE_TIMEOUT).await {
                Ok(line) => got.push(line),
                Err(end) => return (got, end),
            }
        }
    }

    fn whole(text: &'static str) -> BodyPart {
        BodyPart::Whole(Bytes::from_static(text.as_bytes()))
    }

    fn too_long(length: u64, head: &'static str) -> BodyPart {
        let head = Bytes::from_static(head.as_bytes());
        BodyPart::TooLong { length, head }
    }

    #[tokio::test]
    async fn lines_are_reassembled_from_any_framing() {
        let text = "one\ntwo\r\n\nthree\n";
        for cut in 0..=text.len() {
            let got = read_all(vec![&text[..cut], &text[cut..]], 10).await;
            assert_eq!(
                got,
                (
                    vec![whole("one"), whole("two"), whole("three")],
                    BodyEnd::Closed
                ),
                "cut at {cut}"
            );
        }
        let got = read_all(
            text.as_bytes()
                .iter()
                .map(|b| std::str::from_utf8(std::slice::from_ref(b)).unwrap())
                .collect(),
            10,
        )
        .await;
        assert_eq!(got.0.len(), 3);
    }

    #[tokio::test]
    async fn an_overlong_line_is_truncated_and_the_next_one_is_read() {
        let got = read_all(
            vec![
                "12345678901\nok\n",
                "123456",
                "7890",
                "123",
                "\n1234567890\n",
            ],
            10,
        )
        .await;
        let lines = vec![
            too_long(11, "1234567890"),
            whole("ok"),
            too_long(13, "1234567890"),
            whole("1234567890"),
        ];
        assert_eq!(got, (lines, BodyEnd::Closed));
    }

    #[tokio::test]
    async fn a_stream_that_ends_within_a_line_is_an_error() {
        for frames in [vec!["one\ntw"], vec!["one\n12345678901"]] {
            let (got, end) = read_all(frames, 10).await;
            assert_eq!(got, [whole("one")]);
            assert!(matches!(end, BodyEnd::Broken(_)), "{end:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_line_is_aborted() {
        let endless = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(b"abc")));
        let mut lines = PartReader::new(endless, 10, ReadBudget::default());
        let end = lines.line(LINE_TIMEOUT).await.unwrap_err();
        assert!(matches!(end, BodyEnd::Broken(_)), "{end:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_or_empty_lines_do_not_reset_the_silence_timeout() {
        for drop in ["a", "\n", ""] {
            let dripping = stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, io::Error>(Bytes::from_static(drop.as_bytes())), ()))
            });
            let mut lines = PartReader::new(Box::pin(dripping), 1000, ReadBudget::default());
            let began = Instant::now();
            assert_eq!(
                lines.line(LINE_TIMEOUT).await,
                Err(BodyEnd::Idle),
                "{drop:?}"
            );
            assert_eq!(began.elapsed(), LINE_TIMEOUT);
        }
    }
}
