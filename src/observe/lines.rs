//! A body's frames in, complete lines out.
//!
//! A line that lies within one frame is a slice of it; one that spans several is copied
//! once. A line is at most [`MAX_LINE`] long: of a longer one only the beginning is kept,
//! so a hostile or broken server costs no more memory than that; nor more time, since a
//! line that does not end is given up.

use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The longest line, in bytes. etcd refuses requests above 1.5 MiB by default, so an
/// object ten times that size is not one that a Kubernetes API server stored.
pub(super) const MAX_LINE: usize = 16 << 20;

/// How many times its cap a line may have before it is one that never ends: what a page
/// of a list may have at most.
const ENDLESS: u64 = 4;

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All of it; never empty.
    Whole(Bytes),
    /// It was longer than the cap, and is gone but for its beginning.
    TooLong {
        /// The number of its bytes.
        length: u64,
        /// As much of it as the cap allows.
        head: Bytes,
    },
}

/// Why no more lines come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The body ended cleanly, at the end of a line.
    Closed,
    /// No line came for as long as was allowed.
    Idle,
    /// The body broke, or ended within a line.
    Broken(String),
}

/// Splits a stream of frames into lines.
#[derive(Debug)]
pub(super) struct Lines<S> {
    frames: S,
    max: usize,
    /// What is left of the frame that came last.
    frame: Bytes,
    /// The beginning of a line whose end has not come yet.
    begun: BytesMut,
    /// The bytes so far of the over-long line whose beginning is in `begun`.
    skipped: Option<u64>,
}

impl<S, E> Lines<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error,
{
    /// Lines of at most `max` bytes from `frames`.
    pub(super) fn new(frames: S, max: usize) -> Self {
        Self {
            frames,
            max,
            frame: Bytes::new(),
            begun: BytesMut::new(),
            skipped: None,
        }
    }

    /// The next line, or why there is none; waits at most `idle` for all of it, however
    /// much of it comes, or how many empty ones. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, idle: Duration) -> Result<Line, End> {
        let until = Instant::now() + idle;
        loop {
            if let Some(line) = self.split() {
                return Ok(line);
            }
            if let Some(length) = self.skipped
                && length > ENDLESS * self.max as u64
            {
                return Err(End::Broken(format!("a line of more than {length} bytes")));
            }
            // Of a frame that is always there the timeout would say nothing.
            if Instant::now() >= until {
                return Err(End::Idle);
            }
            match timeout_at(until, self.frames.next()).await {
                Err(_) => return Err(End::Idle),
                Ok(Some(Ok(frame))) => self.frame = frame,
                Ok(Some(Err(error))) => return Err(End::Broken(chain(&error))),
                Ok(None) if self.begun.is_empty() && self.skipped.is_none() => {
                    return Err(End::Closed);
                }
                Ok(None) => return Err(End::Broken("the stream ended within a line".into())),
            }
        }
    }

    /// Takes the next line from the frame at hand, or all of the frame if it has none.
    fn split(&mut self) -> Option<Line> {
        while !self.frame.is_empty() {
            let Some(end) = memchr::memchr(b'\n', &self.frame) else {
                let rest = std::mem::take(&mut self.frame);
                self.keep(&rest);
                return None;
            };
            let part = self.frame.split_to(end);
            self.frame.advance(1);
            if let Some(line) = self.finish(part) {
                return Some(line);
            }
        }
        None
    }

    /// Adds to the line that has begun, as far as the cap allows.
    fn keep(&mut self, part: &Bytes) {
        if let Some(skipped) = &mut self.skipped {
            *skipped += part.len() as u64;
            return;
        }
        let room = self.max - self.begun.len();
        if part.len() > room {
            self.skipped = Some((self.begun.len() + part.len()) as u64);
        }
        let kept = part.get(..room).unwrap_or(part);
        self.begun.extend_from_slice(kept);
    }

    /// The line that ends with `part`; none if it is empty, as keep-alives are.
    fn finish(&mut self, part: Bytes) -> Option<Line> {
        let line = if self.begun.is_empty() && self.skipped.is_none() && part.len() <= self.max {
            part
        } else {
            self.keep(&part);
            let begun = std::mem::take(&mut self.begun).freeze();
            if let Some(length) = self.skipped.take() {
                return Some(Line::TooLong {
                    length,
                    head: begun,
                });
            }
            begun
        };
        let trimmed = line.trim_ascii();
        (!trimmed.is_empty()).then(|| Line::Whole(line.slice_ref(trimmed)))
    }
}

/// An error with its sources, on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        // Many errors repeat their source in their own text.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = error.source();
    }
    text.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use std::io;

    const IDLE: Duration = Duration::from_secs(150);

    fn lines(
        frames: Vec<&'static str>,
        max: usize,
    ) -> Lines<impl Stream<Item = Result<Bytes, io::Error>> + Unpin> {
        Lines::new(
            stream::iter(
                frames
                    .into_iter()
                    .map(|f| Ok(Bytes::from_static(f.as_bytes()))),
            ),
            max,
        )
    }

    async fn all(frames: Vec<&'static str>, max: usize) -> (Vec<Line>, End) {
        let mut lines = lines(frames, max);
        let mut got = Vec::new();
        loop {
            match lines.next(IDLE).await {
                Ok(line) => got.push(line),
                Err(end) => return (got, end),
            }
        }
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    fn too_long(length: u64, head: &'static str) -> Line {
        let head = Bytes::from_static(head.as_bytes());
        Line::TooLong { length, head }
    }

    #[tokio::test]
    async fn lines_come_out_whole_however_the_frames_are_cut() {
        let text = "one\ntwo\r\n\nthree\n";
        for cut in 0..=text.len() {
            let got = all(vec![&text[..cut], &text[cut..]], 10).await;
            assert_eq!(
                got,
                (
                    vec![whole("one"), whole("two"), whole("three")],
                    End::Closed
                ),
                "cut at {cut}"
            );
        }
        let got = all(
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
            let Ok(Line::Whole(line)) = lines.next(IDLE).await else {
                panic!("no line")
            };
            assert_eq!(line.as_ptr(), expected.as_ptr());
        }
    }

    #[tokio::test]
    async fn an_over_long_line_is_cut_and_the_next_one_is_read() {
        let got = all(
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
        assert_eq!(got, (lines, End::Closed));
    }

    #[tokio::test]
    async fn a_stream_that_ends_within_a_line_is_broken() {
        for frames in [vec!["one\ntw"], vec!["one\n12345678901"]] {
            let (got, end) = all(frames, 10).await;
            assert_eq!(got, [whole("one")]);
            assert!(matches!(end, End::Broken(_)), "{end:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_the_lines() {
        let frames = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"one\n"))])
            .chain(stream::pending());
        let mut lines = Lines::new(frames, 10);
        assert_eq!(lines.next(IDLE).await, Ok(whole("one")));
        assert_eq!(lines.next(IDLE).await, Err(End::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_never_ends_is_given_up() {
        let endless = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(b"abc")));
        let mut lines = Lines::new(endless, 10);
        let end = lines.next(IDLE).await.unwrap_err();
        assert!(matches!(end, End::Broken(_)), "{end:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn neither_a_dripping_line_nor_empty_ones_keep_silence_from_being_noticed() {
        for drop in ["a", "\n", ""] {
            let dripping = stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, io::Error>(Bytes::from_static(drop.as_bytes())), ()))
            });
            let mut lines = Lines::new(Box::pin(dripping), 1000);
            let began = Instant::now();
            assert_eq!(lines.next(IDLE).await, Err(End::Idle), "{drop:?}");
            assert_eq!(began.elapsed(), IDLE);
        }
    }
}
