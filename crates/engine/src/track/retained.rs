//! Completed operations that are still shown.

use ifo_api::Key;
use jiff::Timestamp;
use std::collections::{HashSet, VecDeque};
use std::time::Instant;

/// See above; each is there once.
#[derive(Debug, Default)]
pub(super) struct Retained {
    /// Those that go first come first.
    order: VecDeque<Shown>,
    keys: HashSet<Key>,
}

#[derive(Debug)]
struct Shown {
    until: Instant,
    start: Timestamp,
    key: Key,
}

impl Retained {
    /// Keeps one that started at `start`, until then.
    pub(super) fn keep(&mut self, until: Instant, start: Timestamp, key: Key) {
        self.take_back(&key);
        self.keys.insert(key.clone());
        // Nearly always the last: after a restart they come in any order.
        let place = self.order.partition_point(|other| other.until <= until);
        self.order.insert(place, Shown { until, start, key });
    }

    /// What is shown under `key` is something else from now on.
    pub(super) fn take_back(&mut self, key: &Key) {
        if self.keys.remove(key) {
            self.order.retain(|shown| shown.key != *key);
        }
    }

    /// When the next one goes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.order.front().map(|shown| shown.until)
    }

    /// The next one that goes, because its time is over or there are more than `most`.
    pub(super) fn next_over(&mut self, most: usize, now: Instant) -> Option<Key> {
        let first = self.order.front()?;
        if first.until > now && self.order.len() <= most {
            return None;
        }
        let key = self.order.pop_front()?.key;
        self.keys.remove(&key);
        Some(key)
    }

    /// Takes all out that are in `namespace`, but for those that started at `since` or
    /// after it.
    pub(super) fn leave(&mut self, namespace: &str, since: Option<Timestamp>) -> Vec<Key> {
        let goes = |shown: &Shown| {
            *shown.key.namespace == *namespace && since.is_none_or(|since| shown.start < since)
        };
        let gone = self.order.iter().filter(|shown| goes(shown));
        let gone: Vec<Key> = gone.map(|shown| shown.key.clone()).collect();
        if !gone.is_empty() {
            self.order.retain(|shown| !goes(shown));
            for key in &gone {
                self.keys.remove(key);
            }
        }
        gone
    }
}
