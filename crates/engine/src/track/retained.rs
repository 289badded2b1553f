//! Stores the completed operations or the records that the tracker retains until they expire. If
//! there are too many, the component with most of them loses one: the oldest one of its rule set that
//! has most of them. So many rule sets of one component never push out the history of another
//! component. Within a component, a rule set that completes many operations never pushes out the
//! history of a rule set that completes few.

use super::expiring_map::{ExpiringMap, ExpiryOrder};
use ifo_api::Key;
use ifo_api::Text;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// A component, and the name of one of its rule sets.
pub(super) type RuleSetId = (Text, Text);

/// Objects that expire, with their owner and the start of their operation.
#[derive(Debug, Default)]
pub(super) struct RetainedByComponent {
    all: ExpiringMap<Key, (RuleSetId, Timestamp)>,
    /// The order of expiry of the objects of each owner. Owners without objects have no entry.
    by_owner: BTreeMap<RuleSetId, BTreeSet<ExpiryOrder>>,
}

impl RetainedByComponent {
    /// Inserts an object that expires at `until`. Replaces an existing object with this key.
    pub fn insert(&mut self, key: Key, owner: RuleSetId, start: Timestamp, until: Instant) {
        self.remove(&key);
        // All objects of an owner share one copy of its names.
        let known = self.by_owner.get_key_value(&owner);
        let owner = known.map_or(owner, |(known, _)| known.clone());
        let order = self.all.insert(key, (owner.clone(), start), until);
        self.by_owner.entry(owner).or_default().insert(order);
    }

    /// Removes an object. Does nothing if there is no object with this key.
    pub fn remove(&mut self, key: &Key) {
        let Some((order, (owner, _))) = self.all.remove_entry(key) else {
            return;
        };
        if let Some(orders) = self.by_owner.get_mut(&owner) {
            orders.remove(&order);
            if orders.is_empty() {
                self.by_owner.remove(&owner);
            }
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
    /// are more than `most`, removes the oldest object of the largest rule set in the largest
    /// component. Returns the key of the removed object, or None if no object was removed.
    pub fn pop(&mut self, most: usize, now: Instant) -> Option<Key> {
        let key = if self.next_deadline()? <= now {
            self.all.iter().next()?.0.clone()
        } else if self.all.len() > most {
            let mut components: BTreeMap<&Text, usize> = BTreeMap::new();
            for ((component, _), orders) in &self.by_owner {
                *components.entry(component).or_default() += orders.len();
            }
            let size = |((component, _), orders): &(&RuleSetId, &BTreeSet<ExpiryOrder>)| {
                let of_component = components[component];
                (of_component, orders.len(), Reverse(orders.first().copied()))
            };
            let (_, largest) = self.by_owner.iter().max_by_key(size)?;
            self.all.key_at(largest.first()?)?.clone()
        } else {
            return None;
        };
        self.remove(&key);
        Some(key)
    }
}
