//! Reads the operations that a replica of the server takes over when it becomes the leader. The
//! result is the [`InitialState`] of the tracker. The tracker turns detections into operations.
//!
//! The operations come from the replica's own index (the operations in memory). In persistence
//! mode, they also come from the custom resources.
//!
//! This module also waits for the list of the namespaces in two cases: in persistence mode, and if the
//! server retains completed operations. The tracker uses the namespaces to skip completed operations
//! and custom resources of deleted namespaces.
//!
//! In persistence mode, the time limits are 1 minute for the namespaces and 1 minute for the custom
//! resources. Without persistence mode, the time limit for the namespaces is 2 s. So all waits end
//! after at most 2 minutes, even if the kube-apiserver does not answer. If a time limit is reached,
//! the leader continues with the operations that it has read. This module writes nothing, so the
//! caller can cancel the reading at any time.

use crate::clock;
use crate::index::{IndexReader, ReadVersion, Scope, engine_key};
use crate::persist::{self, ListedNamespaces, Store};
use futures::StreamExt as _;
use ifo_api::Text;
use ifo_api::persisted::InFlightOperation;
use ifo_engine::track::{InitialState, MAX_RESTORED};
use ifo_observe::{GapReason, Raw};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The time limit for reading the namespaces, if persistence mode is off. The limit is short,
/// because the new leader does not detect operations before this read has ended.
const NAMESPACES_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit for reading the custom resources. In persistence mode, it is also the limit for
/// reading the namespaces. The new leader does not detect operations before both reads have ended.
/// A shorter limit would not help: while the kube-apiserver does not answer, the leader cannot read
/// the rule sets either.
const CUSTOM_RESOURCES_TIMEOUT: Duration = Duration::from_mins(1);

/// The number of index entries that are decoded before other tasks run. Decoding 256 entries takes
/// about 5 ms.
const BATCH: usize = 256;

/// The time for which the watch of the custom resources is retried if the answer is 403. A kube-apiserver that has just
/// started answers clients with 403, until it has read the RBAC objects.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);

/// The leader's own index, and the settings that decide what else the leader reads.
#[derive(Debug)]
pub struct TakeoverSources {
    /// The reader of the leader's index. If an entry that was deleted recently is a completed
    /// operation, the tracker remembers its start and end. The name of an operation depends on the
    /// second of its start. If a new run starts in the same second as the previous run, the tracker
    /// uses the next second for the new run.
    pub reader: IndexReader,
    /// True if completed operations are retained.
    pub retain: bool,
    /// The namespace in which the server shows operations on cluster-scoped objects.
    pub cluster_namespace: Text,
}

/// Returns the initial state of the tracker. If custom resources cannot be read, the initial state lacks
/// their operations. If such an operation is still in flight, the leader detects it again later.
/// `store` has the custom resources. It is None if persistence mode is off.
///
/// `namespaces` receives the namespaces. If this function did not wait for them, or if they did not
/// arrive in time, it also returns the namespaces of the operations in the index.
pub async fn initial_state(
    store: Option<&dyn Store>,
    sources: TakeoverSources,
    mut namespaces: watch::Receiver<Option<ListedNamespaces>>,
) -> (InitialState, HashSet<Text>) {
    // The entries are still up to date when the tracker receives them. In this term, only the tracker
    // changes the operations in the index, and it receives the entries before its first change.
    let listed = sources.reader.list(&Scope::Everything, ReadVersion::Latest);
    let listed = listed.map(|(_, entries)| entries).unwrap_or_default();
    let deleted = sources.reader.deleted();
    let mut known = None;
    if sources.retain || store.is_some() {
        let limit = match store {
            Some(_) => CUSTOM_RESOURCES_TIMEOUT,
            None => NAMESPACES_TIMEOUT,
        };
        let received = timeout(limit, namespaces.wait_for(Option::is_some)).await;
        known = received.ok().and_then(|received| received.ok()?.clone());
        if known.is_none() {
            tracing::warn!(
                "the namespaces cannot be listed; in persistence mode, the leader does not restore \
                 completed custom resources"
            );
        }
    }
    let mut unlisted = HashSet::new();
    if known.is_none() {
        let entries = listed.iter();
        unlisted = entries
            .map(|it| it.key().object_namespace().into())
            .collect();
        unlisted.remove(&sources.cluster_namespace);
    }
    let mut state = InitialState::new(sources.cluster_namespace, known);
    for batch in listed.chunks(BATCH) {
        for entry in batch {
            state.add_index_object(&engine_key(entry.key()), entry.object(), clock::reading());
        }
        tokio::task::yield_now().await;
    }
    let indexed = state.count();
    for batch in deleted.chunks(BATCH) {
        for entry in batch {
            state.add_deleted_object(entry.object(), clock::reading());
        }
        tokio::task::yield_now().await;
    }
    let count_before_custom_resources = state.count();
    if let Some(store) = store {
        let reading = custom_resources(store, &mut state);
        let error = match timeout(CUSTOM_RESOURCES_TIMEOUT, reading).await {
            Ok(read) => read.err().map(|reason| reason.to_string()),
            Err(late) => Some(late.to_string()),
        };
        if let Some(error) = error {
            tracing::warn!(
                error,
                "not all custom resources were read; operations that are still in flight are detected again"
            );
        }
    }
    let restored = state.count() - count_before_custom_resources;
    tracing::info!(
        indexed,
        restored,
        "the leader continues from these operations"
    );
    (state, unlisted)
}

/// Reads all custom resources and adds their operations to `state`. If `state` has [`MAX_RESTORED`]
/// operations from custom resources, logs a warning, stops reading and returns `Ok`. The watch retries
/// failures. Returns the failure if it is permanent, or if all answers during [`REFUSAL_PERIOD`] were
/// 403.
async fn custom_resources(store: &dyn Store, state: &mut InitialState) -> Result<(), GapReason> {
    let mut refused_since = None;
    let mut events = store.follow();
    while let Some(event) = events.next().await {
        match event {
            Raw::Applied(json) => {
                let cr: Option<InFlightOperation> = serde_json::from_slice(&json).ok();
                let operation = cr.as_ref().and_then(persist::from_cr);
                let is_added =
                    operation.is_none_or(|it| state.add_custom_resource(it, clock::reading()));
                if !is_added {
                    tracing::warn!(
                        MAX_RESTORED,
                        "there are too many custom resources; the remaining custom resources are not restored"
                    );
                    return Ok(());
                }
            }
            Raw::Synced => return Ok(()),
            Raw::Lost(reason) => match reason {
                GapReason::Refused { code: 404, .. } => return Err(reason),
                GapReason::Refused { code: 403, .. } => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= REFUSAL_PERIOD {
                        return Err(reason);
                    }
                }
                _ => refused_since = None,
            },
            Raw::Reset | Raw::Deleted(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
