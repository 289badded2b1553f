//! The store: all objects of the server, in memory. It also has the latest changes, so that a list
//! can show an earlier state and a watch can start at an earlier version.
//!
//! Each change has a resourceVersion, in short a version. One writer commits batches of changes. A
//! list contains exactly the objects that existed at the version of the list. A cursor is the
//! position of one watch. The cursor delivers exactly the changes after the version at which the
//! watch starts.
//!
//! ```text
//! Writer::commit ──▶ map of objects, ring of changes ──▶ Reader::list, Cursor::next
//! ```
//!
//! **Lists are exact.** The map has the current objects. The ring is a buffer of the latest
//! changes. One lock protects both, so no reader sees half a batch. For a list at an older version,
//! the reader copies the references to the current objects. The reader then undoes, in this copy,
//! all changes after the older version. For this purpose, the changes in the ring contain the
//! objects before each change.
//!
//! **Cursors miss no change** while the ring has their next change. If the ring has dropped this
//! change, the cursor returns [`VersionUnavailable`], and its client must list again. [`Bounds`]
//! limits the age and the size of the ring. For some seconds after a large commit, the ring may
//! exceed its usual size limit, so that clients have time to read the changes.
//!
//! **The writer waits for no client.** A reader holds the lock only while it copies references:
//! less than a millisecond for 10,000 objects.

mod cursor;
mod entry;
mod key;
mod reader;
mod ring;
mod scope;
#[cfg(test)]
mod tests;
mod writer;

pub use cursor::Cursor;
pub use entry::Entry;
pub use key::{Collection, Key};
pub use reader::{Listed, Reader};
pub use scope::Scope;
pub use writer::Writer;

use crate::{Model, clock};
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A resourceVersion. The value is the time of the change, in microseconds since 1970. If this time
/// is not above the previous version, the value is the previous version plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rv(pub u64);

impl Rv {
    /// Every version is below this limit. A commit that would reach the limit returns
    /// [`Error::Exhausted`]. The limit is 2^53, because some clients parse versions as IEEE 754
    /// doubles, which are exact only up to this integer. As a time in microseconds, the limit is in
    /// the year 2255.
    pub const MAX: Rv = Rv(1 << 53);

    /// Returns the version for the time `clock`. Returns 0 if the time is before 1970, or if its
    /// version would reach [`Rv::MAX`].
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

/// A change that a [`Writer`] commits.
#[derive(Clone, Debug)]
pub enum Write<M: Model> {
    /// Adds or replaces an object. With [`VersionAssignment::Mint`], the store ignores a write that
    /// would not change the object.
    Put {
        /// Namespace and name of the object. The store does not compare them with the metadata in
        /// `object`.
        key: Key,
        /// The object. The store assigns its resourceVersion.
        object: M::Object,
    },
    /// Deletes an object. If the object does not exist, the store ignores the write.
    Delete {
        /// Namespace and name of the object.
        key: Key,
    },
}

/// How the store assigns versions to the writes of a batch.
#[derive(Clone, Copy, Debug)]
pub enum VersionAssignment {
    /// Each write that changes an object gets a new version.
    Mint,
    /// All writes of the batch get this version. A follower uses this variant, so that its copy of
    /// the leader's store has the leader's versions. The version must be above the newest version
    /// of the store. Even if a write would not change its object, the object gets this version.
    Exact(Rv),
}

/// A change of the store. `before` is `None` for a new object, and `after` is `None` for a deleted
/// object.
///
/// If both are `None`, the change is a marker: a version without a changed object. A leader commits
/// a marker when its leadership term begins, so that clients can start a watch at the first version
/// of the term. A follower copies the markers of the leader.
#[derive(Clone, Debug)]
pub struct Change<M: Model> {
    /// Version of the change.
    pub rv: Rv,
    /// The object before the change.
    pub before: Option<Arc<Entry<M>>>,
    /// The object after the change.
    pub after: Option<Arc<Entry<M>>>,
}

impl<M: Model> Change<M> {
    /// Returns the namespace and name of the changed object, or `None` for a marker.
    pub fn key(&self) -> Option<&Key> {
        let side = self.after.as_ref().or(self.before.as_ref());
        side.map(|entry| entry.key())
    }
}

/// The version of the state that a reader requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVersion {
    /// The newest state.
    Latest,
    /// The state at this version.
    Exact(Rv),
}

/// The error for a version that cannot be read. There are four reasons:
///
/// - The ring buffer has dropped some of the changes after this version.
/// - [`Writer::replace`] has replaced all objects of the store since this version.
/// - No change has this version.
/// - The version is above the newest version. The caller can wait for such a version with
///   [`Reader::wait_until_reached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion {asked} is not available; the oldest available version is {oldest}")]
pub struct VersionUnavailable {
    /// The requested version.
    pub asked: Rv,
    /// The oldest version that can be read.
    pub oldest: Rv,
}

/// The reason why the store refused a write. The store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The requested version is not above the newest version of the store.
    #[error("resourceVersion {asked} is not above the newest resourceVersion {head}")]
    NotAbove {
        /// The requested version.
        asked: Rv,
        /// The newest published version.
        head: Rv,
    },
    /// The next version is above the versions that this leader has reserved in the Lease, the
    /// Kubernetes object with which the replicas elect the leader.
    #[error("resourceVersion {next} is not reserved; the highest reserved version is {reserved}")]
    NotReserved {
        /// The version that the change needs.
        next: Rv,
        /// The highest reserved version.
        reserved: Rv,
    },
    /// The next version would reach [`Rv::MAX`].
    #[error("no resourceVersion is left above {head}")]
    Exhausted {
        /// The previous version: the newest published version, or a version in the same batch.
        head: Rv,
    },
}

/// Limits of the ring buffer of changes. If a limit is exceeded, the ring buffer drops its oldest
/// changes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum size of the ring buffer in bytes. The size includes the slots of the changes, and
    /// the replaced and deleted objects to which only the ring buffer still refers. While the
    /// oldest change is younger than [`Bounds::MIN_AGE`], the limit is [`Bounds::peak_bytes`].
    pub bytes: usize,
    /// Maximum age of a change. The newest [`Bounds::MIN_CHANGES`] changes stay at any age, but
    /// within the limit of [`Bounds::bytes`].
    pub age: Duration,
}

impl Bounds {
    /// While the oldest change is younger than this age, the limit of the ring buffer is
    /// [`Bounds::peak_bytes`], and not [`Bounds::bytes`]. So clients have time to read the changes.
    /// For example, when 10,000 objects of 3.6 KB change, their events have 36 MB. A client that
    /// reads 4 MB/s needs 9 s for these events.
    pub const MIN_AGE: Duration = Duration::from_secs(10);

    /// Number of the newest changes that stay at any age. In a quiet cluster, an object can stay
    /// unchanged for hours. If its last change is among the newest changes, a client can still
    /// start a watch at the object's resourceVersion. The value is the minimum capacity of the
    /// kube-apiserver's watch cache (`defaultLowerBoundCapacity`).
    pub const MIN_CHANGES: usize = 100;

    /// [`Bounds::peak_bytes`] is [`Bounds::bytes`] times this factor, but at most
    /// [`Bounds::MAX_GROWN_BYTES`]. It is never below [`Bounds::bytes`].
    const MAX_GROWTH_FACTOR: usize = 12;

    /// Maximum size of the ring buffer in bytes while it may exceed [`Bounds::bytes`].
    ///
    /// The value is enough for the following case: 10,000 objects change and are then deleted. Both
    /// changes of an object together take about 4 KB in the ring buffer. The sum is 40 MB.
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

/// Creates an empty store. Its first version is the current time. If the clock was not set back,
/// this version is above the versions that an earlier process has issued.
pub fn open<M: Model>(bounds: Bounds) -> (Writer<M>, Reader<M>) {
    open_from(bounds, Rv::of_clock(clock::now()))
}

/// Creates an empty store whose newest version is `start`. In a server with several replicas, each
/// replica starts with version 0, which is below all versions of a leader. A follower then copies
/// the leader's store.
pub fn open_from<M: Model>(bounds: Bounds, start: Rv) -> (Writer<M>, Reader<M>) {
    writer::writer_and_reader(bounds, start)
}
