//! The rule sets that the demo starts with: the ones that are shipped.

use crate::api::ruleset::OperationRuleSet;

/// Every file under `rules/`.
const SHIPPED: &[(&str, &str)] = &[
    (
        "generic/deployments.yaml",
        include_str!("../../rules/generic/deployments.yaml"),
    ),
    (
        "generic/namespaces.yaml",
        include_str!("../../rules/generic/namespaces.yaml"),
    ),
    (
        "kubevirt/datavolumes.yaml",
        include_str!("../../rules/kubevirt/datavolumes.yaml"),
    ),
    (
        "kubevirt/kubevirts.yaml",
        include_str!("../../rules/kubevirt/kubevirts.yaml"),
    ),
    (
        "kubevirt/virtualmachineinstancemigrations.yaml",
        include_str!("../../rules/kubevirt/virtualmachineinstancemigrations.yaml"),
    ),
    (
        "kubevirt/virtualmachineinstances.yaml",
        include_str!("../../rules/kubevirt/virtualmachineinstances.yaml"),
    ),
    (
        "kubevirt/virtualmachines.yaml",
        include_str!("../../rules/kubevirt/virtualmachines.yaml"),
    ),
    (
        "olm/clusterserviceversions.yaml",
        include_str!("../../rules/olm/clusterserviceversions.yaml"),
    ),
    (
        "olm/installplans.yaml",
        include_str!("../../rules/olm/installplans.yaml"),
    ),
    (
        "openshift/clusterversions.yaml",
        include_str!("../../rules/openshift/clusterversions.yaml"),
    ),
];

/// The shipped rule sets. Each is one document; that all can be read is tested.
pub fn shipped() -> Vec<OperationRuleSet> {
    SHIPPED
        .iter()
        .filter_map(|(file, text)| match serde_saphyr::from_str(text) {
            Ok(rule_set) => Some(rule_set),
            Err(error) => {
                tracing::error!(file, %error, "a shipped rule set cannot be read");
                None
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::compile;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_file_under_rules_is_shipped() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
        let mut files = BTreeSet::new();
        for component in std::fs::read_dir(&root).expect("rules/ is there") {
            let component = component.expect("it can be read").path();
            if component.is_dir() {
                for file in std::fs::read_dir(&component).expect("it can be read") {
                    let file = file.expect("it can be read").path();
                    files.insert(
                        file.strip_prefix(&root)
                            .expect("it is inside")
                            .display()
                            .to_string(),
                    );
                }
            }
        }
        let shipped: BTreeSet<_> = SHIPPED.iter().map(|(file, _)| (*file).to_owned()).collect();
        assert_eq!(shipped, files);
    }

    #[test]
    fn every_shipped_rule_set_compiles() {
        let all = shipped();
        assert_eq!(all.len(), SHIPPED.len());
        for rule_set in all {
            let name = rule_set.metadata.name.expect("a name");
            compile(&name, &rule_set.spec).unwrap_or_else(|invalid| panic!("{name}: {invalid:?}"));
        }
    }
}
