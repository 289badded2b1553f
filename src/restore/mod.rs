//! Restores operations when a replica of the server becomes the leader: reads the operations that
//! the new leader takes over. The result is the [`InitialState`] of the tracker, which turns
//! detections into operations.
//!
//! The operations come from the leader's own index (the operations in memory) and, in persistence
//! mode, from the custom resources. The namespaces are read, too. They show which operations belong
//! to a namespace that was deleted.
//!
//! Reading takes at most two minutes, even if the kube-apiserver does not answer. At most one page
//! of custom resources is in memory at a time. Nothing is written, so the reading can be cancelled
//! at any time.

mod lists;
#[cfg(test)]
mod tests;

use crate::clock;
use crate::index::IndexEntry;
use crate::persist::{ClusterStore, StoreFailure};
use ifo_engine::track::InitialState;
use jiff::Timestamp;
use kube::Client;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The namespaces that existed when the new leader read the namespaces. The value is the creation
/// time, or None if the creation time is unknown.
pub type KnownNamespaces = HashMap<String, Option<Timestamp>>;

/// The time limit for reading the namespaces without persistence mode. The limit is short, because
/// the new leader detects no operations before the end of this time.
const NAMESPACES_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit for reading the custom resources, and also for reading the namespaces in
/// persistence mode. The new leader waits for the end of both reads. While the kube-apiserver does
/// not answer, this delay has no effect, because the leader can then read no rule sets either.
const CUSTOM_RESOURCES_TIMEOUT: Duration = Duration::from_mins(1);

/// The number of index entries that are decoded before other tasks run. Decoding this number takes
/// about 5 ms.
const BATCH: usize = 256;

/// The operations in the leader's own index, and the settings that decide which sources are read.
#[derive(Debug)]
pub struct TakeoverSources {
    /// All entries of the leader's index.
    pub listed: Vec<Arc<IndexEntry>>,
    /// The entries of completed operations that were deleted from the index recently.
    pub deleted: Vec<Arc<IndexEntry>>,
    /// True if persistence mode is on, so that there are custom resources.
    pub persistence: bool,
    /// True if completed operations are retained.
    pub retain: bool,
    /// The namespace of operations on cluster-scoped subjects.
    pub cluster_namespace: Arc<str>,
}

/// Reads the initial state, and the namespaces that exist now. If custom resources cannot be read,
/// their operations are not in the initial state, and the leader detects these operations again.
pub async fn initial_state(
    client: Client,
    sources: TakeoverSources,
) -> (InitialState, KnownNamespaces) {
    let namespaces_limit = if sources.persistence {
        CUSTOM_RESOURCES_TIMEOUT
    } else {
        NAMESPACES_TIMEOUT
    };
    let store = ClusterStore::new(client);
    let mut known = None;
    if sources.retain || sources.persistence {
        match with_time_limit(namespaces_limit, lists::namespaces(&store)).await {
            Ok(all) => known = Some(all),
            Err(error) => {
                tracing::warn!(%error, "the namespaces cannot be read; completed custom \
                    resources are not restored");
            }
        }
    }
    let mut state = InitialState::new(sources.cluster_namespace, known.clone());
    for batch in sources.listed.chunks(BATCH) {
        for entry in batch {
            state.add_index_object(entry.key(), &entry.json(), clock::reading());
        }
        tokio::task::yield_now().await;
    }
    let indexed = state.count();
    for batch in sources.deleted.chunks(BATCH) {
        for entry in batch {
            state.add_deleted_object(&entry.json(), clock::reading());
        }
        tokio::task::yield_now().await;
    }
    let count_before_custom_resources = state.count();
    if sources.persistence {
        let reading = lists::custom_resources(&store, &mut state);
        if let Err(error) = with_time_limit(CUSTOM_RESOURCES_TIMEOUT, reading).await {
            tracing::warn!(%error, "not all custom resources were read; the other operations are detected again");
        }
    }
    let restored = state.count() - count_before_custom_resources;
    tracing::info!(
        indexed,
        restored,
        "the leader continues from these operations"
    );
    let namespaces = match known {
        Some(known) => known
            .into_iter()
            .map(|(name, created)| (name, Some(created)))
            .collect(),
        // If the namespaces could not be read, the result is the namespaces of the operations in
        // the index. Their creation times are unknown.
        None => sources
            .listed
            .iter()
            .map(|entry| (entry.key().namespace.to_string(), None))
            .collect(),
    };
    (state, namespaces)
}

/// Returns the result of `reading`, or a failure after the time limit.
async fn with_time_limit<T>(
    limit: Duration,
    reading: impl Future<Output = Result<T, StoreFailure>>,
) -> Result<T, StoreFailure> {
    let timed_out = StoreFailure::Unreachable(
        "the list was not complete within the time limit".into(),
        None,
    );
    let read = tokio::time::timeout(limit, reading).await;
    read.unwrap_or(Err(timed_out))
}
