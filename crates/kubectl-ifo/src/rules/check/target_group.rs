//! Finds targets (the resources that rule sets watch) whose API group is probably misspelt.

use super::super::resource_schemas::Schemas;
use ifo_api::Gvr;
use ifo_client::similar_group;

/// The groups of the shipped rule sets, and of Kubernetes. Without a cluster, a group that is
/// similar to one of these groups is probably misspelt.
const KNOWN_GROUPS: [&str; 51] = [
    "aaq.kubevirt.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "argoproj.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "backup.kubevirt.io",
    "batch",
    "build.openshift.io",
    "cdi.kubevirt.io",
    "cert-manager.io",
    "certificates.k8s.io",
    "clone.kubevirt.io",
    "cluster.x-k8s.io",
    "config.openshift.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "export.kubevirt.io",
    "fence-agents-remediation.medik8s.io",
    "flowcontrol.apiserver.k8s.io",
    "forklift.konveyor.io",
    "hco.kubevirt.io",
    "helm.toolkit.fluxcd.io",
    "hostpathprovisioner.kubevirt.io",
    "internal.apiserver.k8s.io",
    "kubevirt.io",
    "kustomize.toolkit.fluxcd.io",
    "machine.openshift.io",
    "machineconfiguration.openshift.io",
    "migration.k8s.io",
    "networkaddonsoperator.network.kubevirt.io",
    "networking.k8s.io",
    "nmstate.io",
    "node.k8s.io",
    "nodemaintenance.medik8s.io",
    "operators.coreos.com",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "snapshot.kubevirt.io",
    "snapshot.storage.k8s.io",
    "ssp.kubevirt.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
    "velero.io",
    "virtualization.deckhouse.io",
];

/// Returns a warning if the current cluster does not serve the group or the version of `target`. If
/// no cluster was read, returns a warning if the group is probably misspelt.
pub(super) fn warning(target: &Gvr, schemas: &Schemas) -> Option<String> {
    let Gvr { group, version, .. } = target;
    // Every cluster has the core group.
    if group.is_empty() {
        return None;
    }
    let Some(served) = schemas.served_groups() else {
        if KNOWN_GROUPS.contains(&&**group) {
            return None;
        }
        let similar = similar_group(group, KNOWN_GROUPS)?;
        return Some(format!(
            "target: the group {group:?} is not known (hint: did you mean {similar}?)"
        ));
    };
    match served.get(group) {
        None => {
            let names = served.keys().map(String::as_str);
            let similar = similar_group(group, names.chain(KNOWN_GROUPS));
            let hint = similar.map(|similar| format!(" (hint: did you mean {similar}?)"));
            Some(format!(
                "target: the cluster does not serve the group {group:?}{}",
                hint.unwrap_or_default()
            ))
        }
        Some(versions) if !versions.contains(version) => Some(format!(
            "target: the cluster does not serve the version {version:?} of the group {group:?} \
             (hint: it serves {})",
            versions.join(", ")
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::input_files::Input;
    use crate::rules::rule_sets;
    use std::path::Path;

    #[test]
    fn the_groups_of_all_shipped_rule_sets_are_known() {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules");
        let mut input = Input::read(&[shipped]);
        let loaded = rule_sets::load(&mut input);
        assert!(loaded.len() > 5, "{:?}", input.faults);
        for rule_set in loaded {
            let group = rule_set.target().group;
            assert!(
                group.is_empty() || KNOWN_GROUPS.contains(&&*group),
                "{group} is not in KNOWN_GROUPS"
            );
        }
    }
}
