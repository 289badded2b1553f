//! Stores the usual durations of operations (baselines) in a ConfigMap, so that they survive a
//! restart and a change of the leader. The leader learns the baselines from completed runs. A run
//! is one occurrence of an operation, from its start to its end.
//!
//! The leader reads the ConfigMap when its leadership term begins. During the term, the leader
//! checks every five minutes if the baselines have changed. If they have changed, or if the last
//! write has failed, the leader writes the ConfigMap. The last check is at the orderly end of the
//! term. After a crash, the durations since the last write are lost.
//!
//! The manifests create the ConfigMap without data. So the server needs no permission to create
//! `ConfigMap`s.

use crate::telemetry::Metrics;
use ifo_engine::track::{Baselines, BaselinesError, Message, SharedBaselines};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Name of the ConfigMap in the server's own namespace.
pub const CONFIG_MAP: &str = "ifo-apiserver-baselines";

/// Key of the baselines in the data of the ConfigMap.
const DATA_KEY: &str = "baselines.json";

/// Interval at which the leader checks if it must write the ConfigMap. A write has up to 512 KiB.
/// The interval limits the load of the kube-apiserver to one write in five minutes.
const WRITE_INTERVAL: Duration = Duration::from_mins(5);

/// Time between two attempts to read the ConfigMap at the beginning of a term.
const READ_RETRY: Duration = Duration::from_secs(10);

/// Time limit of one request. If the kube-apiserver does not answer in this time, the read or write
/// fails.
///
/// The leader releases the Lease only after the last write, so a slow last write delays the next
/// leader.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Field manager of the writes.
const FIELD_MANAGER: &str = "ifo-apiserver-baselines";

/// Reads and writes the ConfigMap during one leadership term.
pub struct BaselineStore {
    api: Api<ConfigMap>,
    baselines: SharedBaselines,
    /// The queue of the tracker, which is the task that finds operations in flight. The reference
    /// is weak, because the tracker ends only when no sender is left.
    tracker: mpsc::WeakSender<Message>,
    metrics: Arc<Metrics>,
    /// Baselines as text, which the next check must write. If the baselines have changed before the
    /// next check, the check writes the new baselines instead. The field is set in two cases:
    ///
    /// - A write has failed.
    /// - The text in the ConfigMap could not be decoded.
    unwritten: Option<String>,
    /// The text of the error that was logged last. Empty if no error was logged.
    logged: String,
}

/// The reason why the ConfigMap cannot be used.
#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error("the ConfigMap {CONFIG_MAP} does not exist; apply the manifests of this release")]
    Missing,
    #[error("the kube-apiserver did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the ConfigMap {CONFIG_MAP}: {0}")]
    Request(#[source] kube::Error),
}

impl From<kube::Error> for StoreError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 404 => Self::Missing,
            _ => Self::Request(error),
        }
    }
}

impl BaselineStore {
    /// Creates a store for the ConfigMap in `namespace`. The store sends no request before
    /// [`BaselineStore::run`].
    pub fn new(
        client: Client,
        namespace: &str,
        baselines: SharedBaselines,
        tracker: mpsc::WeakSender<Message>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            baselines,
            tracker,
            metrics,
            unwritten: None,
            logged: String::new(),
        }
    }

    /// Reads the ConfigMap. Then checks every five minutes if the ConfigMap must be written. When
    /// `ending` is cancelled, checks for the last time and returns.
    pub async fn run(mut self, ending: CancellationToken) {
        // The store writes only after it has read the ConfigMap. An earlier write would replace the
        // runs that earlier leaders have learned.
        loop {
            let loaded = self.load().await;
            let result = if loaded.is_ok() { "success" } else { "error" };
            self.metrics.baselines_read(result);
            let Err(error) = loaded else { break };
            self.report("baselines could not be read", &error);
            if ends_within(&ending, READ_RETRY).await {
                return;
            }
        }
        loop {
            let ends = ends_within(&ending, WRITE_INTERVAL).await;
            let changed = self.baselines.encode_changed();
            // A newer text contains all runs of the text that could not be written.
            let unwritten = self.unwritten.take();
            if let Some(text) = changed.or(unwritten) {
                let written = self.write(&text).await;
                let result = if written.is_ok() { "success" } else { "error" };
                self.metrics.baselines_written(result);
                if let Err(error) = written {
                    self.report("baselines could not be written", &error);
                    self.unwritten = Some(text);
                }
            }
            if ends {
                return;
            }
        }
    }

    /// Adds the stored runs to the baselines. If the stored text cannot be decoded, the next write
    /// replaces the text. If the ConfigMap does not exist, logs a warning and returns `Ok`.
    async fn load(&mut self) -> Result<(), StoreError> {
        let stored = match with_time_limit(self.api.get(CONFIG_MAP)).await {
            Err(StoreError::Missing) => {
                self.report("baselines are kept in memory only", &StoreError::Missing);
                return Ok(());
            }
            stored => stored?,
        };
        let text = stored.data.and_then(|mut data| data.remove(DATA_KEY));
        match text.as_deref().map(Baselines::decode) {
            Some(Ok(baselines)) => {
                tracing::info!(baselines = baselines.count(), "baselines were read");
                self.baselines.merge(baselines);
                if let Some(tracker) = self.tracker.upgrade() {
                    // `send` returns an error if the tracker has ended. Then the term is ending.
                    let _ = tracker.send(Message::BaselinesLoaded).await;
                }
            }
            Some(Err(error)) => {
                self.reject(&error);
                self.unwritten = Some(self.baselines.encode());
            }
            None => {}
        }
        Ok(())
    }

    fn reject(&self, error: &BaselinesError) {
        tracing::warn!(%error, "the ConfigMap {CONFIG_MAP} does not contain baselines of this release; it will be replaced");
        self.metrics.baselines_rejected();
    }

    /// Writes the ConfigMap. A late write of a previous leader does little harm, because the next
    /// regular write replaces it.
    async fn write(&self, text: &str) -> Result<(), StoreError> {
        let patch = Patch::Merge(json!({"data": {DATA_KEY: text}}));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        with_time_limit(self.api.patch_metadata(CONFIG_MAP, &params, &patch)).await?;
        Ok(())
    }

    /// Logs an error if its text differs from the error that was logged last.
    fn report(&mut self, what: &str, error: &StoreError) {
        let text = error.to_string();
        if self.logged != text {
            tracing::warn!(%error, "{what}");
            self.logged = text;
        }
    }
}

/// Waits until `ending` is cancelled or `time` is over. Returns true if `ending` is cancelled.
async fn ends_within(ending: &CancellationToken, time: Duration) -> bool {
    tokio::time::timeout(time, ending.cancelled()).await.is_ok()
}

async fn with_time_limit<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(StoreError::TimedOut),
    }
}

#[cfg(test)]
mod tests;
