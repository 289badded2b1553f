//! The kinds of the objects in the demo, with the names and scopes as in a real cluster.

use aggregated_apiserver::serve::ResourceInfo;
use ifo_api::{GROUP, Gvr, Resolution, VERSION, ruleset};
use ifo_client::short_names::{NamedResource, ShortNames};
use serde_json::Value;

const fn kind(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
) -> ResourceInfo {
    ResourceInfo {
        group,
        version,
        plural,
        kind,
        namespaced,
        short_names,
        categories: &[],
        verbs: &["get", "list", "watch"],
    }
}

/// The kind of rule sets.
pub const RULE_SETS: ResourceInfo = kind(
    GROUP,
    VERSION,
    ruleset::PLURAL,
    "OperationRuleSet",
    false,
    &["ors"],
);

/// The kind of rule sets, and all kinds that occur in the scenes, which are the recordings that the demo
/// plays.
#[rustfmt::skip]
pub static KINDS: &[ResourceInfo] = &[
    RULE_SETS,
    kind("", "v1", "namespaces", "Namespace", false, &["ns"]),
    kind("", "v1", "nodes", "Node", false, &["no"]),
    kind("", "v1", "pods", "Pod", true, &["po"]),
    kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, &["pdb"]),
    kind("apps", "v1", "deployments", "Deployment", true, &["deploy"]),
    kind("kubevirt.io", "v1", "virtualmachines", "VirtualMachine", true, &["vm", "vms"]),
    kind("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", true, &["vmi", "vmis"]),
    kind("kubevirt.io", "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration", true, &["vmim", "vmims"]),
    kind("kubevirt.io", "v1", "kubevirts", "KubeVirt", true, &["kv", "kvs"]),
    kind("snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshots", "VirtualMachineSnapshot", true, &["vmsnapshot", "vmsnapshots"]),
    kind("snapshot.kubevirt.io", "v1beta1", "virtualmachinerestores", "VirtualMachineRestore", true, &["vmrestore", "vmrestores"]),
    kind("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume", true, &["dv", "dvs"]),
    kind("cdi.kubevirt.io", "v1beta1", "cdis", "CDI", false, &["cdi", "cdis"]),
    kind("hco.kubevirt.io", "v1beta1", "hyperconvergeds", "HyperConverged", true, &["hco", "hcos"]),
    kind("operators.coreos.com", "v1alpha1", "subscriptions", "Subscription", true, &["sub", "subs"]),
    kind("operators.coreos.com", "v1alpha1", "installplans", "InstallPlan", true, &["ip"]),
    kind("operators.coreos.com", "v1alpha1", "clusterserviceversions", "ClusterServiceVersion", true, &["csv", "csvs"]),
    kind("config.openshift.io", "v1", "clusterversions", "ClusterVersion", false, &[]),
];

/// The kinds that the demo serves if the objects come from a folder: rule sets and Namespaces.
pub static KINDS_WITH_FOLDER: &[ResourceInfo] = KINDS.split_at(2).0;

/// Returns the group, version and resource name of a kind.
pub fn gvr(kind: &ResourceInfo) -> Gvr {
    Gvr {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        resource: kind.plural.to_owned(),
    }
}

/// Returns the kind of a resource, or `None` if the scenes have no objects of this resource.
pub fn of_resource(resource: &Gvr) -> Option<&'static ResourceInfo> {
    KINDS.iter().find(|kind| gvr(kind) == *resource)
}

/// Returns the kind of an object, or `None` if the scenes have no objects of this kind.
pub fn of_object(object: &Value) -> Option<&'static ResourceInfo> {
    let named =
        |it: &&ResourceInfo| object["kind"] == it.kind && object["apiVersion"] == *it.api_version();
    KINDS.iter().find(named)
}

/// Looks up a resource among the kinds of the scenes.
pub fn resolve(resource: &Gvr) -> Resolution {
    let groups = || KINDS.iter().map(|kind| kind.group);
    match of_resource(resource) {
        Some(kind) => Resolution::Served {
            kind: kind.kind.to_owned(),
            namespaced: kind.namespaced,
        },
        None => Resolution::NotServed {
            message: format!("the demo has no {resource}"),
            group_served: groups().any(|group| group == resource.group),
            similar_group: ifo_client::similar_group(&resource.group, groups()).map(str::to_owned),
        },
    }
}

/// Returns the short names of the kinds.
pub fn short_names(kinds: &[ResourceInfo]) -> ShortNames {
    let named = kinds.iter().map(|kind| NamedResource {
        group: kind.group,
        kind: kind.kind,
        plural: kind.plural,
        short_names: kind.short_names.to_vec(),
    });
    ShortNames::new(&named.collect::<Vec<_>>())
}
