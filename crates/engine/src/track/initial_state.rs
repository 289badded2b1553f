//! The state with which a new leader starts. Input: the objects of its own index, and the custom
//! resources of persistence mode. Output: operations in the tracker, and writes after which the
//! index has exactly the objects that the tracker knows.
//!
//! No operation completes here because it is not detected, because subjects and rules are read
//! later.

use super::end_reason::End;
use super::operation::Restored;
use super::shared_state::OperationId;
use super::subject::Tracked;
use super::tracker::Tracker;
use crate::ClockReading;
use crate::rules::RuleSetsWithoutBook;
use ifo_api::Key;
use ifo_api::live::InFlightOperation;
use jiff::Timestamp;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Largest number of restored custom resources. Other operations are detected again. This many
/// operations need about 100 MB.
pub const MAX_RESTORED: usize = 50_000;

/// The operations with which a new leader starts.
///
/// If two sources have the same operation, the first source wins, with one exception: a `Completed`
/// custom resource replaces an operation in flight. The previous leader wrote this end, and crashed
/// before its followers received it.
#[derive(Debug)]
pub struct InitialState {
    cluster_namespace: Arc<str>,
    /// The creation time of each existing namespace. None if the namespaces could not be read.
    namespaces: Option<HashMap<String, Timestamp>>,
    /// The operations by their identity and by the second of their start. Name and UID follow from
    /// both.
    operations: BTreeMap<(OperationId, i64), FoundOperation>,
    /// Objects of the index that the tracker deletes.
    rejected: Vec<Key>,
    /// Number of operations that only a custom resource describes.
    pub(super) custom_resources: usize,
}

#[derive(Debug)]
struct FoundOperation {
    restored: Restored,
    source: FoundIn,
}

/// The source of an operation.
#[derive(Debug, PartialEq)]
enum FoundIn {
    /// The index has an object at its key.
    Index,
    /// The index had an object and deleted it.
    Deleted,
    /// Only a custom resource describes it.
    CustomResource,
}

impl InitialState {
    /// Creates a state without operations. `namespaces` contains the creation time of each existing
    /// namespace. None means that the namespaces could not be read.
    pub fn new(
        cluster_namespace: Arc<str>,
        namespaces: Option<HashMap<String, Timestamp>>,
    ) -> Self {
        Self {
            cluster_namespace,
            namespaces,
            operations: BTreeMap::new(),
            rejected: Vec::new(),
            custom_resources: 0,
        }
    }

    /// Adds an object of the index. The tracker takes it over without a write. It deletes the
    /// object if it cannot be decoded, or if it was retained in a deleted namespace.
    pub fn add_index_object(&mut self, key: &Key, json: &[u8], now: ClockReading) {
        match Restored::from_index(json, now.steady) {
            Some(mut restored) if restored.ended.is_none() || !self.is_outlived(&restored) => {
                restored.operation.key = key.clone();
                self.insert(restored, FoundIn::Index);
            }
            _ => {
                tracing::warn!(namespace = %key.namespace, name = %key.name,
                    "an object of the index is not taken over");
                self.rejected.push(key.clone());
            }
        }
    }

    /// Adds a completed object that the index has deleted. The tracker remembers only its start, so
    /// that another run that starts in the same second gets another name. It also keeps a custom
    /// resource that was not deleted yet from restoring the object.
    pub fn add_deleted_object(&mut self, json: &[u8], now: ClockReading) {
        let restored = Restored::from_index(json, now.steady);
        if let Some(restored) = restored.filter(|it| it.ended.is_some()) {
            self.insert(restored, FoundIn::Deleted);
        }
    }

    /// Adds the operation of a custom resource. All objects of the index must have been added. A
    /// custom resource that the server would not have written is left out and logged. Returns false
    /// if there are already [`MAX_RESTORED`].
    pub fn add_custom_resource(&mut self, object: InFlightOperation, now: ClockReading) -> bool {
        if self.custom_resources >= MAX_RESTORED {
            return false;
        }
        let name = object.metadata.name.clone().unwrap_or_default();
        match Restored::from_custom_resource(object, &self.cluster_namespace, now) {
            Ok(restored) if self.is_outlived(&restored) => {}
            Ok(restored) => self.insert(restored, FoundIn::CustomResource),
            Err(error) => {
                let name: String = name.chars().take(253).collect();
                tracing::warn!(name, %error, "an operation is not restored");
            }
        }
        true
    }

    fn insert(&mut self, restored: Restored, source: FoundIn) {
        let operation = &restored.operation;
        let id = (restored.identity.clone(), operation.what.clone());
        match self.operations.entry((id, operation.start.as_second())) {
            Entry::Vacant(place) => {
                self.custom_resources += usize::from(source == FoundIn::CustomResource);
                place.insert(FoundOperation { restored, source });
            }
            Entry::Occupied(_) if source == FoundIn::Index => {
                self.rejected.push(restored.operation.key);
            }
            Entry::Occupied(mut place) => {
                let before = &mut place.get_mut().restored;
                let is_end = restored.ended.is_some() && before.ended.is_none();
                if source == FoundIn::CustomResource && is_end {
                    let before = std::mem::replace(before, restored);
                    let key = &place.get().restored.operation.key;
                    if before.operation.key != *key {
                        self.rejected.push(before.operation.key);
                    }
                }
            }
        }
    }

    /// Number of operations.
    pub fn count(&self) -> usize {
        self.operations.len()
    }

    /// The creation time of the subject's namespace, if it exists and the time is known.
    fn created(&self, restored: &Restored) -> Option<Timestamp> {
        let name = restored.view.subject.namespace.as_ref()?;
        self.namespaces.as_ref()?.get(&**name).copied()
    }

    /// Returns true if the namespace of the subject was deleted after the operation was last known
    /// to be in it. Another namespace may have the same name. If the namespaces could not be read,
    /// this is assumed only for completed custom resources, because the subjects of operations in
    /// flight are read anyway.
    fn is_outlived(&self, restored: &Restored) -> bool {
        if restored.view.subject.namespace.is_none() {
            return false;
        }
        if self.namespaces.is_none() {
            return restored.completed.is_some();
        }
        let operation = &restored.operation;
        let last = match restored.ended {
            Some(ended) => operation.detected_until(Some(ended)),
            None => operation.start.max(operation.last_detected),
        };
        self.created(restored).is_none_or(|created| created > last)
    }
}

impl Tracker {
    /// Takes over `state`, before any rules arrive. Of several runs of one operation, all except
    /// the last one are over. A run without a known end completes with `Replaced` at the start of
    /// the next run. This happens because custom resources are not written in the order of the
    /// changes.
    pub(super) fn resume(&mut self, state: InitialState, now: ClockReading) {
        // A running leader knows the deleted namespaces, and retains nothing that ends in them.
        for found in state.operations.values() {
            if let Some(name) = &found.restored.view.subject.namespace
                && state.is_outlived(&found.restored)
            {
                let again = state.created(&found.restored);
                self.ledger.namespace_gone(name.clone(), again, now.steady);
            }
        }
        for key in state.rejected {
            self.ledger.delete(key);
        }
        let mut over = Vec::new();
        let mut runs = state.operations.into_iter().peekable();
        while let Some(((id, _), found)) = runs.next() {
            let next = runs.peek().filter(|((other, _), _)| *other == id);
            let next = next.map(|(_, next)| next.restored.operation.start);
            match found.restored.ended.or(next) {
                Some(end) => over.push((end, found)),
                None => self.resume_in_flight(found),
            }
        }
        // The oldest come first, as in the ledger. Objects that the index does not list are not
        // among the newest ones that are retained.
        over.sort_by_key(|(end, found)| (found.source != FoundIn::Deleted, *end));
        let most = self.ledger.settings.retain.map_or(0, |it| it.most);
        let surplus = over.len().saturating_sub(most);
        for (place, (end, found)) in over.into_iter().enumerate() {
            self.resume_completed(found, end, place >= surplus, now);
        }
    }

    fn resume_in_flight(&mut self, found: FoundOperation) {
        let Restored {
            identity,
            view,
            operation,
            ..
        } = found.restored;
        let tracked = self
            .subjects
            .entry(identity.clone())
            .or_insert_with(|| Box::new(Tracked::remembered(identity, view)));
        if found.source == FoundIn::CustomResource {
            self.ledger.show(&operation, &tracked.view);
        }
        tracked.restore(operation);
    }

    /// Takes over an operation that ended at `end`. It is retained only if `may_stay` is true.
    fn resume_completed(
        &mut self,
        found: FoundOperation,
        end: Timestamp,
        may_stay: bool,
        now: ClockReading,
    ) {
        let Restored {
            identity,
            view,
            operation,
            ended,
            completed,
        } = found.restored;
        let key = &operation.key;
        if ended.is_none() {
            let then = now.back_at(end);
            self.ledger
                .complete(&identity, &operation, &view, &End::Replaced, then);
            return;
        }
        self.ledger.remember_end(&identity, &operation, end, now);
        if found.source == FoundIn::Deleted {
            return;
        }
        let is_indexed = found.source == FoundIn::Index;
        let is_retained = may_stay && self.ledger.retain(&operation, end, now);
        if let Some(encoded) = completed.filter(|_| is_indexed || is_retained) {
            // Watchers that saw the operation in flight receive its end before its deletion.
            self.ledger.put(key.clone(), encoded);
        }
        if is_indexed && !is_retained {
            self.ledger.delete(key.clone());
        }
    }

    /// Called when all rule sets have been read. Operations without a rule complete.
    pub(super) fn all_booked(&mut self, bookless: &RuleSetsWithoutBook, now: ClockReading) {
        let unclaimed = |it: &Tracked| it.unclaimed;
        self.each(now, unclaimed, |it, step| it.all_booked(bookless, step));
    }
}
