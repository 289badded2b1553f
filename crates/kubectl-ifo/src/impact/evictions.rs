//! Asks the kube-apiserver what a drain of a node would do: lists the Pods of the node, and requests
//! the eviction of each Pod as a dry run. A dry run changes nothing. The kube-apiserver checks the
//! rights, the disruption budgets and the admission webhooks as for a real eviction.
//!
//! `kubectl drain` evicts neither mirror Pods nor DaemonSet Pods, so no eviction of these Pods is
//! requested. If a Pod runs a virtual machine, a webhook of KubeVirt answers. If KubeVirt would
//! migrate the virtual machine, the webhook refuses the eviction with [`EVACUATION`].

use super::MissingPart;
use crate::api_client::ApiClient;
use crate::operation::InFlightOperation;
use crate::operation_source::escape;
use crate::problem::Problem;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::Status;
use serde::Serialize;
use serde_json::json;

/// Annotation of a mirror Pod: the object that the kubelet creates for a static Pod.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The kind that controls the Pod of a virtual machine of KubeVirt.
const MACHINE: &str = "VirtualMachineInstance";

/// Label of the target Pod of a migration, also after the migration. Its value is the UID of the
/// migration, which is the `instance` of the operation on the virtual machine.
const MIGRATION_LABEL: &str = "kubevirt.io/migrationJobUID";

/// Part of the message with which KubeVirt refuses an eviction because it moves the virtual machine
/// to another node. With the eviction strategy `External`, another controller moves it.
const EVACUATION: &str = "triggered evacuation of VMI";

/// Beginning of the message with which the kube-apiserver forwards the refusal of a webhook.
const WEBHOOK: &str = "admission webhook ";

/// Part of the message if the user lacks the right to create evictions. The other refusals with the
/// code 403 come from admission, for example from a `ValidatingAdmissionPolicy`.
const MISSING_RIGHT: &str = "cannot create resource";

/// Reason of the cause in a refusal because of a disruption budget.
const BUDGET: &str = "DisruptionBudget";

/// Part of the message of the refusal if several disruption budgets select the Pod.
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// Largest number of concurrent evictions. Further evictions wait.
const CONCURRENCY: usize = 16;

/// The effect of a drain on a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum DrainEffect {
    /// The virtual machine in the Pod moves to another node.
    Migrated,
    /// The Pod is the target of a running migration, and the migration fails.
    MigrationFails,
    /// The virtual machine in the Pod is shut down.
    ShutDown,
    /// The Pod is evicted, and its controller creates another one.
    Evicted,
    /// The Pod is deleted, and nothing creates it again.
    Deleted,
    /// The Pod stays, and the drain does not finish.
    Stays,
    /// The eviction could not be requested.
    Unknown,
}

/// A Pod that a drain evicts or tries to evict.
#[derive(Debug, Serialize)]
pub(super) struct AffectedPod {
    kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) effect: DrainEffect,
    /// Kind and name of the controller, such as `ReplicaSet/api`. None if the Pod has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<String>,
    /// The refusal of the kube-apiserver, if the Pod stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl AffectedPod {
    /// Describes the effect.
    pub(super) fn text(&self) -> String {
        let controller = self.controller.as_deref().unwrap_or("no controller");
        match self.effect {
            DrainEffect::Migrated => format!("{controller} is moved to another node"),
            DrainEffect::MigrationFails => {
                format!("the migration of {controller} to this node fails")
            }
            DrainEffect::ShutDown => format!("{controller} is shut down"),
            DrainEffect::Evicted => format!("evicted and created again by {controller}"),
            DrainEffect::Deleted => format!("deleted and not created again, {controller}"),
            DrainEffect::Stays => {
                let message = self.message.as_deref().unwrap_or_default();
                format!("stays and blocks the drain: {message}")
            }
            DrainEffect::Unknown => "unknown, because the eviction failed".to_owned(),
        }
    }
}

/// Reads the Pods of `node` in `namespace`, or in all namespaces if `namespace` is None, and requests
/// their evictions. Returns the Pods that a drain evicts or tries to evict. If a part cannot be read,
/// adds the part to `missing`. `operations` are the operations on the node. If a problem affects all parts, returns the problem as an error.
pub(super) async fn affected_pods(
    server: &ApiClient,
    node: &str,
    namespace: Option<&str>,
    operations: &[InFlightOperation],
    missing: &mut Vec<MissingPart>,
) -> Result<Vec<AffectedPod>, Problem> {
    let pods = match evicted_pods(server, node, namespace).await {
        Ok(pods) => pods,
        Err(problem) => {
            missing.push(MissingPart::of("Pods", problem)?);
            return Ok(Vec::new());
        }
    };
    let answers = futures::stream::iter(pods).map(async |pod| {
        let answer = request_eviction(server, &pod, operations).await;
        (pod, answer)
    });
    let answers: Vec<_> = answers.buffered(CONCURRENCY).collect().await;
    let mut affected = Vec::new();
    for (pod, answer) in answers {
        let (effect, message) = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => continue,
            Err(problem) => {
                let part = MissingPart::of("evictions", problem)?;
                if !missing.contains(&part) {
                    missing.push(part);
                }
                (DrainEffect::Unknown, None)
            }
        };
        let (namespace, name) = identity(&pod);
        affected.push(AffectedPod {
            kind: "Pod",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            effect,
            controller: controller(&pod).map(|it| format!("{}/{}", it.kind, it.name)),
            message,
        });
    }
    Ok(affected)
}

/// Returns namespace and name.
fn identity(pod: &Pod) -> (&str, &str) {
    let metadata = &pod.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    (namespace, metadata.name.as_deref().unwrap_or_default())
}

/// Returns the owner reference with `controller: true`. None if there is none.
fn controller(pod: &Pod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|it| it.controller == Some(true))
}

/// Lists the Pods of the node that a drain interrupts. A Pod that has ended is left out, because a
/// drain only deletes its object.
async fn evicted_pods(
    server: &ApiClient,
    node: &str,
    namespace: Option<&str>,
) -> Result<Vec<Pod>, Problem> {
    let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
    let path = format!("/api/v1{within}/pods");
    let on_node = format!("spec.nodeName={node}");
    let read = |item: &str| Ok(Some(serde_json::from_str(item)?).filter(is_evicted));
    server.all(&path, &on_node, read).await
}

fn is_evicted(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let is_mirror = annotations.is_some_and(|it| it.contains_key(MIRROR_ANNOTATION));
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    !is_mirror && !has_ended && controller(pod).is_none_or(|it| it.kind != "DaemonSet")
}

/// Requests an eviction. Returns its effect, and the message if the Pod stays. None if the Pod does
/// not exist any more.
async fn request_eviction(
    server: &ApiClient,
    pod: &Pod,
    operations: &[InFlightOperation],
) -> Result<Option<(DrainEffect, Option<String>)>, Problem> {
    let (namespace, name) = identity(pod);
    let uri = format!(
        "/api/v1/namespaces/{}/pods/{}/eviction?dryRun=All",
        escape(namespace),
        escape(name)
    );
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    });
    let Err(error) = server.create(&uri, &eviction).await? else {
        let effect = match controller(pod) {
            Some(it) if it.kind == MACHINE && is_target(pod, operations) => {
                DrainEffect::MigrationFails
            }
            Some(it) if it.kind == MACHINE => DrainEffect::ShutDown,
            Some(_) => DrainEffect::Evicted,
            None => DrainEffect::Deleted,
        };
        return Ok(Some((effect, None)));
    };
    if let kube::Error::Api(status) = &error {
        if status.message.contains(EVACUATION) {
            return Ok(Some((DrainEffect::Migrated, None)));
        }
        if status.code == 404 {
            return Ok(None);
        }
        if let Some(refusal) = refusal(status) {
            return Ok(Some((DrainEffect::Stays, Some(refusal))));
        }
        if status.code == 403 {
            // The message of the server names the Pod, so it would be different for each Pod.
            let message = "you may not create pods/eviction".to_owned();
            return Err(Problem::Forbidden { message });
        }
    }
    Err(server.problem(&error))
}

/// Returns true if the Pod is the target of a migration in flight. KubeVirt does not refuse its
/// eviction, because the virtual machine still runs on another node.
fn is_target(pod: &Pod, operations: &[InFlightOperation]) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let migration = labels.and_then(|it| it.get(MIGRATION_LABEL));
    let mut instances = operations.iter().map(|it| &it.status.instance);
    migration.is_some_and(|uid| instances.any(|it| it.as_deref() == Some(uid)))
}

/// Returns the message of a refusal that a drain would get, too. None if the answer only says that
/// the request was not processed, for example because a right is missing.
fn refusal(status: &Status) -> Option<String> {
    let causes = status.details.iter().flat_map(|it| &it.causes);
    let budgets: Vec<&str> = causes
        .filter(|it| it.reason == BUDGET)
        .map(|it| it.message.as_str())
        .collect();
    if !budgets.is_empty() {
        return Some(format!("{} {}", status.message, budgets.join(" ")));
    }
    let message = &status.message;
    let is_refused = match status.code {
        403 => !message.contains(MISSING_RIGHT),
        422 => true,
        _ => message.starts_with(WEBHOOK) || message.contains(SEVERAL_BUDGETS),
    };
    is_refused.then(|| message.clone())
}
