//! Metrics of persistence mode. They have no series while it is off: nothing is written
//! then, and that is no trouble.

use super::table::metrics;
use super::{CounterFamily, FloatGaugeFamily, GaugeFamily};
use crate::clock;
use prometheus_client::registry::Registry;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

metrics! {
    /// What is exported.
    struct QueueMetrics {
        writes: CounterFamily =
            "ifo_persistence_writes", "Custom resources written (apply) and deleted (delete)";
        failures: CounterFamily =
            "ifo_persistence_failures", "Writes and lists of custom resources that failed";
        length: GaugeFamily = "ifo_persistence_queue_length", "Operations that are to be written now";
        oldest: FloatGaugeFamily =
            "ifo_persistence_oldest_pending_seconds",
            "How long the oldest of them has been waiting";
    }
}

/// See above.
pub struct PersistenceMetrics {
    queue: QueueMetrics,
    waiting: Mutex<WaitingSince>,
}

/// Since when the oldest waits.
#[derive(Clone, Copy, Default)]
enum WaitingSince {
    /// Persistence is off.
    #[default]
    Off,
    /// None waits.
    Nothing,
    /// Since then.
    Since(Instant),
}

impl PersistenceMetrics {
    /// Registers them.
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            queue: QueueMetrics::register(registry),
            waiting: Mutex::default(),
        }
    }

    /// A write succeeded: `apply` or `delete`.
    pub fn written(&self, verb: &'static str) {
        let labels = vec![("verb", verb.to_owned())];
        self.queue.writes.get_or_create(&labels).inc();
    }

    /// A write or a list failed, for one of the reasons that
    /// [`StoreFailure`](crate::persist::StoreFailure) has.
    pub fn failed(&self, reason: &'static str) {
        let labels = vec![("reason", reason.to_owned())];
        self.queue.failures.get_or_create(&labels).inc();
    }

    /// How many wait, and since when the oldest does.
    pub fn backlog(&self, length: usize, since: Option<Instant>) {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        self.queue.length.get_or_create(&Vec::new()).set(length);
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) =
            since.map_or(WaitingSince::Nothing, WaitingSince::Since);
    }

    /// Its age as of now: the queue may be waiting, too.
    pub(super) fn read(&self) {
        let waiting = *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let age = match waiting {
            WaitingSince::Off => return,
            WaitingSince::Nothing => 0.0,
            WaitingSince::Since(since) => clock::since(since).as_secs_f64(),
        };
        self.queue.oldest.get_or_create(&Vec::new()).set(age);
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::Metrics;

    #[test]
    fn there_is_no_series_while_persistence_is_off() {
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
