//! What a new leader starts from. Enters: the objects of its own index and the custom
//! resources of persistence mode. Leaves: operations in the tracker, and the writes
//! after which the index holds exactly the objects that the tracker knows.
//!
//! Nothing here completes because it is not detected: subjects and rules are read later.

use super::end::End;
use super::ledger::OperationId;
use super::operation::Restored;
use super::subject::Tracked;
use super::tracker::Tracker;
use crate::ClockReading;
use crate::rules::Bookless;
use ifo_api::Key;
use ifo_api::live::InFlightOperation;
use jiff::Timestamp;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Custom resources that are restored. The operations of any others are detected anew. This
/// many operations need about 100 MB of the 256 MiB that the Deployment allows.
pub const MAX_RESTORED: usize = 50_000;

/// The operations that a new leader starts from. If two sources have the same operation, the
/// first one counts, except that a custom resource that is `Completed` replaces an
/// operation in flight: the previous leader wrote the end, and was lost before followers
/// received it.
#[derive(Debug)]
pub struct InitialState {
    cluster_namespace: Arc<str>,
    /// When each existing namespace was created; `None` if they could not be read.
    namespaces: Option<HashMap<String, Timestamp>>,
    /// By what they are and by the second in which they started, from which name and UID
    /// follow.
    operations: BTreeMap<(OperationId, i64), FoundOperation>,
    /// Objects of the index that the tracker deletes.
    rejected: Vec<Key>,
    /// How many operations are of custom resources only.
    pub(super) custom_resources: usize,
}

#[derive(Debug)]
struct FoundOperation {
    restored: Restored,
    source: FoundIn,
}

/// Where an operation was found.
#[derive(Debug, PartialEq)]
enum FoundIn {
    /// The index has an object at its key.
    Index,
    /// The index had an object, and deleted it.
    Deleted,
    /// Only a custom resource describes it.
    CustomResource,
}

impl InitialState {
    /// A state without operations. `namespaces` holds when each existing namespace was
    /// created; `None` means that they could not be read.
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

    /// Adds an object of the index. The tracker takes it over without a write, or deletes
    /// it if it cannot be decoded or was retained in a namespace that is gone.
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

    /// Adds a completed object that the index has deleted. The tracker only remembers its
    /// start, so that a successor which starts in the same second gets another name. And the
    /// object does not come back with a custom resource that is still to be deleted.
    pub fn add_deleted_object(&mut self, json: &[u8], now: ClockReading) {
        let restored = Restored::from_index(json, now.steady);
        if let Some(restored) = restored.filter(|it| it.ended.is_some()) {
            self.insert(restored, FoundIn::Deleted);
        }
    }

    /// Adds the operation of a custom resource, after all objects of the index. One that the
    /// server would not have written is left out, with a line in the log. Returns false if
    /// there are [`MAX_RESTORED`] already.
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

    /// How many operations there are.
    pub fn count(&self) -> usize {
        self.operations.len()
    }

    /// When the namespace of the subject was created, if it exists and that is known.
    fn created(&self, restored: &Restored) -> Option<Timestamp> {
        let name = restored.view.subject.namespace.as_ref()?;
        self.namespaces.as_ref()?.get(&**name).copied()
    }

    /// Whether the namespace of the subject was deleted after the operation was last known
    /// to be in it; there may be another namespace of that name. If namespaces could not
    /// be read, that is assumed of completed custom resources only: the subjects of
    /// operations in flight are read anyway.
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
    /// Takes over `state`. Comes before all rules. Of several runs of one operation, each
    /// but the last is over: a run without a known end completes with `Replaced` at the
    /// start of the next run. Custom resources are not written in the order of the changes
    /// that they describe.
    pub(super) fn resume(&mut self, state: InitialState, now: ClockReading) {
        // A running leader knows that these namespaces were deleted, and retains nothing that
        // ends in them.
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
        // The oldest first, as the ledger keeps them. Objects that the index does not list
        // are not among the newest that are retained.
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

    /// Takes over an operation that was over at `end`. It is retained only if it `may_stay`.
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
            // A watcher that saw the operation in flight sees its end before it goes.
            self.ledger.put(key.clone(), encoded);
        }
        if is_indexed && !is_retained {
            self.ledger.delete(key.clone());
        }
    }

    /// All rule sets have been read: operations complete that no rule is about any more.
    pub(super) fn all_booked(&mut self, bookless: &Bookless, now: ClockReading) {
        let unclaimed = |it: &Tracked| it.unclaimed;
        self.each(now, unclaimed, |it, step| it.all_booked(bookless, step));
    }
}
