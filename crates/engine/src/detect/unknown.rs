//! Remembers the objects of one feed (the watch of one resource) for which it is unknown whether an
//! operation is in flight. There are two reasons: an evaluation failed, or a rule set was not
//! evaluated because it is throttled. A rule set is throttled if its evaluations take too much
//! time.
//!
//! Each object is reported to the [`Activity`](crate::rules::Activity) of the rule set. The reports
//! are used for the status of the rule set and for `Warning` headers in responses to clients.

#[cfg(test)]
mod tests;

use super::Evaluation;
use crate::rules::{Fact, Report, RuleSet};
use ifo_api::Text;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Maximum number of objects that are remembered. Each object takes about 200 bytes. For further
/// objects, only their [`OverflowKey`]s are remembered.
///
/// When the feed lists all objects of its resource, further objects are evaluated again, and can
/// add their keys again. The end of the list removes each key that no listed object has added.
const MAX_OBJECTS: usize = 250;

/// Minimum time between the first two lists that [`UnknownObjects::wants_list`] requests. The
/// minimum time doubles with each further list, up to [`MAX_INTERVAL`].
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Upper limit of the minimum time between two lists. A list costs the kube-apiserver as much as
/// the first list of a watch. If no list was requested for twice this time, the minimum time starts
/// at [`MIN_INTERVAL`] again.
const MAX_INTERVAL: Duration = Duration::from_mins(5);

/// The objects of one feed for which it is unknown whether an operation is in flight.
#[derive(Debug, Default)]
pub(super) struct UnknownObjects {
    /// Objects by their identity.
    objects: HashMap<Text, UnknownObject>,
    /// Keys of the objects beyond [`MAX_OBJECTS`]. The number is the value of the field
    /// `list_number` when an object last added the key.
    overflow: BTreeMap<OverflowKey, (u64, Report)>,
    /// The reports about objects that are no longer unknown. The next call of
    /// [`UnknownObjects::settle`] withdraws these reports.
    known: Vec<Report>,
    /// Number of the list that began last. The first list has the number 1.
    list_number: u64,
    /// Time of the last list that [`UnknownObjects::wants_list`] requested, and the minimum time
    /// until the next one.
    requested: Option<(Instant, Duration)>,
}

/// The name of a rule set, a namespace (None for cluster-scoped objects) and the name of an
/// operation. One key stands for any number of objects.
type OverflowKey = (Text, Option<Text>, Text);

/// An object for which it is unknown whether an operation is in flight.
#[derive(Debug)]
struct UnknownObject {
    /// One report for each rule set.
    reports: Vec<Report>,
    /// The operations that may be in flight, with the name of their rule set.
    operations: Vec<(Text, Vec<Text>)>,
    /// The value of [`UnknownObjects::list_number`] when the object was last evaluated.
    list_number: u64,
}

impl UnknownObjects {
    /// Handles the beginning of a list. The objects stay until they are evaluated again, or until
    /// the list ends without them.
    pub(super) fn begin_list(&mut self) {
        self.list_number += 1;
    }

    /// Handles the end of a list. Removes the objects that are missing in the list, because they no
    /// longer exist or no longer match the label selector.
    ///
    /// The caller also calls this method when an interrupted watch continues without a new list.
    /// Then this method removes nothing, because the end of the last list has already removed the
    /// missing objects.
    pub(super) fn synced(&mut self) {
        let list_number = self.list_number;
        let gone = self
            .objects
            .extract_if(|_, object| object.list_number != list_number);
        self.known
            .extend(gone.flat_map(|(_, object)| object.reports));
        let gone = self
            .overflow
            .extract_if(.., |_, (last, _)| *last != list_number);
        self.known.extend(gone.map(|(_, (_, report))| report));
    }

    /// Withdraws the reports about objects that are no longer unknown. The caller must first send
    /// the results for these objects to the tracker. Otherwise, clients could get a list of
    /// operations that counts as complete, but lacks the operations on these objects.
    pub(super) fn settle(&mut self) {
        self.known.clear();
    }

    /// Returns true if no object is unknown.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.overflow.is_empty()
    }

    /// Adds or removes an object, depending on the result of its evaluation.
    pub(super) fn evaluated(&mut self, identity: &Text, evaluation: &Evaluation) {
        if evaluation.unknown.is_empty() {
            self.remove(identity);
            return;
        }
        let namespace = evaluation.subject.reference.namespace.as_ref();
        let unknown = evaluation.unknown.iter();
        let operations = unknown.map(|(rule_set, own)| (rule_set.name.clone(), own.clone()));
        let operations: Vec<_> = operations.collect();
        if let Some(known) = self.objects.get_mut(identity)
            && known.operations == operations
        {
            known.list_number = self.list_number;
            return;
        }
        self.remove(identity);
        if self.objects.len() == MAX_OBJECTS {
            self.add_overflow(namespace, evaluation);
            return;
        }
        let reports = evaluation.unknown.iter();
        let reports =
            reports.map(|(rule_set, own)| report(rule_set, namespace, own.clone(), false));
        let remembered = UnknownObject {
            reports: reports.collect(),
            operations,
            list_number: self.list_number,
        };
        self.objects.insert(identity.clone(), remembered);
    }

    /// Removes an object, because it was deleted or is no longer unknown.
    pub(super) fn remove(&mut self, identity: &Text) {
        if let Some(object) = self.objects.remove(identity) {
            self.known.extend(object.reports);
        }
    }

    /// Returns true if a new list is needed to evaluate objects again, because the objects
    /// themselves are not stored. There are two cases:
    ///
    /// - A rule set has objects beyond [`MAX_OBJECTS`], but no remembered object, because objects
    ///   of other rule sets have reached the maximum. The keys of this rule set can be removed only
    ///   at the end of a list.
    /// - Some objects were not stored, or operations were refused at a bound, and there is room for
    ///   them now (`has_room`).
    ///
    /// After a true result, the result is false for at least [`MIN_INTERVAL`]. This time doubles
    /// with each true result, up to [`MAX_INTERVAL`].
    pub(super) fn wants_list(&mut self, now: Instant, has_room: bool) -> bool {
        if !has_room && !self.has_forgotten_rule_set() {
            return false;
        }
        let interval = match self.requested {
            Some((last, interval)) if now.duration_since(last) < interval => return false,
            Some((last, interval)) if now.duration_since(last) < 2 * MAX_INTERVAL => {
                (interval * 2).min(MAX_INTERVAL)
            }
            _ => MIN_INTERVAL,
        };
        self.requested = Some((now, interval));
        true
    }

    /// Returns true if a rule set has objects beyond [`MAX_OBJECTS`], but no remembered object.
    fn has_forgotten_rule_set(&self) -> bool {
        let remembered = self.objects.values().flat_map(|object| &object.operations);
        let remembered: HashSet<&Text> = remembered.map(|(rule_set, _)| rule_set).collect();
        let mut overflow = self.overflow.keys();
        overflow.any(|(rule_set, _, _)| !remembered.contains(rule_set))
    }

    /// Adds the [`OverflowKey`]s of an object beyond [`MAX_OBJECTS`].
    fn add_overflow(&mut self, namespace: Option<&Text>, evaluation: &Evaluation) {
        for (rule_set, operations) in &evaluation.unknown {
            for operation in operations {
                let key = (rule_set.name.clone(), namespace.cloned(), operation.clone());
                let new = || {
                    (
                        0,
                        report(rule_set, namespace, vec![operation.clone()], true),
                    )
                };
                self.overflow.entry(key).or_insert_with(new).0 = self.list_number;
            }
        }
    }
}

fn report(
    rule_set: &RuleSet,
    namespace: Option<&Text>,
    operations: Vec<Text>,
    is_uncounted: bool,
) -> Report {
    rule_set.activity.report(Fact::Unknown {
        namespace: namespace.cloned(),
        operations,
        is_uncounted,
    })
}
