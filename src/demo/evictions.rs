//! Answers the dry run of an eviction, which `kubectl ifo impact` requests for each Pod of a node. A
//! kube-apiserver with KubeVirt gives the same answers: first the webhook of KubeVirt decides, then
//! the PodDisruptionBudget of the Pod.
//!
//! The sources are `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.36, and
//! `pod-eviction-admitter.go` of KubeVirt 1.6.

use super::objects::ObjectStore;
use aggregated_apiserver::serve::ErrorStatus;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize as _;
use serde_json::Value;

/// The webhook of KubeVirt that answers evictions.
const WEBHOOK: &str = "virt-launcher-eviction-interceptor.kubevirt.io";

/// Decides whether `pod` may be evicted now. Returns the error of a refused eviction.
pub(super) fn dry_run(pod: &Value, objects: &ObjectStore) -> Result<(), ErrorStatus> {
    let pod = Pod::deserialize(pod).map_err(ErrorStatus::internal)?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let machines = objects.in_namespace("kubevirt.io/v1", "VirtualMachineInstance", namespace);
    if let Some(why) = machines.iter().find_map(|it| refusal_of_kubevirt(&pod, it)) {
        let message = format!("admission webhook {WEBHOOK:?} denied the request: {why}");
        return Err(refused(429, "TooManyRequests", &message, None));
    }
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() || phase != Some("Running") {
        return Ok(());
    }
    let budgets = objects.in_namespace("policy/v1", "PodDisruptionBudget", namespace);
    let budgets: Vec<PodDisruptionBudget> = budgets
        .iter()
        .map(|it| PodDisruptionBudget::deserialize(&**it))
        .collect::<Result<_, _>>()
        .map_err(ErrorStatus::internal)?;
    let mut budgets = budgets.iter().filter(|it| selects(it, &pod));
    match (budgets.next(), budgets.next()) {
        (Some(_), Some(_)) => {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction \
                           subresource does not support.";
            Err(refused(500, "InternalError", message, None))
        }
        (Some(budget), None) => check_budget(budget, &pod),
        (None, _) => Ok(()),
    }
}

/// Returns why KubeVirt refuses the eviction, if the virtual machine runs in this Pod. Usually
/// KubeVirt migrates the virtual machine instead.
fn refusal_of_kubevirt(pod: &Pod, machine: &Value) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_owner = owners.any(|it| machine["metadata"]["uid"] == *it.uid);
    let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref());
    if !is_owner || machine["status"]["nodeName"].as_str() != node {
        return None;
    }
    if machine["spec"]["evictionStrategy"] != "LiveMigrate" {
        return None;
    }
    let metadata = &machine["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let mut conditions = machine["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    if conditions.any(|it| it["type"] == "LiveMigratable" && it["status"] == "True") {
        return Some(format!(
            "Eviction triggered evacuation of VMI \"{namespace}/{name}\""
        ));
    }
    Some(format!(
        "VMI {name} is configured with an eviction strategy but is not live-migratable"
    ))
}

/// Returns true if the disruption budget counts the Pod.
fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|it| it.selector.clone());
    let selector = selector.and_then(|it| Selector::try_from(it).ok());
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    selector.is_some_and(|it| it.matches(&labels))
}

fn check_budget(budget: &PodDisruptionBudget, pod: &Pod) -> Result<(), ErrorStatus> {
    let status = budget.status.clone().unwrap_or_default();
    let (healthy, desired) = (status.current_healthy, status.desired_healthy);
    let conditions = pod.status.iter().filter_map(|it| it.conditions.as_ref());
    let is_ready = conditions
        .flatten()
        .any(|it| it.type_ == "Ready" && it.status == "True");
    // The eviction of a Pod that is not ready takes no healthy Pod away.
    let is_surplus = !is_ready && desired > 0 && healthy >= desired;
    if status.disruptions_allowed > 0 || is_surplus {
        return Ok(());
    }
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    let cause = format!(
        "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    );
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Err(refused(429, "TooManyRequests", message, Some(cause)))
}

fn refused(code: i32, reason: &str, message: &str, budget: Option<String>) -> ErrorStatus {
    let cause = |message| StatusCause {
        reason: Some("DisruptionBudget".to_owned()),
        message: Some(message),
        ..StatusCause::default()
    };
    ErrorStatus::from(Status {
        code: Some(code),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        status: Some("Failure".to_owned()),
        details: budget.map(|it| StatusDetails {
            causes: Some(vec![cause(it)]),
            ..StatusDetails::default()
        }),
        ..Status::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::kinds;
    use crate::demo::model::key;
    use serde_json::json;
    use std::sync::Arc;

    fn pod(name: &str, phase: &str, is_ready: bool) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "a", "labels": {"app": name}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if is_ready { "True" } else { "False" }},
            ]},
        })
    }

    /// Returns the error of an eviction, with the cause if there is one.
    fn refusal(pod: &Value, others: &[Value]) -> Option<String> {
        let store = ObjectStore::new(Arc::new(kinds::resolve));
        for object in others {
            store.put(&key(object).unwrap(), object.clone());
        }
        let refused = dry_run(pod, &store).err()?;
        let status: Value = serde_json::from_slice(&refused.json()).unwrap();
        let cause = &status["details"]["causes"][0]["message"];
        let message = cause.as_str().or(status["message"].as_str());
        Some(format!("{} {}", status["code"], message.unwrap()))
    }

    #[test]
    fn a_budget_refuses_the_eviction_of_a_healthy_pod() {
        let budget = |name: &str, healthy: i32| {
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "a"},
                "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "api"}}},
                "status": {"currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3,
                           "disruptionsAllowed": (healthy - 2).max(0)},
            })
        };
        let ready = pod("api", "Running", true);
        let unready = pod("api", "Running", false);
        let full = Some("429 The disruption budget b needs 2 healthy pods and has 2 currently");
        let broken = Some("429 The disruption budget b needs 2 healthy pods and has 1 currently");
        for (pod, healthy, expected) in [
            (&ready, 3, None),
            (&ready, 2, full),
            (&unready, 2, None),
            (&unready, 1, broken),
            (&pod("api", "Pending", false), 1, None),
            (&pod("other", "Running", true), 2, None),
        ] {
            let refused = refusal(pod, &[budget("b", healthy)]);
            assert_eq!(refused.as_deref(), expected, "{healthy}: {pod}");
        }
        let several = refusal(&ready, &[budget("b", 3), budget("c", 3)]).unwrap();
        assert!(
            several.starts_with("500 This pod has more than one"),
            "{several}"
        );
    }

    #[test]
    fn kubevirt_migrates_a_virtual_machine_instead() {
        let mut launcher = pod("virt-launcher-web", "Running", true);
        launcher["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "uid": "u",
        }]);
        let machine = |strategy: &str, node: &str, is_migratable: &str| {
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "metadata": {"name": "web", "namespace": "a", "uid": "u"},
                "spec": {"evictionStrategy": strategy},
                "status": {"nodeName": node, "conditions": [
                    {"type": "LiveMigratable", "status": is_migratable},
                ]},
            })
        };
        let webhook = format!("429 admission webhook {WEBHOOK:?} denied the request: ");
        let migrated = webhook.clone() + "Eviction triggered evacuation of VMI \"a/web\"";
        let stays =
            webhook + "VMI web is configured with an eviction strategy but is not live-migratable";
        for (strategy, node, is_migratable, expected) in [
            ("LiveMigrate", "n", "True", Some(migrated)),
            ("LiveMigrate", "n", "False", Some(stays)),
            // The virtual machine runs in another Pod, for example before or after a migration.
            ("LiveMigrate", "other", "True", None),
            ("None", "n", "True", None),
        ] {
            let machine = machine(strategy, node, is_migratable);
            assert_eq!(
                refusal(&launcher, std::slice::from_ref(&machine)),
                expected,
                "{machine}"
            );
        }
    }
}
