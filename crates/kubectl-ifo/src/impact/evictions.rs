//! Asks the kube-apiserver what a drain of a node would do: lists the Pods of the node, and requests
//! the eviction of each Pod as a dry run. A dry run changes nothing. The kube-apiserver checks the
//! rights, the disruption budgets and the admission webhooks as for a real eviction.
//!
//! `kubectl drain` evicts neither mirror Pods nor DaemonSet Pods, so no eviction of these Pods is
//! requested. If a Pod runs a virtual machine, a webhook of KubeVirt answers. If KubeVirt would
//! migrate the virtual machine, the webhook refuses the eviction with [`EVACUATION`].

use super::MissingPart;
use crate::api_client::{ApiClient, ListOptions};
use crate::operation_source::{PAGE_OBJECTS, escape};
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
    pub(super) controller: Option<String>,
}

/// A Pod whose eviction the kube-apiserver refuses.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct DrainBlocker {
    kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The refusal of the kube-apiserver.
    pub(super) message: String,
}

/// The Pods that a drain evicts or tries to evict, and those that block the drain.
#[derive(Debug, Default)]
pub(super) struct DrainImpact {
    pub(super) interrupted: Vec<AffectedPod>,
    pub(super) blockers: Vec<DrainBlocker>,
}

/// The answer to an eviction.
enum EvictionAnswer {
    Allowed,
    /// KubeVirt, or another controller, moves the virtual machine to another node.
    Migrated,
    /// The Pod does not exist any more.
    Gone,
    /// The kube-apiserver refuses the eviction with this message.
    Refused(String),
    Failed(Problem),
}

impl DrainImpact {
    /// Reads the Pods of `node` in `namespace`, or in all namespaces if `namespace` is None, and
    /// requests their evictions. If a part cannot be read, adds the part to `missing`. If a problem
    /// affects all parts, returns the problem as an error. For example, the cluster cannot be
    /// reached.
    pub(super) async fn read(
        server: &ApiClient,
        node: &str,
        namespace: Option<&str>,
        missing: &mut Vec<MissingPart>,
    ) -> Result<Self, Problem> {
        let pods = match evicted_pods(server, node, namespace).await {
            Ok(pods) => pods,
            Err(problem) => {
                missing.push(MissingPart::of("Pods", problem)?);
                return Ok(Self::default());
            }
        };
        let answers = futures::stream::iter(pods).map(async |pod| {
            let answer = request_eviction(server, &pod).await;
            (pod, answer)
        });
        let answers: Vec<_> = answers.buffered(CONCURRENCY).collect().await;
        let mut impact = Self::default();
        for (pod, answer) in answers {
            if let EvictionAnswer::Failed(problem) = &answer {
                let part = MissingPart::of("evictions", problem.clone())?;
                if !missing.contains(&part) {
                    missing.push(part);
                }
            }
            impact.add(&pod, answer);
        }
        Ok(impact)
    }

    fn add(&mut self, pod: &Pod, answer: EvictionAnswer) {
        let (namespace, name) = identity(pod);
        let controller = controller(pod);
        let effect = match (&answer, controller) {
            (EvictionAnswer::Gone, _) => return,
            (EvictionAnswer::Migrated, _) => DrainEffect::Migrated,
            (EvictionAnswer::Refused(_), _) => DrainEffect::Stays,
            (EvictionAnswer::Failed(_), _) => DrainEffect::Unknown,
            (EvictionAnswer::Allowed, Some(it)) if it.kind == MACHINE => DrainEffect::ShutDown,
            (EvictionAnswer::Allowed, Some(_)) => DrainEffect::Evicted,
            (EvictionAnswer::Allowed, None) => DrainEffect::Deleted,
        };
        self.interrupted.push(AffectedPod {
            kind: "Pod",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            effect,
            controller: controller.map(|it| format!("{}/{}", it.kind, it.name)),
        });
        if let EvictionAnswer::Refused(message) = answer {
            self.blockers.push(DrainBlocker {
                kind: "Pod",
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                message,
            });
        }
    }
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
    // If the continue token has expired, the list is read again in one page.
    let mut limit = Some(PAGE_OBJECTS);
    loop {
        let mut found = Vec::new();
        let take = |item: &str| {
            let pod: Pod = serde_json::from_str(item)?;
            found.extend(Some(pod).filter(is_evicted));
            Ok(())
        };
        let options = ListOptions {
            limit,
            field_selector: &on_node,
            ..ListOptions::default()
        };
        match server.list(&path, options, "pods", namespace, take).await {
            Err(Problem::Expired) if limit.is_some() => limit = None,
            listed => return listed.map(|_| found),
        }
    }
}

fn is_evicted(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let is_mirror = annotations.is_some_and(|it| it.contains_key(MIRROR_ANNOTATION));
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    !is_mirror && !has_ended && controller(pod).is_none_or(|it| it.kind != "DaemonSet")
}

async fn request_eviction(server: &ApiClient, pod: &Pod) -> EvictionAnswer {
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
    let error = match server.create(&uri, &eviction).await {
        Ok(Ok(())) => return EvictionAnswer::Allowed,
        Ok(Err(error)) => error,
        Err(problem) => return EvictionAnswer::Failed(problem),
    };
    if let kube::Error::Api(status) = &error {
        if status.message.contains(EVACUATION) {
            return EvictionAnswer::Migrated;
        }
        if status.code == 404 {
            return EvictionAnswer::Gone;
        }
        if let Some(refusal) = refusal(status) {
            return EvictionAnswer::Refused(refusal);
        }
    }
    EvictionAnswer::Failed(server.problem(&error, "create", "pods/eviction", None))
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
