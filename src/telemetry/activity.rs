//! The metrics that tell whether a namespace, a node, a component or the cluster is idle. They are
//! for tools that read no Kubernetes objects, such as Alertmanager.

use super::metrics_macro::metrics;
use super::{GaugeFamily, MAX_VALUES, Metrics, OperationSample};
use crate::index::IndexEntry;
use ifo_api::Text;
use ifo_api::activity;
use ifo_api::live::State;
use std::collections::BTreeMap;

metrics! {
    pub(super) struct ActivityMetrics {
        idle: GaugeFamily =
            "ifo_idle", "1 if nothing is in flight, 0 if operations are in flight, -1 if it is unknown";
        node_operations: GaugeFamily =
            "ifo_node_operations", "Operations in flight that touch a node";
    }
}

/// The answer of one activity.
#[derive(Clone, Debug)]
pub struct ActivitySample {
    /// `namespace`, `cluster`, `component` or `node`.
    pub(super) scope: Text,
    /// The name of the namespace, the component or the node. Empty for the cluster.
    pub(super) name: Text,
    /// The status of the condition `Idle`: 1 for True, 0 for False, -1 for Unknown.
    pub(super) idle: i64,
}

impl ActivitySample {
    /// Reads the answer of an activity. If the index is stale, the answer is unknown. Returns None
    /// if the object is not an activity.
    pub fn new(entry: &IndexEntry, is_stale: bool) -> Option<Self> {
        let activity = entry.object().activity()?;
        let scope = activity.metadata.labels.get(activity::LABEL)?.clone();
        let name = match &*scope {
            "namespace" => activity.metadata.namespace.clone(),
            "cluster" => Text::default(),
            _ => activity.metadata.name.split_once('.')?.1.into(),
        };
        let idle = match activity.idle().map(|idle| &*idle.status) {
            _ if is_stale => -1,
            Some("True") => 1,
            Some("False") => 0,
            _ => -1,
        };
        Some(Self { scope, name, idle })
    }
}

impl Metrics {
    /// Sets the gauges to the values of the activities and of the operations in flight. Operations
    /// that a person has put on hold do not count, as in activities. After [`MAX_VALUES`] series of
    /// nodes, further operations are counted for the node `other`.
    pub(super) fn read_activities(
        &self,
        activities: &[ActivitySample],
        operations: &[OperationSample],
    ) {
        let metrics = &self.activities;
        metrics.idle.clear();
        for ActivitySample { scope, name, idle } in activities {
            let labels = vec![("scope", scope.to_string()), ("name", name.to_string())];
            metrics.idle.get_or_create(&labels).set(*idle);
        }
        let mut counts = BTreeMap::<_, i64>::new();
        for operation in operations {
            if operation.age.is_some() && operation.state != State::Held {
                for node in operation.nodes.iter() {
                    let key = (node, &operation.component, &operation.operation);
                    *counts.entry(key).or_default() += 1;
                }
            }
        }
        metrics.node_operations.clear();
        for (series, ((node, component, operation), count)) in counts.into_iter().enumerate() {
            let node = if series < MAX_VALUES { node } else { "other" };
            let mut labels = vec![("node", node.to_owned())];
            labels.extend(self.operation_labels(component, operation));
            metrics.node_operations.get_or_create(&labels).inc_by(count);
        }
    }
}
