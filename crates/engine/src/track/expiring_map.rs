//! A map whose entries expire.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Instant;

/// The position of an entry in the order of expiry: its time, and a rising number for entries with
/// the same time.
type ExpiryOrder = (Instant, u64);

/// Entries by key and by their time of expiry.
#[derive(Debug)]
pub(super) struct ExpiringMap<K, V> {
    entries: HashMap<K, (ExpiryOrder, V)>,
    order: BTreeMap<ExpiryOrder, K>,
    next: u64,
}

impl<K: Eq + Hash + Clone, V> ExpiringMap<K, V> {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    /// Keeps `value` until this time. It replaces the previous value of `key`.
    pub(super) fn keep(&mut self, key: K, value: V, until: Instant) {
        self.next += 1;
        let place = (until, self.next);
        self.order.insert(place, key.clone());
        if let Some((before, _)) = self.entries.insert(key, (place, value)) {
            self.order.remove(&before);
        }
    }

    /// Removes an entry. Returns its time of expiry.
    pub(super) fn remove(&mut self, key: &K) -> Option<(Instant, V)> {
        let (place, value) = self.entries.remove(key)?;
        self.order.remove(&place);
        Some((place.0, value))
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// All entries in the order of their expiry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let keys = self.order.values();
        keys.filter_map(|key| Some((key, self.get(key)?)))
    }

    /// The time at which the entry of `key` expires.
    pub(super) fn until(&self, key: &K) -> Option<Instant> {
        self.entries.get(key).map(|(place, _)| place.0)
    }

    /// The time at which the first entry expires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.order.keys().next().map(|(until, _)| *until)
    }

    /// Removes the first entry to expire, if it has expired or if there are more than `most`
    /// entries.
    pub(super) fn pop(&mut self, most: usize, now: Instant) -> Option<(K, V)> {
        if self.next_deadline()? > now && self.order.len() <= most {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        let (_, value) = self.entries.remove(&key)?;
        Some((key, value))
    }
}
