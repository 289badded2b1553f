//! The metrics of the server, and the set-up of its log.
//!
//! This module and its submodules declare all metrics, because the names of metrics are an
//! interface for users. Methods of this module set the labels of a series, and limit the number of
//! values of a label.

mod durations;
mod log;
mod metrics_macro;
mod operations;
mod persistence;
mod process;
#[cfg(test)]
mod tests;

use durations::DurationMetrics;
use ifo_api::Text;
#[cfg(test)]
pub use log::testing;
pub use log::{LogFormat, log_panics, start_log};
use metrics_macro::metrics;
use operations::OperationMetrics;
use persistence::PersistenceMetrics;
use process::ProcessMetricsReader;

use ifo_api::activity::Activity;
use ifo_api::live::InFlightOperation;
use ifo_engine::Meter;
use ifo_engine::track::UsualDuration;
use prometheus_client::encoding::text::encode;
pub use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Maximum number of values of one label that get a series of their own. All further values share
/// the series with the value `other`.
///
/// The number is limited because each series takes memory. Most label values come from rule sets,
/// so a wrong rule set could create any number of series.
const MAX_VALUES: usize = 1_000;

/// Buckets from 100 µs to 10 s, for the time between the receipt of an event about a subject and
/// the publication of the resulting resourceVersion.
const VISIBLE_BUCKETS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0,
];
/// Buckets from one second to one day, for the duration of operations.
const OPERATION_BUCKETS: [f64; 12] = [
    1.0, 5.0, 15.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 14_400.0, 43_200.0, 86_400.0,
];
/// Buckets from 500 µs to one minute, for the durations of renewals of the Lease.
const RENEWAL_BUCKETS: [f64; 12] = [
    0.0005, 0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];

/// The labels of one series, in the order in which the text for Prometheus contains them.
type SeriesLabels = Vec<(&'static str, String)>;

type CounterFamily = Family<SeriesLabels, Counter>;
type GaugeFamily = Family<SeriesLabels, Gauge>;
type FloatGauge = Gauge<f64, AtomicU64>;
type FloatGaugeFamily = Family<SeriesLabels, FloatGauge>;
type Histograms = Family<SeriesLabels, Histogram, fn() -> Histogram>;

/// The state of the index when the metrics are scraped.
#[derive(Clone, Debug, Default)]
pub struct IndexSample {
    /// All operations.
    pub operations: Vec<Arc<InFlightOperation>>,
    /// All activities.
    pub activities: Vec<Arc<Activity>>,
    /// True if the index may be out of date. Then it is unknown what is idle.
    pub is_stale: bool,
    /// Memory of the ring (the buffer of past changes) in bytes, without the entries that are still
    /// in the index.
    pub ring_bytes: usize,
    /// Age of the oldest change in the ring.
    pub ring_age: Duration,
    /// Time since this replica was last known to have all operations of the leader. Zero on the
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

type ReadIndex = Box<dyn Fn() -> IndexSample + Send + Sync>;

metrics! {
    /// The metrics of operations, feeds (the watches of the resources that rule sets name), rule
    /// sets, the index and the election.
    struct ServerMetrics {
        build: GaugeFamily = "ifo_build_info", "Version of this server";
        started: CounterFamily = "ifo_operations_started", "Operations that started";
        completed: CounterFamily = "ifo_operations_completed", "Operations that completed";
        duration: Histograms =
            "ifo_operation_duration_seconds", "Duration of completed operations",
            Family::new_with_constructor(|| Histogram::new(OPERATION_BUCKETS));
        feed_events: CounterFamily = "ifo_feed_events", "Objects and deletions read from a target";
        feed_state: GaugeFamily = "ifo_feed_state", "1 for the state that the feed of a target is in";
        feed_relists: CounterFamily = "ifo_feed_relists", "Times that a target was read as a whole";
        feed_restarts: CounterFamily =
            "ifo_feed_restarts", "Times that the task of a feed ended unexpectedly and was restarted";
        evaluation_failures: CounterFamily =
            "ifo_evaluation_failures", "Evaluations that failed (a missing field is not a failure)";
        visible: Histogram =
            "ifo_event_to_visible_seconds",
            "From reading a subject's event to the published resourceVersion",
            Histogram::new(VISIBLE_BUCKETS);
        ring_bytes: Gauge = "ifo_index_ring_bytes", "Memory of the ring buffer of changes, without objects that are still in the index";
        ring_age: FloatGauge = "ifo_index_ring_age_seconds", "Age of the oldest change in the ring";
        rule_sets: GaugeFamily = "ifo_rule_sets", "Rule sets by state, on the leader";
        leader: Gauge = "ifo_leader", "1 if this replica leads";
        mirror_lag: FloatGauge =
            "ifo_mirror_lag_seconds",
            "Time since this replica was last known to have all operations of the leader";
        failovers: Counter =
            "ifo_failovers", "Times that this replica took over the leadership from another one";
        lease_renew: Histogram =
            "ifo_lease_renew_seconds", "Duration of successful renewals of the Lease",
            Histogram::new(RENEWAL_BUCKETS);
    }
}

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    read_index: OnceLock<ReadIndex>,
    label_values: Mutex<BTreeMap<&'static str, HashSet<String>>>,
    feed_states: Mutex<BTreeMap<String, &'static str>>,
    server: ServerMetrics,
    durations: DurationMetrics,
    operations: OperationMetrics,
    api: Arc<aggregated_apiserver::metrics::Metrics>,
    persistence: PersistenceMetrics,
    process: ProcessMetricsReader,
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
        let server = ServerMetrics::register(&mut registry);
        let labels = vec![("version", version.to_owned())];
        server.build.get_or_create(&labels).set(1);
        Self {
            server,
            durations: DurationMetrics::register(&mut registry),
            operations: OperationMetrics::register(&mut registry),
            api: Arc::new(aggregated_apiserver::metrics::Metrics::register(
                &mut registry,
                "ifo",
            )),
            persistence: PersistenceMetrics::register(&mut registry),
            process: ProcessMetricsReader::new(&mut registry),
            registry,
            read_index: OnceLock::new(),
            label_values: Mutex::default(),
            feed_states: Mutex::default(),
        }
    }

    /// Sets the function that returns the current [`IndexSample`]. [`Self::render`] calls this
    /// function at each scrape.
    pub fn read_index_with(&self, read: impl Fn() -> IndexSample + Send + Sync + 'static) {
        // There is only one index, so a second call is a mistake of the caller. A second call has
        // no effect.
        let _ = self.read_index.set(Box::new(read));
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

    /// Returns the counter of the watch events and list items of `target`. A target is a resource
    /// that rule sets name, such as `v1/pods`. The feed keeps the counter, because looking up the
    /// counter costs more than incrementing it.
    pub fn feed_events(&self, target: &str) -> Counter {
        let labels = vec![self.bounded_label("target", target)];
        self.server.feed_events.get_or_create(&labels).clone()
    }

    /// Counts a relist: the feed of `target` (the watch of the target's objects) has begun to list
    /// all objects.
    pub fn feed_relist(&self, target: &str) {
        let labels = vec![self.bounded_label("target", target)];
        self.server.feed_relists.get_or_create(&labels).inc();
    }

    /// Counts a restart: the task of a feed of `target` has ended unexpectedly, for example because
    /// of a panic, and starts again.
    pub fn feed_restart(&self, target: &str) {
        let labels = vec![self.bounded_label("target", target)];
        self.server.feed_restarts.get_or_create(&labels).inc();
    }

    /// Sets the state of the feed of `target`: `listing`, `watching`, `lost` or `stopped`. For
    /// `stopped`, removes the series of the feed.
    pub fn feed_state(&self, target: &str, state: &'static str) {
        let (label, target) = self.bounded_label("target", target);
        let mut states = self
            .feed_states
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let labels = |state: &str| vec![(label, target.clone()), ("state", state.to_owned())];
        if let Some(before) = states.insert(target.clone(), state) {
            self.server.feed_state.remove(&labels(before));
        }
        if state == "stopped" {
            states.remove(&target);
        } else {
            self.server.feed_state.get_or_create(&labels(state)).set(1);
        }
    }

    /// Records the time between the receipt of an event about a subject and the publication of the
    /// resulting resourceVersion.
    pub fn event_visible(&self, after: Duration) {
        self.server.visible.observe(after.as_secs_f64());
    }

    /// Returns the metrics of requests, reviews and certificates.
    pub fn api(&self) -> Arc<aggregated_apiserver::metrics::Metrics> {
        self.api.clone()
    }

    /// Sets the gauge `ifo_leader`: 1 if this replica leads, otherwise 0.
    pub fn leader(&self, leads: bool) {
        self.server.leader.set(leads.into());
    }

    /// Counts in `ifo_failovers_total` that this replica took over the leadership from another
    /// replica.
    pub fn failed_over(&self) {
        self.server.failovers.inc();
    }

    /// Records the duration of a successful renewal of the Lease in `ifo_lease_renew_seconds`.
    pub fn lease_renewed(&self, took: Duration) {
        self.server.lease_renew.observe(took.as_secs_f64());
    }

    /// Encodes all metrics as OpenMetrics text, which Prometheus reads.
    pub fn render(&self) -> String {
        self.update_gauges();
        let mut text = String::new();
        // Writing to a String cannot fail, and all our values can be encoded.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn update_gauges(&self) {
        let sample = self.read_index.get().map(|read| read()).unwrap_or_default();
        self.read_durations(&sample);
        self.read_operations(&sample);
        self.server
            .ring_bytes
            .set(i64::try_from(sample.ring_bytes).unwrap_or(i64::MAX));
        self.server.ring_age.set(sample.ring_age.as_secs_f64());
        self.server.mirror_lag.set(sample.lag.as_secs_f64());
        self.server.rule_sets.clear();
        for (state, count) in sample.rule_sets {
            let labels = vec![("state", state.to_owned())];
            self.server.rule_sets.get_or_create(&labels).set(count);
        }
        self.api.refresh();
        self.process.read();
    }
}

impl Meter for Metrics {
    fn evaluation_failed(&self, rule_set: &str, operation: &str) {
        let labels = vec![
            self.bounded_label("ruleset", rule_set),
            self.bounded_label("operation", operation),
        ];
        self.server.evaluation_failures.get_or_create(&labels).inc();
    }

    fn operation_started(&self, component: &str, operation: &str) {
        self.server
            .started
            .get_or_create(&self.operation_labels(component, operation))
            .inc();
    }

    fn operation_completed(
        &self,
        component: &str,
        operation: &str,
        state: &'static str,
        reason: &str,
        duration: Duration,
    ) {
        let mut labels = self.operation_labels(component, operation);
        self.server
            .duration
            .get_or_create(&labels)
            .observe(duration.as_secs_f64());
        labels.extend([
            ("state", state.to_owned()),
            self.bounded_label("reason", reason),
        ]);
        self.server.completed.get_or_create(&labels).inc();
    }
}
