//! Stores which completed operations or records the tracker retains until they expire. If there are
//! too many, the tracker selects the component with most objects. In this component, it selects the
//! rule set with most objects, and removes the oldest object of this rule set. So a component never
//! causes the removal of objects of a smaller component. The same applies to the rule sets of a
//! component.

use crate::ClockReading;
use ifo_api::Key;
use ifo_api::Text;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Limits of the retention of completed operations. If there are too many, the tracker deletes the
/// oldest ones of the largest rule set in the largest component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Time after the end of an operation for which the operation is retained.
    pub age: Duration,
    /// Maximum number of retained operations.
    pub max_count: usize,
}

/// A component, and the name of one of its rule sets.
pub(super) type RuleSetId = (Text, Text);

/// The retained objects.
#[derive(Debug)]
pub(super) struct RetainedByComponent {
    /// None if the tracker retains no objects.
    retention: Option<Retention>,
    objects: BTreeMap<Key, RetainedObject>,
    /// Time of expiry and key of each object, by the rule set that owns the object. A rule set
    /// without objects has no entry.
    by_owner: BTreeMap<RuleSetId, BTreeSet<(Instant, Key)>>,
}

#[derive(Debug)]
struct RetainedObject {
    owner: RuleSetId,
    /// Start of the operation.
    start: Timestamp,
    until: Instant,
}

impl RetainedByComponent {
    pub fn new(retention: Option<Retention>) -> Self {
        Self {
            retention,
            objects: BTreeMap::new(),
            by_owner: BTreeMap::new(),
        }
    }

    /// Retains the object `key` of an operation that started at `start` and ended at `end`.
    /// Replaces an existing object with this key. Returns false if the retention of the object is
    /// already over, or if the tracker retains no objects.
    pub fn insert(
        &mut self,
        key: Key,
        owner: RuleSetId,
        (start, end): (Timestamp, Timestamp),
        now: ClockReading,
    ) -> bool {
        self.remove(&key);
        let age = self.retention.map(|retention| retention.age);
        let Some(left) = age.and_then(|age| age.checked_sub(now.since(end))) else {
            return false;
        };
        // All objects of a rule set share one copy of the names in `owner`.
        let known = self.by_owner.get_key_value(&owner);
        let owner = known.map_or(owner, |(known, _)| known.clone());
        let until = now.steady + left;
        let order = self.by_owner.entry(owner.clone()).or_default();
        order.insert((until, key.clone()));
        let object = RetainedObject {
            owner,
            start,
            until,
        };
        self.objects.insert(key, object);
        true
    }

    /// Removes an object. Does nothing if there is no object with this key.
    pub fn remove(&mut self, key: &Key) {
        let Some(RetainedObject { owner, until, .. }) = self.objects.remove(key) else {
            return;
        };
        if let Some(order) = self.by_owner.get_mut(&owner) {
            order.remove(&(until, key.clone()));
            if order.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    /// Returns the namespaces of the objects.
    pub fn namespaces(&self) -> impl Iterator<Item = Text> {
        self.objects.keys().map(|key| key.object_namespace().into())
    }

    /// Removes objects in a namespace. Calls `was_deleted` with the start of the operation of each
    /// object. If the result is true, removes the object. Returns the keys of the removed objects.
    pub fn remove_from(
        &mut self,
        namespace: &str,
        was_deleted: impl Fn(Timestamp) -> bool,
    ) -> Vec<Key> {
        let objects = self.objects.iter();
        let outdated = objects
            .filter(|(key, it)| key.object_namespace() == namespace && was_deleted(it.start));
        let outdated: Vec<Key> = outdated.map(|(key, _)| key.clone()).collect();
        for key in &outdated {
            self.remove(key);
        }
        outdated
    }

    /// Returns the time at which the next object expires.
    pub fn next_deadline(&self) -> Option<Instant> {
        let firsts = self.by_owner.values().filter_map(BTreeSet::first);
        firsts.map(|(until, _)| *until).min()
    }

    /// Removes an object that has expired. If no object has expired, but there are too many,
    /// removes the oldest object of the largest rule set in the largest component. Returns the key
    /// of the removed object, or None if no object was removed.
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        let firsts = self.by_owner.values().filter_map(BTreeSet::first);
        let first = firsts.min().filter(|(until, _)| *until <= now);
        let (_, key) = first.or_else(|| self.surplus())?;
        let key = key.clone();
        self.remove(&key);
        Some(key)
    }

    fn surplus(&self) -> Option<&(Instant, Key)> {
        if self.objects.len() <= self.retention?.max_count {
            return None;
        }
        let mut components: BTreeMap<&Text, usize> = BTreeMap::new();
        for ((component, _), order) in &self.by_owner {
            *components.entry(component).or_default() += order.len();
        }
        let size = |((component, _), order): &(&RuleSetId, &BTreeSet<(Instant, Key)>)| {
            (
                components[component],
                order.len(),
                Reverse(order.first().cloned()),
            )
        };
        let (_, largest) = self.by_owner.iter().max_by_key(size)?;
        largest.first()
    }
}
