//! Remembers the objects of one feed (the watch of one resource) for which it is unknown whether an
//! operation is in flight. There are two reasons: an evaluation failed, or a rule set was not
//! evaluated because it is throttled. A rule set is throttled if its evaluations take too much time.
//!
//! Each object is reported to the [`Activity`](crate::rules::Activity) of the rule set. The reports
//! are used for the status of the rule set and for `Warning` headers in responses to clients.

#[cfg(test)]
mod tests;

use super::Evaluation;
use super::evaluate::RuleSetBudgets;
use crate::rules::{Fact, Report, RuleBook};
use ifo_api::Text;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of objects that are remembered. Each object takes about 200 bytes. Further
/// objects only add their [`OverflowKey`]s.
///
/// When the feed lists all objects of its resource, these objects are evaluated again, and can add
/// their keys again. At the end of the list, each key that no listed object has added is removed.
const MAX_OBJECTS: usize = 250;

/// Minimum time between two lists that [`UnknownObjects::wants_list`] requests. Each list costs the
/// kube-apiserver as much as the first list of a watch.
const RELIST_INTERVAL: Duration = Duration::from_mins(5);

/// Minimum time between the first two lists for operations that the tracker refused before. The time
/// doubles with each further list, up to [`RELIST_INTERVAL`].
const MIN_REFILL_INTERVAL: Duration = Duration::from_secs(10);

/// The objects of one feed for which a detection is unknown.
#[derive(Debug)]
pub(super) struct UnknownObjects {
    book: Arc<RuleBook>,
    /// Objects by their identity.
    objects: HashMap<Text, UnknownObject>,
    /// Keys of the objects beyond [`MAX_OBJECTS`]. The number is the value of the field
    /// `list_number` at the time at which an object last added the key.
    overflow: BTreeMap<OverflowKey, (u64, Report)>,
    /// The reports of detections that are no longer unknown. They last until the next call of
    /// [`UnknownObjects::settle`].
    known: Vec<Report>,
    /// Number of the list that began last. The first list has the number 1.
    list_number: u64,
    listing: bool,
    /// For each rule set of the rule book, a report if this feed throttles the rule set.
    throttled: Vec<Option<Report>>,
    /// Time of the last [`UnknownObjects::wants_list`] that returned true because of unknown
    /// detections.
    relisted: Option<Instant>,
    /// Time of the last [`UnknownObjects::wants_list`] that returned true because the tracker has
    /// room for operations that it refused before.
    refilled: Option<Instant>,
    /// Minimum time from `refilled` to the next such list.
    refill_interval: Duration,
}

/// The index of a rule set in the rule book, a namespace (None for cluster-scoped objects) and the
/// name of an operation. One key stands for any number of objects.
type OverflowKey = (usize, Option<Text>, Text);

/// An object on which the detection of operations is unknown.
#[derive(Debug)]
struct UnknownObject {
    /// One report for each rule set.
    reports: Vec<Report>,
    /// Operations whose detection is unknown, with the index of their rule set in the rule book.
    operations: Vec<(usize, Vec<Text>)>,
    /// Indices of those rule sets that were throttled at the last evaluation of the object. The feed
    /// evaluates a throttled rule set on only some objects. So the rule set was probably not
    /// evaluated on this object.
    skipped: Vec<usize>,
    /// The value of [`UnknownObjects::list_number`] when the object was last evaluated.
    list_number: u64,
}

impl UnknownObjects {
    pub(super) fn new(book: Arc<RuleBook>) -> Self {
        Self {
            throttled: book.rule_sets.iter().map(|_| None).collect(),
            book,
            objects: HashMap::new(),
            overflow: BTreeMap::new(),
            known: Vec::new(),
            list_number: 0,
            listing: true,
            relisted: None,
            refilled: None,
            refill_interval: Duration::ZERO,
        }
    }

    /// Handles the beginning of a list. The objects stay until they are evaluated again, or until
    /// the list ends without them.
    pub(super) fn begin_list(&mut self) {
        self.list_number += 1;
        self.listing = true;
    }

    /// Handles the end of a list. Removes the objects that are missing in the list, because they no
    /// longer exist or no longer match the label selector.
    ///
    /// Also called when an interrupted watch continues. If the watch continues without a new list,
    /// this function does nothing.
    pub(super) fn synced(&mut self) {
        if !std::mem::take(&mut self.listing) {
            return;
        }
        let list_number = self.list_number;
        let gone: Vec<Text> = self
            .objects
            .iter()
            .filter(|(_, object)| object.list_number != list_number)
            .map(|(identity, _)| identity.clone())
            .collect();
        for identity in gone {
            self.remove(&identity);
        }
        let gone = self
            .overflow
            .extract_if(.., |_, (last, _)| *last != list_number);
        self.known.extend(gone.map(|(_, (_, report))| report));
    }

    /// Ends the reports of detections that are no longer unknown. The caller first sends the results
    /// of these detections to the tracker. Otherwise, a list without their operations would count as
    /// complete.
    pub(super) fn settle(&mut self) {
        self.known.clear();
    }

    /// Returns true if no object has an unknown detection.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.overflow.is_empty()
    }

    /// Returns true if operations of a rule set were refused at a bound, and there is room for some
    /// of them now.
    pub(super) fn has_room_for_refused(&self) -> bool {
        self.book.rule_sets.iter().any(|it| it.activity.has_room())
    }

    /// Adds or removes an object, depending on the result of its evaluation.
    pub(super) fn evaluated(&mut self, identity: &Text, evaluation: &Evaluation) {
        if evaluation.unknown.is_empty() {
            self.remove(identity);
            return;
        }
        let namespace = evaluation.subject.reference.namespace.clone();
        let operations = self.by_rule_set(evaluation);
        let indices = operations.iter().map(|(index, _)| *index);
        let skipped = indices.filter(|index| self.throttled[*index].is_some());
        let skipped: Vec<usize> = skipped.collect();
        if let Some(known) = self.objects.get_mut(identity)
            && known.operations == operations
        {
            known.list_number = self.list_number;
            known.skipped = skipped;
            return;
        }
        self.remove(identity);
        if self.objects.len() == MAX_OBJECTS {
            self.count_overflow(namespace.as_ref(), operations);
            return;
        }
        let reports = operations.iter().map(|(index, operations)| {
            let (namespace, operations) = (namespace.clone(), operations.clone());
            self.report(*index, namespace, operations)
        });
        let remembered = UnknownObject {
            reports: reports.collect(),
            operations,
            skipped,
            list_number: self.list_number,
        };
        self.objects.insert(identity.clone(), remembered);
    }

    /// Removes an object, because it no longer exists or has no unknown detection.
    pub(super) fn remove(&mut self, identity: &Text) {
        if let Some(object) = self.objects.remove(identity) {
            self.known.extend(object.reports);
        }
    }

    fn report(&self, index: usize, namespace: Option<Text>, operations: Vec<Text>) -> Report {
        self.book.rule_sets[index].activity.report(Fact::Unknown {
            namespace,
            operations,
        })
    }

    /// Reports the rule sets that this feed throttles.
    pub(super) fn update_throttled(&mut self, budgets: &RuleSetBudgets) {
        for (rule_set, throttled) in self.book.rule_sets.iter().zip(&mut self.throttled) {
            if !budgets.is_throttled(rule_set) {
                *throttled = None;
            } else if throttled.is_none() {
                *throttled = Some(rule_set.activity.report(Fact::Throttled));
            }
        }
    }

    /// Returns true if a new list is needed to evaluate objects again, because the objects
    /// themselves are not stored. There are four cases:
    ///
    /// - A rule set was throttled at the last evaluation of a remembered object, and this rule set
    ///   is not throttled any more.
    /// - A rule set has objects beyond [`MAX_OBJECTS`], but no remembered object. Other rule sets
    ///   may have remembered objects.
    /// - Some objects were not stored, and there is room for them now (`has_room`).
    /// - The tracker refused operations at a bound, and has room now.
    ///
    /// In the first three cases, returns true at most once in [`RELIST_INTERVAL`]. In the last case,
    /// waits longer after each list. Never returns true during a list.
    pub(super) fn wants_list(&mut self, now: Instant, has_room: bool) -> bool {
        let mut skipped = self.objects.values().flat_map(|object| &object.skipped);
        let skipped = skipped.any(|index| self.throttled[*index].is_none());
        let recent = |at: Instant| now.duration_since(at) < RELIST_INTERVAL;
        if self.listing {
            return false;
        }
        if self.wants_refill(now) {
            return true;
        }
        let is_needed = has_room || skipped || self.has_forgotten_rule_set();
        if self.relisted.is_some_and(recent) || !is_needed {
            return false;
        }
        self.relisted = Some(now);
        true
    }

    /// Returns true if a rule set has objects beyond [`MAX_OBJECTS`], but no remembered object.
    fn has_forgotten_rule_set(&self) -> bool {
        let mut is_remembered = vec![false; self.book.rule_sets.len()];
        let operations = self.objects.values().flat_map(|object| &object.operations);
        for (index, _) in operations {
            is_remembered[*index] = true;
        }
        let mut overflow = self.overflow.keys();
        overflow.any(|(index, _, _)| !is_remembered[*index])
    }

    /// Returns true if a list is needed because the tracker has room for operations that it refused
    /// before.
    fn wants_refill(&mut self, now: Instant) -> bool {
        let mut rule_sets = self.book.rule_sets.iter();
        if !rule_sets.any(|it| it.activity.reached_bound().is_some()) {
            self.refill_interval = Duration::ZERO;
        }
        let recent = |at: Instant| now.duration_since(at) < self.refill_interval;
        if self.refilled.is_some_and(recent) || !self.has_room_for_refused() {
            return false;
        }
        self.refilled = Some(now);
        self.refill_interval =
            (self.refill_interval * 2).clamp(MIN_REFILL_INTERVAL, RELIST_INTERVAL);
        true
    }

    /// Counts an object beyond [`MAX_OBJECTS`]. All objects with the same [`OverflowKey`] count as
    /// one.
    fn count_overflow(&mut self, namespace: Option<&Text>, operations: Vec<(usize, Vec<Text>)>) {
        for (index, operations) in operations {
            for operation in operations {
                let key = (index, namespace.cloned(), operation.clone());
                let known = self.overflow.remove(&key).map(|(_, report)| report);
                let new = || self.report(index, namespace.cloned(), vec![operation]);
                let report = known.unwrap_or_else(new);
                self.overflow.insert(key, (self.list_number, report));
            }
        }
    }

    /// Returns the unknown operations by the index of their rule set in the rule book.
    fn by_rule_set(&self, evaluation: &Evaluation) -> Vec<(usize, Vec<Text>)> {
        let unknown = evaluation.unknown.iter();
        let by_index = unknown.filter_map(|(rule_set, operations)| {
            let mut own = self.book.rule_sets.iter();
            let index = own.position(|own| Arc::ptr_eq(own, rule_set))?;
            Some((index, operations.clone()))
        });
        by_index.collect()
    }
}
