//! A body's frames in, and out of them parts (lines of a watch, objects of a list) whose
//! ends the reader finds.
//!
//! A part that lies within one frame is a slice of it; one that spans several is copied
//! once. A part is at most [`MAX_OBJECT`] long: of a longer one only the beginning is
//! kept. A part of more than [`SMALL`] bytes waits for a place in the [`Budget`], and the
//! server waits with it.

use super::budget::{LargeObjectPermit, ReadBudget, SMALL};
use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use ifo_client::error::chain;
use tokio::time::{Instant, timeout_at};

/// The largest object, in bytes. etcd refuses requests above 1.5 MiB by default, and
/// kube-apiserver those above 3 MiB. As JSON, an object may be some three times as large.
pub(super) const MAX_OBJECT: usize = 8 << 20;

/// How many times [`MAX_OBJECT`] a part may have before it is one that never ends.
const ENDLESS: u64 = 4;

/// A part of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyPart {
    /// All of it.
    Whole(Bytes),
    /// It was longer than the cap, and is gone but for its beginning.
    TooLong {
        /// The number of its bytes.
        length: u64,
        /// As much of it as the cap allows.
        head: Bytes,
    },
}

/// Why no more parts come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body ended cleanly.
    Closed,
    /// Nothing came for as long as was allowed.
    Idle,
    /// The body broke, or a part did not end.
    Broken(String),
}

/// The frames of a body, and the part that has begun.
#[derive(Debug)]
pub(super) struct BodyReader<S> {
    frames: S,
    max: usize,
    /// What is left of the frame that came last.
    frame: Bytes,
    /// The beginning of a part whose end has not come yet.
    begun: BytesMut,
    /// The bytes so far of the over-long part whose beginning is in `begun`.
    skipped: Option<u64>,
    budget: ReadBudget,
    /// Held while the part is a large one.
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

    /// What is left of the current frame.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Reads the next frame when the current one is used up. `until` moves by the time
    /// that the part waits for a place: during that time the server cannot be heard.
    /// Dropping the future loses nothing.
    pub(super) async fn read(&mut self, until: &mut Instant) -> Result<(), BodyEnd> {
        if let Some(length) = self.skipped
            && length > ENDLESS * self.max as u64
        {
            return Err(BodyEnd::Broken(format!(
                "more than {length} bytes without an end"
            )));
        }
        if self.begun.len() > SMALL && self.place.is_none() {
            let began = Instant::now();
            self.place = Some(self.budget.place().await);
            *until += began.elapsed();
        }
        let rest = self.place.as_ref().map(|place| place.until);
        // Of a frame that is always there the timeout would say nothing.
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

    /// Whether a part has begun and not ended.
    pub(super) fn has_begun(&self) -> bool {
        !self.begun.is_empty() || self.skipped.is_some()
    }

    /// Drops `length` bytes of the current frame, which belong to no part.
    pub(super) fn skip(&mut self, length: usize) {
        self.frame.advance(length);
    }

    /// Adds the rest of the current frame to the part that has begun, as far as the cap
    /// allows.
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

    /// The part that ends with the next `length` bytes of the current frame.
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
