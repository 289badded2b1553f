//! The rule sets in `rules/`, which are part of the binary. The demo starts with them.

use super::decompress;
use ifo_api::ruleset::OperationRuleSet;

/// Lists files in `rules/`, each with its compressed text.
macro_rules! files {
    ($($file:literal)*) => {
        &[$((
            $file,
            include_bytes!(concat!(env!("OUT_DIR"), "/rules/", $file, ".lz4")),
        )),*]
    };
}

/// The files with rule sets that `kubectl apply -k rules` installs.
const SHIPPED: &[(&str, &[u8])] = files![
    "argocd/applications.yaml"
    "cert-manager/certificates.yaml"
    "cluster-api/clusters.yaml"
    "cluster-api/machines.yaml"
    "deckhouse/virtualmachineoperations.yaml"
    "flux/helmreleases.yaml"
    "flux/kustomizations.yaml"
    "forklift/migrations.yaml"
    "forklift/plans.yaml"
    "generic/daemonsets.yaml"
    "generic/deployments.yaml"
    "generic/horizontalpodautoscalers.yaml"
    "generic/jobs.yaml"
    "generic/namespaces.yaml"
    "generic/nodes.yaml"
    "generic/persistentvolumeclaims.yaml"
    "generic/statefulsets.yaml"
    "generic/storageversionmigrations.yaml"
    "generic/volumesnapshots.yaml"
    "kubevirt/aaqs.yaml"
    "kubevirt/cdis.yaml"
    "kubevirt/datavolumes.yaml"
    "kubevirt/hostpathprovisioners.yaml"
    "kubevirt/hyperconvergeds.yaml"
    "kubevirt/kubevirts.yaml"
    "kubevirt/networkaddonsconfigs.yaml"
    "kubevirt/ssps.yaml"
    "kubevirt/virtualmachinebackups.yaml"
    "kubevirt/virtualmachineclones.yaml"
    "kubevirt/virtualmachineexports.yaml"
    "kubevirt/virtualmachineinstancemigrations.yaml"
    "kubevirt/virtualmachineinstances.yaml"
    "kubevirt/virtualmachinerestores.yaml"
    "kubevirt/virtualmachines.yaml"
    "kubevirt/virtualmachinesnapshots.yaml"
    "medik8s/fenceagentsremediations.yaml"
    "medik8s/nodemaintenances.yaml"
    "nmstate/nodenetworkconfigurationenactments.yaml"
    "nmstate/nodenetworkconfigurationpolicies.yaml"
    "olm/clusterserviceversions-not-upgradeable.yaml"
    "olm/clusterserviceversions-reinstall.yaml"
    "olm/clusterserviceversions.yaml"
    "olm/installplans.yaml"
    "olm/subscriptions-upgrade.yaml"
    "olm/subscriptions.yaml"
    "openshift/builds.yaml"
    "openshift/clusteroperators.yaml"
    "openshift/clusterversions.yaml"
    "openshift/machineconfigpools.yaml"
    "openshift/machineosbuilds.yaml"
    "openshift/machines.yaml"
    "openshift/machinesets.yaml"
    "openshift/storageversionmigrations.yaml"
    "velero/backups.yaml"
    "velero/datadownloads.yaml"
    "velero/datauploads.yaml"
    "velero/deletebackuprequests.yaml"
    "velero/podvolumebackups.yaml"
    "velero/podvolumerestores.yaml"
    "velero/restores.yaml"
];

/// Returns the shipped rule sets. Each file contains one rule set. If a file cannot be parsed, this
/// function logs an error and leaves out the rule set. A test checks that all files are valid.
pub fn shipped() -> Vec<OperationRuleSet> {
    SHIPPED
        .iter()
        .filter_map(|(file, text)| match parse(&decompress(text)) {
            Ok(rule_set) => Some(rule_set),
            Err(error) => {
                tracing::error!(file, %error, "a shipped rule set cannot be read");
                None
            }
        })
        .collect()
}

/// Parses a rule set. The function first converts the YAML to a JSON value, and then the JSON value
/// to an [`OperationRuleSet`]. A direct conversion from YAML would add 300 KB to the binary. The
/// conversion from JSON is needed in any case.
fn parse(text: &str) -> Result<OperationRuleSet, String> {
    let value: serde_json::Value =
        serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_cel::Projection;
    use ifo_engine::rules::{RuleBook, compile};
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;

    /// Returns the files and folders that the kustomization of a folder lists.
    fn resources(folder: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(folder.join("kustomization.yaml"))
            .expect("each folder has a kustomization");
        let value: serde_json::Value =
            serde_saphyr::from_str(&text).expect("a kustomization is YAML");
        let listed = value["resources"]
            .as_array()
            .expect("a kustomization has resources");
        listed
            .iter()
            .map(|name| name.as_str().expect("a resource is a path").to_owned())
            .collect()
    }

    #[test]
    fn the_binary_contains_the_rule_sets_that_kustomize_installs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
        let mut files = BTreeSet::new();
        for component in resources(&root) {
            for file in resources(&root.join(&component)) {
                if file != "clusterrole.yaml" {
                    files.insert(format!("{component}/{file}"));
                }
            }
        }
        let shipped: BTreeSet<_> = SHIPPED.iter().map(|(file, _)| (*file).to_owned()).collect();
        assert_eq!(shipped, files);
    }

    /// The compiler limits the number of fields that a rule set needs. Beyond the limit, the server
    /// decodes whole objects. No shipped rule set may reach this limit.
    #[test]
    fn every_shipped_rule_set_compiles_and_needs_only_some_fields() {
        let all = shipped();
        assert_eq!(all.len(), SHIPPED.len());
        let mut whole = Projection::default();
        whole.add(&[]);
        for rule_set in all {
            let name = rule_set.metadata.name.expect("a rule set has a name");
            let rules = compile(&name, &rule_set.spec);
            let rules = rules.unwrap_or_else(|invalid| panic!("{name}: {invalid:?}"));
            let target = rule_set.spec.target.gvr();
            let book = RuleBook::new(1, target, String::new(), true, vec![Arc::new(rules)]);
            assert_ne!(book.projection, whole, "{name}");
        }
    }
}
