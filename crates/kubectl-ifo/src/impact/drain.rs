//! Decides what a drain of a node interrupts and what blocks it. This module does no I/O.
//!
//! `kubectl drain` evicts all Pods of the node, except mirror Pods and DaemonSet Pods. If a Pod
//! runs a virtual machine, the eviction strategy of the virtual machine decides the effect: the
//! virtual machine is migrated or shut down, or it stays and blocks the drain.

use super::cluster_objects::{
    DefaultStrategy, DrainBudget, DrainedMachine, DrainedPod, NodeObjects,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// The effect of a drain on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum DrainEffect {
    /// The virtual machine is live-migrated to another node.
    Migrated,
    /// The virtual machine is shut down.
    ShutDown,
    /// The Pod is evicted, and its controller creates another one.
    Evicted,
    /// The Pod is deleted, and nothing creates it again.
    Deleted,
    /// The object stays, and the drain does not finish.
    Stays,
    /// The effect is unknown, because the virtual machine or the default eviction strategy could
    /// not be read.
    Unknown,
}

/// A virtual machine or a Pod that a drain interrupts or tries to interrupt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AffectedObject {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) effect: DrainEffect,
    /// Kind and name of the controller of a Pod, such as `ReplicaSet/api`. None if the Pod has no
    /// controller, or for a virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<String>,
    /// The eviction strategy of a virtual machine. None if it is unknown, or for a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) eviction_strategy: Option<String>,
    /// True if KubeVirt can live-migrate the virtual machine. None for a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) live_migratable: Option<bool>,
}

/// A reason why a drain does not finish, or does not start without a flag.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct DrainBlocker {
    pub(super) reason: &'static str,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// The flag that `kubectl drain` needs to start. None if an object blocks the drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flag: Option<&'static str>,
    /// The affected Pods, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) pods: Vec<String>,
}

/// The objects that a drain interrupts, and the reasons why the drain does not finish or does not
/// start.
#[derive(Debug, Default)]
pub(super) struct DrainImpact {
    pub(super) interrupted: Vec<AffectedObject>,
    pub(super) blockers: Vec<DrainBlocker>,
}

/// The identity of an object: namespace and name.
type NamespacedName = (String, String);

impl DrainImpact {
    /// Decides from the objects of the cluster what a drain of `node` interrupts, and what blocks
    /// it.
    pub(super) fn of(node: &str, parts: &NodeObjects) -> Self {
        let mut impact = Self::default();
        let mut effects = HashMap::new();
        for machine in parts.machines.iter().flatten().filter(|it| it.is_on(node)) {
            let name = machine_name(machine);
            let effect = impact.add_machine(machine, &name, &parts.default_strategy);
            effects.insert(name, effect);
        }
        let pods = parts.pods.iter().flatten();
        let evicted: Vec<&DrainedPod> = pods
            .clone()
            .filter(|it| !it.is_mirror() && !it.is_of_daemon_set() && !it.has_ended())
            .collect();
        for pod in &evicted {
            let machine = machine_of(pod);
            if machine.as_ref().is_none_or(|it| !effects.contains_key(it)) {
                impact.add_pod(pod, machine.is_some() && parts.machines.is_none());
            }
        }
        // A budget is a PodDisruptionBudget. If KubeVirt migrates or keeps a virtual machine, it
        // intercepts the eviction of the Pod of this virtual machine. So budgets do not decide
        // about this Pod. If the effect on a virtual machine is unknown, the budgets are not
        // applied to its Pod.
        let is_budgeted = |pod: &DrainedPod| match machine_of(pod) {
            Some(machine) if parts.machines.is_some() => {
                let effect = effects.get(&machine);
                matches!(effect, None | Some(DrainEffect::ShutDown))
            }
            Some(_) => false,
            None => true,
        };
        let budgeted = evicted.iter().filter(|it| is_budgeted(it));
        impact.add_budgets(
            &budgeted.copied().collect::<Vec<_>>(),
            parts.budgets.as_deref(),
        );
        impact.add_flags(&evicted, parts.pods.as_deref().unwrap_or_default());
        impact.interrupted.sort_by(|a, b| {
            let key =
                |it: &AffectedObject| (it.kind == "Pod", it.namespace.clone(), it.name.clone());
            key(a).cmp(&key(b))
        });
        impact
    }

    /// Adds a virtual machine, and returns the effect of a drain on this virtual machine.
    fn add_machine(
        &mut self,
        machine: &DrainedMachine,
        name: &NamespacedName,
        default: &DefaultStrategy,
    ) -> DrainEffect {
        let own = machine.eviction_strategy();
        let strategy = match (own, default) {
            (Some(own), _) => Some(own),
            (None, DefaultStrategy::Set(default)) => Some(default.as_str()),
            (None, DefaultStrategy::Unknown) => None,
        };
        let not_migratable = machine.not_migratable_reason();
        let (effect, blocks) = match (strategy, &not_migratable) {
            (Some("LiveMigrate" | "LiveMigrateIfPossible"), None) => (DrainEffect::Migrated, None),
            (Some("LiveMigrate"), Some(why)) => (
                DrainEffect::Stays,
                Some((
                    "NotMigratable",
                    format!("evictionStrategy is LiveMigrate, but the virtual machine is not migratable: {why}"),
                )),
            ),
            (Some("External"), _) => (
                DrainEffect::Stays,
                Some((
                    "ExternalEviction",
                    "evictionStrategy is External, so another controller must move the virtual machine".to_owned(),
                )),
            ),
            (Some(_), _) => (DrainEffect::ShutDown, None),
            (None, _) => (DrainEffect::Unknown, None),
        };
        let (namespace, name) = name.clone();
        if let Some((reason, message)) = blocks {
            self.blockers.push(DrainBlocker {
                reason,
                message,
                kind: Some("VirtualMachineInstance"),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                flag: None,
                pods: Vec::new(),
            });
        }
        self.interrupted.push(AffectedObject {
            kind: "VirtualMachineInstance",
            namespace,
            name,
            effect,
            controller: None,
            eviction_strategy: strategy.map(str::to_owned),
            live_migratable: Some(not_migratable.is_none()),
        });
        effect
    }

    /// Adds a Pod. If `is_unknown` is true, the Pod runs a virtual machine that could not be read.
    /// In this case, the effect of a drain is unknown.
    fn add_pod(&mut self, pod: &DrainedPod, is_unknown: bool) {
        let controller = pod.controller();
        self.interrupted.push(AffectedObject {
            kind: "Pod",
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            effect: match controller {
                _ if is_unknown => DrainEffect::Unknown,
                Some(_) => DrainEffect::Evicted,
                None => DrainEffect::Deleted,
            },
            controller: controller.map(|it| format!("{}/{}", it.kind, it.name)),
            eviction_strategy: None,
            live_migratable: None,
        });
    }

    /// Adds as blockers the budgets that forbid the eviction of at least one Pod in `pods`. Also
    /// adds as a blocker each Pod that several budgets select, because the eviction API refuses to
    /// evict such a Pod.
    fn add_budgets(&mut self, pods: &[&DrainedPod], budgets: Option<&[DrainBudget]>) {
        let budgets = budgets.unwrap_or_default();
        let mut blocking: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for pod in pods.iter().filter(|it| !it.ignores_budgets()) {
            let own = budgets
                .iter()
                .enumerate()
                .filter(|(_, it)| selects(it, pod));
            let own: Vec<usize> = own.map(|(number, _)| number).collect();
            if own.len() > 1 {
                let names = own
                    .iter()
                    .filter_map(|it| budgets[*it].metadata.name.as_deref());
                let names: Vec<&str> = names.collect();
                self.blockers.push(DrainBlocker {
                    reason: "SeveralBudgets",
                    message: format!(
                        "several PodDisruptionBudgets select the Pod, so the eviction fails: {}",
                        names.join(", ")
                    ),
                    kind: Some("Pod"),
                    namespace: Some(pod.namespace().to_owned()),
                    name: Some(pod.name().to_owned()),
                    flag: None,
                    pods: Vec::new(),
                });
                continue;
            }
            for number in own {
                if forbids_eviction(&budgets[number], pod) {
                    blocking.entry(number).or_default().push(pod_name(pod));
                }
            }
        }
        for (number, pods) in blocking {
            let DrainBudget {
                metadata, status, ..
            } = &budgets[number];
            self.blockers.push(DrainBlocker {
                reason: "NoDisruptionsAllowed",
                message: format!(
                    "disruptionsAllowed is 0 (healthy Pods: {}, required: {})",
                    status.current_healthy, status.desired_healthy
                ),
                kind: Some("PodDisruptionBudget"),
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                flag: None,
                pods,
            });
        }
    }

    /// Adds as blockers the flags that `kubectl drain` needs to start, each with the Pods that make
    /// the flag necessary.
    fn add_flags(&mut self, evicted: &[&DrainedPod], all: &[DrainedPod]) {
        let names = |is: &dyn Fn(&DrainedPod) -> bool| -> Vec<String> {
            let pods = evicted.iter().filter(|it| is(it));
            pods.map(|it| pod_name(it)).collect()
        };
        let of_daemon_set = all
            .iter()
            .filter(|it| it.is_of_daemon_set() && !it.is_mirror());
        for (reason, flag, message, pods) in [
            (
                "NoController",
                "--force",
                "Pods without a controller are not created again",
                names(&|it| it.controller().is_none()),
            ),
            (
                "EmptyDir",
                "--delete-emptydir-data",
                "the data in emptyDir volumes is lost",
                names(&DrainedPod::has_empty_dir),
            ),
            (
                "DaemonSet",
                "--ignore-daemonsets",
                "DaemonSet Pods stay on the node",
                of_daemon_set.map(pod_name).collect(),
            ),
        ] {
            if !pods.is_empty() {
                self.blockers.push(DrainBlocker {
                    reason,
                    message: message.to_owned(),
                    kind: None,
                    namespace: None,
                    name: None,
                    flag: Some(flag),
                    pods,
                });
            }
        }
    }
}

fn pod_name(pod: &DrainedPod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn machine_name(machine: &DrainedMachine) -> NamespacedName {
    let metadata = &machine.metadata;
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}

/// Returns the virtual machine that runs in the Pod. None if the Pod runs no virtual machine.
fn machine_of(pod: &DrainedPod) -> Option<NamespacedName> {
    let controller = pod.controller()?;
    (controller.kind == "VirtualMachineInstance")
        .then(|| (pod.namespace().to_owned(), controller.name.clone()))
}

/// Returns true if the budget applies to the Pod.
fn selects(budget: &DrainBudget, pod: &DrainedPod) -> bool {
    let selector = budget.spec.selector.as_ref();
    budget.metadata.namespace == pod.metadata.namespace
        && selector.is_some_and(|it| matches(it, pod.metadata.labels.as_ref()))
}

/// Returns true if labels match a selector. An empty selector matches all labels.
fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &String| labels.and_then(|it| it.get(key));
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, wanted)| value(key) == Some(wanted))
        && expressions.all(|it| {
            let value = value(&it.key);
            let is_listed = value.is_some_and(|it_value| {
                it.values.as_ref().is_some_and(|all| all.contains(it_value))
            });
            match it.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Returns true if the eviction API refuses the eviction because of the budget. Even if the budget
/// allows no disruption, a Pod that is not ready may be evicted in two cases: the policy of the
/// budget is `AlwaysAllow`, or enough other Pods are healthy.
fn forbids_eviction(budget: &DrainBudget, pod: &DrainedPod) -> bool {
    let status = &budget.status;
    let is_always_allowed = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow";
    let has_enough = status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy;
    let is_unhealthy_allowed = !pod.is_ready() && (is_always_allowed || has_enough);
    status.disruptions_allowed <= 0 && !is_unhealthy_allowed
}
