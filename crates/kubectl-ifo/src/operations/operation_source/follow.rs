//! Follows operations: returns the changes of operations, and whether the server still detects all
//! of them. If namespaces are requested one by one, each namespace has its own watch.
//!
//! When a watch starts again with a new list, the follower returns the differences between the new
//! list and the known operations as changes.

use super::watch::{self, ObjectChange};
use super::{AnyOperation, OperationSource};
use crate::cluster::problem::Problem;
use crate::operations::operation::{InFlightOperation, OperationFacts as _, OperationKey};
use futures::stream::{self, BoxStream, SelectAll};
use futures::{Stream, StreamExt as _};
use ifo_api::completeness::Incomplete;
use ifo_api::{VERSION, live};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Config;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Interval at which the plugin asks `ifo-apiserver` whether its list is complete. A watch reports
/// neither that a rule set has stopped working, nor that the server hangs.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// A change of an operation or of the watches.
#[derive(Debug)]
pub(crate) enum OperationChange {
    /// An operation was added or has changed.
    Applied(Box<InFlightOperation>),
    /// An operation was deleted. This is its last known state. If it is active, its outcome is
    /// unknown. If it is completed, the completion was an earlier change.
    Deleted(Box<InFlightOperation>),
    /// All watches work, and the server answers. For each watch, the follower has returned the
    /// changes from its newest list.
    Synced,
    /// A watch or a probe failed. The follower tries again, and returns [`Self::Synced`] when
    /// everything works again.
    Lost(Problem),
    /// The reason why operations may be missing. None if no reason is known.
    Incomplete(Option<Incomplete>),
}

/// Returns the changes of operations, also after broken connections and restarts of the server.
pub(crate) struct OperationFollower<'a> {
    source: &'a OperationSource,
    watches: SelectAll<BoxStream<'static, (usize, ObjectChange)>>,
    /// The namespace of each watch. None stands for all namespaces.
    namespaces: Vec<Option<String>>,
    /// The numbers of the watches that do not work, or that have not listed yet. The number after
    /// the last watch stands for the probes.
    lost: BTreeSet<usize>,
    /// The numbers of the watches that have listed.
    listed: BTreeSet<usize>,
    /// The operations in their last known state.
    pub(crate) known: BTreeMap<OperationKey, InFlightOperation>,
    probes: BoxStream<'a, Result<Option<Incomplete>, Problem>>,
    pending: VecDeque<OperationChange>,
}

impl OperationSource {
    /// Watches the operations that match the filters. The watch includes all phases and states. So
    /// the follower returns the completion of an operation even without `--all-phases`, and the
    /// caller applies `--state`.
    ///
    /// A watch begins with a list. `listed` are the operations that the caller already knows. The
    /// follower returns them only when they change. From the first list, it also returns the
    /// operations that are not in `listed`. Without `--all-phases`, it leaves out the completed
    /// operations that are not in `listed`.
    pub(crate) fn follow(
        &self,
        listed: Vec<InFlightOperation>,
    ) -> Result<OperationFollower<'_>, Problem> {
        let namespaces = self.requested_namespaces();
        watch::check_namespaces(namespaces.len())?;
        let kind = GroupVersionKind::gvk(self.served.group(), VERSION, live::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, live::PLURAL);
        let config = Config::default()
            .labels(&self.filters.selector.text)
            .fields(&self.live_selector(self.filters.watch_selector()));
        let watches = namespaces.iter().enumerate().map(|(number, namespace)| {
            let changes = watch::changes(&self.server, &resource, *namespace, config.clone());
            changes.map(move |change| (number, change)).boxed()
        });
        Ok(OperationFollower {
            source: self,
            watches: watches.collect(),
            lost: (0..namespaces.len()).collect(),
            listed: BTreeSet::new(),
            namespaces: namespaces.iter().map(|it| it.map(str::to_owned)).collect(),
            known: listed.into_iter().map(|it| (it.key(), it)).collect(),
            probes: self.probes().boxed(),
            pending: VecDeque::new(),
        })
    }

    /// Asks the server at each [`PROBE_INTERVAL`] why its list may be incomplete. Files do not
    /// change, so there are no probes of files.
    pub(crate) fn probes(&self) -> impl Stream<Item = Result<Option<Incomplete>, Problem>> {
        let is_cluster = self.server.from_files.is_none();
        let probes = stream::repeat(()).take(if is_cluster { usize::MAX } else { 0 });
        probes.then(async |()| {
            tokio::time::sleep(PROBE_INTERVAL).await;
            self.probe().await
        })
    }
}

impl OperationFollower<'_> {
    /// Waits for the next change. Returns the problems `Forbidden` and `Unauthorized` as errors.
    /// After any other problem, returns [`OperationChange::Lost`] and retries the watch.
    pub(crate) async fn next(&mut self) -> Result<OperationChange, Problem> {
        loop {
            match self.pending.pop_front() {
                // These errors remain until an administrator changes the rights or the user logs in
                // again. So the watch is not retried.
                Some(OperationChange::Lost(
                    problem @ (Problem::Forbidden { .. } | Problem::Unauthorized),
                )) => return Err(problem),
                Some(change) => return Ok(change),
                None => {}
            }
            tokio::select! {
                Some((number, change)) = self.watches.next() => self.take(number, change),
                Some(answer) = self.probes.next() => self.take_probe(answer),
            }
        }
    }

    /// Processes the answer to a probe.
    fn take_probe(&mut self, answer: Result<Option<Incomplete>, Problem>) {
        let number = self.namespaces.len();
        match answer {
            Ok(incomplete) => {
                self.pending
                    .push_back(OperationChange::Incomplete(incomplete));
                if self.lost.remove(&number) && self.lost.is_empty() {
                    self.pending.push_back(OperationChange::Synced);
                }
            }
            Err(problem) => self.take(number, ObjectChange::Lost(problem)),
        }
    }

    fn take(&mut self, number: usize, change: ObjectChange) {
        match change {
            ObjectChange::Listed(objects) => {
                self.take_list(number, &objects);
                if self.lost.is_empty() {
                    self.pending.push_back(OperationChange::Synced);
                }
            }
            ObjectChange::Applied(object) => {
                if let Some(operation) = decoded(&object) {
                    // An operation that matched the filters before can stop matching them. For
                    // example, the operation leaves the node of `--node`. This counts as a
                    // deletion.
                    if self.source.filters.matches(&operation) {
                        self.known.insert(operation.key(), operation.clone());
                        let change = OperationChange::Applied(Box::new(operation));
                        self.pending.push_back(change);
                    } else {
                        self.delete(operation);
                    }
                }
            }
            ObjectChange::Deleted(object) => {
                if let Some(operation) = decoded(&object) {
                    self.delete(operation);
                }
            }
            ObjectChange::Lost(problem) => {
                self.lost.insert(number);
                self.pending.push_back(OperationChange::Lost(problem));
            }
        }
    }

    /// Replaces the known operations of a watch with its new list, and adds the differences to the
    /// pending changes.
    fn take_list(&mut self, number: usize, objects: &[DynamicObject]) {
        let listed = objects.iter().filter_map(decoded);
        let listed = listed.filter(|it| self.source.filters.matches(it));
        let listed: BTreeMap<OperationKey, _> = listed.map(|it| (it.key(), it)).collect();
        self.lost.remove(&number);
        let skips_completed = self.listed.insert(number) && !self.source.filters.all_phases;
        let namespace = self.namespaces[number].as_deref();
        let is_own = |key: &OperationKey| namespace.is_none_or(|it| *key.0 == *it);
        let is_gone = |key: &OperationKey, _: &mut _| is_own(key) && !listed.contains_key(key);
        let gone = self.known.extract_if(.., is_gone);
        let deleted = gone.map(|(_, it)| OperationChange::Deleted(Box::new(it)));
        self.pending.extend(deleted);
        for (key, operation) in listed {
            let is_change = match self.known.insert(key, operation.clone()) {
                Some(before) => {
                    before.metadata.resource_version != operation.metadata.resource_version
                }
                None => operation.is_active() || !skips_completed,
            };
            if is_change {
                let change = OperationChange::Applied(Box::new(operation));
                self.pending.push_back(change);
            }
        }
    }

    /// Removes an operation, and adds the deletion to the pending changes. If the operation has
    /// completed since its last known state, adds the completion first, even if the filters no
    /// longer match. If the operation is unknown, adds nothing.
    fn delete(&mut self, operation: InFlightOperation) {
        if let Some(before) = self.known.remove(&operation.key()) {
            let operation = Box::new(operation);
            if before.is_active() && !operation.is_active() {
                let completed = OperationChange::Applied(operation.clone());
                self.pending.push_back(completed);
            }
            self.pending.push_back(OperationChange::Deleted(operation));
        }
    }
}

/// Decodes an operation. None if the object is not a valid operation.
fn decoded(object: &DynamicObject) -> Option<InFlightOperation> {
    let object = serde_json::to_value(object).ok()?;
    AnyOperation::try_from(object).ok().map(|it| it.0)
}

#[cfg(test)]
mod tests;
