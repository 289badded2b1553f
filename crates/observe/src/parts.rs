//! Reads the body of an answer: the lines of a watch, or a whole page of a list.
//!
//! A line or page of more than the maximum size is an error, so a hostile or broken API server cannot
//! fill the memory.

use super::read_budget::{LargeObjectPermit, ReadBudget, SMALL_OBJECT};
use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use ifo_client::error_text::chain;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum size in bytes of an object and of a line. etcd stores at most 1.5 MiB for an object.
pub(super) const MAX_PART: usize = 10 << 20;

/// The reason why there is no further part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body has ended.
    Closed,
    /// The part did not arrive within the time limit.
    Idle,
    /// The part is larger than the maximum size.
    TooLong,
    /// The connection broke.
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
    budget: ReadBudget,
    permit: Option<LargeObjectPermit>,
}

impl<S, E> PartReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error,
{
    /// Creates a reader of `frames`. Each part has at most `max` bytes.
    pub(super) fn new(frames: S, max: usize, budget: ReadBudget) -> Self {
        Self {
            frames,
            max,
            frame: Bytes::new(),
            begun: BytesMut::new(),
            budget,
            permit: None,
        }
    }

    /// Returns the next line without its line break. Skips empty lines. If there is no further
    /// line, returns the reason as an error.
    ///
    /// Waits at most `limit` for the whole line. If the line is large, the reader also waits for a
    /// permit of the [`ReadBudget`]. `limit` does not include this waiting time. Cancel-safe.
    pub(super) async fn line(&mut self, limit: Duration) -> Result<Bytes, BodyEnd> {
        let mut until = Instant::now() + limit;
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(line);
            }
            match self.read(&mut until).await {
                Err(BodyEnd::Closed) if !self.begun.is_empty() => {
                    return Err(BodyEnd::Broken("the stream ended within a line".into()));
                }
                read => read?,
            }
        }
    }

    /// Returns the whole body. The time limit is the same as for [`PartReader::line`].
    pub(super) async fn page(&mut self, limit: Duration) -> Result<Bytes, BodyEnd> {
        let mut until = Instant::now() + limit;
        loop {
            let frame = std::mem::take(&mut self.frame);
            self.add(&frame)?;
            match self.read(&mut until).await {
                Err(BodyEnd::Closed) => return Ok(self.finish()),
                read => read?,
            }
        }
    }

    /// Takes the next line from the current frame. Returns `None` if the frame contains no further
    /// line break. Then the rest of the frame is kept as the beginning of the next line.
    fn take_line(&mut self) -> Result<Option<Bytes>, BodyEnd> {
        while !self.frame.is_empty() {
            let Some(end) = memchr::memchr(b'\n', &self.frame) else {
                let rest = std::mem::take(&mut self.frame);
                self.add(&rest)?;
                return Ok(None);
            };
            let mut line = self.frame.split_to(end);
            self.frame.advance(1);
            if !self.begun.is_empty() || line.len() > self.max {
                self.add(&line)?;
                line = self.finish();
            }
            // Some servers send empty lines to keep the connection alive.
            let trimmed = line.trim_ascii();
            if !trimmed.is_empty() {
                return Ok(Some(line.slice_ref(trimmed)));
            }
        }
        Ok(None)
    }

    /// Waits for the next frame, at most until `until`. If the current part is large, this method
    /// first waits for a permit, and moves `until` by the waiting time.
    async fn read(&mut self, until: &mut Instant) -> Result<(), BodyEnd> {
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

    fn add(&mut self, part: &Bytes) -> Result<(), BodyEnd> {
        if self.begun.len() + part.len() > self.max {
            return Err(BodyEnd::TooLong);
        }
        self.begun.extend_from_slice(part);
        Ok(())
    }

    /// Returns the current part. If it is large, the returned bytes hold the permit for large objects.
    fn finish(&mut self) -> Bytes {
        let bytes = std::mem::take(&mut self.begun).freeze();
        match self.permit.take() {
            Some(permit) => permit.bind_to(bytes),
            None => bytes,
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

    async fn read_all(frames: Vec<&'static str>, max: usize) -> (Vec<Bytes>, BodyEnd) {
        let mut lines = lines(frames, max);
        let mut got = Vec::new();
        loop {
            match lines.line(LINE_TIMEOUT).await {
                Ok(line) => got.push(line),
                Err(end) => return (got, end),
            }
        }
    }

    #[tokio::test]
    async fn lines_are_reassembled_from_any_framing() {
        let text = "one\ntwo\r\n\nthree\n";
        for cut in 0..=text.len() {
            let got = read_all(vec![&text[..cut], &text[cut..]], 10).await;
            assert_eq!(
                got,
                (
                    vec!["one".into(), "two".into(), "three".into()],
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
    async fn an_overlong_line_is_an_error() {
        for last in ["\n", ""] {
            let got = read_all(vec!["1234567890\n123456", "7890", "1", last], 10).await;
            assert_eq!(got, (vec!["1234567890".into()], BodyEnd::TooLong));
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_within_a_line_is_an_error() {
        let (got, end) = read_all(vec!["one\ntw"], 10).await;
        assert_eq!(got, ["one"]);
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
