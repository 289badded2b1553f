//! Splits the body of a watch into lines. Each line contains one event as JSON.
//!
//! The reader keeps at most [`MAX_OBJECT`](super::body_parts::MAX_OBJECT) bytes of a line, and
//! drops the rest. So a hostile or broken API server cannot fill the memory with a long line. If a
//! line has more than four times this size, reading fails. So a line cannot be endless.

use super::{
    body_parts::{BodyEnd, BodyPart, BodyReader},
    read_budget::ReadBudget,
};
use bytes::Bytes;
use futures::Stream;
use std::time::Duration;
use tokio::time::Instant;

/// Splits a stream of frames into lines. A frame is a chunk of the body, as it arrives from the
/// connection.
#[derive(Debug)]
pub(super) struct LineReader<S>(BodyReader<S>);

impl<S, E> LineReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error,
{
    /// Creates a reader of `frames`. If a line has more than `max` bytes, [`LineReader::next`]
    /// returns [`BodyPart::TooLong`].
    pub(super) fn new(frames: S, max: usize, budget: ReadBudget) -> Self {
        Self(BodyReader::new(frames, max, budget))
    }

    /// Returns the next line without its line break. Skips empty lines. If there is no further
    /// line, returns the reason as an error.
    ///
    /// Waits at most `line_timeout` for the whole line. If the line is large, the reader also waits
    /// for a permit of the [`ReadBudget`]. `line_timeout` does not include this waiting time.
    /// Cancel-safe.
    pub(super) async fn next(&mut self, line_timeout: Duration) -> Result<BodyPart, BodyEnd> {
        let mut until = Instant::now() + line_timeout;
        loop {
            if let Some(line) = self.split() {
                return Ok(line);
            }
            match self.0.read(&mut until).await {
                Err(BodyEnd::Closed) if self.0.has_begun() => {
                    return Err(BodyEnd::Broken("the stream ended within a line".into()));
                }
                read => read?,
            }
        }
    }

    /// Takes the next line from the current frame. Returns `None` if the frame contains no further
    /// line break. Then the rest of the frame is kept as the beginning of the next line.
    fn split(&mut self) -> Option<BodyPart> {
        while !self.0.frame().is_empty() {
            let Some(end) = memchr::memchr(b'\n', self.0.frame()) else {
                self.0.keep();
                return None;
            };
            let line = self.0.finish(end);
            self.0.skip(1);
            match line {
                BodyPart::Whole(line) => {
                    // Some servers send empty lines to keep the connection alive.
                    let trimmed = line.trim_ascii();
                    if !trimmed.is_empty() {
                        return Some(BodyPart::Whole(line.slice_ref(trimmed)));
                    }
                }
                too_long @ BodyPart::TooLong { .. } => return Some(too_long),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use std::io;

    const LINE_TIMEOUT: Duration = Duration::from_secs(150);

    fn lines(
        frames: Vec<&'static str>,
        max: usize,
    ) -> LineReader<impl Stream<Item = Result<Bytes, io::Error>> + Unpin> {
        LineReader::new(
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
            match lines.next(LINE_TIMEOUT).await {
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
    async fn a_line_within_one_frame_is_not_copied() {
        let text = "one\ntwo\n";
        let mut lines = lines(vec![text], 10);
        for expected in [&text[0..3], &text[4..7]] {
            let Ok(BodyPart::Whole(line)) = lines.next(LINE_TIMEOUT).await else {
                panic!("no line")
            };
            assert_eq!(line.as_ptr(), expected.as_ptr());
        }
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
    async fn silence_ends_the_lines() {
        let frames = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"one\n"))])
            .chain(stream::pending());
        let mut lines = LineReader::new(frames, 10, ReadBudget::default());
        assert_eq!(lines.next(LINE_TIMEOUT).await, Ok(whole("one")));
        assert_eq!(lines.next(LINE_TIMEOUT).await, Err(BodyEnd::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_line_is_aborted() {
        let endless = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(b"abc")));
        let mut lines = LineReader::new(endless, 10, ReadBudget::default());
        let end = lines.next(LINE_TIMEOUT).await.unwrap_err();
        assert!(matches!(end, BodyEnd::Broken(_)), "{end:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_or_empty_lines_do_not_reset_the_silence_timeout() {
        for drop in ["a", "\n", ""] {
            let dripping = stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, io::Error>(Bytes::from_static(drop.as_bytes())), ()))
            });
            let mut lines = LineReader::new(Box::pin(dripping), 1000, ReadBudget::default());
            let began = Instant::now();
            assert_eq!(
                lines.next(LINE_TIMEOUT).await,
                Err(BodyEnd::Idle),
                "{drop:?}"
            );
            assert_eq!(began.elapsed(), LINE_TIMEOUT);
        }
    }
}
