//! The lists that a new leader reads: custom resources and namespaces. Input: a [`Store`]. Output:
//! restored operations, and the creation times of the namespaces. A failed list is retried while
//! this can help.

use crate::clock;
use crate::persist::{self, Store, StoreFailure};
use ifo_engine::track::{InitialState, MAX_RESTORED};
use jiff::Timestamp;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Wait before the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Time for which consecutive refusals are retried. A kube-apiserver that has just started refuses
/// every client until it has read the RBAC objects.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);

/// Lists that are read one after the other. Operations in flight come first, so that they are
/// restored even if there is a long history. An operation that ends between the two lists is in
/// both of them, and its end counts.
const SELECTORS_BY_PHASE: &[&str] = &["status.phase=Active", "status.phase=Completed"];

/// The only list if the kube-apiserver cannot select phases (before Kubernetes 1.31).
const NO_SELECTOR: &[&str] = &[""];

/// Adds all custom resources to `state`.
pub(super) async fn custom_resources(
    store: &impl Store,
    state: &mut InitialState,
) -> Result<(), StoreFailure> {
    let mut retry = Retry::default();
    let (mut selectors, mut token) = (SELECTORS_BY_PHASE, None::<String>);
    while let [selector, rest @ ..] = selectors {
        match store.page(selector, token.as_deref()).await {
            Ok(page) => {
                retry.refused = None;
                for operation in page.items.iter().filter_map(persist::from_cr) {
                    if !state.add_custom_resource(operation, clock::reading()) {
                        tracing::warn!(MAX_RESTORED, "there are too many custom resources");
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
                tracing::info!("the kube-apiserver cannot select phases of custom resources");
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

/// The creation time of each namespace.
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
    /// The time since which all answers were refusals.
    refused: Option<Instant>,
}

impl Retry {
    /// Waits until the next attempt. Returns the failure if there is none.
    async fn wait(&mut self, failure: StoreFailure) -> Result<(), StoreFailure> {
        let is_final = match &failure {
            StoreFailure::Missing | StoreFailure::Invalid(_) => true,
            StoreFailure::Forbidden(_) => {
                let since = *self.refused.get_or_insert_with(Instant::now);
                since.elapsed() >= REFUSAL_PERIOD
            }
            _ => {
                self.refused = None;
                false
            }
        };
        if is_final {
            return Err(failure);
        }
        tracing::debug!(%failure, "the list is read again");
        tokio::time::sleep(RETRY_DELAY).await;
        Ok(())
    }
}
