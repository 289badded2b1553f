//! The metrics of operations, activities, records and usual durations. Each scrape computes them from the
//! objects in the index.
//!
//! The labels of `ifo_operation_problems` contain the namespace and the subject of the operation. So
//! Alertmanager can send an alert to the team that owns the namespace.

use super::{IndexSample, MAX_VALUES, Metrics, gauge_value};
use crate::clock;
use ifo_api::activity::{self, Activity};
use ifo_api::live::{InFlightOperation, Phase, State};
use std::collections::BTreeMap;

/// Returns true if the operation is work in flight. An operation that a person has put on hold is no
/// work. For example, a node can be cordoned for months.
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
        for gauge in [
            &table.operations,
            &table.problems,
            &table.overdue,
            &table.stalled,
            &table.idle,
            &table.node_operations,
        ] {
            gauge.clear();
        }
        table.oldest_operation.clear();
        let now = clock::now();
        for operation in &sample.operations {
            let status = &operation.status;
            let mut labels =
                self.operation_labels(&operation.spec.component, &operation.spec.operation);
            if is_work(operation) {
                let age = now.duration_since(operation.metadata.creation_timestamp.0);
                let oldest = table.oldest_operation.get_or_create(&labels);
                oldest.set(oldest.get().max(age.as_secs_f64()));
            }
            for (gauge, condition) in [(&table.overdue, "Overdue"), (&table.stalled, "Stalled")] {
                if status.is_true(condition) {
                    gauge.get_or_create(&labels).inc();
                }
            }
            labels.push(("state", status.state.name().to_owned()));
            table.operations.get_or_create(&labels).inc();
        }
        for activity in &sample.activities {
            if let Some((scope, name)) = scope_and_name(activity) {
                let status = activity.idle().map(|idle| &*idle.status);
                let value = match status.filter(|_| !sample.is_stale) {
                    Some("True") => 1,
                    Some("False") => 0,
                    _ => -1,
                };
                let labels = vec![("scope", scope.to_owned()), ("name", name.to_owned())];
                table.idle.get_or_create(&labels).set(value);
            }
        }
        self.read_problems(sample);
        self.read_nodes(sample);
    }

    /// Sets the gauge of problems. Each scrape has at most [`MAX_VALUES`] series of subjects. All
    /// further operations share the subject `other`.
    fn read_problems(&self, sample: &IndexSample) {
        let mut counts = BTreeMap::<_, i64>::new();
        for operation in sample.operations.iter().filter(|it| is_active(it)) {
            let (spec, status) = (&operation.spec, &operation.status);
            for (problem, applies) in [
                ("Blocked", status.state == State::Blocked),
                ("Failing", status.state == State::Failing),
                ("Overdue", status.is_true("Overdue")),
                ("Stalled", status.is_true("Stalled")),
            ] {
                if applies {
                    let subject = format!("{}/{}", spec.subject.kind, spec.subject.name);
                    let place = (&*operation.metadata.namespace, subject);
                    let key = (place, &spec.component, &spec.operation, problem);
                    *counts.entry(key).or_default() += 1;
                }
            }
        }
        for (series, ((place, component, name, problem), count)) in counts.into_iter().enumerate() {
            let (namespace, subject) = if series < MAX_VALUES {
                (place.0, &*place.1)
            } else {
                ("other", "other")
            };
            let mut labels = self.operation_labels(component, name);
            labels.extend([
                ("problem", problem.to_owned()),
                ("operation_namespace", namespace.to_owned()),
                ("subject", subject.to_owned()),
            ]);
            let problems = &self.series.problems;
            problems.get_or_create(&labels).inc_by(count);
        }
    }

    /// Sets the gauge of operations by node. After [`MAX_VALUES`] series, further operations are
    /// counted for the node `other`.
    fn read_nodes(&self, sample: &IndexSample) {
        let mut counts = BTreeMap::<_, i64>::new();
        for operation in sample.operations.iter().filter(|it| is_work(it)) {
            for node in operation.status.nodes.iter() {
                let key = (node, &operation.spec.component, &operation.spec.operation);
                *counts.entry(key).or_default() += 1;
            }
        }
        for (series, ((node, component, operation), count)) in counts.into_iter().enumerate() {
            let node = if series < MAX_VALUES { node } else { "other" };
            let mut labels = vec![("node", node.to_owned())];
            labels.extend(self.operation_labels(component, operation));
            let gauge = &self.series.node_operations;
            gauge.get_or_create(&labels).inc_by(count);
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

/// Returns the scope of an activity (`namespace`, `cluster`, `component` or `node`), and the name of
/// the namespace, component or node. The name is empty for the cluster.
fn scope_and_name(activity: &Activity) -> Option<(&str, &str)> {
    let scope = &**activity.metadata.labels.get(activity::LABEL)?;
    let name = match scope {
        "namespace" => &activity.metadata.namespace,
        "cluster" => "",
        _ => activity.metadata.name.split_once('.')?.1,
    };
    Some((scope, name))
}
