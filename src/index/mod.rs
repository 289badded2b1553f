//! The index: the operations as encoded objects, at exact versions. Input: batches of changes from
//! the only writer. Output: lists that are exactly the state at their resourceVersion, and cursors
//! that deliver exactly the changes after it.
//!
//! ```text
//! Writer::commit ──▶ ring of changes ──▶ map, by namespace ──▶ publish the version
//!                        │                    │                      │
//!                        │ changes            │ objects              │ current version
//!                        ▼                    ▼                      ▼
//!              Cursor::next, Reader::list   Reader::list   Cursor::next, Reader::list
//! ```
//!
//! **Lists are exact.** The map changes while a reader scans it. The writer adds each change to the
//! ring before it changes the map. So a reader can undo every newer change with the ring. Changes
//! that are not published yet are newer than every reader's version, so no reader sees half a
//! batch.
//!
//! **Cursors miss nothing** as long as the ring has their changes ([`Bounds`]). After a large
//! commit, the limit of bytes is raised for some seconds.
//!
//! **The writer waits for no client.** Writer and readers share the lock of the ring, and one lock
//! for each part of the map. A reader holds a lock only while it copies references.

mod compression;
mod cursor;
mod entry;
mod reader;
mod ring;
mod scope;
#[cfg(test)]
mod tests;
mod writer;

pub use cursor::Cursor;
pub use entry::{IndexEntry, OpenEntry};
pub use reader::IndexReader;
pub use scope::ListScope;
pub use writer::{Replacement, Writer};

pub use ifo_api::Key;
pub use ifo_engine::track::{ObjectFacts, ObjectTexts, TextField, Write};

use crate::clock;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A resourceVersion: microseconds since 1970, and greater than the previous version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rv(pub u64);

impl Rv {
    /// Upper limit of versions. A client that reads numbers as IEEE 754 doubles has exact integers
    /// up to 2^53. In microseconds, this is the year 2255.
    pub const MAX: Rv = Rv(1 << 53);

    /// The version for the current time of the clock. Returns 0 if the clock is before 1970 or
    /// after [`Rv::MAX`].
    pub fn of_clock(clock: Timestamp) -> Rv {
        let micros = u64::try_from(clock.as_microsecond()).ok();
        Rv(micros.filter(|&rv| rv < Self::MAX.0).unwrap_or(0))
    }
}

/// Decimal digits, as in Kubernetes.
impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The versions that the writes of a batch get.
#[derive(Clone, Copy, Debug)]
pub enum VersionAssignment {
    /// A new version for each write of the batch.
    Mint,
    /// The same version for all writes. A follower uses it to give its copy of the leader's index
    /// the leader's versions. The version must be above the newest version of the index. An object
    /// that a `Put` does not change also gets this version.
    Exact(Rv),
}

/// A change as cursors deliver it. `before` is None for a new object, and `after` for a deleted
/// one. If both are None, the change is a marker. A leader commits a marker when its term begins,
/// so that clients can continue from the first version of the term.
#[derive(Clone, Debug)]
pub struct IndexChange {
    /// Version of the change.
    pub rv: Rv,
    /// The object before the change.
    pub before: Option<Arc<IndexEntry>>,
    /// The object after the change.
    pub after: Option<Arc<IndexEntry>>,
}

impl IndexChange {
    /// Namespace and name of the changed object. None for a marker.
    pub fn key(&self) -> Option<&Key> {
        let side = self.after.as_ref().or(self.before.as_ref());
        side.map(|entry| entry.key())
    }
}

/// The state that a reader requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVersion {
    /// The newest state.
    Latest,
    /// The state at this version.
    Exact(Rv),
}

/// The requested version is unknown: the ring has dropped it, it never was the version of a change,
/// or it is above the head. To read a version above the head, wait for it with
/// [`IndexReader::reached`] first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion {asked} is no longer available; the oldest is {oldest}")]
pub struct VersionUnavailable {
    /// The requested version.
    pub asked: Rv,
    /// The ring's lower boundary.
    pub oldest: Rv,
}

/// Why a batch was refused. No write of it was made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The JSON of a `Put` is not an object with metadata.
    #[error("cannot index {key}: {source}")]
    Malformed {
        /// Namespace and name of the object.
        key: Key,
        /// The error of the decoder.
        #[source]
        source: serde_json::Error,
    },
    /// The version of a mirror's batch is not above the head.
    #[error("resourceVersion {asked} is not above {head}")]
    NotAbove {
        /// The version of the batch.
        asked: Rv,
        /// The published version.
        head: Rv,
    },
    /// The next version is above those that this leader has reserved in the Lease.
    #[error("resourceVersion {next} is above {reserved}, up to which versions are reserved")]
    NotReserved {
        /// The version that the change needs.
        next: Rv,
        /// The highest reserved version.
        reserved: Rv,
    },
    /// The next version would reach [`Rv::MAX`].
    #[error("there is no resourceVersion above {head}")]
    Exhausted {
        /// The published version.
        head: Rv,
    },
}

/// Limits of the ring.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes that only the ring holds: replaced and removed objects, and the ring's own slots. For
    /// [`Bounds::MIN_AGE`] after a change, the limit is [`Bounds::peak_bytes`].
    pub bytes: usize,
    /// Age of the oldest change, if there are more than [`Bounds::MIN_CHANGES`] changes.
    pub age: Duration,
}

impl Bounds {
    /// Time for which a change stays even if the ring has too many bytes, so that clients that read
    /// promptly miss nothing. When 10,000 operations end, the events have 36 MB. A client that
    /// reads 4 MB/s needs this time for them.
    pub const MIN_AGE: Duration = Duration::from_secs(10);

    /// Number of the newest changes that stay at any age. So in a quiet cluster, a client can start
    /// a watch at the resourceVersion of an object that has not changed for hours. The number is
    /// the least capacity of the kube-apiserver's watch cache (`defaultLowerBoundCapacity`).
    pub const MIN_CHANGES: usize = 100;

    /// Factor by which a ring may exceed its bytes while its changes are young.
    const MAX_GROWTH_FACTOR: usize = 12;

    /// Largest number of bytes of a ring that exceeds its limit while its changes are young. It is
    /// enough for this case: a rule with 10,000 operations is renamed, so each of them completes
    /// (2.8 KB in the ring) and is deleted (1.7 KB). docs/architecture.md has the sum of the
    /// memory.
    const MAX_GROWN_BYTES: usize = 48 << 20;

    /// The most bytes that the ring ever holds.
    pub fn peak_bytes(&self) -> usize {
        let young = self
            .bytes
            .saturating_mul(Self::MAX_GROWTH_FACTOR)
            .min(Self::MAX_GROWN_BYTES);
        young.max(self.bytes)
    }
}

/// Creates an empty index. Its first version is the time of the clock, which is above the versions
/// of an earlier server.
pub fn index(bounds: Bounds) -> (Writer, IndexReader) {
    index_from(bounds, Rv::of_clock(clock::now()))
}

/// Creates an empty index whose newest version is `start`. The copy of a leader's index starts
/// below the leader's versions.
pub fn index_from(bounds: Bounds, start: Rv) -> (Writer, IndexReader) {
    writer::pair(bounds, start)
}
