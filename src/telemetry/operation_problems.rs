//! The metric of operations with problems. Alerts use it, because its labels contain the namespace
//! and the subject of the operation. So Alertmanager can send an alert to the team that owns the
//! namespace.

use super::metrics_macro::metrics;
use super::{GaugeFamily, MAX_VALUES, Metrics, OperationSample};
use crate::index::IndexEntry;
use ifo_api::Text;
use ifo_api::live::{State, SubjectReference};
use std::collections::BTreeSet;

metrics! {
    pub(super) struct ProblemMetrics {
        problems: GaugeFamily =
            "ifo_operation_problems",
            "Operations in flight that are blocked, failing, overdue or stalled, by subject";
    }
}

/// An operation with a problem, and its place in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProblemSubject {
    /// The namespace of the operation.
    pub namespace: Text,
    /// Kind and name of the subject, such as `VirtualMachine/web`.
    pub subject: Text,
}

impl ProblemSubject {
    /// Reads the namespace and the subject of an operation.
    pub(super) fn new(entry: &IndexEntry, subject: &SubjectReference) -> Self {
        Self {
            namespace: (&entry.key().namespace).into(),
            subject: format!("{}/{}", subject.kind, subject.name).into(),
        }
    }
}

/// Returns the problems of an operation, as values of the label `problem`.
fn problems(operation: &OperationSample) -> impl Iterator<Item = &'static str> {
    let in_flight = operation.age.is_some();
    [
        ("Blocked", operation.state == State::Blocked),
        ("Failing", operation.state == State::Failing),
        ("Overdue", operation.overdue),
        ("Stalled", operation.stalled),
    ]
    .into_iter()
    .filter_map(move |(problem, applies)| (in_flight && applies).then_some(problem))
}

impl Metrics {
    /// Sets the gauge of operations with problems to the values of `operations`.
    ///
    /// The subjects of operations change all the time, so [`Metrics::bounded_label`] cannot limit
    /// their number. Instead, each scrape has at most [`MAX_VALUES`] series with a subject. The
    /// series are sorted, so that the same operations have a series at each scrape.
    pub(super) fn read_problems(&self, operations: &[OperationSample]) {
        let mut series = BTreeSet::new();
        for operation in operations {
            let Some(place) = &operation.problem_subject else {
                continue;
            };
            for problem in problems(operation) {
                let [component, name] = [&operation.component, &operation.operation];
                series.insert((place, component, name, problem));
            }
        }
        let own: BTreeSet<_> = series.into_iter().take(MAX_VALUES).collect();
        let gauge = &self.problems.problems;
        gauge.clear();
        for operation in operations {
            let Some(place) = &operation.problem_subject else {
                continue;
            };
            for problem in problems(operation) {
                let [component, name] = [&operation.component, &operation.operation];
                let has_series = own.contains(&(place, component, name, problem));
                let (namespace, subject) = if has_series {
                    (&*place.namespace, &*place.subject)
                } else {
                    ("other", "other")
                };
                let mut labels = self.operation_labels(component, name);
                labels.extend([
                    ("problem", problem.to_owned()),
                    ("operation_namespace", namespace.to_owned()),
                    ("subject", subject.to_owned()),
                ]);
                gauge.get_or_create(&labels).inc();
            }
        }
    }
}
