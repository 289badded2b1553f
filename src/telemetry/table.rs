//! The table of all metrics of the server, except those of the API library. Each row has the field,
//! the type, the name and the help text of one metric.

use super::gauge_value;
use crate::clock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::{AtomicU64, Ordering};

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
pub(crate) type SeriesLabels = Vec<(&'static str, String)>;

pub(crate) type CounterFamily = Family<SeriesLabels, Counter>;
pub(crate) type GaugeFamily = Family<SeriesLabels, Gauge>;
pub(crate) type FloatGauge = Gauge<f64, AtomicU64>;
pub(crate) type FloatGaugeFamily = Family<SeriesLabels, FloatGauge>;
pub(crate) type Histograms = Family<SeriesLabels, Histogram, fn() -> Histogram>;

/// Declares a struct of metrics and its constructor `register`, which registers the metrics in the
/// order of the rows.
///
/// A row can end with an expression that creates the metric. Without this expression, the macro
/// uses the default of the type. The Prometheus library adds the suffix `_total` to the names of
/// counters. The name in a row contains the unit, such as `_seconds`.
macro_rules! metrics {
    ($(#[$attribute:meta])* struct $table:ident {
        $($field:ident: $kind:ty = $name:literal, $help:literal $(, $made:expr)?;)+
    }) => {
        $(#[$attribute])*
        pub(crate) struct $table {
            $(pub(crate) $field: $kind,)+
        }

        impl $table {
            pub(super) fn register(registry: &mut Registry) -> Self {
                $(
                    let $field: $kind = metrics!(@make $($made)?);
                    registry.register($name, $help, $field.clone());
                )+
                Self { $($field,)+ }
            }
        }
    };
    (@make) => { Default::default() };
    (@make $made:expr) => { $made };
}

metrics! {
    /// The metrics of operations, feeds (the watches of the resources that rule sets name), rule
    /// sets, the index, the election, baselines (usual durations), persistence mode and the
    /// process.
    ///
    /// Families without a series are not shown. So while persistence mode is off, an alert on
    /// missing writes does not fire.
    struct MetricTable {
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
        expected: FloatGaugeFamily =
            "ifo_operation_expected_seconds",
            "Usual duration of an operation, for all namespaces together, on the leader";
        baselines: Gauge = "ifo_baselines", "Operations whose durations are known, on the leader";
        baseline_reads: CounterFamily = "ifo_baselines_reads", "Reads of the ConfigMap of baselines";
        baseline_writes: CounterFamily = "ifo_baselines_writes", "Writes of the ConfigMap of baselines";
        baselines_rejected: Counter =
            "ifo_baselines_rejected", "Reads of the ConfigMap whose text this release could not decode";
        records: Gauge = "ifo_operation_records", "Records of completed operations";
        operations: GaugeFamily = "ifo_operations", "Operations by state";
        oldest_operation: FloatGaugeFamily =
            "ifo_operation_oldest_seconds", "Age of the oldest operation in flight";
        problems: GaugeFamily =
            "ifo_operation_problems",
            "Operations in flight that are blocked, failing, overdue or stalled, by subject";
        overdue: GaugeFamily =
            "ifo_operations_overdue", "Operations in flight whose condition Overdue is True";
        stalled: GaugeFamily =
            "ifo_operations_stalled", "Operations in flight whose condition Stalled is True";
        idle: GaugeFamily =
            "ifo_idle", "1 if nothing is in flight, 0 if operations are in flight, -1 if it is unknown";
        node_operations: GaugeFamily =
            "ifo_node_operations", "Operations in flight that touch a node";
        custom_resource_writes: CounterFamily =
            "ifo_persistence_writes", "Custom resources written (apply) and deleted (delete)";
        custom_resource_failures: CounterFamily =
            "ifo_persistence_failures", "Writes and lists of custom resources that failed";
        persistence_queue: GaugeFamily = "ifo_persistence_queue_length", "Custom resources whose write is due or running";
        oldest_pending_write: FloatGaugeFamily =
            "ifo_persistence_oldest_pending_seconds",
            "How long the oldest due write of a custom resource has been waiting";
        cpu: Counter<f64, AtomicU64> = "process_cpu_seconds", "User and system CPU time";
        resident: Gauge = "process_resident_memory_bytes", "Resident memory size";
        descriptors: Gauge = "process_open_fds", "Open file descriptors";
        process_start: FloatGauge = "process_start_time_seconds", "Start time since 1970";
    }
}

impl MetricTable {
    /// Sets the start time of the process to the current time.
    #[allow(clippy::cast_precision_loss)] // The seconds since 1970 are far below 2^52.
    pub(super) fn set_process_start(&self) {
        self.process_start.set(clock::now().as_second() as f64);
    }

    /// Reads the current values of the process from `/proc`. On systems without `/proc`, the values
    /// are 0.
    #[allow(clippy::cast_precision_loss)] // The clock ticks of one process are far below 2^52.
    pub(super) fn read_process(&self) {
        /// Ticks per second of the times in `/proc` (`USER_HZ`, fixed by the Linux ABI).
        const TICKS_PER_SECOND: f64 = 100.0;
        let file = |name| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        // The second field is the command, such as `(ifo-apiserver)`. A command can contain spaces
        // and parentheses, so the fields are counted from the last parenthesis.
        let stat = file("stat");
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let user_and_system = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = user_and_system
            .filter_map(|it| it.parse::<u64>().ok())
            .sum();
        let seconds = ticks as f64 / TICKS_PER_SECOND;
        self.cpu.inner().store(seconds.to_bits(), Ordering::Relaxed);
        let status = file("status");
        let mut lines = status.lines();
        let resident = lines.find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix(" kB"));
        let kilobytes: i64 = resident.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
        self.resident.set(kilobytes * 1024);
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        self.descriptors.set(gauge_value(descriptors));
    }
}
