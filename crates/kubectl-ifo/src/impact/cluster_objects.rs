//! Reads from the cluster the objects that determine the effect of a drain: Pods, disruption
//! budgets, virtual machines and the KubeVirt object.

use super::MissingPart;
use crate::api_client::{ApiClient, ListOptions};
use crate::operation_source::{PAGE_OBJECTS, escape};
use crate::problem::Problem;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIResourceList, LabelSelector, ObjectMeta, OwnerReference,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Annotation of a mirror Pod: the object that the kubelet creates for a static Pod.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// A Pod, with the fields that determine what a drain does with it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DrainedPod {
    pub(super) metadata: ObjectMeta,
    spec: DrainedPodSpec,
    status: DrainedPodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DrainedPodSpec {
    volumes: Vec<DrainedVolume>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DrainedVolume {
    empty_dir: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DrainedPodStatus {
    phase: String,
    conditions: Vec<DrainCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DrainCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

fn find<'a>(conditions: &'a [DrainCondition], kind: &str) -> Option<&'a DrainCondition> {
    conditions.iter().find(|it| it.kind == kind)
}

impl DrainedPod {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the owner reference with `controller: true`. None if there is none.
    pub(super) fn controller(&self) -> Option<&OwnerReference> {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.find(|it| it.controller == Some(true))
    }

    pub(super) fn is_mirror(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|it| it.contains_key(MIRROR_ANNOTATION))
    }

    pub(super) fn is_of_daemon_set(&self) -> bool {
        self.controller().is_some_and(|it| it.kind == "DaemonSet")
    }

    /// Returns true if all containers have ended, so that a drain interrupts nothing.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(super) fn has_empty_dir(&self) -> bool {
        self.spec.volumes.iter().any(|it| it.empty_dir.is_some())
    }

    /// Returns true if disruption budgets cannot prevent the eviction of the Pod: the Pod has
    /// ended, has not started yet, or is already being deleted.
    pub(super) fn ignores_budgets(&self) -> bool {
        self.has_ended()
            || self.status.phase == "Pending"
            || self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn is_ready(&self) -> bool {
        find(&self.status.conditions, "Ready").is_some_and(|it| it.status == "True")
    }
}

/// A `PodDisruptionBudget`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DrainBudget {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: DrainBudgetSpec,
    pub(super) status: DrainBudgetStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DrainBudgetSpec {
    pub(super) selector: Option<LabelSelector>,
    pub(super) unhealthy_pod_eviction_policy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DrainBudgetStatus {
    pub(super) disruptions_allowed: i64,
    pub(super) current_healthy: i64,
    pub(super) desired_healthy: i64,
}

/// A VirtualMachineInstance: a running virtual machine of KubeVirt.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DrainedMachine {
    pub(super) metadata: ObjectMeta,
    spec: DrainedMachineSpec,
    status: DrainedMachineStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DrainedMachineSpec {
    eviction_strategy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DrainedMachineStatus {
    node_name: String,
    phase: String,
    conditions: Vec<DrainCondition>,
}

impl DrainedMachine {
    /// Returns true if the virtual machine is on the node and has not ended.
    pub(super) fn is_on(&self, node: &str) -> bool {
        self.status.node_name == node
            && !matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns the eviction strategy of the virtual machine, such as `LiveMigrate`. None if the
    /// virtual machine sets no strategy. Then the default of the cluster applies.
    pub(super) fn eviction_strategy(&self) -> Option<&str> {
        let own = self.spec.eviction_strategy.as_deref();
        own.filter(|it| !it.is_empty())
    }

    /// Returns the reason why the virtual machine cannot be migrated. None if it can be migrated.
    pub(super) fn not_migratable_reason(&self) -> Option<String> {
        match find(&self.status.conditions, "LiveMigratable") {
            Some(condition) if condition.status == "True" => None,
            Some(condition) => {
                let texts = [&condition.reason, &condition.message];
                let texts = texts.into_iter().filter(|it| !it.is_empty());
                Some(texts.cloned().collect::<Vec<_>>().join(": "))
            }
            None => Some("the object has no condition LiveMigratable".to_owned()),
        }
    }
}

/// The default of the cluster: the eviction strategy of virtual machines that set no strategy
/// themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DefaultStrategy {
    /// The eviction strategy in the KubeVirt object. If the object sets no strategy, the value is
    /// the text `None`, the name of KubeVirt's own default strategy.
    Set(String),
    /// The KubeVirt object could not be read, or no virtual machine on the node needs the default.
    Unknown,
}

/// The objects that were read from the cluster. A list that could not be read is None. With `-n`,
/// the lists contain only objects in this namespace.
#[derive(Debug)]
pub(super) struct NodeObjects {
    /// The Pods on the node.
    pub(super) pods: Option<Vec<DrainedPod>>,
    /// The disruption budgets, also those that select no Pod on the node.
    pub(super) budgets: Option<Vec<DrainBudget>>,
    /// The virtual machines on the node.
    pub(super) machines: Option<Vec<DrainedMachine>>,
    pub(super) default_strategy: DefaultStrategy,
}

/// Reads the [`NodeObjects`] of one node.
pub(super) struct NodeObjectsReader<'a> {
    pub(super) server: &'a ApiClient,
    pub(super) node: &'a str,
    /// The namespace of `-n`. None for all namespaces.
    pub(super) namespace: Option<&'a str>,
}

/// A list that the plugin requests.
struct DrainList {
    /// The name of the list in messages.
    part: &'static str,
    /// Path of the API version, such as `/apis/policy/v1`.
    root: &'static str,
    plural: &'static str,
    /// `plural.group`, as RBAC errors name the resource.
    resource: &'static str,
}

const PODS: DrainList = DrainList {
    part: "Pods",
    root: "/api/v1",
    plural: "pods",
    resource: "pods",
};
const BUDGETS: DrainList = DrainList {
    part: "PodDisruptionBudgets",
    root: "/apis/policy/v1",
    plural: "poddisruptionbudgets",
    resource: "poddisruptionbudgets.policy",
};
const MACHINES: DrainList = DrainList {
    part: "VirtualMachineInstances",
    root: "/apis/kubevirt.io/v1",
    plural: "virtualmachineinstances",
    resource: "virtualmachineinstances.kubevirt.io",
};
const KUBEVIRTS: DrainList = DrainList {
    part: "default evictionStrategy of KubeVirt",
    root: "/apis/kubevirt.io/v1",
    plural: "kubevirts",
    resource: "kubevirts.kubevirt.io",
};

impl NodeObjectsReader<'_> {
    /// Reads all parts. If a part cannot be read, adds the part to `missing`. If a problem affects
    /// all parts, returns the problem as an error. For example, the cluster cannot be reached.
    pub(super) async fn read(
        &self,
        missing: &mut Vec<MissingPart>,
    ) -> Result<NodeObjects, Problem> {
        let on_node = format!("spec.nodeName={}", self.node);
        let (pods, budgets, machines) = tokio::join!(
            self.list(&PODS, self.namespace, &on_node, |_: &DrainedPod| true),
            self.list(&BUDGETS, self.namespace, "", |_: &DrainBudget| true),
            self.list(&MACHINES, self.namespace, "", |it: &DrainedMachine| it
                .is_on(self.node)),
        );
        let machines = match machines {
            // Without KubeVirt there are no virtual machines.
            Err(problem) if self.is_without_kubevirt(&problem).await => Ok(Vec::new()),
            machines => machines,
        };
        let mut parts = NodeObjects {
            pods: list_or_missing(&PODS, pods, missing)?,
            budgets: list_or_missing(&BUDGETS, budgets, missing)?,
            machines: list_or_missing(&MACHINES, machines, missing)?,
            default_strategy: DefaultStrategy::Unknown,
        };
        let needs_default = |it: &DrainedMachine| it.eviction_strategy().is_none();
        if parts.machines.iter().flatten().any(needs_default) {
            let kubevirts = self.list(&KUBEVIRTS, None, "", |_: &Value| true).await;
            if let Some(kubevirts) = list_or_missing(&KUBEVIRTS, kubevirts, missing)? {
                let setting = kubevirts
                    .iter()
                    .find_map(|it| it.pointer("/spec/configuration/evictionStrategy")?.as_str());
                // The strategy `None` is KubeVirt's own default.
                let setting = setting.unwrap_or("None").to_owned();
                parts.default_strategy = DefaultStrategy::Set(setting);
            }
        }
        Ok(parts)
    }

    /// Returns true if `problem` means that the cluster does not serve virtual machines:
    ///
    /// - `NotFound`: true.
    /// - `Forbidden`: discovery decides, because RBAC also refuses to list a resource that does not
    ///   exist.
    /// - Other problems: false.
    async fn is_without_kubevirt(&self, problem: &Problem) -> bool {
        match problem {
            Problem::NotFound(_) => true,
            Problem::Forbidden { .. } => {
                let discovery =
                    self.server
                        .get::<APIResourceList>(MACHINES.root, MACHINES.root, None);
                match discovery.await {
                    Ok(served) => !served.resources.iter().any(|it| it.name == MACHINES.plural),
                    Err(problem) => matches!(problem, Problem::NotFound(_)),
                }
            }
            _ => false,
        }
    }

    /// Reads a list, and returns the objects for which `is_kept` returns true. `fields` is the
    /// field selector of the request. An empty `fields` selects all objects.
    async fn list<T: DeserializeOwned>(
        &self,
        list: &DrainList,
        namespace: Option<&str>,
        fields: &str,
        is_kept: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, Problem> {
        let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
        let path = format!("{}{within}/{}", list.root, list.plural);
        // If the continue token has expired, the list is read again in one page.
        let mut limit = Some(PAGE_OBJECTS);
        loop {
            let mut found = Vec::new();
            let take = |item: &str| {
                let item: T = serde_json::from_str(item)?;
                found.extend(Some(item).filter(|it| is_kept(it)));
                Ok(())
            };
            let options = ListOptions {
                limit,
                field_selector: fields,
                ..ListOptions::default()
            };
            let listed = self
                .server
                .list(&path, options, list.resource, namespace, take);
            match listed.await {
                Err(Problem::Expired) if limit.is_some() => limit = None,
                listed => return listed.map(|_| found),
            }
        }
    }
}

/// Returns the list. If the list could not be read, adds the part to `missing` and returns None. If
/// the problem affects all parts, returns an error.
fn list_or_missing<T>(
    list: &DrainList,
    listed: Result<Vec<T>, Problem>,
    missing: &mut Vec<MissingPart>,
) -> Result<Option<Vec<T>>, Problem> {
    match listed {
        Ok(found) => Ok(Some(found)),
        Err(problem) => {
            missing.push(MissingPart {
                part: list.part,
                reason: match problem {
                    Problem::NotFound(_) => format!("the cluster does not serve {}", list.resource),
                    problem => missing_reason(problem)?,
                },
            });
            Ok(None)
        }
    }
}

/// Returns the reason why a part is missing. If the problem affects all parts, returns the problem
/// as an error, because the command has no answer.
pub(super) fn missing_reason(problem: Problem) -> Result<String, Problem> {
    match problem {
        Problem::Unauthorized
        | Problem::Unreachable { .. }
        | Problem::Config(_)
        | Problem::Proxy(_)
        | Problem::Usage(_)
        | Problem::Closed => Err(problem),
        Problem::Forbidden { verb, resource, .. } => Ok(format!("you may not {verb} {resource}")),
        problem => Ok(problem.to_string()),
    }
}
