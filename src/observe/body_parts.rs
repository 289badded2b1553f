//! Splits the body of an answer into parts: the lines of a watch, or the objects and the metadata
//! of a list. The caller (`watch_lines` or `list_page`) finds the end of each part.
//!
//! A frame is a chunk of the body, as it arrives from the connection. A part within one frame is a
//! slice of the frame. A part that spans several frames is copied once.
//!
//! The reader keeps at most [`MAX_OBJECT`] bytes of a part, and drops the rest of a longer part.
//!
//! If the reader has more than [`SMALL_OBJECT`] bytes of a part, but not its end, the reader waits
//! for the permit for large objects. All feeds (watches) of a cluster share this permit, which is
//! part of the [`ReadBudget`]. While the reader waits, it reads nothing, so the API server must
//! wait, too.

use super::read_budget::{LargeObjectPermit, ReadBudget, SMALL_OBJECT};
use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use ifo_client::error_text::chain;
use tokio::time::{Instant, timeout_at};

/// Maximum size of an object in bytes. A larger object becomes [`BodyPart::TooLong`]. Objects of a
/// cluster are usually smaller: etcd refuses requests above 1.5 MiB by default, and the
/// kube-apiserver refuses requests above 3 MiB. The JSON of an object can be about three times as
/// large as the object in etcd.
pub(super) const MAX_OBJECT: usize = 8 << 20;

/// A factor: if a part has more than this many times its maximum size, reading ends with
/// [`BodyEnd::Broken`].
const UNTERMINATED: u64 = 4;

/// One part of a body: a line or an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyPart {
    /// The complete part.
    Whole(Bytes),
    /// A part that is too long. Only its beginning was kept.
    TooLong {
        /// Length of the part in bytes.
        length: u64,
        /// The beginning of the part.
        head: Bytes,
    },
}

/// The reason why there are no further parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body ended cleanly.
    Closed,
    /// The next part was not complete within the time limit of the caller.
    Idle,
    /// The connection broke, a part has more than [`UNTERMINATED`] times its maximum size, or the
    /// rest of a large object did not arrive in time. The value is the text of the error.
    Broken(String),
}

/// Reads the frames of a body and assembles the parts.
#[derive(Debug)]
pub(super) struct BodyReader<S> {
    frames: S,
    max: usize,
    /// The unread rest of the latest frame.
    frame: Bytes,
    /// The beginning of the current part, if its end has not arrived.
    begun: BytesMut,
    /// Number of bytes of the current part that have arrived. `None` if the part is not too long.
    arrived: Option<u64>,
    budget: ReadBudget,
    /// The permit for large objects. The reader holds the permit while the current part is large.
    permit: Option<LargeObjectPermit>,
}

impl<S, E> BodyReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error,
{
    /// Creates a reader of `frames`. `max` is the maximum size of a part in bytes.
    pub(super) fn new(frames: S, max: usize, budget: ReadBudget) -> Self {
        Self {
            frames,
            max,
            frame: Bytes::new(),
            begun: BytesMut::new(),
            arrived: None,
            budget,
            permit: None,
        }
    }

    /// Returns the unread rest of the current frame.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Reads the next frame. Before the call, the current frame must be empty. Fails with
    /// [`BodyEnd::Idle`] at the time `until`. While the reader waits for the permit for large
    /// objects, the API server cannot send. So this method adds this waiting time to `until`. This
    /// method is cancel-safe.
    pub(super) async fn read(&mut self, until: &mut Instant) -> Result<(), BodyEnd> {
        if let Some(length) = self.arrived
            && length > UNTERMINATED * self.max as u64
        {
            return Err(BodyEnd::Broken(format!(
                "{length} bytes have arrived without the end of the line or object"
            )));
        }
        if self.begun.len() > SMALL_OBJECT && self.permit.is_none() {
            let began = Instant::now();
            self.permit = Some(self.budget.large_object_permit().await);
            *until += began.elapsed();
        }
        let object_deadline = self.permit.as_ref().map(|permit| permit.receive_deadline);
        // The time limit is also checked here, because `timeout_at` never expires if a frame is
        // always ready.
        let now = Instant::now();
        let deadline =
            object_deadline.map_or(*until, |object_deadline| object_deadline.min(*until));
        let frame = if now < deadline {
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
            None if object_deadline == Some(deadline) => Err(BodyEnd::Broken(
                "the rest of a large object did not arrive in time".into(),
            )),
            None => Err(BodyEnd::Idle),
        }
    }

    /// Returns true if a part has begun and has not ended.
    pub(super) fn has_begun(&self) -> bool {
        !self.begun.is_empty() || self.arrived.is_some()
    }

    /// Skips `length` bytes of the current frame that belong to no part.
    pub(super) fn skip(&mut self, length: usize) {
        self.frame.advance(length);
    }

    /// Adds the rest of the current frame to the current part. Bytes beyond the maximum size are
    /// dropped.
    pub(super) fn keep(&mut self) {
        let part = std::mem::take(&mut self.frame);
        self.add(&part);
    }

    fn add(&mut self, part: &Bytes) {
        if let Some(arrived) = &mut self.arrived {
            *arrived += part.len() as u64;
            return;
        }
        let room = self.max - self.begun.len();
        if part.len() > room {
            self.arrived = Some((self.begun.len() + part.len()) as u64);
        }
        let kept = part.get(..room).unwrap_or(part);
        self.begun.extend_from_slice(kept);
    }

    /// Completes and returns the current part. The part ends after the next `length` bytes of the
    /// current frame.
    pub(super) fn finish(&mut self, length: usize) -> BodyPart {
        let part = self.frame.split_to(length);
        if !self.has_begun() && part.len() <= self.max {
            return BodyPart::Whole(part);
        }
        self.add(&part);
        let mut bytes = std::mem::take(&mut self.begun).freeze();
        if let Some(permit) = self.permit.take() {
            bytes = permit.bind_to(bytes);
        }
        match self.arrived.take() {
            Some(length) => BodyPart::TooLong {
                length,
                head: bytes,
            },
            None => BodyPart::Whole(bytes),
        }
    }
}
