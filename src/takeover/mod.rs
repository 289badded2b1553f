//! Reads the operations that a replica of the server takes over when it becomes the leader. The
//! result is the [`InitialState`] of the tracker. The tracker turns detections into operations.
//!
//! The operations come from the replica's own index (the operations in memory). In persistence
//! mode, they also come from the custom resources.
//!
//! This module also waits for the list of the namespaces. The tracker needs the namespaces, because
//! it does not restore an operation whose namespace was deleted.
//!
//! In persistence mode, the time limits are 1 minute for the namespaces and 1 minute for the custom
//! resources. Without persistence mode, the time limit for the namespaces is 2 s. So this module
//! waits for at most 2 minutes, even if the kube-apiserver does not answer. If a time limit is
//! reached, the leader continues with the operations that it has read. This module writes nothing,
//! so the caller can cancel the reading at any time.

use crate::clock;
use crate::index::{IndexReader, ReadVersion, Scope, engine_key};
use crate::persist::{self, Store};
use futures::StreamExt as _;
use ifo_api::Text;
use ifo_api::persisted::InFlightOperation;
use ifo_engine::track::{InitialState, MAX_RESTORED, Namespaces};
use ifo_observe::{GapReason, Raw};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};

/// The time limit for reading the namespaces, if persistence mode is off. The limit is short,
/// because the new leader detects no operations until this read has ended.
const NAMESPACES_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit for reading the custom resources. In persistence mode, it is also the limit for
/// reading the namespaces. The new leader detects no operations until both reads have ended. A
/// shorter limit would not help: while the kube-apiserver does not answer, the leader cannot read
/// the rule sets either.
const CUSTOM_RESOURCES_TIMEOUT: Duration = Duration::from_mins(1);

/// If the kube-apiserver answers the watch of the custom resources with 403, the leader retries the
/// watch for this time. After its start, a kube-apiserver answers clients with 403 until it has
/// read the RBAC objects.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);

/// Reads the operations that a new leader takes over, and returns them as the initial state of the
/// tracker. If custom resources cannot be read, the initial state lacks their operations.
/// Operations that are still in flight are detected again later.
///
/// - `store` has the custom resources. None if persistence mode is off.
/// - `reader` reads the leader's own index.
/// - `namespaces` receives the namespaces of the cluster.
///
/// The returned bool is true if all custom resources were restored, except invalid custom resources
/// and those of deleted namespaces. If persistence mode is off, the bool is false.
pub async fn take_over(
    store: Option<&dyn Store>,
    reader: &IndexReader,
    cluster_namespace: Text,
    mut namespaces: watch::Receiver<Option<Arc<Namespaces>>>,
) -> (InitialState, bool) {
    // The entries are still up to date when the tracker receives them. In this term, only the
    // tracker changes the operations in the index, and it receives the entries before its first
    // change.
    let listed = reader.list(&Scope::Everything, ReadVersion::Latest);
    let listed = listed.map(|(_, entries)| entries).unwrap_or_default();
    let limit = match store {
        Some(_) => CUSTOM_RESOURCES_TIMEOUT,
        None => NAMESPACES_TIMEOUT,
    };
    let received = timeout(limit, namespaces.wait_for(Option::is_some)).await;
    let known = received.ok().and_then(|received| received.ok()?.clone());
    if known.is_none() {
        tracing::warn!(
            "the namespaces cannot be listed; in persistence mode, the leader does not restore \
             completed custom resources of namespaced subjects"
        );
    }
    let mut is_complete = known.is_some() && store.is_some();
    let mut state = InitialState::new(cluster_namespace, known);
    for entry in listed {
        consume_budget().await;
        state.add_index_object(&engine_key(entry.key()), entry.object(), clock::reading());
    }
    let indexed = state.count();
    if let Some(store) = store {
        let reading = custom_resources(store, &mut state);
        let read = timeout(CUSTOM_RESOURCES_TIMEOUT, reading).await;
        if let Err(error) = read.unwrap_or_else(|late| Err(late.to_string())) {
            is_complete = false;
            tracing::warn!(
                error,
                "not all custom resources were read; operations that are still in flight are detected again"
            );
        }
    }
    let restored = state.count() - indexed;
    tracing::info!(
        indexed,
        restored,
        "the leader continues from these operations"
    );
    (state, is_complete)
}

/// Reads all custom resources and adds their operations to `state`. The watch retries failures.
/// Returns an error in these cases:
///
/// - The CRD is missing (404).
/// - All answers during [`REFUSAL_PERIOD`] were 403.
/// - There are more than [`MAX_RESTORED`] custom resources.
async fn custom_resources(store: &dyn Store, state: &mut InitialState) -> Result<(), String> {
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
                    return Err(format!(
                        "there are more than {MAX_RESTORED} custom resources"
                    ));
                }
            }
            Raw::Synced => return Ok(()),
            Raw::Lost(reason) => match reason {
                GapReason::Refused { code: 404, .. } => return Err(reason.to_string()),
                GapReason::Refused { code: 403, .. } => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= REFUSAL_PERIOD {
                        return Err(reason.to_string());
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
pub(crate) mod tests;
