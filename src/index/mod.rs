//! The index: the operations as encoded objects, at exact versions. One writer commits batches of
//! changes. A list is exactly the state at its resourceVersion, and a cursor delivers exactly the
//! changes after a resourceVersion.
//!
//! ```text
//! Writer::commit ──▶ ring of changes ──▶ map, by namespace ──▶ publish the version
//!                        │                    │                      │
//!                        │ changes            │ objects              │ current version
//!                        ▼                    ▼                      ▼
//!              Cursor::next, Reader::list   Reader::list   Cursor::next, Reader::list
//! ```
//!
//! **Lists are exact.** The ring is a buffer of the latest changes. The writer adds each change to
//! the ring before it changes the map. The map can change while a reader scans it, but the reader
//! finds each newer change in the ring and undoes it. The version of a batch is published when the
//! whole batch is in the map, so no reader sees half a batch.
//!
//! **Cursors miss nothing** while the ring has their next changes ([`Bounds`]). After a large
//! commit, the byte limit of the ring is higher for some seconds.
//!
//! **The writer waits for no client.** Writer and readers share the lock of the ring, and one lock
//! for each shard of the map. A reader holds a lock only while it copies references.

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

/// A resourceVersion. It is a time in microseconds since 1970, and is greater than the previous
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rv(pub u64);

impl Rv {
    /// Upper limit of versions. Clients that read numbers as IEEE 754 doubles read integers exactly
    /// up to 2^53. In microseconds, this limit is in the year 2255.
    pub const MAX: Rv = Rv(1 << 53);

    /// Returns the version for the time `clock`, or 0 if the time is before 1970 or after
    /// [`Rv::MAX`].
    pub fn of_clock(clock: Timestamp) -> Rv {
        let micros = u64::try_from(clock.as_microsecond()).ok();
        Rv(micros.filter(|&rv| rv < Self::MAX.0).unwrap_or(0))
    }
}

/// Prints decimal digits, as Kubernetes does.
impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How the writes of a batch get their versions.
#[derive(Clone, Copy, Debug)]
pub enum VersionAssignment {
    /// Each write of the batch gets a new version.
    Mint,
    /// All writes of the batch get this version. A follower replica uses it, so that its copy of
    /// the leader's index has the leader's versions. The version must be above the newest version
    /// of the index. An object that a `Put` does not change gets this version, too.
    Exact(Rv),
}

/// A change of the index. `before` is `None` for a new object, and `after` is `None` for a deleted
/// object.
///
/// If both are `None`, the change is a marker: a version without a changed object. A leader commits
/// a marker when its leadership term begins, so that clients can start a watch at the first version
/// of the term.
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
    /// Returns the namespace and name of the changed object, or `None` for a marker.
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

/// The error for a version that cannot be read. Either the ring buffer has dropped the version, or
/// no change had this version, or the version is above the newest one. A reader that needs a newer
/// version calls [`IndexReader::reached`] first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion {asked} is no longer available; the oldest is {oldest}")]
pub struct VersionUnavailable {
    /// The requested version.
    pub asked: Rv,
    /// The oldest version that can be read.
    pub oldest: Rv,
}

/// The reason why a batch was refused. No write of the batch was made.
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
    /// The requested version is not above the newest version of the index.
    #[error("resourceVersion {asked} is not above {head}")]
    NotAbove {
        /// The requested version.
        asked: Rv,
        /// The newest published version.
        head: Rv,
    },
    /// The next version is above the versions that this leader has reserved in the Lease.
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
        /// The newest published version.
        head: Rv,
    },
}

/// Limits of the ring buffer of changes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of bytes that only the ring buffer holds: replaced and deleted objects, and
    /// its own slots. For [`Bounds::MIN_AGE`] after a change, the limit is [`Bounds::peak_bytes`].
    pub bytes: usize,
    /// Maximum age of a change. The newest [`Bounds::MIN_CHANGES`] changes stay at any age.
    pub age: Duration,
}

impl Bounds {
    /// Time for which a change stays even if the ring buffer has more than [`Bounds::bytes`]. So a
    /// client that reads promptly misses nothing. When 10,000 operations end, their events have 36
    /// MB. A client that reads 4 MB/s needs almost this time for them.
    pub const MIN_AGE: Duration = Duration::from_secs(10);

    /// Number of the newest changes that stay at any age. So in a quiet cluster, a client can start
    /// a watch at the resourceVersion of an object that has not changed for hours. The value is the
    /// minimum capacity of the kube-apiserver's watch cache (`defaultLowerBoundCapacity`).
    pub const MIN_CHANGES: usize = 100;

    /// Factor by which the ring buffer may exceed [`Bounds::bytes`] while its changes are younger
    /// than [`Bounds::MIN_AGE`].
    const MAX_GROWTH_FACTOR: usize = 12;

    /// Maximum size of the ring buffer in bytes while it exceeds [`Bounds::bytes`].
    ///
    /// The value is enough for the following case. A rule with 10,000 operations is renamed, so
    /// each operation completes (2.8 KB in the ring buffer) and is deleted (1.7 KB).
    /// docs/architecture.md has the sum of all memory.
    const MAX_GROWN_BYTES: usize = 48 << 20;

    /// Returns the maximum number of bytes that the ring buffer ever holds.
    pub fn peak_bytes(&self) -> usize {
        let young = self
            .bytes
            .saturating_mul(Self::MAX_GROWTH_FACTOR)
            .min(Self::MAX_GROWN_BYTES);
        young.max(self.bytes)
    }
}

/// Creates an empty index. Its first version is the current time, which is above the versions of an
/// earlier server.
pub fn index(bounds: Bounds) -> (Writer, IndexReader) {
    index_from(bounds, Rv::of_clock(clock::now()))
}

/// Creates an empty index whose newest version is `start`. A follower's copy of the leader's index
/// starts below the leader's versions.
pub fn index_from(bounds: Bounds, start: Rv) -> (Writer, IndexReader) {
    writer::pair(bounds, start)
}
