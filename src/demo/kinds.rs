//! The kinds of the objects in the demo, with the names and scopes as in a real cluster.

use aggregated_apiserver::serve::ResourceInfo;
use ifo_api::Gvr;
use ifo_client::short_names::{NamedResource, ShortNames};

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
        verbs: &["get", "list"],
    }
}

/// All kinds that occur in the scenes, which are the recordings that the demo plays.
#[rustfmt::skip]
pub static KINDS: &[ResourceInfo] = &[
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

/// The kind `Namespace`.
pub static NAMESPACES: &[ResourceInfo] = KINDS.split_at(1).0;

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

/// Returns the kind that an object names in `apiVersion` and `kind`, or `None` if the scenes have
/// no objects of this kind.
pub fn of_object(api_version: &str, name: &str) -> Option<&'static ResourceInfo> {
    let named = |kind: &&ResourceInfo| kind.kind == name && gvr(kind).api_version() == api_version;
    KINDS.iter().find(named)
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
