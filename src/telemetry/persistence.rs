//! The metrics of persistence mode, in which the leader writes operations as custom resources. If
//! this mode is off, the metrics have no series. So an alert on missing writes does not fire.

use super::metrics_macro::metrics;
use super::{CounterFamily, FloatGaugeFamily, GaugeFamily, Metrics};
use std::time::Duration;

metrics! {
    pub(super) struct PersistenceMetrics {
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

impl Metrics {
    /// Counts a successful write of a custom resource: `apply` or `delete`.
    pub fn custom_resource_written(&self, verb: &'static str) {
        let labels = vec![("verb", verb.to_owned())];
        self.persistence.writes.get_or_create(&labels).inc();
    }

    /// Counts a failed write or list of custom resources. `reason` comes from
    /// [`StoreFailure`](crate::persist::StoreFailure).
    pub fn custom_resources_failed(&self, reason: &'static str) {
        let labels = vec![("reason", reason.to_owned())];
        self.persistence.failures.get_or_create(&labels).inc();
    }

    /// Sets the number of custom resources whose write is due (`length`), and the time for which the
    /// oldest of these writes has been waiting. Persistence mode calls this about once a second, and less
    /// often while requests fail.
    pub fn persistence_backlog(&self, length: usize, oldest: Duration) {
        let PersistenceMetrics {
            length: length_gauge,
            oldest: oldest_gauge,
            ..
        } = &self.persistence;
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        length_gauge.get_or_create(&Vec::new()).set(length);
        let oldest = oldest.as_secs_f64();
        oldest_gauge.get_or_create(&Vec::new()).set(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        metrics.custom_resource_written("apply");
        metrics.custom_resources_failed("missing");
        metrics.persistence_backlog(3, Duration::ZERO);
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
