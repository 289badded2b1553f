//! Writes the store, which holds the objects in memory. The writer applies each batch of writes
//! under one lock, in three steps:
//!
//! - It changes the map of the current objects.
//! - It adds the changes to the ring buffer of the latest changes.
//! - It publishes the new version.

use super::reader::{Objects, State};
use super::ring::Ring;
use super::{Bounds, Change, Entry, Error, Key, Reader, Rv, VersionAssignment, Write};
use crate::{Model, clock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The only writer of the store.
#[derive(Debug)]
pub struct Writer<M: Model> {
    shared: Arc<State<M>>,
    bounds: Bounds,
    numbering: Numbering,
}

/// The versions that the leader may issue in one leadership term.
#[derive(Clone, Copy, Debug)]
struct Numbering {
    /// The time of day at which the term began, as a version: in microseconds since 1970. The first
    /// version of the term can be above this value, because it must be above all versions of
    /// earlier leaders. In this case, each version is the previous version plus one, until the
    /// current time has caught up.
    clock: Rv,
    /// The steady time at which the term began. Versions follow the steady clock, because the time
    /// of day may be set back.
    since: Instant,
    /// The highest version that the leader has reserved in the Lease.
    reserved: Rv,
}

impl Numbering {
    fn beginning() -> Self {
        Self {
            clock: Rv::of_clock(clock::now()),
            since: clock::steady(),
            reserved: Rv(Rv::MAX.0 - 1),
        }
    }

    /// Returns the version of the next change after the version `last`. The result is the current
    /// time on the steady clock as a version. If `last` plus one is higher, the result is `last`
    /// plus one.
    fn next(&self, last: Rv) -> Result<Rv, Error> {
        let passed = u64::try_from(clock::since(self.since).as_micros()).unwrap_or(u64::MAX);
        let now = self.clock.0.saturating_add(passed);
        let next = Rv(now.max(last.0.saturating_add(1)));
        if next >= Rv::MAX {
            return Err(Error::Exhausted { head: last });
        }
        if next > self.reserved {
            let reserved = self.reserved;
            return Err(Error::NotReserved { next, reserved });
        }
        Ok(next)
    }
}

/// Creates an empty store with its writer and a reader.
pub(super) fn writer_and_reader<M: Model>(bounds: Bounds, start: Rv) -> (Writer<M>, Reader<M>) {
    let shared = Arc::new(State::new(bounds, start));
    let reader = Reader(Arc::clone(&shared));
    let writer = Writer {
        shared,
        bounds,
        numbering: Numbering::beginning(),
    };
    (writer, reader)
}

impl<M: Model> Writer<M> {
    /// Begins a leadership term, the time for which one leader holds the Lease. The version of the
    /// store becomes `start`. If the store has published a version before, this method commits a
    /// marker, which is a version without a changed object. All later versions of the term are
    /// above `start`. The store mints no later version before [`Writer::reserve`] is called.
    ///
    /// # Errors
    ///
    /// `start` is not above the newest version, or is not below [`Rv::MAX`]. In both cases, the
    /// store is unchanged.
    pub fn begin(&mut self, start: Rv) -> Result<(), Error> {
        if self.head() == Rv(0) {
            // A store at version 0 has never published a version, so it is empty. `replace` makes
            // `start` the oldest readable version, so a watch can start there without a marker.
            check_above(start, Rv(0))?;
            self.replace(start, []);
        } else {
            self.mark(start)?;
        }
        self.numbering = Numbering {
            reserved: start,
            ..Numbering::beginning()
        };
        Ok(())
    }

    /// Allows the store to mint versions up to `until`. The leader has reserved these versions in
    /// the Lease. If `until` is 0, the store mints no further version.
    pub fn reserve(&mut self, until: Rv) {
        self.numbering.reserved = until;
    }

    /// Commits a marker, which is a version without a changed object.
    ///
    /// # Errors
    ///
    /// `rv` is not above the newest version, or is not below [`Rv::MAX`]. In both cases, the store
    /// is unchanged.
    pub fn mark(&mut self, rv: Rv) -> Result<(), Error> {
        check_above(rv, self.head())?;
        let marker = Change {
            rv,
            before: None,
            after: None,
        };
        self.publish(vec![marker], rv);
        Ok(())
    }

    /// Replaces all objects by `objects`, each with the version of its last change. The version of
    /// the store becomes `at`, which may be below the current version. A reader sees either the old
    /// objects or the new ones. The existing cursors return
    /// [`VersionUnavailable`](super::VersionUnavailable), because the store has no changes from the
    /// old objects to the new objects.
    pub fn replace(&mut self, at: Rv, objects: impl IntoIterator<Item = (Key, Rv, M::Object)>) {
        let new = objects.into_iter().map(|(key, rv, object)| {
            let entry = Entry::new(key.clone(), rv, object);
            (key, Arc::new(entry))
        });
        let map = new.collect();
        let mut current = self.shared.objects_mut();
        let mut ring = Ring::new(self.bounds, at);
        // If the old ring has a trim timer, the timer continues, and trims the new ring from now on.
        ring.has_trim_timer = current.ring.has_trim_timer;
        let new = Objects {
            map,
            ring,
            replacements: current.replacements + 1,
        };
        let old = std::mem::replace(&mut *current, new);
        self.shared.head.send_replace(at);
        // The lock is released first, because dropping many old objects takes time.
        drop(current);
        drop(old);
    }

    /// Applies the writes of the batch in order. Publishes and returns the version of the last
    /// change. If nothing changes, the version stays the same. Readers see the whole batch or
    /// nothing of it.
    ///
    /// # Errors
    ///
    /// - The version of [`VersionAssignment::Exact`] is not above the newest version.
    /// - The next version of [`VersionAssignment::Mint`] is not reserved ([`Writer::reserve`]).
    /// - A version would reach [`Rv::MAX`].
    ///
    /// In each case, the store is unchanged.
    pub fn commit(
        &mut self,
        batch: impl AsRef<[Write<M>]>,
        assignment: VersionAssignment,
    ) -> Result<Rv, Error> {
        let head = self.head();
        if let VersionAssignment::Exact(asked) = assignment {
            check_above(asked, head)?;
        }
        let mut last = head;
        let mut changes: Vec<Change<M>> = Vec::new();
        // For each changed key, the position of its last change in `changes`.
        let mut changed: HashMap<&Key, usize> = HashMap::new();
        for write in batch.as_ref() {
            let (key, object) = match write {
                Write::Put { key, object } => (key, Some(object)),
                Write::Delete { key } => (key, None),
            };
            let before = match changed.get(key) {
                Some(&change) => changes[change].after.clone(),
                None => self.get(key),
            };
            let is_same = before.as_ref().map(|before| before.object()) == object;
            let keeps_version = object.is_none() || matches!(assignment, VersionAssignment::Mint);
            if is_same && keeps_version {
                continue;
            }
            last = match assignment {
                VersionAssignment::Exact(rv) => rv,
                VersionAssignment::Mint => self.numbering.next(last)?,
            };
            let after = object.map(|object| Entry::new(key.clone(), last, object.clone()));
            changed.insert(key, changes.len());
            changes.push(Change {
                rv: last,
                before,
                after: after.map(Arc::new),
            });
        }
        if !changes.is_empty() {
            self.publish(changes, last);
        }
        Ok(last)
    }

    /// Returns the current entry at `key`.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry<M>>> {
        self.shared.objects().map.get(key).cloned()
    }

    /// Returns the newest published version.
    pub fn head(&self) -> Rv {
        self.shared.head()
    }

    /// Makes the changes visible. Readers see all of them or none.
    fn publish(&self, changes: Vec<Change<M>>, head: Rv) {
        let now = clock::steady();
        let mut objects = self.shared.objects_mut();
        for change in changes {
            match (&change.before, &change.after) {
                (_, Some(after)) => {
                    let key = after.key().clone();
                    objects.map.insert(key, Arc::clone(after));
                }
                (Some(before), None) => {
                    objects.map.remove(before.key());
                }
                (None, None) => {}
            }
            objects.ring.push(change, now);
        }
        self.shared.head.send_replace(head);
        let more = objects.ring.trim(now, head);
        if more && !objects.ring.has_trim_timer {
            objects.ring.has_trim_timer = self.start_trim_timer();
        }
    }

    /// Drops the oldest changes until the ring buffer is within its limits at `now`. Each commit
    /// does the same. Only tests and benchmarks call this method, to shrink the ring buffer without
    /// a commit.
    pub fn trim(&mut self, now: Instant) {
        self.shared.objects_mut().ring.trim(now, self.head());
    }

    /// Starts a timer that trims the ring buffer. After a large commit, the ring buffer may exceed
    /// its usual limit while its changes are younger than [`Bounds::MIN_AGE`]. So clients have time
    /// to read these changes. Without a tokio runtime, returns false. Then the next commit trims the
    /// ring buffer.
    fn start_trim_timer(&self) -> bool {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return false;
        };
        let shared = Arc::downgrade(&self.shared);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(Bounds::MIN_AGE).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let ring = &mut shared.objects_mut().ring;
                ring.has_trim_timer = ring.trim(clock::steady(), shared.head());
                if !ring.has_trim_timer {
                    return;
                }
            }
        });
        true
    }
}

/// Returns an error if `asked` cannot be the version of the next change after `head`.
fn check_above(asked: Rv, head: Rv) -> Result<(), Error> {
    if asked <= head {
        return Err(Error::NotAbove { asked, head });
    }
    if asked >= Rv::MAX {
        return Err(Error::Exhausted { head });
    }
    Ok(())
}
