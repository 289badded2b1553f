//! The initial state of a new leader. Input: the entries of its own index, the namespaces and, in
//! persistence mode, the custom resources. Output: the [`InitialState`] of the tracker.
//!
//! It ends within two minutes, even if the kube-apiserver does not answer. It holds at most one
//! page of custom resources that have not become operations. It writes nothing, so it can be
//! cancelled at any time.

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

/// The namespaces that existed at a takeover, with their creation times if they are known.
pub type KnownNamespaces = HashMap<String, Option<Timestamp>>;

/// Time limit for the namespaces if no custom resources are read. The takeover waits for them.
const NAMESPACES_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for the custom resources and the namespaces of their subjects. The server waits for
/// the same time at its start. While the kube-apiserver does not answer, there are no rules to
/// detect operations with.
const CUSTOM_RESOURCES_TIMEOUT: Duration = Duration::from_mins(1);

/// Number of entries that are decoded before other tasks run: about 5 ms.
const BATCH: usize = 256;

/// The sources of operations for a new leader.
#[derive(Debug)]
pub struct TakeoverSources {
    /// All entries of its index.
    pub listed: Vec<Arc<IndexEntry>>,
    /// Completed entries that the index has deleted recently.
    pub deleted: Vec<Arc<IndexEntry>>,
    /// True if there are custom resources.
    pub persistence: bool,
    /// The retention of completed operations.
    pub retain: bool,
    /// Namespace of operations on cluster-scoped subjects.
    pub cluster_namespace: Arc<str>,
}

/// Reads the initial state, and the namespaces at that time. Custom resources that cannot be read
/// are left out, and their operations are detected again.
pub async fn initial_state(
    client: Client,
    sources: TakeoverSources,
) -> (InitialState, KnownNamespaces) {
    let within = if sources.persistence {
        CUSTOM_RESOURCES_TIMEOUT
    } else {
        NAMESPACES_TIMEOUT
    };
    let store = ClusterStore::new(client);
    let mut known = None;
    if sources.retain || sources.persistence {
        match within_time(within, lists::namespaces(&store)).await {
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
    let known_before = state.count();
    if sources.persistence {
        let reading = lists::custom_resources(&store, &mut state);
        if let Err(error) = within_time(CUSTOM_RESOURCES_TIMEOUT, reading).await {
            tracing::warn!(%error, "not all custom resources were read; the other operations are detected again");
        }
    }
    let restored = state.count() - known_before;
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
        // The namespaces of the index's operations are known to have existed.
        None => sources
            .listed
            .iter()
            .map(|entry| (entry.key().namespace.to_string(), None))
            .collect(),
    };
    (state, namespaces)
}

/// The result of `reading`. None if it took too long.
async fn within_time<T>(
    limit: Duration,
    reading: impl Future<Output = Result<T, StoreFailure>>,
) -> Result<T, StoreFailure> {
    let late = StoreFailure::Unreachable("it is not read in time".into(), None);
    let read = tokio::time::timeout(limit, reading).await;
    read.unwrap_or(Err(late))
}
