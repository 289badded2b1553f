//! The metrics of operations, activities, records and usual durations. Each scrape computes them
//! from the objects in the index.
//!
//! The labels of `ifo_operation_problems` contain the namespace and the subject of the operation.
//! So Alertmanager can send an alert to the team that owns the namespace.

use super::table::{GaugeFamily, SeriesLabels};
use super::{IndexSample, MAX_VALUES, Metrics, gauge_value};
use crate::clock;
use ifo_api::activity::{self, Activity};
use ifo_api::live::{InFlightOperation, Phase, State};
use std::collections::BTreeMap;

/// Returns true if the operation is in flight and a person has not put it on hold. Operations on
/// hold do not count for the age of the oldest operation and for the nodes, because they can last
/// for months. For example, a node stays cordoned.
fn is_work(operation: &InFlightOperation) -> bool {
    is_active(operation) && operation.status.state != State::Held
}

fn is_active(operation: &InFlightOperation) -> bool {
    operation.status.phase == Phase::Active
}

impl Metrics {
    /// Sets the gauges to the values of the operations and activities in `sample`.
    pub(super) fn read_operations(&self, sample: &IndexSample) {
        let table = &self.series;
        for gauge in [&table.operations, &table.overdue, &table.stalled] {
            gauge.clear();
        }
        table.oldest_operation.clear();
        let (mut problems, mut nodes) = (SeriesCounts::new(), SeriesCounts::new());
        let now = clock::now();
        for operation in &sample.operations {
            let (spec, status) = (&operation.spec, &operation.status);
            let labels = self.operation_labels(&spec.component, &spec.operation);
            if is_work(operation) {
                let age = now.duration_since(operation.metadata.creation_timestamp.0);
                let oldest = table.oldest_operation.get_or_create(&labels);
                oldest.set(oldest.get().max(age.as_secs_f64()));
                for node in status.nodes.iter() {
                    let labels = [&[("node", node.to_string())], &*labels].concat();
                    *nodes.entry(labels).or_default() += 1;
                }
            }
            for (gauge, condition) in [(&table.overdue, "Overdue"), (&table.stalled, "Stalled")] {
                if status.is_true(condition) {
                    gauge.get_or_create(&labels).inc();
                }
            }
            for (problem, applies) in [
                ("Blocked", status.state == State::Blocked),
                ("Failing", status.state == State::Failing),
                ("Overdue", status.is_true("Overdue")),
                ("Stalled", status.is_true("Stalled")),
            ] {
                if is_active(operation) && applies {
                    let subject = format!("{}/{}", spec.subject.kind, spec.subject.name);
                    let mut labels = labels.clone();
                    labels.extend([
                        ("problem", problem.to_owned()),
                        (
                            "operation_namespace",
                            operation.metadata.namespace.to_string(),
                        ),
                        ("subject", subject),
                    ]);
                    *problems.entry(labels).or_default() += 1;
                }
            }
            let state = ("state", status.state.name().to_owned());
            let labels = [&*labels, &[state]].concat();
            table.operations.get_or_create(&labels).inc();
        }
        set_bounded(
            &table.problems,
            problems,
            &["operation_namespace", "subject"],
        );
        set_bounded(&table.node_operations, nodes, &["node"]);
        self.read_activities(sample);
    }

    fn read_activities(&self, sample: &IndexSample) {
        let idle = &self.series.idle;
        idle.clear();
        for activity in &sample.activities {
            if let Some((scope, name)) = scope_and_name(activity) {
                let status = activity.idle().map(|idle| &*idle.status);
                let value = match status.filter(|_| !sample.is_stale) {
                    Some("True") => 1,
                    Some("False") => 0,
                    _ => -1,
                };
                let labels = vec![("scope", scope.to_owned()), ("name", name.to_owned())];
                idle.get_or_create(&labels).set(value);
            }
        }
    }

    /// Sets the gauges of baselines and records to the values of `sample`.
    pub(super) fn read_durations(&self, sample: &IndexSample) {
        let table = &self.series;
        table.expected.clear();
        table.baselines.set(gauge_value(sample.baselines.len()));
        table.records.set(gauge_value(sample.records));
        for (rule_set, operation, usual) in &sample.baselines {
            for (quantile, seconds) in [("0.5", usual.typical), ("0.95", usual.p95)] {
                let labels = vec![
                    self.bounded_label("ruleset", rule_set),
                    self.bounded_label("operation", operation),
                    ("quantile", quantile.to_owned()),
                ];
                table.expected.get_or_create(&labels).set(seconds);
            }
        }
    }
}

/// The number of operations in each series of a gauge.
type SeriesCounts = BTreeMap<SeriesLabels, i64>;

/// Sets a gauge to these counts. The first [`MAX_VALUES`] series keep their values of the labels
/// `unbounded`. In all further series, these labels have the value `other`.
fn set_bounded(gauge: &GaugeFamily, counts: SeriesCounts, unbounded: &[&str]) {
    gauge.clear();
    for (number, (mut labels, count)) in counts.into_iter().enumerate() {
        let is_unbounded = |label: &&mut (&str, String)| unbounded.contains(&label.0);
        if number >= MAX_VALUES {
            for label in labels.iter_mut().filter(is_unbounded) {
                "other".clone_into(&mut label.1);
            }
        }
        gauge.get_or_create(&labels).inc_by(count);
    }
}

/// Returns the scope of an activity (`namespace`, `cluster`, `component` or `node`), and the name
/// of the namespace, component or node. The name is empty for the cluster.
fn scope_and_name(activity: &Activity) -> Option<(&str, &str)> {
    let scope = &**activity.metadata.labels.get(activity::LABEL)?;
    let name = match scope {
        "namespace" => &activity.metadata.namespace,
        "cluster" => "",
        _ => activity.metadata.name.split_once('.')?.1,
    };
    Some((scope, name))
}
