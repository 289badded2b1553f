//! Answers the dry run of an eviction, which `kubectl ifo impact` requests for each Pod of a node. A
//! kube-apiserver with KubeVirt gives the same answers: first the webhook of KubeVirt decides, then
//! the PodDisruptionBudget of the Pod.
//!
//! The sources are `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.36, and
//! `pod-eviction-admitter.go` of KubeVirt 1.6.

use super::objects::ObjectStore;
use aggregated_apiserver::serve::ErrorStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde_json::{Value, json};

/// The webhook of KubeVirt that answers evictions.
const WEBHOOK: &str = "virt-launcher-eviction-interceptor.kubevirt.io";

/// Decides whether `pod` may be evicted now. Returns the error of a refused eviction.
pub(super) fn dry_run(pod: &Value, objects: &ObjectStore) -> Result<(), ErrorStatus> {
    let metadata = &pod["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let machines = objects.in_namespace("kubevirt.io/v1", "VirtualMachineInstance", namespace);
    if let Some(why) = machines.iter().find_map(|it| refusal_of_kubevirt(pod, it)) {
        let message = format!("admission webhook {WEBHOOK:?} denied the request: {why}");
        return Err(refused(&message, None));
    }
    let is_running = metadata["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running";
    let budgets = objects.in_namespace("policy/v1", "PodDisruptionBudget", namespace);
    let mut budgets = budgets.iter();
    let budget = budgets.find(|budget| is_running && selects(budget, pod));
    let Some(budget) = budget.filter(|it| it["status"]["disruptionsAllowed"] == 0) else {
        return Ok(());
    };
    let status = &budget["status"];
    let cause = format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        budget["metadata"]["name"].as_str().unwrap_or_default(),
        status["desiredHealthy"],
        status["currentHealthy"]
    );
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Err(refused(message, Some(cause)))
}

/// Returns why KubeVirt refuses the eviction, if the virtual machine runs in this Pod. Usually
/// KubeVirt migrates the virtual machine instead.
fn refusal_of_kubevirt(pod: &Value, machine: &Value) -> Option<String> {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let mut owners = items(&pod["metadata"]["ownerReferences"]).into_iter();
    let (metadata, status) = (&machine["metadata"], &machine["status"]);
    let runs_in_pod = owners.any(|it| it["uid"] == metadata["uid"])
        && status["nodeName"] == pod["spec"]["nodeName"];
    if !runs_in_pod || machine["spec"]["evictionStrategy"] != "LiveMigrate" {
        return None;
    }
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let mut conditions = items(&status["conditions"]).into_iter();
    let can_migrate = conditions.any(|it| it["type"] == "LiveMigratable" && it["status"] == "True");
    Some(if can_migrate {
        format!("Eviction triggered evacuation of VMI \"{namespace}/{name}\"")
    } else {
        format!("VMI {name} is configured with an eviction strategy but is not live-migratable")
    })
}

/// Returns true if the disruption budget selects the Pod. Reads only `matchLabels`, because the
/// budgets of the scenes have no other selectors.
fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = budget["spec"]["selector"]["matchLabels"].as_object();
    let labels = &pod["metadata"]["labels"];
    selector.is_some_and(|it| it.iter().all(|(key, value)| labels[key] == *value))
}

fn refused(message: &str, budget: Option<String>) -> ErrorStatus {
    let cause = |message| json!({"causes": [{"reason": "DisruptionBudget", "message": message}]});
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
        "reason": "TooManyRequests", "message": message, "details": budget.map(cause),
    });
    let status: Result<Status, _> = serde_json::from_value(status);
    status.map_or_else(ErrorStatus::internal, ErrorStatus::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::kinds::Kinds;
    use ifo_client::manifest;
    use std::path::Path;

    const OBJECTS: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: vm, namespace: x, ownerReferences: [{uid: m}]}, spec: {nodeName: n}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: x, labels: {app: web}}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: ended, namespace: x, labels: {app: web}}, status: {phase: Succeeded}}
---
{apiVersion: v1, kind: Pod, metadata: {name: other, namespace: x, labels: {app: other}}, status: {phase: Running}}
---
{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: mail, namespace: x, uid: m}, spec: {evictionStrategy: LiveMigrate}, status: {nodeName: n, conditions: [{type: LiveMigratable, status: 'True'}]}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: x}, spec: {selector: {matchLabels: {app: web}}}, status: {disruptionsAllowed: 0, desiredHealthy: 2, currentHealthy: 1}}
";

    #[test]
    fn kubevirt_and_the_disruption_budget_refuse_an_eviction() {
        let objects = manifest::read(OBJECTS).unwrap();
        let store = ObjectStore::new(Kinds::default());
        store.replace(objects.iter().map(|it| (Path::new(""), it)), &[]);
        for (name, expected) in [
            (
                "vm",
                "denied the request: Eviction triggered evacuation of VMI",
            ),
            ("web", "budget web needs 2 healthy pods and has 1 currently"),
            ("ended", ""),
            ("other", ""),
        ] {
            let pods = store.in_namespace("v1", "Pod", "x");
            let pod = pods
                .iter()
                .find(|it| it["metadata"]["name"] == name)
                .unwrap();
            let refusal = dry_run(pod, &store).err().map(|it| format!("{it:?}"));
            assert_eq!(
                refusal.is_none(),
                expected.is_empty(),
                "{name}: {refusal:?}"
            );
            assert!(refusal.unwrap_or_default().contains(expected), "{name}");
        }
    }
}
