//! Asks the kube-apiserver what a drain of a node would do. Lists the Pods of the node, and
//! requests the eviction of each Pod as a dry run. A dry run changes nothing. The kube-apiserver
//! checks the rights, the disruption budgets and the admission webhooks as for a real eviction.
//!
//! `kubectl drain` evicts neither mirror Pods nor DaemonSet Pods, so no eviction of these Pods is
//! requested. If a Pod runs a virtual machine, a webhook of KubeVirt answers. If KubeVirt would
//! migrate the virtual machine, the webhook refuses the eviction with [`EVACUATION`].

use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::escape;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, EvictParams};
use kube::core::Status;
use serde::Serialize;

/// Annotation of a mirror Pod: the object that the kubelet creates for a static Pod.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The kind that controls the Pod of a virtual machine of KubeVirt.
const MACHINE: &str = "VirtualMachineInstance";

/// Label of the target Pod of a migration. The Pod keeps the label after the migration. The value
/// is the UID of the migration. While the migration is in flight, its operation has this UID in
/// `spec.subject.uid`. During the transfer, the operation on the virtual machine has the UID in
/// `status.instance`.
const MIGRATION_LABEL: &str = "kubevirt.io/migrationJobUID";

/// Part of the message with which KubeVirt refuses an eviction because KubeVirt moves the virtual
/// machine to another node. With the eviction strategy `External`, another controller moves the
/// virtual machine.
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
    /// The Pod is evicted.
    Evicted,
    /// The virtual machine in the Pod is shut down.
    ShutDown,
    /// The virtual machine in the Pod moves to another node.
    Migrated,
    /// The Pod is the target of a migration in flight, and the migration fails.
    MigrationFails,
    /// The Pod stays, and the drain does not finish.
    Stays,
    /// The eviction could not be requested.
    Unknown,
}

/// A Pod that a drain evicts or tries to evict.
#[derive(Debug, Serialize)]
pub(super) struct AffectedPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) effect: DrainEffect,
    /// If the Pod stays, the refusal of the kube-apiserver. If the effect is unknown, the reason.
    /// Otherwise empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

impl AffectedPod {
    /// Describes the effect.
    pub(super) fn text(&self) -> String {
        match self.effect {
            DrainEffect::Evicted => "evicted".to_owned(),
            DrainEffect::ShutDown => "the virtual machine is shut down".to_owned(),
            DrainEffect::Migrated => "the virtual machine moves to another node".to_owned(),
            DrainEffect::MigrationFails => "the migration to this node fails".to_owned(),
            DrainEffect::Stays => format!("stays and blocks the drain: {}", self.message),
            DrainEffect::Unknown => "unknown, because the eviction failed".to_owned(),
        }
    }
}

/// Reads the Pods of `node` in `namespace`, or in all namespaces if `namespace` is None, and
/// requests their evictions. Returns the Pods that a drain evicts or tries to evict. `operations`
/// are the operations in flight on all nodes.
pub(super) async fn affected_pods(
    server: &ApiClient,
    node: &str,
    namespace: Option<&str>,
    operations: &[InFlightOperation],
) -> Result<Vec<AffectedPod>, Problem> {
    let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
    let path = format!("/api/v1{within}/pods");
    let on_node = format!("spec.nodeName={node}");
    let pods: Vec<Pod> = server.all(&path, &on_node).await?;
    let evicted = pods.into_iter().filter(is_evicted);
    let affected = futures::stream::iter(evicted).map(async |pod| {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let allowed = effect(&pod, operations);
        let (effect, message) = request_eviction(server, &namespace, &name, allowed).await?;
        Some(AffectedPod {
            namespace,
            name,
            effect,
            message,
        })
    });
    let affected: Vec<_> = affected.buffered(CONCURRENCY).collect().await;
    Ok(affected.into_iter().flatten().collect())
}

/// Returns the kind of the owner with `controller: true`. None if the Pod has no such owner.
fn controller(pod: &Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|it| it.controller == Some(true));
    controller.map(|it| it.kind.as_str())
}

/// Returns true if a drain interrupts the Pod. A Pod that has ended is not interrupted: a drain
/// only deletes its object.
fn is_evicted(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let is_mirror = annotations.is_some_and(|it| it.contains_key(MIRROR_ANNOTATION));
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    !is_mirror && !has_ended && controller(pod) != Some("DaemonSet")
}

/// Returns the effect of an eviction that the kube-apiserver allows. KubeVirt allows the eviction
/// of the target Pod of a migration, because the virtual machine still runs on another node.
fn effect(pod: &Pod, operations: &[InFlightOperation]) -> DrainEffect {
    if controller(pod) != Some(MACHINE) {
        return DrainEffect::Evicted;
    }
    let labels = pod.metadata.labels.as_ref();
    let migration = labels.and_then(|it| it.get(MIGRATION_LABEL));
    let operations = operations.iter();
    let mut uids = operations.flat_map(|it| [&it.spec.subject.uid, &it.status.instance]);
    if migration.is_some_and(|uid| uids.any(|it| it.as_deref() == Some(uid))) {
        DrainEffect::MigrationFails
    } else {
        DrainEffect::ShutDown
    }
}

/// Requests the eviction of a Pod as a dry run. Returns the effect, and the message of
/// [`AffectedPod`]. If the kube-apiserver allows the eviction, the effect is `allowed`. Returns
/// None if the Pod is gone.
async fn request_eviction(
    server: &ApiClient,
    namespace: &str,
    name: &str,
    allowed: DrainEffect,
) -> Option<(DrainEffect, String)> {
    let pods: Api<Pod> = Api::namespaced(server.client.clone(), namespace);
    let mut dry_run = EvictParams::default();
    dry_run.post_options.dry_run = true;
    Some(match server.within(pods.evict(name, &dry_run)).await {
        Ok(Ok(_)) => (allowed, String::new()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => return None,
        Ok(Err(kube::Error::Api(status))) if is_refusal(&status) => {
            let causes = status.details.iter().flat_map(|it| &it.causes);
            // A ValidatingAdmissionPolicy repeats the message in its cause.
            let causes = causes.filter(|it| !status.message.contains(&it.message));
            let causes = causes.map(|it| format!(" {}", it.message));
            let message = status.message.clone() + &causes.collect::<String>();
            if message.contains(EVACUATION) {
                (DrainEffect::Migrated, String::new())
            } else {
                (DrainEffect::Stays, message)
            }
        }
        Ok(Err(error)) => (DrainEffect::Unknown, server.problem(&error).to_string()),
        Err(problem) => (DrainEffect::Unknown, problem.to_string()),
    })
}

/// Returns true if the kube-apiserver would also refuse the eviction of a real drain. Returns false
/// if the error only concerns this request, for example because the user lacks a right.
fn is_refusal(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|it| &it.causes);
    let message = &status.message;
    match status.code {
        403 => !message.contains(MISSING_RIGHT),
        422 => true,
        _ => {
            causes.any(|it| it.reason == BUDGET)
                || message.starts_with(WEBHOOK)
                || message.contains(SEVERAL_BUDGETS)
        }
    }
}
