//! The metrics of persistence mode, in which the leader writes operations as custom resources. If
//! this mode is off, the metrics have no series. So an alert on missing writes does not fire.

use super::metrics_macro::metrics;
use super::{CounterFamily, FloatGaugeFamily, GaugeFamily};
use crate::clock;
use prometheus_client::registry::Registry;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

metrics! {
    struct QueueMetrics {
        writes: CounterFamily =
            "ifo_persistence_writes", "Custom resources written (apply) and deleted (delete)";
        failures: CounterFamily =
            "ifo_persistence_failures", "Writes and lists of custom resources that failed";
        length: GaugeFamily = "ifo_persistence_queue_length", "Custom resources whose write is due or running";
        oldest: FloatGaugeFamily =
            "ifo_persistence_oldest_pending_seconds",
            "How long the oldest due write of a custom resource has been waiting";
    }
}

/// The metrics of persistence mode. The task of persistence mode updates them.
pub struct PersistenceMetrics {
    queue: QueueMetrics,
    /// The earliest due time of a write that is due. A write is due if the task of persistence mode may
    /// send it now. `None` if no write is due.
    due_since: Mutex<Option<Instant>>,
}

impl PersistenceMetrics {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            queue: QueueMetrics::register(registry),
            due_since: Mutex::default(),
        }
    }

    /// Counts a successful write: `apply` or `delete`.
    pub fn written(&self, verb: &'static str) {
        let labels = vec![("verb", verb.to_owned())];
        self.queue.writes.get_or_create(&labels).inc();
    }

    /// Counts a failed write or list. `reason` comes from
    /// [`StoreFailure`](crate::persist::StoreFailure).
    pub fn failed(&self, reason: &'static str) {
        let labels = vec![("reason", reason.to_owned())];
        self.queue.failures.get_or_create(&labels).inc();
    }

    /// Sets the number of custom resources whose write is due or running (`length`), and the
    /// earliest due time of these writes (`since`). `since` is None if `length` is 0.
    pub fn backlog(&self, length: usize, since: Option<Instant>) {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        self.queue.length.get_or_create(&Vec::new()).set(length);
        *self
            .due_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Computes the waiting time of the oldest due write, and sets its metric. The server calls
    /// this method at each scrape, because the waiting time grows even if the queue does not
    /// change. Does nothing before the first call of [`Self::backlog`].
    pub(super) fn read(&self) {
        if self.queue.length.get(&Vec::new()).is_none() {
            return;
        }
        let since = self.due_since.lock();
        let since = *since.unwrap_or_else(PoisonError::into_inner);
        let age = since.map_or(0.0, |since| clock::since(since).as_secs_f64());
        self.queue.oldest.get_or_create(&Vec::new()).set(age);
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::Metrics;

    #[test]
    fn without_persistence_there_are_no_persistence_metrics() {
        let metrics = Metrics::new();
        let series = |metrics: &Metrics| {
            let text = metrics.render();
            let own = text
                .lines()
                .filter(|line| line.starts_with("ifo_persistence"));
            own.map(|line| line.split(' ').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(series(&metrics), [""; 0]);
        let persistence = metrics.persistence();
        persistence.written("apply");
        persistence.failed("missing");
        persistence.backlog(3, None);
        assert_eq!(
            series(&metrics),
            [
                "ifo_persistence_writes_total{verb=\"apply\"}",
                "ifo_persistence_failures_total{reason=\"missing\"}",
                "ifo_persistence_queue_length{}",
                "ifo_persistence_oldest_pending_seconds{}",
            ]
        );
    }
}
