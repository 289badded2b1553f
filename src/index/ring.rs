//! The newest changes, in order. Enters: each change, before the map knows of it.
//! Leaves: what has to be undone to see an earlier version, and what came after one.
//!
//! Accounting: an object that was replaced or removed is the `before` of exactly one
//! change, and every `after` that the map no longer holds is the `before` of a later
//! change. So the weights of the `before`s are what the ring alone keeps in memory.
//!
//! What is dropped: the oldest changes, once they are too old (and not among the newest
//! [`Bounds::RECENT`]) or all together too many bytes. But a batch of the writer may be larger than the whole ring, and would be gone
//! before anybody could have read it. So changes younger than [`Bounds::YOUNG`] stay, and
//! may take up to [`Bounds::most`] bytes: whoever reads at once loses nothing.

use super::{Bounds, Gone, IndexChange, IndexEntry, ListScope, Rv};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Ring {
    slots: VecDeque<Slot>,
    /// The lower boundary: the version of the last change that was dropped, or the one
    /// that the index began with.
    floor: Rv,
    bytes: usize,
    bounds: Bounds,
    /// Whether somebody will trim it even if nothing is added.
    pub watched: bool,
    /// Whether another history has taken its place.
    retired: bool,
}

#[derive(Debug)]
struct Slot {
    change: IndexChange,
    /// Not taken from the version, which is another machine's time in a mirror.
    at: Instant,
}

impl Slot {
    /// What dropping it sets free.
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

    /// Lets go of all changes. From now on every version is gone.
    pub(super) fn retire(&mut self) {
        self.retired = true;
        self.slots.clear();
        self.bytes = 0;
    }

    /// Adds a change, whose version is not below that of the last.
    pub(super) fn push(&mut self, change: IndexChange, at: Instant) {
        let slot = Slot { change, at };
        self.bytes += slot.weight();
        self.slots.push_back(slot);
    }

    /// Drops the oldest changes until the bounds hold, but none after `head`, the
    /// published version: the lower boundary is never above it. Says whether there is
    /// more to drop once it is no longer young.
    pub(super) fn trim(&mut self, now: Instant, head: Rv) -> bool {
        while let Some(oldest) = self.slots.front() {
            let age = now.saturating_duration_since(oldest.at);
            let allowed = if age < Bounds::YOUNG {
                self.bounds.most()
            } else {
                self.bounds.bytes
            };
            let old = age > self.bounds.age && self.slots.len() > Bounds::RECENT;
            let over = self.bytes > allowed || old;
            if !over || oldest.change.rv > head {
                break;
            }
            // What is left of changes of the same version, nobody sees any more.
            self.floor = oldest.change.rv;
            self.bytes -= oldest.weight();
            self.slots.pop_front();
        }
        self.bytes > self.bounds.bytes
    }

    /// The changes after `rv`, if the ring still has all of them.
    pub(super) fn after(&self, rv: Rv) -> Result<impl Iterator<Item = &IndexChange>, Gone> {
        if rv < self.floor || self.retired {
            return Err(self.gone(rv));
        }
        let from = self.slots.partition_point(|slot| slot.change.rv <= rv);
        Ok(self.slots.range(from..).map(|slot| &slot.change))
    }

    /// What a scan that began when `rv` was the head may have missed: the objects of
    /// `scope` that were current at `rv` and are not any more. Such an object was
    /// replaced or removed by exactly one change, the earliest of its key after `rv`;
    /// what later changes replaced is newer than `rv`.
    pub(super) fn old(&self, scope: &ListScope, rv: Rv) -> Result<Vec<Arc<IndexEntry>>, Gone> {
        let old = self.after(rv)?.filter_map(|change| change.before.as_ref());
        let wanted = |old: &&Arc<IndexEntry>| old.rv() <= rv && scope.contains(old.key());
        Ok(old.filter(wanted).cloned().collect())
    }

    /// The objects that the changes here have deleted.
    pub(super) fn deleted(&self) -> Vec<Arc<IndexEntry>> {
        let changes = self.slots.iter().map(|slot| &slot.change);
        let deletions = changes.filter(|change| change.after.is_none());
        deletions
            .filter_map(|change| change.before.clone())
            .collect()
    }

    /// Whether `rv` is the version of a change, or the lower boundary.
    pub(super) fn knows(&self, rv: Rv) -> bool {
        if self.retired {
            return false;
        }
        let at = self.slots.partition_point(|slot| slot.change.rv < rv);
        rv == self.floor || self.slots.get(at).is_some_and(|slot| slot.change.rv == rv)
    }

    pub(super) fn gone(&self, asked: Rv) -> Gone {
        Gone {
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

    /// The age of the oldest change; zero if there is none.
    pub(super) fn age(&self, now: Instant) -> Duration {
        let oldest = self.slots.front();
        oldest.map_or(Duration::ZERO, |slot| {
            now.saturating_duration_since(slot.at)
        })
    }
}
