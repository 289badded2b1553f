//! Persistence mode: operations are written as custom resources.

use super::App;
use crate::config::Common;
use crate::observe::Connection;
use crate::persist::{self, AtStop, ClusterStore, Persist, Settings, Verdict};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// An operation that has stopped being detected is written as such only if it is not over
/// this long after its debounce: usually the next write is its end.
const AFTER_DEBOUNCE: Duration = Duration::from_secs(30);

impl App {
    /// Writes operations from now on.
    pub(super) fn persist(&mut self, common: &Common, connection: &Connection, service: &str) {
        let (verdict, told) = watch::channel(Verdict::Unknown);
        let persist = Persist {
            reader: self.operations.clone(),
            store: Arc::new(ClusterStore::new(connection)),
            settings: Settings {
                resync: common.resync,
                settling: common.debounce + AFTER_DEBOUNCE,
                requeue: common.requeue,
                retain: common.retain,
                retain_for: common.retain_for,
                retain_max: common.retain_max,
            },
            metrics: self.metrics.persistence(),
            settled: self.settled.subscribe(),
            stop: self.shutdown.clone(),
            at_stop: AtStop::WriteAll,
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
