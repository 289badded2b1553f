//! Starts persistence mode, which writes operations as custom resources.

use super::replica::LeaderTerm;
use crate::config::Common;
use crate::observe::Connection;
use crate::persist::{
    self, AtStop, ClusterStore, Persist, PersistSettings, PersistVerdict, UnreadRuleSets,
};
use crate::telemetry::PersistenceMetrics;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Delay before the state `Completing` is written to a custom resource, counted after the debounce
/// period. Usually the operation has completed by then, and only its end is written.
const SETTLING_PERIOD: Duration = Duration::from_secs(30);

impl LeaderTerm {
    /// Writes operations until the term ends.
    pub(super) fn persist(
        &mut self,
        common: &Common,
        connection: &Connection,
        service: &str,
        metrics: Arc<PersistenceMetrics>,
        at_stop: AtStop,
        settled: watch::Receiver<Option<Arc<UnreadRuleSets>>>,
    ) {
        let (verdict, told) = watch::channel(PersistVerdict::Unknown);
        let persist = Persist {
            reader: self.operations.clone(),
            // The queue retries failed writes. Its separate connection does not delay other
            // requests.
            store: Arc::new(ClusterStore::new(connection.without_retries())),
            settings: PersistSettings {
                resync: common.resync,
                settling: common.debounce + SETTLING_PERIOD,
                requeue: common.requeue,
                retain: common.retain,
                retain_for: common.retain_for,
                retain_max: common.retain_max,
            },
            metrics,
            settled,
            stop: self.ending.clone(),
            at_stop,
            verdict,
        };
        super::spawn(&mut self.last, "persistence", persist.run());
        let client = connection.client.clone();
        let (service, every) = (service.to_owned(), common.requeue);
        self.keep("persistence's condition", async move {
            persist::keep_condition(client, &service, told, every).await;
        });
    }
}
