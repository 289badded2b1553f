//! The metrics of operations with problems. The labels of one of them contain the namespace and the
//! subject of the operation. So Alertmanager can send an alert to the team that owns the namespace.

use super::metrics_macro::metrics;
use super::{GaugeFamily, MAX_VALUES, Metrics, OperationSample};
use ifo_api::live::State;
use std::collections::BTreeMap;

metrics! {
    pub(super) struct ProblemMetrics {
        problems: GaugeFamily =
            "ifo_operation_problems",
            "Operations in flight that are blocked, failing, overdue or stalled, by subject";
        overdue: GaugeFamily =
            "ifo_operations_overdue", "Operations in flight whose condition Overdue is True";
        stalled: GaugeFamily =
            "ifo_operations_stalled", "Operations in flight whose condition Stalled is True";
    }
}

impl Metrics {
    /// Sets the gauges of operations with problems. Each scrape has at most [`MAX_VALUES`] series of
    /// subjects. All further operations share the subject `other`.
    pub(super) fn read_problems(&self, operations: &[OperationSample]) {
        let ProblemMetrics {
            problems,
            overdue,
            stalled,
        } = &self.problems;
        for gauge in [problems, overdue, stalled] {
            gauge.clear();
        }
        let mut counts = BTreeMap::<_, i64>::new();
        for operation in operations {
            let [component, name] = [&operation.component, &operation.operation];
            for (gauge, applies) in [(overdue, operation.overdue), (stalled, operation.stalled)] {
                if applies {
                    let labels = self.operation_labels(component, name);
                    gauge.get_or_create(&labels).inc();
                }
            }
            let Some(place) = operation.place.as_ref().filter(|_| operation.age.is_some()) else {
                continue;
            };
            for (problem, applies) in [
                ("Blocked", operation.state == State::Blocked),
                ("Failing", operation.state == State::Failing),
                ("Overdue", operation.overdue),
                ("Stalled", operation.stalled),
            ] {
                if applies {
                    *counts.entry((place, component, name, problem)).or_default() += 1;
                }
            }
        }
        for (series, ((place, component, name, problem), count)) in counts.into_iter().enumerate() {
            let (namespace, subject) = if series < MAX_VALUES {
                (&*place.0, &*place.1)
            } else {
                ("other", "other")
            };
            let mut labels = self.operation_labels(component, name);
            labels.extend([
                ("problem", problem.to_owned()),
                ("operation_namespace", namespace.to_owned()),
                ("subject", subject.to_owned()),
            ]);
            problems.get_or_create(&labels).inc_by(count);
        }
    }
}
