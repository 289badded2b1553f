//! A hash map whose entries expire. The map returns expired entries in the order of their expiry.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Instant;

/// The position of an entry in the order of expiry: the time of expiry, and a number that
/// distinguishes entries with the same time.
pub(super) type ExpiryOrder = (Instant, u64);

/// A map from keys to values that expire. An expired entry stays in the map until
/// [`ExpiringMap::pop`] removes it.
#[derive(Debug)]
pub(super) struct ExpiringMap<K, V> {
    entries: HashMap<K, (ExpiryOrder, V)>,
    order: BTreeMap<ExpiryOrder, K>,
    next: u64,
}

impl<K: Eq + Hash + Clone, V> Default for ExpiringMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Eq + Hash + Clone, V> ExpiringMap<K, V> {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    /// Inserts an entry that expires at `until`. Replaces an existing entry of `key`. Returns the
    /// position of the entry in the order of expiry.
    pub(super) fn insert(&mut self, key: K, value: V, until: Instant) -> ExpiryOrder {
        self.next += 1;
        let position = (until, self.next);
        self.order.insert(position, key.clone());
        if let Some((before, _)) = self.entries.insert(key, (position, value)) {
            self.order.remove(&before);
        }
        position
    }

    /// Removes an entry. Returns its time of expiry and its value.
    pub(super) fn remove(&mut self, key: &K) -> Option<(Instant, V)> {
        let (position, value) = self.remove_entry(key)?;
        Some((position.0, value))
    }

    /// Removes an entry. Returns its position in the order of expiry and its value.
    pub(super) fn remove_entry(&mut self, key: &K) -> Option<(ExpiryOrder, V)> {
        let (position, value) = self.entries.remove(key)?;
        self.order.remove(&position);
        Some((position, value))
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the key of the entry at this position in the order of expiry.
    pub(super) fn key_at(&self, position: &ExpiryOrder) -> Option<&K> {
        self.order.get(position)
    }

    /// Returns the value of `key`.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Returns all entries in the order of their expiry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let keys = self.order.values();
        keys.filter_map(|key| Some((key, self.get(key)?)))
    }

    /// Returns the time at which the next entry expires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.order.keys().next().map(|(until, _)| *until)
    }

    /// Removes the entry that expires first, if this entry has expired or if the map has more than
    /// `most` entries. Returns the removed entry, or None if no entry was removed.
    pub(super) fn pop(&mut self, most: usize, now: Instant) -> Option<(K, V)> {
        if self.next_deadline()? > now && self.order.len() <= most {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        let (_, value) = self.entries.remove(&key)?;
        Some((key, value))
    }
}
