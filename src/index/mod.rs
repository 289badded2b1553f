//! The operations, as encoded objects, at exact versions. Enters: batches of changes
//! from the one writer. Leaves: lists that are exactly the state at their
//! resourceVersion, and cursors that deliver exactly what came after.
//!
//! ```text
//! Writer::commit ──▶ ring of changes ──▶ map, by namespace ──▶ publish the version
//!                        │                    │                      │
//!                        │ undo what is newer │ scan                 │ read first, wakes
//!                        ▼                    ▼                      ▼
//!                   Cursor::next         Reader::list            both of them
//! ```
//!
//! The map is no snapshot: while a reader walks it, it changes. But the writer tells
//! the ring first, so whatever a reader finds in the map that is newer than the version
//! it set out with, the ring can take back. And what the writer has not published yet
//! is newer than any reader's version, so nobody sees half a batch.
//!
//! A cursor loses nothing as long as it keeps within the ring's [`Bounds`]: those of
//! bytes give way for some seconds when much is committed at once.
//!
//! The writer waits for no client. It shares two locks with readers, the ring's and that
//! of the map's part it changes, and readers hold each only for as long as it takes to
//! copy references.

mod cursor;
mod entry;
mod pack;
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

/// A resourceVersion: microseconds since 1970, at least the last one plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rv(pub u64);

impl Rv {
    /// No version reaches this: clients that read numbers as IEEE 754 doubles count
    /// without gaps up to 2^53. In microseconds it is the year 2255.
    pub const LIMIT: Rv = Rv(1 << 53);

    /// The version that a clock gives now; 0 when it is set before 1970 or past
    /// [`Rv::LIMIT`], where it is of no use.
    pub fn of_clock(clock: Timestamp) -> Rv {
        let micros = u64::try_from(clock.as_microsecond()).ok();
        Rv(micros.filter(|&rv| rv < Self::LIMIT.0).unwrap_or(0))
    }
}

/// Decimal, as Kubernetes writes it.
impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Which version a batch gets.
#[derive(Clone, Copy, Debug)]
pub enum CommitVersion {
    /// A new one for each write of the batch.
    Mint,
    /// Exactly this one, for each write (a mirror of another index). It must be above
    /// the head. A `Put` of what is there already gets it too, since an object of a
    /// mirror has the version it has in the original.
    Exact(Rv),
}

/// A change, as cursors deliver it. `before` and `after` are None where there was or is nothing.
/// A change with neither changes no object: it gives a version that both sides of a watch
/// can know to the ring, at the begin of a leader's term.
#[derive(Clone, Debug)]
pub struct IndexChange {
    /// Version of the change.
    pub rv: Rv,
    /// The object before it.
    pub before: Option<Arc<IndexEntry>>,
    /// The object after it.
    pub after: Option<Arc<IndexEntry>>,
}

impl IndexChange {
    /// Where the change is; None for an empty one.
    pub fn key(&self) -> Option<&Key> {
        let side = self.after.as_ref().or(self.before.as_ref());
        side.map(|entry| entry.key())
    }
}

/// Which state a reader means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVersion {
    /// The newest.
    Latest,
    /// Exactly the one of this version.
    Exact(Rv),
}

/// The version asked for is not in the ring any more, or never was a version here, or is
/// above the head (whoever asks for such a one waits for it first: [`IndexReader::reached`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion {asked} is gone; the oldest is {oldest}")]
pub struct Gone {
    /// What was asked for.
    pub asked: Rv,
    /// The ring's lower boundary.
    pub oldest: Rv,
}

/// Why a batch was not committed. Nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The JSON of a `Put` is not that of an object with metadata.
    #[error("cannot index {key}: {source}")]
    Malformed {
        /// Of which object.
        key: Key,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A mirror's version is not above the head.
    #[error("resourceVersion {asked} is not above {head}")]
    NotAbove {
        /// The version of the batch.
        asked: Rv,
        /// The published version.
        head: Rv,
    },
    /// The next version is not reserved for this leader.
    #[error("resourceVersion {next} is above {reserved}, up to which versions are reserved")]
    NotReserved {
        /// The version that the change would get.
        next: Rv,
        /// The highest that may be issued.
        reserved: Rv,
    },
    /// The next version would not be below [`Rv::LIMIT`].
    #[error("there is no resourceVersion above {head}")]
    Exhausted {
        /// The published version.
        head: Rv,
    },
}

/// How much of the past the ring keeps.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes that only the ring still holds: the objects that were replaced or removed,
    /// and its own slots. For [`Bounds::YOUNG`] after a change, up to [`Bounds::most`].
    pub bytes: usize,
    /// Age of the oldest change, where there are more than [`Bounds::RECENT`].
    pub age: Duration,
}

impl Bounds {
    /// So long a change stays although the ring has more bytes than it should, since
    /// whoever reads promptly may be at it still. The ends of 10,000 operations are
    /// 36 MB of events, which a client that takes 4 MB/s has by then.
    pub const YOUNG: Duration = Duration::from_secs(10);

    /// So many of the newest changes stay however old they are: in a quiet cluster, who
    /// watches from an object's own version finds it still there. As many as upstream's
    /// watch cache has room for at least (`defaultLowerBoundCapacity`).
    pub const RECENT: usize = 100;

    /// How many times its bytes a ring may have while its changes are young.
    const TIMES: usize = 12;

    /// And how many bytes at most. When a rule with 10,000 operations is renamed, each of
    /// them completes and goes: 20,000 changes, whose objects (2.8 KB and 1.7 KB) only the
    /// ring holds. docs/architecture.md has this in the sum of the memory.
    const MOST: usize = 48 << 20;

    /// Bytes that the ring holds at the very most, whatever is committed.
    pub fn most(&self) -> usize {
        let young = self.bytes.saturating_mul(Self::TIMES).min(Self::MOST);
        young.max(self.bytes)
    }
}

/// Makes an empty index. Its first version is the clock's, so it is above all that a
/// server before it has issued.
pub fn index(bounds: Bounds) -> (Writer, IndexReader) {
    index_from(bounds, Rv::of_clock(clock::now()))
}

/// Makes an empty index whose head and lower boundary is `start`: for a mirror, which
/// begins below the versions that it mirrors.
pub fn index_from(bounds: Bounds, start: Rv) -> (Writer, IndexReader) {
    writer::pair(bounds, start)
}
