//! Restores the operations with which a new leader starts. The leader is the replica that detects
//! operations. The operations come from two sources:
//!
//! - the new leader's own index, the copy of all operations that each replica has in memory
//! - custom resources, which a leader in persistence mode writes for its operations
//!
//! The tracker, which turns detections into operations, takes over the operations. It also corrects
//! the index: it adds operations that the index lacks, and deletes outdated objects.
//!
//! The new leader reads rules and objects later. Until then, the tracker cannot know whether the work
//! of a restored operation still goes on. So an operation without an end stays in flight. There is one
//! exception: the custom resources can contain two runs of the same operation, for example two
//! migrations of one virtual machine. Then the earlier run completes at once (`Tracker::resume`).

use super::Namespaces;
use super::end_reason::End;
use super::last_runs::OperationId;
use super::operation::Restored;
use super::subject::TrackedSubject;
use super::tracker::Tracker;
use crate::ClockReading;
use ifo_api::Text;
use ifo_api::live::InFlightOperation;
use ifo_api::record::OperationRecord;
use ifo_api::{Key, Object};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Maximum number of operations that are restored from custom resources. This number of operations
/// takes about 100 MB. Further operations are not restored. If an operation that was not restored
/// is still in flight, a rule detects it again.
pub const MAX_RESTORED: usize = 50_000;

/// The operations with which a new leader starts.
///
/// If the index and a custom resource have the same operation, the operation of the index is used.
/// There is one exception: a `Completed` custom resource replaces an operation of the index that is
/// in flight. The previous leader completed this operation, and crashed before its followers
/// received the end.
#[derive(Debug)]
pub struct InitialState {
    cluster_namespace: Text,
    /// The existing namespaces. None if the new leader could not read them.
    namespaces: Option<Arc<Namespaces>>,
    /// Operations by identity and start, in seconds since 1970. These two values determine the name
    /// and the UID of an operation.
    operations: BTreeMap<(OperationId, i64), Restored>,
    /// Records in the index. A record is an object with the result of one completed operation.
    records: BTreeMap<Key, Arc<OperationRecord>>,
    /// Objects of the index that the tracker must delete.
    rejected: Vec<Key>,
    /// Number of operations that are only in a custom resource.
    pub(super) custom_resource_count: usize,
}

impl InitialState {
    /// Creates a state without operations. `namespaces` is None if the namespaces could not be
    /// read.
    pub fn new(cluster_namespace: Text, namespaces: Option<Arc<Namespaces>>) -> Self {
        Self {
            cluster_namespace,
            namespaces,
            operations: BTreeMap::new(),
            records: BTreeMap::new(),
            rejected: Vec::new(),
            custom_resource_count: 0,
        }
    }

    /// Adds an object of the index: an operation or a record. The tracker takes over the object. In
    /// each of these cases, the tracker deletes the object instead:
    ///
    /// - The UID of the operation is missing or invalid, its subject has no UID, or the completed
    ///   operation has no end.
    /// - The object is a completed operation or a record, and its namespace was deleted.
    /// - An object of the index with the same operation and start was already added.
    pub fn add_index_object(&mut self, key: &Key, object: &Object, now: ClockReading) {
        if let Some(record) = object.record() {
            if self.is_record_of_deleted_namespace(key, record) {
                self.rejected.push(key.clone());
            } else {
                self.records.insert(key.clone(), record.clone());
            }
            return;
        }
        let Some(operation) = object.operation() else {
            return;
        };
        match Restored::from_index(operation, now) {
            Some(restored)
                if restored.ended.is_none() || !self.is_from_deleted_namespace(&restored) =>
            {
                self.insert(restored);
            }
            _ => {
                tracing::warn!(namespace = %key.namespace, name = %key.name,
                    "an object of the index is deleted: it is not valid, or its namespace was deleted");
                self.rejected.push(key.clone());
            }
        }
    }

    /// Adds the operation of a custom resource. The caller must first add all objects of the index.
    /// A custom resource with values that `ifo-apiserver` never writes is logged and ignored. A
    /// custom resource of a deleted namespace is ignored, too.
    ///
    /// Sometimes, the index contains the record of the operation, but not the operation. Then the
    /// previous leader completed the operation and deleted it from the index, but did not delete
    /// the custom resource. So this method does not restore the operation. Persistence later deletes the
    /// custom resource as an orphan.
    ///
    /// If [`MAX_RESTORED`] operations were already added from custom resources, this method adds
    /// nothing and returns false. The caller then stops reading.
    pub fn add_custom_resource(&mut self, object: InFlightOperation, now: ClockReading) -> bool {
        if self.custom_resource_count >= MAX_RESTORED {
            return false;
        }
        let name = object.metadata.name.clone();
        match Restored::from_custom_resource(object, &self.cluster_namespace, now) {
            Ok(restored) if self.is_from_deleted_namespace(&restored) => {}
            // The namespaces could not be read, so the namespace of this completed operation may be
            // deleted. The operation is ignored, because users must not see operations of a deleted
            // namespace.
            Ok(restored)
                if self.namespaces.is_none()
                    && restored.ended.is_some()
                    && restored.subject.reference.namespace.is_some() => {}
            Ok(restored) => self.insert(restored),
            Err(error) => {
                let name: String = name.chars().take(253).collect();
                tracing::warn!(name, %error, "an operation is not restored");
            }
        }
        true
    }

    fn insert(&mut self, restored: Restored) {
        let operation = &restored.operation;
        let id = (restored.identity.clone(), operation.what.clone());
        match self.operations.entry((id, operation.started().as_second())) {
            Entry::Vacant(_)
                if !restored.is_in_index && self.records.contains_key(&operation.record_key()) => {}
            Entry::Vacant(entry) => {
                self.custom_resource_count += usize::from(!restored.is_in_index);
                entry.insert(restored);
            }
            Entry::Occupied(_) if restored.is_in_index => {
                self.rejected.push(restored.operation.key());
            }
            Entry::Occupied(mut entry) => {
                let found = entry.get_mut();
                if restored.ended.is_some() && found.ended.is_none() {
                    let is_in_index = found.is_in_index;
                    *found = Restored {
                        is_in_index,
                        ..restored
                    };
                }
            }
        }
    }

    /// Returns the number of operations.
    pub fn count(&self) -> usize {
        self.operations.len()
    }

    /// Returns true if a namespace that existed at `last` was deleted. This is the case if no
    /// namespace has this name, or if the namespace with this name was created after `last`.
    /// Returns false if the namespaces could not be read.
    fn was_deleted(&self, namespace: &str, last: Timestamp) -> bool {
        let namespaces = self.namespaces.as_ref();
        namespaces.is_some_and(|all| all.get(namespace).is_none_or(|created| *created > last))
    }

    /// Returns true if the namespace of a record was deleted. Returns false for each record in
    /// `cluster_namespace`, which contains the records of cluster-scoped subjects.
    fn is_record_of_deleted_namespace(&self, key: &Key, record: &OperationRecord) -> bool {
        let namespace = key.object_namespace();
        let is_cluster_scoped = namespace == &*self.cluster_namespace;
        !is_cluster_scoped && self.was_deleted(namespace, record.status.completed.0)
    }

    /// Returns true if the namespace of the operation was deleted after the last detection of the
    /// operation.
    ///
    /// If the namespaces could not be read, the result is false. An operation in flight then stays
    /// until the leader lists the objects. If the list lacks the subject, the operation completes.
    fn is_from_deleted_namespace(&self, restored: &Restored) -> bool {
        let operation = &restored.operation;
        let last = match restored.ended {
            Some(ended) => operation.detected_until(ended),
            None => operation.started().max(operation.last_detected()),
        };
        let namespace = restored.subject.reference.namespace.as_ref();
        namespace.is_some_and(|namespace| self.was_deleted(namespace, last))
    }
}

impl Tracker {
    /// Takes over the operations of `state`. The caller must call this method before any rules
    /// arrive.
    ///
    /// `state` can contain several runs of one operation. Only the last run can be in flight. If an
    /// earlier run has no end, it completes with the reason `Replaced` at the start of the next
    /// run. Its end can be missing, because a leader does not write custom resources in the order of
    /// the changes. So the previous leader can have written the start of the later run, but not yet
    /// the end of the earlier run.
    pub(super) fn resume(&mut self, state: InitialState, now: ClockReading) {
        // The tracker must know the deleted namespaces before it takes over the operations. The
        // reason: if an operation in a deleted namespace completes, the tracker deletes it at once.
        for found in state.operations.values() {
            if let Some(name) = &found.subject.reference.namespace
                && state.is_from_deleted_namespace(found)
            {
                let namespaces = state.namespaces.as_ref();
                let recreated = namespaces.and_then(|all| all.get(name).copied());
                self.shared
                    .namespace_deleted(name.clone(), recreated, now.steady);
            }
        }
        for key in state.rejected {
            self.shared.delete(key);
        }
        for (key, record) in state.records {
            let (spec, status) = (&record.spec, &record.status);
            let owner = (spec.component.clone(), spec.rule_set.clone());
            let times = (status.started.0, status.completed.0);
            let shared = &mut self.shared;
            if !shared.records.insert(key.clone(), owner, times, now) {
                shared.delete(key);
            }
        }
        let mut runs = state.operations.into_iter().peekable();
        while let Some(((id, _), found)) = runs.next() {
            let next = runs.peek().filter(|((other, _), _)| *other == id);
            let next = next.map(|(_, next)| next.operation.started());
            match found.ended.or(next) {
                Some(end) => self.resume_completed(found, end, now),
                None => self.resume_in_flight(found),
            }
        }
        // If the tracker has already received namespaces, this method uses those, and not the ones in
        // `state`. It first removes them from the tracker. So `set_namespaces` handles
        // them as at its first call, and also checks the namespaces of the restored operations.
        let namespaces = self.shared.namespaces.take().or(state.namespaces);
        if let Some(namespaces) = namespaces {
            self.set_namespaces(&namespaces, now.steady);
        }
    }

    fn resume_in_flight(&mut self, found: Restored) {
        let Restored {
            identity,
            subject,
            operation,
            ..
        } = found;
        let tracked = self
            .subjects
            .entry(identity.clone())
            .or_insert_with(|| TrackedSubject::from_earlier_leader(identity, subject));
        self.shared.show(&operation);
        tracked.restore(operation);
        let usage = tracked.measure();
        self.shared.limits.replace(&mut tracked.usage, usage);
    }

    /// Takes over a run that is over. There are two cases:
    ///
    /// - The run was restored as completed. `end` is the end of the run.
    /// - The run was restored as in flight, but a later run exists. `end` is the start of the next
    ///   run. The run completes at this time, with the reason `Replaced`.
    fn resume_completed(&mut self, found: Restored, end: Timestamp, now: ClockReading) {
        let Restored {
            identity,
            subject,
            mut operation,
            ended,
            is_in_index,
        } = found;
        if ended.is_none() {
            let then = now.back_at(end);
            let end = (&End::Replaced, &self.books);
            self.shared
                .complete(&identity, &mut operation, &subject, end, then);
            return;
        }
        self.shared.remember_end(&identity, &operation, end, now);
        let key = operation.key();
        let (owner, times) = (operation.owner(), (operation.started(), end));
        let retained = &mut self.shared.retained;
        let is_retained = retained.insert(key.clone(), owner, times, now);
        // The end can come from a custom resource, while the operation is still in flight in the
        // index. Clients that watch operations must receive this end before the deletion. So the
        // completed operation is written before it is deleted. If the index already contains the
        // completed operation, the index ignores the write.
        if is_in_index || is_retained {
            self.shared.show(&operation);
        }
        if is_in_index && !is_retained {
            self.shared.delete(key);
        }
    }
}
