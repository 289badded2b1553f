//! Stores the fields of objects of one feed (the watch of one resource). The detector evaluates
//! these objects again at intervals, although they do not change. An object is stored if the
//! results of the rules can change as time passes. There are two reasons: a rule read `now`, or a
//! throttled rule set was skipped.
//!
//! There are two bounds: on the number of objects of one feed, and on the bytes of all feeds
//! together. Each component has a share of both bounds. If the share is used up, a further object
//! is not stored. Then the rule sets that need the object count as throttled, because the detector
//! cannot evaluate them on all objects.

use super::Evaluation;
use crate::component_share::Shares;
use crate::rules::{Fact, Report, RuleSet};
use ifo_api::Text;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of stored objects of one feed.
pub(super) const MAX_OBJECTS: usize = 2_000;

/// Maximum size of the stored fields of one object, in bytes. Rules usually read a few hundred
/// bytes. Larger objects are not stored. The reason: all feeds of the server together decode only
/// one large object at a time, but evaluations of stored objects do not wait for other feeds.
pub(super) const MAX_FIELDS: usize = 64 << 10;

/// Maximum number of bytes of the stored objects of all feeds together.
pub const MAX_STORED_BYTES: usize = 8 << 20;

/// Approximate size of a stored object without its fields, in bytes.
const ENTRY_BYTES: usize = 256;

/// What the components use of [`MAX_STORED_BYTES`]. All feeds share this value.
#[derive(Debug, Default)]
pub struct StoredBytes(Mutex<Shares>);

impl StoredBytes {
    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stored objects of one feed.
#[derive(Debug, Default)]
pub(super) struct StoredObjects {
    /// The map is sorted, so that the order of the messages does not depend on hashes.
    objects: BTreeMap<Text, StoredObject>,
    /// What the components use of [`MAX_OBJECTS`].
    places: Shares,
    /// What the components use of [`MAX_STORED_BYTES`]. The value must not be replaced while
    /// objects are stored, because it counts their bytes.
    pub bytes: Arc<StoredBytes>,
    /// The rule sets, by name, that need an object which is not stored.
    refused: HashMap<Text, Refused>,
    /// Number of the list that began last.
    list_number: u64,
}

#[derive(Debug)]
struct StoredObject {
    /// The fields that the rules read, as JSON.
    fields: Arc<[u8]>,
    /// The component from whose share the object is stored.
    component: Text,
}

/// What is known about the objects that a rule set needs and that are not stored. The rule set
/// counts as throttled until this value is dropped.
#[derive(Debug)]
struct Refused {
    component: Text,
    _throttled: Report,
    /// Bytes of the smallest object that was refused since the last list began. An object whose
    /// fields exceed [`MAX_FIELDS`] is never stored, so the feed must list it regularly. It counts
    /// as 0 bytes, so that [`StoredObjects::has_room`] usually returns true.
    least_bytes: usize,
    /// The value of [`StoredObjects::list_number`] when an object was last refused.
    list_number: u64,
}

impl StoredObject {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.fields.len()
    }
}

impl StoredObjects {
    /// Handles the beginning of a list. Removes all objects, because the list contains them again.
    pub fn begin_list(&mut self) {
        self.list_number += 1;
        while let Some((_, object)) = self.objects.pop_first() {
            self.release(&object);
        }
    }

    /// Forgets the rule sets for which no object has been refused since the last list began. The
    /// caller must not call this method during a list. The tracker must already have processed the
    /// results of the last list. Otherwise, clients could get a list of operations that counts as
    /// complete, but lacks some operations.
    pub fn begin_resync(&mut self) {
        let list_number = self.list_number;
        self.refused.retain(|_, it| it.list_number == list_number);
    }

    /// Returns true if nothing is stored, and no object was refused.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.refused.is_empty()
    }

    /// Removes an object. Does nothing if the object is not stored.
    pub fn remove(&mut self, identity: &str) {
        if let Some(object) = self.objects.remove(identity) {
            self.release(&object);
        }
    }

    /// Handles the evaluation of an object. If its result depends on the time, stores the fields
    /// that `fields` returns. The stored object uses the share of one component: the first one that
    /// needs the object, and has room for it or has stored it before.
    pub fn evaluated(
        &mut self,
        identity: impl Fn() -> Text,
        evaluation: &Evaluation,
        fields: impl Fn() -> Vec<u8>,
    ) {
        let needed_by = &evaluation.time_dependent;
        if needed_by.is_empty() && self.objects.is_empty() {
            return;
        }
        let identity = identity();
        let before = self.objects.remove(&identity);
        if let Some(before) = &before {
            self.release(before);
        }
        let Some(first) = needed_by.first() else {
            return;
        };
        let mut object = StoredObject {
            fields: fields().into(),
            component: first.component.clone(),
        };
        let bytes = object.bytes();
        // An object that does not grow keeps its place. Since it was stored, other components may
        // have used up the room in which its component could store further objects.
        let keeps = |it: &RuleSet| {
            let mut before = before.iter();
            before.any(|before| before.component == it.component && bytes <= before.bytes())
        };
        let may_store = |it: &&Arc<RuleSet>| keeps(it) || self.may_store(&it.component, bytes);
        let is_small = object.fields.len() <= MAX_FIELDS;
        if let Some(rule_set) = needed_by.iter().find(may_store).filter(|_| is_small) {
            object.component.clone_from(&rule_set.component);
            self.places.take(&object.component, 1);
            self.bytes.shares().take(&object.component, bytes);
            self.objects.insert(identity, object);
        } else {
            let bytes = if is_small { bytes } else { 0 };
            for rule_set in needed_by {
                self.refuse(rule_set, bytes);
            }
        }
    }

    fn refuse(&mut self, rule_set: &Arc<RuleSet>, bytes: usize) {
        let name = rule_set.name.clone();
        let refused = self.refused.entry(name).or_insert_with(|| Refused {
            component: rule_set.component.clone(),
            _throttled: rule_set.activity.report(Fact::Throttled),
            least_bytes: bytes,
            list_number: 0,
        });
        let is_known = refused.list_number == self.list_number;
        let least_bytes = if is_known { refused.least_bytes } else { bytes };
        refused.least_bytes = least_bytes.min(bytes);
        refused.list_number = self.list_number;
    }

    /// Returns true if the feed must list all objects again, because a component now has room for a
    /// refused object. An object that is too large to be stored counts as 0 bytes here.
    pub fn has_room(&self) -> bool {
        self.refused
            .values()
            .any(|refused| self.may_store(&refused.component, refused.least_bytes))
    }

    /// Returns the next object after the position `after`: its identity and its fields.
    pub fn next(&self, after: Bound<&str>) -> Option<(&Text, &Arc<[u8]>)> {
        let mut later = self.objects.range::<str, _>((after, Bound::Unbounded));
        later.next().map(|(key, object)| (key, &object.fields))
    }

    fn may_store(&self, component: &str, bytes: usize) -> bool {
        let has_place = self.places.may_take(component, 1, MAX_OBJECTS);
        let shares = self.bytes.shares();
        has_place && shares.may_take(component, bytes, MAX_STORED_BYTES)
    }

    fn release(&mut self, object: &StoredObject) {
        self.places.give_back(&object.component, 1);
        let mut shares = self.bytes.shares();
        shares.give_back(&object.component, object.bytes());
    }
}

impl Drop for StoredObjects {
    fn drop(&mut self) {
        self.begin_list();
    }
}
