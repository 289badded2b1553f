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
        return Err(refused(&message, None));
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
    match budgets.iter().find(|it| selects(it, &pod)) {
        Some(budget) => check_budget(budget),
        None => Ok(()),
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

fn check_budget(budget: &PodDisruptionBudget) -> Result<(), ErrorStatus> {
    let status = budget.status.clone().unwrap_or_default();
    if status.disruptions_allowed > 0 {
        return Ok(());
    }
    let cause = format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        budget.metadata.name.as_deref().unwrap_or_default(),
        status.desired_healthy,
        status.current_healthy
    );
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Err(refused(message, Some(cause)))
}

fn refused(message: &str, budget: Option<String>) -> ErrorStatus {
    let cause = |message| StatusCause {
        reason: Some("DisruptionBudget".to_owned()),
        message: Some(message),
        ..StatusCause::default()
    };
    ErrorStatus::from(Status {
        code: Some(429),
        reason: Some("TooManyRequests".to_owned()),
        message: Some(message.to_owned()),
        status: Some("Failure".to_owned()),
        details: budget.map(|it| StatusDetails {
            causes: Some(vec![cause(it)]),
            ..StatusDetails::default()
        }),
        ..Status::default()
    })
}
