//! The ring: the latest changes in their order. Input: each change, before it is made in the map.
//! Output: the objects that restore an earlier version of the map, and the changes after a version.
//!
//! **Accounting.** When the map drops an object, exactly one change has this object as its
//! `before`. So the weights of all `before` objects are the memory that only the ring holds.
//!
//! **Limits.** The ring drops its oldest changes if they are too old, except the newest
//! [`Bounds::MIN_CHANGES`], or if all changes together have too many bytes. A single batch of the
//! writer can be larger than the whole ring. So changes younger than [`Bounds::MIN_AGE`] stay, and
//! may have up to [`Bounds::peak_bytes`] bytes. A client that reads promptly then misses no change.

use super::{Bounds, IndexChange, IndexEntry, ListScope, Rv, VersionUnavailable};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Ring {
    slots: VecDeque<RingSlot>,
    /// The lower boundary: the version of the last dropped change, or the first version of the
    /// index.
    floor: Rv,
    bytes: usize,
    bounds: Bounds,
    /// True if a timer will trim the ring even if no change is added.
    pub watched: bool,
    /// True if the state of the index was replaced, so no cursor can continue.
    retired: bool,
}

#[derive(Debug)]
struct RingSlot {
    change: IndexChange,
    /// The local time of the change. The version is the time of another machine on a follower.
    at: Instant,
}

impl RingSlot {
    /// Bytes that are freed when the change is dropped.
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
            watched: false,
            retired: false,
        }
    }

    /// Drops all changes. From now on every version is unknown.
    pub(super) fn retire(&mut self) {
        self.retired = true;
        self.slots.clear();
        self.bytes = 0;
    }

    /// Adds a change. Its version is not below that of the last change.
    pub(super) fn push(&mut self, change: IndexChange, at: Instant) {
        let slot = RingSlot { change, at };
        self.bytes += slot.weight();
        self.slots.push_back(slot);
    }

    /// Drops the oldest changes until the limits hold. A change after `head`, the published
    /// version, stays, so the lower boundary is never above `head`. Returns true if more changes
    /// can be dropped when they are no longer young.
    pub(super) fn trim(&mut self, now: Instant, head: Rv) -> bool {
        while let Some(oldest) = self.slots.front() {
            let age = now.saturating_duration_since(oldest.at);
            let allowed = if age < Bounds::MIN_AGE {
                self.bounds.peak_bytes()
            } else {
                self.bounds.bytes
            };
            let old = age > self.bounds.age && self.slots.len() > Bounds::MIN_CHANGES;
            let over = self.bytes > allowed || old;
            if !over || oldest.change.rv > head {
                break;
            }
            // No reader can see the remaining changes of the same version.
            self.floor = oldest.change.rv;
            self.bytes -= oldest.weight();
            self.slots.pop_front();
        }
        self.bytes > self.bounds.bytes
    }

    /// The changes after `rv`. None if the ring has dropped some of them.
    pub(super) fn after(
        &self,
        rv: Rv,
    ) -> Result<impl Iterator<Item = &IndexChange>, VersionUnavailable> {
        if rv < self.floor || self.retired {
            return Err(self.gone(rv));
        }
        let from = self.slots.partition_point(|slot| slot.change.rv <= rv);
        Ok(self.slots.range(from..).map(|slot| &slot.change))
    }

    /// The objects of `scope` that a scan may have missed if it started when `rv` was the head.
    ///
    /// Such an object was current at `rv`, and the earliest later change of its key replaced or
    /// removed it. Objects that further changes replaced are newer than `rv`.
    pub(super) fn old(
        &self,
        scope: &ListScope,
        rv: Rv,
    ) -> Result<Vec<Arc<IndexEntry>>, VersionUnavailable> {
        let old = self.after(rv)?.filter_map(|change| change.before.as_ref());
        let wanted = |old: &&Arc<IndexEntry>| old.rv() <= rv && scope.contains(old.key());
        Ok(old.filter(wanted).cloned().collect())
    }

    /// The objects that the changes in the ring have deleted.
    pub(super) fn deleted(&self) -> Vec<Arc<IndexEntry>> {
        let changes = self.slots.iter().map(|slot| &slot.change);
        let deletions = changes.filter(|change| change.after.is_none());
        deletions
            .filter_map(|change| change.before.clone())
            .collect()
    }

    /// Returns true if `rv` is the version of a change, or the lower boundary.
    pub(super) fn knows(&self, rv: Rv) -> bool {
        if self.retired {
            return false;
        }
        let at = self.slots.partition_point(|slot| slot.change.rv < rv);
        rv == self.floor || self.slots.get(at).is_some_and(|slot| slot.change.rv == rv)
    }

    pub(super) fn gone(&self, asked: Rv) -> VersionUnavailable {
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

    /// Age of the oldest change. Zero if the ring is empty.
    pub(super) fn age(&self, now: Instant) -> Duration {
        let oldest = self.slots.front();
        oldest.map_or(Duration::ZERO, |slot| {
            now.saturating_duration_since(slot.at)
        })
    }
}
