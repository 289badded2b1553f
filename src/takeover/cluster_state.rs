//! Lists the namespaces, and the custom resources that contain operations. A new leader restores
//! operations from these lists. If a list fails temporarily, this module retries it.

use crate::clock;
use crate::persist::{self, Store, StoreFailure};
use ifo_engine::track::{InitialState, MAX_RESTORED};
use jiff::Timestamp;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The time between a failed request and the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The time for which a list is retried if the answer is 403. After this time, the list fails. A
/// kube-apiserver that has just started answers clients with 403, until it has read the RBAC
/// objects.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);

/// The field selectors of the two lists, in this order. Operations in flight come first, so that
/// they are restored even if there are more than [`MAX_RESTORED`] completed operations. If an
/// operation ends between the two lists, its custom resource is in both lists. Then the completed
/// custom resource is used.
const SELECTORS_BY_PHASE: &[&str] = &["status.phase=Active", "status.phase=Completed"];

/// The empty selector of a single list of all custom resources. It is used if the kube-apiserver
/// refuses the selectors by phase. Kubernetes before 1.31 refuses them.
const NO_SELECTOR: &[&str] = &[""];

/// Reads all custom resources and adds their operations to `state`. If `state` has [`MAX_RESTORED`]
/// operations from custom resources, this function logs a warning, stops reading and returns `Ok`.
pub(super) async fn custom_resources(
    store: &impl Store,
    state: &mut InitialState,
) -> Result<(), StoreFailure> {
    let mut retry = Retry::default();
    let (mut selectors, mut token) = (SELECTORS_BY_PHASE, None::<String>);
    while let [selector, rest @ ..] = selectors {
        match store.page(selector, token.as_deref()).await {
            Ok(page) => {
                retry.refused_since = None;
                for operation in page.items.iter().filter_map(persist::from_cr) {
                    if !state.add_custom_resource(operation, clock::reading()) {
                        tracing::warn!(
                            MAX_RESTORED,
                            "there are too many custom resources; the remaining custom resources are not restored"
                        );
                        return Ok(());
                    }
                }
                let is_last = page.next.is_none() || page.next == token;
                token = page.next.filter(|_| !is_last);
                if is_last {
                    selectors = rest;
                }
            }
            Err(StoreFailure::Invalid(_)) if selectors == SELECTORS_BY_PHASE && token.is_none() => {
                tracing::info!(
                    "the kube-apiserver cannot select custom resources by phase; all are listed at once"
                );
                selectors = NO_SELECTOR;
            }
            Err(failure) => {
                if matches!(failure, StoreFailure::Conflict(_)) {
                    token = None;
                }
                retry.wait(failure).await?;
            }
        }
    }
    Ok(())
}

/// Returns the creation time of each namespace.
pub(super) async fn namespaces(
    store: &impl Store,
) -> Result<HashMap<String, Timestamp>, StoreFailure> {
    let mut retry = Retry::default();
    loop {
        match store.namespaces().await {
            Ok(all) => return Ok(all),
            Err(failure) => retry.wait(failure).await?,
        }
    }
}

/// The retries of one list.
#[derive(Debug, Default)]
struct Retry {
    /// The time of the first 403 since the latest other answer. None if the latest answer was not
    /// 403.
    refused_since: Option<Instant>,
}

impl Retry {
    /// Waits for [`RETRY_DELAY`]. If the failure is permanent, or if all answers during
    /// [`REFUSAL_PERIOD`] were 403, returns `failure` immediately.
    async fn wait(&mut self, failure: StoreFailure) -> Result<(), StoreFailure> {
        let is_final = match &failure {
            StoreFailure::CrdMissing | StoreFailure::Invalid(_) => true,
            StoreFailure::Forbidden(_) => {
                let since = *self.refused_since.get_or_insert_with(Instant::now);
                since.elapsed() >= REFUSAL_PERIOD
            }
            _ => {
                self.refused_since = None;
                false
            }
        };
        if is_final {
            return Err(failure);
        }
        tracing::debug!(%failure, "a list failed and is retried");
        tokio::time::sleep(RETRY_DELAY).await;
        Ok(())
    }
}
