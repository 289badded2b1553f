//! Generates `ClusterRole` objects that allow `ifo-apiserver` to watch the targets of rule sets. A
//! target is a resource that a rule set names.

use ifo_api::Gvr;
use ifo_api::ruleset::AGGREGATE_LABEL;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

/// Verbs that the server needs on every resource that it watches.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// Returns the name of the ClusterRole for the rule sets of `component`. Upper-case letters and
/// underscores of the component are replaced, because names of most Kubernetes objects may not
/// contain them.
pub fn role_name(component: &str) -> String {
    let component = component.to_lowercase().replace('_', "-");
    format!("ifo-rules-{component}")
}

/// Returns a ClusterRole that allows the server to watch `targets`. The order of the targets does
/// not change the result.
pub fn cluster_role<'a>(name: &str, targets: impl IntoIterator<Item = &'a Gvr>) -> ClusterRole {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for target in targets {
        let resources = groups.entry(&target.group).or_default();
        resources.insert(&target.resource);
    }
    let rules = groups.into_iter().map(|(group, resources)| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.into_iter().map(str::to_owned).collect()),
        verbs: VERBS.map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    });
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(AGGREGATE_LABEL.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        rules: Some(rules.collect()),
        ..ClusterRole::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(group: &str, resource: &str) -> Gvr {
        Gvr {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
        }
    }

    #[test]
    fn the_role_does_not_depend_on_the_order_of_the_targets() {
        let (a, b, c) = (target("x.io", "b"), target("", "pods"), target("x.io", "a"));
        let role = cluster_role("r", [&a, &b, &c, &a]);
        assert_eq!(role, cluster_role("r", [&c, &a, &b]));
        let yaml = serde_saphyr::to_string(&role).expect("a ClusterRole can be encoded");
        assert_eq!(
            yaml,
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  labels:\n    \
             ifo.kubevirt.io/aggregate-to-targets: \"true\"\n  name: r\nrules:\n- apiGroups:\n  - \"\"\n  \
             resources:\n  - pods\n  verbs:\n  - get\n  - list\n  - watch\n- apiGroups:\n  - x.io\n  \
             resources:\n  - a\n  - b\n  verbs:\n  - get\n  - list\n  - watch\n"
        );
    }

    #[test]
    fn role_names_are_valid_object_names() {
        assert_eq!(role_name("Data_Protection"), "ifo-rules-data-protection");
    }
}
