//! A table of short names of widely used kinds, such as `vm`. The table is used for kinds that
//! discovery does not contain:
//!
//! - The demo of `ifo-apiserver` serves objects of kinds that it has no CRD of.
//! - The plugin `kubectl-ifo` reads short names from aggregated discovery, which a kube-apiserver
//!   before 1.26 does not have.

use super::is_kind_or_plural;

/// Short name, API group and plural of each kind. A short name with an added `s`, such as `vms`, is
/// accepted, too.
const ALL: [(&str, &str, &str); 32] = [
    ("cm", "", "configmaps"),
    ("no", "", "nodes"),
    ("ns", "", "namespaces"),
    ("po", "", "pods"),
    ("pv", "", "persistentvolumes"),
    ("pvc", "", "persistentvolumeclaims"),
    ("svc", "", "services"),
    ("deploy", "apps", "deployments"),
    ("ds", "apps", "daemonsets"),
    ("rs", "apps", "replicasets"),
    ("sts", "apps", "statefulsets"),
    ("hpa", "autoscaling", "horizontalpodautoscalers"),
    ("pdb", "policy", "poddisruptionbudgets"),
    ("cj", "batch", "cronjobs"),
    ("vs", "snapshot.storage.k8s.io", "volumesnapshots"),
    ("kv", "kubevirt.io", "kubevirts"),
    ("vm", "kubevirt.io", "virtualmachines"),
    ("vmi", "kubevirt.io", "virtualmachineinstances"),
    ("vmim", "kubevirt.io", "virtualmachineinstancemigrations"),
    (
        "vmsnapshot",
        "snapshot.kubevirt.io",
        "virtualmachinesnapshots",
    ),
    (
        "vmrestore",
        "snapshot.kubevirt.io",
        "virtualmachinerestores",
    ),
    ("cdi", "cdi.kubevirt.io", "cdis"),
    ("dv", "cdi.kubevirt.io", "datavolumes"),
    ("hco", "hco.kubevirt.io", "hyperconvergeds"),
    ("csv", "operators.coreos.com", "clusterserviceversions"),
    ("ip", "operators.coreos.com", "installplans"),
    ("sub", "operators.coreos.com", "subscriptions"),
    ("co", "config.openshift.io", "clusteroperators"),
    (
        "mcp",
        "machineconfiguration.openshift.io",
        "machineconfigpools",
    ),
    ("nncp", "nmstate.io", "nodenetworkconfigurationpolicies"),
    ("cert", "cert-manager.io", "certificates"),
    ("app", "argoproj.io", "applications"),
];

/// Returns the resources in `group` with the short name `name`.
fn plurals(name: &str, group: &str) -> impl Iterator<Item = &'static str> {
    let singular = name.strip_suffix('s').unwrap_or(name);
    let is_it = move |short: &str| short == name || short == singular;
    let named = ALL.iter().filter(move |it| is_it(it.0) && it.1 == group);
    named.map(|it| it.2)
}

/// Returns the short names of the resource `plural` in `group`.
pub fn short_names(group: &str, plural: &str) -> Vec<&'static str> {
    let named = ALL.iter().filter(|it| (it.1, it.2) == (group, plural));
    named.map(|it| it.0).collect()
}

/// Returns true if `name` is a short name of `kind` in `group`. `name` must be in lower case.
pub(super) fn is_short_for_kind(name: &str, group: &str, kind: &str) -> bool {
    plurals(name, group).any(|plural| is_kind_or_plural(plural, kind))
}

/// Returns true if `name` is a short name of the resource `plural` in `group`. `name` must be in
/// lower case.
pub(super) fn is_short_for_resource(name: &str, group: &str, plural: &str) -> bool {
    plurals(name, group).any(|it| it == plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_belongs_to_one_group() {
        assert!(is_short_for_resource("deploy", "apps", "deployments"));
        assert!(!is_short_for_resource(
            "deploy",
            "example.io",
            "deployments"
        ));
        assert!(!is_short_for_resource("deploy", "apps", "daemonsets"));
        assert!(is_short_for_kind("deploy", "apps", "Deployment"));
        assert!(is_short_for_kind("vms", "kubevirt.io", "VirtualMachine"));
        assert!(!is_short_for_kind("deploy", "apps", "DaemonSet"));
    }
}
