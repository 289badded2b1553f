//! Stores the usual durations of operations (baselines) in a ConfigMap, so that they survive a
//! restart and a change of the leader. The leader learns the baselines from completed runs. A run
//! is one occurrence of an operation, from its start to its end.
//!
//! The leader reads the ConfigMap when its leadership term begins. During the term, the leader
//! checks every five minutes if the baselines have changed. If they have changed, or if the last
//! write has failed, the leader writes the ConfigMap. The last check is at the orderly end of the
//! term. After a crash, the runs since the last write are lost.
//!
//! The manifests create the ConfigMap without data. So the server needs no permission to create
//! `ConfigMap`s.

use crate::telemetry::{FailureLog, Metrics, count};
use ifo_client::error_text::chain;
use ifo_engine::track::{Message, SharedBaselines};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
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

/// Time limit of one request. If the kube-apiserver does not answer within this time, the read or
/// the write fails.
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
    /// The queue of the tracker, which turns detections into operations. This sender is weak, so
    /// that the store does not keep the queue open: the tracker's task ends when no strong sender
    /// is left.
    tracker: mpsc::WeakSender<Message>,
    metrics: Arc<Metrics>,
    /// True if the next check must write the baselines even if they have not changed. The last
    /// write has failed, or the text in the ConfigMap could not be decoded.
    must_write: bool,
    /// Logs failed reads and writes.
    failures: FailureLog,
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
            must_write: false,
            failures: FailureLog::new("baselines can be read and written again"),
        }
    }

    /// Reads the ConfigMap. Then checks every five minutes if the ConfigMap must be written. When
    /// `ending` is cancelled, checks for the last time and returns.
    pub async fn run(mut self, ending: CancellationToken) {
        // The store writes only after it has read the ConfigMap. A write before this read would
        // delete the runs that earlier leaders have stored.
        loop {
            let loaded = self.load().await;
            let result = if loaded.is_ok() { "success" } else { "error" };
            count(&self.metrics.series.baseline_reads, "result", result);
            self.report("baselines could not be read", &loaded);
            if loaded.is_ok() {
                break;
            }
            if ends_within(&ending, READ_RETRY).await {
                return;
            }
        }
        loop {
            let ends = ends_within(&ending, WRITE_INTERVAL).await;
            let changed = self.baselines.encode_changed();
            let kept = || self.must_write.then(|| self.baselines.encode());
            if let Some(text) = changed.or_else(kept) {
                let written = self.write(&text).await;
                let result = if written.is_ok() { "success" } else { "error" };
                count(&self.metrics.series.baseline_writes, "result", result);
                self.must_write = written.is_err();
                self.report("baselines could not be written", &written);
            }
            if ends {
                return;
            }
        }
    }

    /// Adds the stored runs to the baselines. If the stored text cannot be decoded, the next write
    /// replaces the text.
    async fn load(&mut self) -> Result<(), String> {
        let stored = with_time_limit(self.api.get(CONFIG_MAP)).await?;
        let text = stored.data.and_then(|mut data| data.remove(DATA_KEY));
        match text.map(|text| self.baselines.load(&text)) {
            Some(Ok(baselines)) => {
                tracing::info!(baselines, "baselines were read");
                if let Some(tracker) = self.tracker.upgrade() {
                    // `send` returns an error if the tracker has ended. Then the term is ending.
                    let _ = tracker.send(Message::BaselinesLoaded).await;
                }
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the ConfigMap {CONFIG_MAP} does not contain baselines of this release; it will be replaced");
                self.metrics.series.baselines_rejected.inc();
                self.must_write = true;
            }
            None => {}
        }
        Ok(())
    }

    /// Writes the ConfigMap. A late write of a previous leader does little harm, because the next
    /// write of the current leader replaces the late write.
    async fn write(&self, text: &str) -> Result<(), String> {
        let patch = Patch::Merge(json!({"data": {DATA_KEY: text}}));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = self.api.patch_metadata(CONFIG_MAP, &params, &patch);
        with_time_limit(patched).await?;
        Ok(())
    }

    /// Logs a failed read or write, unless the previous one failed with the same error.
    fn report(&mut self, what: &str, result: &Result<(), String>) {
        if let Some(error) = self.failures.record(result) {
            tracing::warn!(name = CONFIG_MAP, error, "{what}");
        }
    }
}

/// Waits until `ending` is cancelled or `time` is over. Returns true if `ending` is cancelled.
async fn ends_within(ending: &CancellationToken, time: Duration) -> bool {
    timeout(time, ending.cancelled()).await.is_ok()
}

async fn with_time_limit<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, String> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| chain(&error)),
        Err(_) => Err(format!(
            "the kube-apiserver did not answer within {} s",
            REQUEST_TIMEOUT.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests;
