//! Starts the tasks of persistence mode, which write operations as custom resources.

use super::leader_term::LeaderTerm;
use crate::config::Common;
use crate::observe::Connection;
use crate::persist::{
    self, AtStop, ClusterStore, Persist, PersistSettings, PersistVerdict, UnsyncedRuleSets,
};
use crate::telemetry::PersistenceMetrics;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The server writes the state `Settling` to a custom resource only if the operation is in this
/// state for longer than the debounce period plus this time.
///
/// If no rule detects an operation any more, its state is `Settling`. Usually the operation
/// completes when the debounce period is over, so the server writes only its end. While the watch
/// of its subject is interrupted, the operation stays `Settling` for longer.
const SETTLING_PERIOD: Duration = Duration::from_secs(30);

impl LeaderTerm {
    /// Starts the tasks that write operations as custom resources, until the leadership term ends.
    pub(super) fn persist(
        &mut self,
        common: &Common,
        connection: &Connection,
        service: &str,
        metrics: Arc<PersistenceMetrics>,
        at_stop: AtStop,
        unsynced_rule_sets: watch::Receiver<Option<Arc<UnsyncedRuleSets>>>,
    ) {
        let (verdict, verdicts) = watch::channel(PersistVerdict::Unknown);
        let persist = Persist {
            reader: self.operations.clone(),
            // This client does not retry requests, because the persistence queue retries failed
            // writes. The client has a separate connection, so that many writes do not delay the
            // requests of other tasks.
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
            unsynced_rule_sets,
            stop: self.ending.clone(),
            at_stop,
            verdict,
        };
        self.tasks.start_finishing("persistence", persist.run());
        let client = connection.client.clone();
        let (service, every) = (service.to_owned(), common.requeue);
        self.tasks.start("persistence condition", async move {
            persist::keep_condition(client, &service, verdicts, every).await;
        });
    }
}
