//! A map whose entries expire, with a maximum number of entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// A map from keys to values that expire. An expired entry stays in the map until
/// [`ExpiringMap::expire`] removes it.
#[derive(Debug)]
pub(super) struct ExpiringMap<K, V> {
    entries: BTreeMap<K, (Instant, V)>,
    order: BTreeSet<(Instant, K)>,
}

impl<K, V> Default for ExpiringMap<K, V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone, V> ExpiringMap<K, V> {
    /// Inserts an entry that expires at `until`. Replaces an existing entry of `key`.
    pub(super) fn insert(&mut self, key: K, value: V, until: Instant) {
        self.remove(&key);
        self.order.insert((until, key.clone()));
        self.entries.insert(key, (until, value));
    }

    /// Removes an entry. Returns its time of expiry and its value.
    pub(super) fn remove(&mut self, key: &K) -> Option<(Instant, V)> {
        let (until, value) = self.entries.remove(key)?;
        self.order.remove(&(until, key.clone()));
        Some((until, value))
    }

    /// Returns the value of `key`.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Removes the entries that have expired. If the map has more than `most` entries, also removes
    /// the entries that expire first.
    pub(super) fn expire(&mut self, most: usize, now: Instant) {
        while let Some((until, _)) = self.order.first()
            && (*until <= now || self.order.len() > most)
            && let Some((_, key)) = self.order.pop_first()
        {
            self.entries.remove(&key);
        }
    }
}
