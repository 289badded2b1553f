//! The metrics of the server, and the set-up of its log.
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
pub use log::{LogFormat, log_panics, start_log};
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
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    read_index: OnceLock<ReadIndex>,
    label_values: Mutex<BTreeMap<&'static str, HashSet<String>>>,
    feed_states: Mutex<BTreeMap<String, &'static str>>,
    table: MetricTable,
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
            table,
            api: Arc::new(api),
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
        self.table.feed_events.get_or_create(&labels).clone()
    }

    /// Counts a relist: the feed of `target` (the watch of the target's objects) has begun to list
    /// all objects.
    pub fn feed_relist(&self, target: &str) {
        let labels = vec![self.bounded_label("target", target)];
        count(&self.table.feed_relists, &labels);
    }

    /// Counts a restart: the task of a feed of `target` has ended unexpectedly, for example because
    /// of a panic, and starts again.
    pub fn feed_restart(&self, target: &str) {
        let labels = vec![self.bounded_label("target", target)];
        count(&self.table.feed_restarts, &labels);
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
            self.table.feed_state.remove(&labels(before));
        }
        if state == "stopped" {
            states.remove(&target);
        } else {
            self.table.feed_state.get_or_create(&labels(state)).set(1);
        }
    }

    /// Records the time between the receipt of an event about a subject and the publication of the
    /// resulting resourceVersion.
    pub fn event_visible(&self, after: Duration) {
        self.table.visible.observe(after.as_secs_f64());
    }

    /// Returns the metrics of requests, reviews and certificates.
    pub fn api(&self) -> Arc<aggregated_apiserver::metrics::Metrics> {
        self.api.clone()
    }

    /// Sets the gauge `ifo_leader`: 1 if this replica leads, otherwise 0.
    pub fn leader(&self, leads: bool) {
        self.table.leader.set(leads.into());
    }

    /// Counts in `ifo_failovers_total` that this replica took over the leadership from another
    /// replica.
    pub fn failed_over(&self) {
        self.table.failovers.inc();
    }

    /// Records the duration of a successful renewal of the Lease in `ifo_lease_renew_seconds`.
    pub fn lease_renewed(&self, took: Duration) {
        self.table.lease_renew.observe(took.as_secs_f64());
    }

    /// Counts a read of the baselines with this result: `success` or `error`.
    pub fn baselines_read(&self, result: &'static str) {
        count(
            &self.table.baseline_reads,
            &vec![("result", result.to_owned())],
        );
    }

    /// Counts a write of the baselines with this result: `success` or `error`.
    pub fn baselines_written(&self, result: &'static str) {
        count(
            &self.table.baseline_writes,
            &vec![("result", result.to_owned())],
        );
    }

    /// Counts that the text in the ConfigMap of baselines could not be decoded.
    pub fn baselines_rejected(&self) {
        self.table.baselines_rejected.inc();
    }

    /// Counts a successful write of a custom resource: `apply` or `delete`.
    pub fn custom_resource_written(&self, verb: &'static str) {
        count(
            &self.table.custom_resource_writes,
            &vec![("verb", verb.to_owned())],
        );
    }

    /// Counts a failed write or list of custom resources. `reason` comes from
    /// [`StoreFailure`](crate::persist::StoreFailure).
    pub fn custom_resources_failed(&self, reason: &'static str) {
        let labels = vec![("reason", reason.to_owned())];
        count(&self.table.custom_resource_failures, &labels);
    }

    /// Sets the number of custom resources whose write is due (`length`), and the time for which the
    /// oldest of these writes has been waiting. Persistence mode calls this about once a second, and less
    /// often while requests fail.
    pub fn persistence_backlog(&self, length: usize, oldest: Duration) {
        let (queue, pending) = (
            &self.table.persistence_queue,
            &self.table.oldest_pending_write,
        );
        queue.get_or_create(&Vec::new()).set(gauge_value(length));
        pending.get_or_create(&Vec::new()).set(oldest.as_secs_f64());
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
        self.table.ring_bytes.set(gauge_value(sample.ring_bytes));
        self.table.ring_age.set(sample.ring_age.as_secs_f64());
        self.table.mirror_lag.set(sample.lag.as_secs_f64());
        self.table.rule_sets.clear();
        for (state, count) in sample.rule_sets {
            let labels = vec![("state", state.to_owned())];
            self.table.rule_sets.get_or_create(&labels).set(count);
        }
        self.api.refresh();
        self.table.read_process();
    }
}

fn count(family: &CounterFamily, labels: &SeriesLabels) {
    family.get_or_create(labels).inc();
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
        count(&self.table.evaluation_failures, &labels);
    }

    fn operation_started(&self, component: &str, operation: &str) {
        count(
            &self.table.started,
            &self.operation_labels(component, operation),
        );
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
        self.table
            .duration
            .get_or_create(&labels)
            .observe(duration.as_secs_f64());
        labels.extend([
            ("state", state.to_owned()),
            self.bounded_label("reason", reason),
        ]);
        count(&self.table.completed, &labels);
    }
}
