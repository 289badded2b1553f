//! What a new leader starts from. Enters: the entries of its own index, the namespaces and,
//! in persistence mode, the custom resources. Leaves: the [`InitialState`] of the tracker.
//!
//! Promises: it ends within two minutes, also if the kube-apiserver does not answer. Of
//! custom resources that have not become operations, it holds one page. It writes nothing,
//! so it can be cancelled at any time.

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

/// The namespaces that existed at a takeover, and when each was created, if that is known.
pub type KnownNamespaces = HashMap<String, Option<Timestamp>>;

/// How long the namespaces are waited for if nothing is read from custom resources: the
/// takeover waits.
const NAMESPACES_WITHIN: Duration = Duration::from_secs(2);

/// How long the custom resources are waited for, and the namespaces of their subjects: as
/// long as the server waits at its start for what it cannot run without. While the
/// kube-apiserver does not answer, there are no rules to detect operations by either.
const CUSTOM_RESOURCES_WITHIN: Duration = Duration::from_mins(1);

/// Entries that are decoded before other tasks get a turn: about 5 ms.
const BATCH: usize = 256;

/// Where a new leader finds the operations that it starts from.
#[derive(Debug)]
pub struct TakeoverSources {
    /// All entries of its index.
    pub listed: Vec<Arc<IndexEntry>>,
    /// Completed entries that the index deleted lately.
    pub deleted: Vec<Arc<IndexEntry>>,
    /// Whether there are custom resources.
    pub persistence: bool,
    /// Whether completed operations are retained.
    pub retain: bool,
    /// Where operations on cluster-scoped subjects are shown.
    pub cluster_namespace: Arc<str>,
}

/// Reads what a new leader starts from, and the namespaces at that time. Custom resources
/// that cannot be read are left out: their operations are detected anew.
pub async fn initial_state(
    client: Client,
    sources: TakeoverSources,
) -> (InitialState, KnownNamespaces) {
    let within = if sources.persistence {
        CUSTOM_RESOURCES_WITHIN
    } else {
        NAMESPACES_WITHIN
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
        if let Err(error) = within_time(CUSTOM_RESOURCES_WITHIN, reading).await {
            tracing::warn!(%error, "not all custom resources were read; operations of the rest \
                are detected anew");
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
        // Those of the index are known to have existed.
        None => sources
            .listed
            .iter()
            .map(|entry| (entry.key().namespace.to_string(), None))
            .collect(),
    };
    (state, namespaces)
}

/// The result of `reading`, or that it took too long.
async fn within_time<T>(
    limit: Duration,
    reading: impl Future<Output = Result<T, StoreFailure>>,
) -> Result<T, StoreFailure> {
    let late = StoreFailure::Unreachable("it is not read in time".into(), None);
    let read = tokio::time::timeout(limit, reading).await;
    read.unwrap_or(Err(late))
}
