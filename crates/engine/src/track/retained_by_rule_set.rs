//! Stores the completed operations or the records that the tracker retains until they expire. If
//! there are too many, the rule set with most of them loses its oldest one. So a rule set that
//! completes many operations never pushes out the history of a rule set that completes few.

use super::expiring_map::{ExpiringMap, ExpiryOrder};
use ifo_api::Key;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Objects that expire, with the rule set and the start of their operation.
#[derive(Debug, Default)]
pub(super) struct RetainedByRuleSet {
    all: ExpiringMap<Key, (Arc<str>, Timestamp)>,
    /// The order of expiry of the objects of each rule set. Rule sets without objects have no entry.
    by_rule_set: BTreeMap<Arc<str>, BTreeSet<ExpiryOrder>>,
}

impl RetainedByRuleSet {
    /// Inserts an object that expires at `until`. Replaces an existing object with this key.
    pub fn insert(&mut self, key: Key, rule_set: &Arc<str>, start: Timestamp, until: Instant) {
        self.remove(&key);
        // All objects of a rule set share one copy of its name.
        let known = self.by_rule_set.get_key_value(rule_set);
        let rule_set = known.map_or(rule_set, |(known, _)| known).clone();
        let order = self.all.insert(key, (rule_set.clone(), start), until);
        self.by_rule_set.entry(rule_set).or_default().insert(order);
    }

    /// Removes an object. Does nothing if there is no object with this key.
    pub fn remove(&mut self, key: &Key) {
        if let Some((order, (rule_set, _))) = self.all.remove_entry(key) {
            self.remove_order(&rule_set, order);
        }
    }

    /// Returns the keys of all objects, and the start of their operations, in the order of their
    /// expiry.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Timestamp)> {
        self.all.iter().map(|(key, (_, start))| (key, *start))
    }

    /// Returns the time at which the next object expires.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.all.next_deadline()
    }

    /// Removes the object that expires first, if it has expired. If no object has expired, but there
    /// are more than `most`, removes the oldest object of the rule set that has most objects.
    /// Returns the key of the removed object, or None if no object was removed.
    pub fn pop(&mut self, most: usize, now: Instant) -> Option<Key> {
        let key = if self.next_deadline()? <= now {
            self.all.iter().next()?.0.clone()
        } else if self.all.len() > most {
            let groups = self.by_rule_set.values();
            let largest = groups.max_by_key(|orders| (orders.len(), Reverse(orders.first())))?;
            self.all.key_at(largest.first()?)?.clone()
        } else {
            return None;
        };
        self.remove(&key);
        Some(key)
    }

    fn remove_order(&mut self, rule_set: &Arc<str>, order: ExpiryOrder) {
        if let Some(orders) = self.by_rule_set.get_mut(rule_set) {
            orders.remove(&order);
            if orders.is_empty() {
                self.by_rule_set.remove(rule_set);
            }
        }
    }
}
