//! The metric of operations with problems. Alerts use it, because its labels contain the namespace
//! and the subject of the operation. So Alertmanager can send an alert to the team that owns the
//! namespace.

use super::metrics_macro::metrics;
use super::{GaugeFamily, MAX_VALUES, Metrics, OperationSample};
use crate::index::IndexEntry;
use ifo_api::Text;
use ifo_api::live::{State, SubjectReference};
use std::collections::BTreeMap;

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

impl Metrics {
    /// Sets `ifo_operation_problems`. Each scrape has at most [`MAX_VALUES`] series of subjects. All
    /// further operations share the subject `other`.
    pub(super) fn read_problems(&self, operations: &[OperationSample]) {
        let mut counts = BTreeMap::<_, i64>::new();
        for operation in operations.iter().filter(|it| it.age.is_some()) {
            let Some(place) = &operation.problem_subject else {
                continue;
            };
            for (problem, applies) in [
                ("Blocked", operation.state == State::Blocked),
                ("Failing", operation.state == State::Failing),
                ("Overdue", operation.overdue),
                ("Stalled", operation.stalled),
            ] {
                if applies {
                    let [component, name] = [&operation.component, &operation.operation];
                    *counts.entry((place, component, name, problem)).or_default() += 1;
                }
            }
        }
        let gauge = &self.problems.problems;
        gauge.clear();
        for (series, ((place, component, name, problem), count)) in counts.into_iter().enumerate() {
            let (namespace, subject) = if series < MAX_VALUES {
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
            gauge.get_or_create(&labels).inc_by(count);
        }
    }
}
