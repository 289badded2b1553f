//! The metrics of the server, and the setup of its log.
//!
//! This module and its submodules declare all metrics, because the names of metrics are an
//! interface for users. Methods of this module set the labels of a series, and limit the number of
//! values of a label.

mod log;
mod operations;
mod table;
#[cfg(test)]
mod tests;

use ifo_api::Text;
#[cfg(test)]
pub use log::testing;
pub use log::{FailureLog, LogFormat, log_panics, start_log};
use table::{CounterFamily, MetricTable, SeriesLabels};

use ifo_api::activity::Activity;
use ifo_api::live::InFlightOperation;
use ifo_engine::Meter;
use ifo_engine::track::UsualDuration;
use prometheus_client::encoding::text::encode;
pub use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of values of one label that get a series of their own. All further values share
/// the series with the value `other`.
///
/// The number is limited because each series takes memory. Most label values come from rule sets,
/// so a wrong rule set could create any number of series.
const MAX_VALUES: usize = 1_000;

/// The state of the index when the metrics are scraped.
#[derive(Clone, Debug, Default)]
pub struct IndexSample {
    /// All operations.
    pub operations: Vec<Arc<InFlightOperation>>,
    /// All activities.
    pub activities: Vec<Arc<Activity>>,
    /// True if the index may be out of date. Then the metric `ifo_idle` is -1 (unknown).
    pub is_stale: bool,
    /// Memory of the ring (the buffer of past changes) in bytes, without the entries that are still
    /// in the index.
    pub ring_bytes: usize,
    /// Age of the oldest change in the ring.
    pub ring_age: Duration,
    /// The longest time by which this replica's index can be behind the leader's index. Zero on the
    /// leader.
    pub lag: Duration,
    /// Number of rule sets by state. Empty on a follower.
    pub rule_sets: BTreeMap<&'static str, i64>,
    /// Number of records of completed operations.
    pub records: usize,
    /// The baselines that cover all namespaces. A baseline is the usual duration of an operation.
    /// Each item has the rule set, the operation and the usual duration. Empty on a follower.
    pub baselines: Vec<(Text, Text, UsualDuration)>,
}

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    label_values: Mutex<BTreeMap<&'static str, HashSet<String>>>,
    /// The metrics that other modules set directly. The number of label values of these metrics is
    /// not limited here.
    pub(crate) series: MetricTable,
    api: Arc<aggregated_apiserver::metrics::Metrics>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates a registry with every metric and the version of this crate.
    pub fn new() -> Self {
        Self::of_version(env!("CARGO_PKG_VERSION"))
    }

    /// Creates a registry with every metric. `ifo_build_info` shows `version`.
    pub fn of_version(version: &str) -> Self {
        let mut registry = Registry::default();
        let table = MetricTable::register(&mut registry);
        let labels = vec![("version", version.to_owned())];
        table.build.get_or_create(&labels).set(1);
        table.set_process_start();
        let api = aggregated_apiserver::metrics::Metrics::register(&mut registry, "ifo");
        Self {
            series: table,
            api: Arc::new(api),
            registry,
            label_values: Mutex::default(),
        }
    }

    /// Returns the label with `value`. If `value` is new and the label already has [`MAX_VALUES`]
    /// values, returns the label with the value `other`.
    fn bounded_label(&self, label: &'static str, value: &str) -> (&'static str, String) {
        let mut label_values = self
            .label_values
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let values = label_values.entry(label).or_default();
        if !values.contains(value) {
            if values.len() >= MAX_VALUES {
                return (label, "other".to_owned());
            }
            values.insert(value.to_owned());
        }
        (label, value.to_owned())
    }

    fn operation_labels(&self, component: &str, operation: &str) -> SeriesLabels {
        vec![
            self.bounded_label("component", component),
            self.bounded_label("operation", operation),
        ]
    }

    /// Returns the counter of `target` in the family `counters`. A target is a resource that rule
    /// sets name, such as `v1/pods`.
    pub(crate) fn of_target(
        &self,
        counters: &CounterFamily,
        target: &impl fmt::Display,
    ) -> Counter {
        let labels = vec![self.bounded_label("target", &target.to_string())];
        counters.get_or_create(&labels).clone()
    }

    /// Sets the state of the feed of `target`: `listing`, `watching`, `lost` or `stopped`. For
    /// `stopped`, removes the series of the feed.
    pub fn feed_state(&self, target: &impl fmt::Display, state: &str) {
        let target = self.bounded_label("target", &target.to_string());
        let labels = |state: &str| vec![target.clone(), ("state", state.to_owned())];
        for other in ["listing", "watching", "lost"] {
            self.series.feed_state.remove(&labels(other));
        }
        if state != "stopped" {
            self.series.feed_state.get_or_create(&labels(state)).set(1);
        }
    }

    /// Returns the metrics of requests, reviews and certificates.
    pub fn api(&self) -> Arc<aggregated_apiserver::metrics::Metrics> {
        self.api.clone()
    }

    /// Sets the number of custom resources whose write is due (`length`), and the time for which
    /// the oldest of these writes has been waiting. Persistence mode calls this about once a
    /// second, and less often while requests fail.
    pub fn persistence_backlog(&self, length: usize, oldest: Duration) {
        let (queue, pending) = (
            &self.series.persistence_queue,
            &self.series.oldest_pending_write,
        );
        queue.get_or_create(&Vec::new()).set(gauge_value(length));
        pending.get_or_create(&Vec::new()).set(oldest.as_secs_f64());
    }

    /// Encodes all metrics as OpenMetrics text, which Prometheus reads.
    pub fn render(&self) -> String {
        self.api.refresh();
        self.series.read_process();
        let mut text = String::new();
        // Writing to a String cannot fail, and all our values can be encoded.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Sets the gauges to the values of `sample`. The server calls this at each scrape, before
    /// [`Self::render`].
    pub fn show(&self, sample: IndexSample) {
        self.read_durations(&sample);
        self.read_operations(&sample);
        self.series.ring_bytes.set(gauge_value(sample.ring_bytes));
        self.series.ring_age.set(sample.ring_age.as_secs_f64());
        self.series.mirror_lag.set(sample.lag.as_secs_f64());
        self.series.rule_sets.clear();
        for (state, count) in sample.rule_sets {
            let labels = vec![("state", state.to_owned())];
            self.series.rule_sets.get_or_create(&labels).set(count);
        }
    }
}

/// Increments the counter whose only label has this value.
pub(crate) fn count(family: &CounterFamily, label: &'static str, value: &str) {
    family.get_or_create(&vec![(label, value.to_owned())]).inc();
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Meter for Metrics {
    fn evaluation_failed(&self, rule_set: &str, operation: &str) {
        let labels = vec![
            self.bounded_label("ruleset", rule_set),
            self.bounded_label("operation", operation),
        ];
        let failures = &self.series.evaluation_failures;
        failures.get_or_create(&labels).inc();
    }

    fn operation_started(&self, operation: &InFlightOperation) {
        let labels = self.operation_labels(&operation.spec.component, &operation.spec.operation);
        self.series.started.get_or_create(&labels).inc();
    }

    fn operation_completed(&self, operation: &InFlightOperation) {
        let (spec, status) = (&operation.spec, &operation.status);
        let mut labels = self.operation_labels(&spec.component, &spec.operation);
        let seconds = Duration::from_secs(status.duration_seconds.unwrap_or_default());
        let durations = self.series.duration.get_or_create(&labels);
        durations.observe(seconds.as_secs_f64());
        labels.extend([
            ("state", status.state.name().to_owned()),
            self.bounded_label("reason", &status.reason),
        ]);
        self.series.completed.get_or_create(&labels).inc();
    }
}
