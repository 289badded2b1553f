//! The ring buffer of the latest changes, in short the ring. The writer adds each change to the
//! ring before it changes the map. The ring returns the changes after a version, and the objects
//! with which a list restores an earlier version of the map.
//!
//! **Accounting.** When the map drops an object, exactly one change has this object as its
//! `before`. So the weights of all `before` objects are the memory that only the ring holds.
//!
//! **Limits.** The ring drops its oldest changes in two cases. They are too old and not among the
//! newest [`Bounds::MIN_CHANGES`], or all changes together have too many bytes. One batch of the
//! writer can be larger than the byte limit. So the limit is [`Bounds::peak_bytes`] while changes
//! are younger than [`Bounds::MIN_AGE`]. A client that reads promptly then misses no change.

use super::{Bounds, IndexChange, IndexEntry, ListScope, Rv, VersionUnavailable};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Ring {
    slots: VecDeque<RingSlot>,
    /// The oldest version that can be read: the version of the last dropped change, or the first
    /// version of the index.
    floor: Rv,
    bytes: usize,
    bounds: Bounds,
    /// True if a timer will trim the ring, even if no change is added.
    pub has_trim_timer: bool,
    /// True if the state of the index was replaced, so no cursor can continue.
    retired: bool,
}

#[derive(Debug)]
struct RingSlot {
    change: IndexChange,
    /// The time of the change on this process's steady clock. The version of the change is no
    /// measure of its age, because on a follower it comes from the leader's clock.
    at: Instant,
}

impl RingSlot {
    /// Returns the number of bytes that are freed when the change is dropped.
    fn weight(&self) -> usize {
        let before = self.change.before.as_ref();
        size_of::<Self>() + before.map_or(0, |entry| entry.weight())
    }
}

impl Ring {
    pub(super) fn new(bounds: Bounds, floor: Rv) -> Self {
        Self {
            slots: VecDeque::new(),
            floor,
            bytes: 0,
            bounds,
            has_trim_timer: false,
            retired: false,
        }
    }

    /// Drops all changes. After that, no version can be read.
    pub(super) fn retire(&mut self) {
        self.retired = true;
        self.slots.clear();
        self.bytes = 0;
    }

    /// Adds a change. Its version must not be below the version of the previous change.
    pub(super) fn push(&mut self, change: IndexChange, at: Instant) {
        let slot = RingSlot { change, at };
        self.bytes += slot.weight();
        self.slots.push_back(slot);
    }

    /// Drops the oldest changes until the ring is within its limits. Changes after `head`, the
    /// published version, stay. So the oldest version in the ring is never above `head`.
    ///
    /// Returns true if the ring exceeds its normal byte limit, so that more changes can be dropped
    /// when they are old enough.
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
            // Other changes of the same version may remain, but readers only read changes after
            // `floor`.
            self.floor = oldest.change.rv;
            self.bytes -= oldest.weight();
            self.slots.pop_front();
        }
        self.bytes > self.bounds.bytes
    }

    /// Returns the changes after `rv`. Fails if the ring has dropped some of them.
    pub(super) fn after(
        &self,
        rv: Rv,
    ) -> Result<impl Iterator<Item = &IndexChange>, VersionUnavailable> {
        if rv < self.floor || self.retired {
            return Err(self.unavailable(rv));
        }
        let from = self.slots.partition_point(|slot| slot.change.rv <= rv);
        Ok(self.slots.range(from..).map(|slot| &slot.change))
    }

    /// Returns the objects in `scope` that were current at `rv` and have been replaced or deleted
    /// since. A scan that started when `rv` was the newest version may have missed them.
    ///
    /// Such an object is the `before` of the first change of its key after `rv`. The `before` of a
    /// further change of the key is newer than `rv`.
    pub(super) fn old(
        &self,
        scope: &ListScope,
        rv: Rv,
    ) -> Result<Vec<Arc<IndexEntry>>, VersionUnavailable> {
        let old = self.after(rv)?.filter_map(|change| change.before.as_ref());
        let wanted = |old: &&Arc<IndexEntry>| old.rv() <= rv && scope.contains(old.key());
        Ok(old.filter(wanted).cloned().collect())
    }

    /// Returns the objects that the changes in the ring have deleted.
    pub(super) fn deleted(&self) -> Vec<Arc<IndexEntry>> {
        let changes = self.slots.iter().map(|slot| &slot.change);
        let deletions = changes.filter(|change| change.after.is_none());
        deletions
            .filter_map(|change| change.before.clone())
            .collect()
    }

    /// Returns true if `rv` is the version of a change in the ring, or the oldest version that can
    /// be read.
    pub(super) fn has_version(&self, rv: Rv) -> bool {
        if self.retired {
            return false;
        }
        let at = self.slots.partition_point(|slot| slot.change.rv < rv);
        rv == self.floor || self.slots.get(at).is_some_and(|slot| slot.change.rv == rv)
    }

    pub(super) fn unavailable(&self, asked: Rv) -> VersionUnavailable {
        VersionUnavailable {
            asked,
            oldest: self.floor,
        }
    }

    pub(super) fn floor(&self) -> Rv {
        self.floor
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the age of the oldest change, or zero if the ring is empty.
    pub(super) fn age(&self, now: Instant) -> Duration {
        let oldest = self.slots.front();
        oldest.map_or(Duration::ZERO, |slot| {
            now.saturating_duration_since(slot.at)
        })
    }
}
