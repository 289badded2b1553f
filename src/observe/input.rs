//! Splits a body into parts: the lines of a watch, or the objects of a list. Input: the frames of
//! the body. Output: the parts, whose ends the caller finds.
//!
//! A part within one frame is a slice of the frame. A part that spans several frames is copied
//! once. A part has at most [`MAX_OBJECT`] bytes. Only the beginning of a longer part is kept. A
//! part of more than [`SMALL_OBJECT`] bytes waits for a place in the [`Budget`], and the server has
//! to wait, too.

use super::budget::{LargeObjectPermit, ReadBudget, SMALL_OBJECT};
use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use ifo_client::error::chain;
use tokio::time::{Instant, timeout_at};

/// The largest object, in bytes. etcd refuses requests above 1.5 MiB by default, and
/// kube-apiserver those above 3 MiB. As JSON, an object may be some three times as large.
pub(super) const MAX_OBJECT: usize = 8 << 20;

/// A part of more than this many times [`MAX_OBJECT`] ends the reading.
const UNTERMINATED: u64 = 4;

/// A part of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyPart {
    /// The whole part.
    Whole(Bytes),
    /// The part was too long. Only its beginning was kept.
    TooLong {
        /// Length of the part in bytes.
        length: u64,
        /// The beginning of the part.
        head: Bytes,
    },
}

/// Why there are no further parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body ended cleanly.
    Closed,
    /// No data arrived within the allowed time.
    Idle,
    /// The connection broke, or a part had no end.
    Broken(String),
}

/// The frames of a body, and the part that is being read.
#[derive(Debug)]
pub(super) struct BodyReader<S> {
    frames: S,
    max: usize,
    /// The unread rest of the latest frame.
    frame: Bytes,
    /// The beginning of a part whose end has not arrived.
    begun: BytesMut,
    /// Bytes that have arrived of the too long part whose beginning is in `begun`.
    skipped: Option<u64>,
    budget: ReadBudget,
    /// The place in the budget, held while the part is large.
    place: Option<LargeObjectPermit>,
}

impl<S, E> BodyReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error,
{
    /// Parts of at most `max` bytes from `frames`.
    pub(super) fn new(frames: S, max: usize, budget: ReadBudget) -> Self {
        Self {
            frames,
            max,
            frame: Bytes::new(),
            begun: BytesMut::new(),
            skipped: None,
            budget,
            place: None,
        }
    }

    /// The unread rest of the current frame.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Reads the next frame when the current frame is used up. `until` is extended by the time for
    /// which the part waits for a place, because the server cannot send in that time. Cancel-safe.
    pub(super) async fn read(&mut self, until: &mut Instant) -> Result<(), BodyEnd> {
        if let Some(length) = self.skipped
            && length > UNTERMINATED * self.max as u64
        {
            return Err(BodyEnd::Broken(format!(
                "more than {length} bytes without an end"
            )));
        }
        if self.begun.len() > SMALL_OBJECT && self.place.is_none() {
            let began = Instant::now();
            self.place = Some(self.budget.place().await);
            *until += began.elapsed();
        }
        let rest = self.place.as_ref().map(|place| place.until);
        // A frame that is ready at once needs no timeout.
        let now = Instant::now();
        let due = rest.map_or(*until, |rest| rest.min(*until));
        let frame = if now < due {
            timeout_at(due, self.frames.next()).await.ok()
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
            None if rest == Some(due) => Err(BodyEnd::Broken(
                "the rest of a large object did not come in time".into(),
            )),
            None => Err(BodyEnd::Idle),
        }
    }

    /// Returns true if a part has begun and has not ended.
    pub(super) fn has_begun(&self) -> bool {
        !self.begun.is_empty() || self.skipped.is_some()
    }

    /// Skips `length` bytes of the current frame that belong to no part.
    pub(super) fn skip(&mut self, length: usize) {
        self.frame.advance(length);
    }

    /// Adds the rest of the current frame to the current part, up to the largest length.
    pub(super) fn keep(&mut self) {
        let part = std::mem::take(&mut self.frame);
        self.add(&part);
    }

    fn add(&mut self, part: &Bytes) {
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

    /// Returns the part that ends after the next `length` bytes of the current frame.
    pub(super) fn finish(&mut self, length: usize) -> BodyPart {
        let part = self.frame.split_to(length);
        if !self.has_begun() && part.len() <= self.max {
            return BodyPart::Whole(part);
        }
        self.add(&part);
        let mut bytes = std::mem::take(&mut self.begun).freeze();
        if let Some(place) = self.place.take() {
            bytes = place.hold(bytes);
        }
        match self.skipped.take() {
            Some(length) => BodyPart::TooLong {
                length,
                head: bytes,
            },
            None => BodyPart::Whole(bytes),
        }
    }
}
