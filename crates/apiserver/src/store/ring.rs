//! The ring buffer of the latest changes of the store, in short the ring. The ring returns the
//! changes after a version. The map of the store has only the current objects. So a list of an
//! earlier state also needs the objects that have been replaced or deleted since then. The list
//! gets these objects from the ring.
//!
//! **Accounting.** When a write replaces or deletes an object in the map, exactly one change in the
//! ring has the old object as its `before`. The map no longer has this object. So the memory that
//! only the ring holds is the size of its slots and of all `before` objects.
//!
//! **Limits.** The ring drops its oldest change in two cases:
//!
//! - The change is older than [`Bounds::age`], and the ring has more than [`Bounds::MIN_CHANGES`]
//!   changes.
//! - The ring has more bytes than [`Bounds::bytes`], and the change is at least as old as
//!   [`Bounds::MIN_AGE`]. If the change is younger, the limit is [`Bounds::peak_bytes`]. So one
//!   batch of the writer may be larger than the usual limit. A client that reads promptly misses no
//!   change of such a batch.

use super::{Bounds, Change, Entry, Rv, Scope, VersionUnavailable};
use crate::Model;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Ring<M: Model> {
    slots: VecDeque<RingSlot<M>>,
    /// The oldest version that can be read. It is the version of the last change that the ring has
    /// dropped. Before the first drop, it is the first version of the store.
    pub oldest_readable: Rv,
    /// The memory that only the ring holds.
    pub bytes: usize,
    bounds: Bounds,
    /// True if a timer will trim the ring, even if no change is added.
    pub has_trim_timer: bool,
}

#[derive(Debug)]
struct RingSlot<M: Model> {
    change: Change<M>,
    /// The time of the change on this process's steady clock. The age of a change is not computed
    /// from its version, because the version on a follower comes from the leader's clock.
    at: Instant,
}

impl<M: Model> RingSlot<M> {
    /// Returns the number of bytes that become free when the ring drops the change.
    fn weight(&self) -> usize {
        let before = self.change.before.as_ref();
        size_of::<Self>() + before.map_or(0, |entry| entry.weight())
    }
}

impl<M: Model> Ring<M> {
    pub(super) fn new(bounds: Bounds, oldest_readable: Rv) -> Self {
        Self {
            slots: VecDeque::new(),
            oldest_readable,
            bytes: 0,
            bounds,
            has_trim_timer: false,
        }
    }

    /// Adds a change. Its version must not be below the version of the previous change.
    pub(super) fn push(&mut self, change: Change<M>, at: Instant) {
        let slot = RingSlot { change, at };
        self.bytes += slot.weight();
        self.slots.push_back(slot);
    }

    /// Drops the oldest changes until the ring is within its limits. Changes after `head`, the
    /// newest published version, stay. So the oldest version that can be read is never above
    /// `head`.
    ///
    /// Returns true if the ring still has more bytes than [`Bounds::bytes`], because its oldest
    /// change is young or not published yet. The caller must trim the ring again later.
    pub(super) fn trim(&mut self, now: Instant, head: Rv) -> bool {
        while let Some(oldest) = self.slots.front() {
            let age = now.saturating_duration_since(oldest.at);
            let allowed = if age < Bounds::MIN_AGE {
                self.bounds.peak_bytes()
            } else {
                self.bounds.bytes
            };
            let is_too_old = age > self.bounds.age && self.slots.len() > Bounds::MIN_CHANGES;
            let must_drop = self.bytes > allowed || is_too_old;
            if !must_drop || oldest.change.rv > head {
                break;
            }
            // Several changes can have the same version. When the ring drops one of them,
            // `oldest_readable` becomes this version. So a reader gets only changes after this
            // version, and never a part of the changes with this version.
            self.oldest_readable = oldest.change.rv;
            self.bytes -= oldest.weight();
            self.slots.pop_front();
        }
        // After a large commit, most of the capacity is unused, so the ring releases this memory.
        let needed = self.slots.len().max(Bounds::MIN_CHANGES);
        if self.slots.capacity() > 4 * needed {
            self.slots.shrink_to(2 * needed);
        }
        self.bytes > self.bounds.bytes
    }

    /// Returns the changes after `rv`. Fails if the ring has dropped some of them.
    pub(super) fn after(
        &self,
        rv: Rv,
    ) -> Result<impl Iterator<Item = &Change<M>>, VersionUnavailable> {
        if rv < self.oldest_readable {
            return Err(self.unavailable(rv));
        }
        let from = self.slots.partition_point(|slot| slot.change.rv <= rv);
        Ok(self.slots.range(from..).map(|slot| &slot.change))
    }

    /// Returns the objects in `scope` that were current at `rv`, and have been replaced or deleted
    /// since then. A list at `rv` takes these objects from the ring, because the map no longer has
    /// them.
    ///
    /// The object of a key at `rv` is the `before` of the first change of this key after `rv`. The
    /// `before` of each later change of the same key is newer than `rv`, so it is left out.
    pub(super) fn old(
        &self,
        scope: &Scope,
        rv: Rv,
    ) -> Result<Vec<Arc<Entry<M>>>, VersionUnavailable> {
        let old = self.after(rv)?.filter_map(|change| change.before.as_ref());
        let wanted = |old: &&Arc<Entry<M>>| old.rv() <= rv && scope.contains(old.key());
        Ok(old.filter(wanted).cloned().collect())
    }

    /// Succeeds if a list or a cursor can start at `rv`. `rv` must be the version of a change in
    /// the ring, or the oldest version that can be read.
    pub(super) fn check(&self, rv: Rv) -> Result<(), VersionUnavailable> {
        let at = self.slots.partition_point(|slot| slot.change.rv < rv);
        let is_change = self.slots.get(at).is_some_and(|slot| slot.change.rv == rv);
        if rv != self.oldest_readable && !is_change {
            return Err(self.unavailable(rv));
        }
        Ok(())
    }

    pub(super) fn unavailable(&self, asked: Rv) -> VersionUnavailable {
        VersionUnavailable {
            asked,
            oldest: self.oldest_readable,
        }
    }

    /// Returns the age of the oldest change, or zero if the ring is empty.
    pub(super) fn age(&self, now: Instant) -> Duration {
        let oldest = self.slots.front();
        oldest.map_or(Duration::ZERO, |slot| {
            now.saturating_duration_since(slot.at)
        })
    }
}
