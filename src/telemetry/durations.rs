//! The metrics of the usual durations of operations (baselines), and of the records of completed
//! operations.

use super::metrics_macro::metrics;
use super::{CounterFamily, FloatGaugeFamily, IndexSample, Metrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

metrics! {
    pub(super) struct DurationMetrics {
        expected: FloatGaugeFamily =
            "ifo_operation_expected_seconds",
            "Usual duration of an operation, for all namespaces together, on the leader";
        baselines: Gauge = "ifo_baselines", "Operations whose durations are known, on the leader";
        reads: CounterFamily = "ifo_baselines_reads", "Reads of the ConfigMap of baselines";
        writes: CounterFamily = "ifo_baselines_writes", "Writes of the ConfigMap of baselines";
        rejected: Counter =
            "ifo_baselines_rejected", "Reads of the ConfigMap whose text this release could not decode";
        records: Gauge = "ifo_operation_records", "Records of completed operations";
    }
}

impl Metrics {
    /// Counts a read of the baselines with this result: `success` or `error`.
    pub fn baselines_read(&self, result: &'static str) {
        let labels = vec![("result", result.to_owned())];
        self.durations.reads.get_or_create(&labels).inc();
    }

    /// Counts a write of the baselines with this result: `success` or `error`.
    pub fn baselines_written(&self, result: &'static str) {
        let labels = vec![("result", result.to_owned())];
        self.durations.writes.get_or_create(&labels).inc();
    }

    /// Counts that the text in the ConfigMap of baselines could not be decoded.
    pub fn baselines_rejected(&self) {
        self.durations.rejected.inc();
    }

    /// Sets the gauges of baselines and records to the values of `sample`.
    pub(super) fn read_durations(&self, sample: &IndexSample) {
        let durations = &self.durations;
        durations.expected.clear();
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        durations.baselines.set(count(sample.baselines.len()));
        durations.records.set(count(sample.records));
        for (rule_set, operation, usual) in &sample.baselines {
            for (quantile, seconds) in [("0.5", usual.typical), ("0.95", usual.p95)] {
                let labels = vec![
                    self.bounded_label("ruleset", rule_set),
                    self.bounded_label("operation", operation),
                    ("quantile", quantile.to_owned()),
                ];
                durations.expected.get_or_create(&labels).set(seconds);
            }
        }
    }
}
