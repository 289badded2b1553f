//! Which resource a kind is, and whether it is namespaced, where no discovery can be asked.
//!
//! A `CustomResourceDefinition` in the folder says so; what is built into Kubernetes is
//! known; for the rest, English plurals and the presence of a namespace must do.

pub mod short_names;

use std::collections::HashMap;

/// A kind as its `apiVersion` and `kind` name it, without the version: group and kind.
pub type GroupKind = (String, String);

/// What is known of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The resource's name, if it is known rather than guessed.
    pub plural: Option<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// Cluster-scoped kinds that a folder of manifests is likely to hold.
const CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("cdi.kubevirt.io", "CDI"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("config.openshift.io", "ClusterOperator"),
    ("config.openshift.io", "ClusterVersion"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("machineconfiguration.openshift.io", "MachineConfig"),
    ("machineconfiguration.openshift.io", "MachineConfigPool"),
    ("networking.k8s.io", "IngressClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("snapshot.storage.k8s.io", "VolumeSnapshotClass"),
    ("snapshot.storage.k8s.io", "VolumeSnapshotContent"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
];

/// Groups whose other kinds are namespaced.
const NAMESPACED_GROUPS: &[&str] = &[
    "",
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "kubevirt.io",
    "networking.k8s.io",
    "operators.coreos.com",
    "policy",
];

/// What `declared` (by a `CustomResourceDefinition`) or common knowledge says of a kind;
/// else, whether any object of it has a namespace.
pub fn names(
    kind: &GroupKind,
    declared: &HashMap<GroupKind, Names>,
    any_has_namespace: bool,
) -> Names {
    if let Some(names) = declared.get(kind) {
        return names.clone();
    }
    let (group, name) = (kind.0.as_str(), kind.1.as_str());
    let namespaced = !CLUSTER_SCOPED.contains(&(group, name))
        && (any_has_namespace || NAMESPACED_GROUPS.contains(&group));
    Names {
        plural: None,
        namespaced,
    }
}

/// Whether `resource` names the objects of `kind`.
pub fn is_plural(resource: &str, kind: &str) -> bool {
    let kind = kind.to_lowercase();
    // Endpoints is its own plural; ingress, policy and pod stand for the three others.
    resource == kind
        || resource
            .strip_prefix(kind.as_str())
            .is_some_and(|end| end == "s" || end == "es")
        || kind
            .strip_suffix('y')
            .is_some_and(|stem| resource.strip_prefix(stem) == Some("ies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, kind: &str) -> GroupKind {
        (group.into(), kind.into())
    }

    #[test]
    fn plurals_follow_english() {
        for (resource, kind) in [
            ("pods", "Pod"),
            ("ingresses", "Ingress"),
            ("networkpolicies", "NetworkPolicy"),
            ("endpoints", "Endpoints"),
            (
                "virtualmachineinstancemigrations",
                "VirtualMachineInstanceMigration",
            ),
        ] {
            assert!(is_plural(resource, kind), "{resource}");
        }
        for (resource, kind) in [
            ("virtualmachineinstances", "VirtualMachine"),
            ("pod", "Pods"),
            ("", "Pod"),
        ] {
            assert!(!is_plural(resource, kind), "{resource}");
        }
    }

    #[test]
    fn scope_comes_from_the_crd_then_from_knowledge_then_from_the_objects() {
        let none = HashMap::new();
        let crd = Names {
            plural: Some("kine".into()),
            namespaced: false,
        };
        let declared = HashMap::from([(kind("x.io", "Cow"), crd.clone())]);
        assert_eq!(names(&kind("x.io", "Cow"), &declared, true), crd);
        assert!(!names(&kind("", "Node"), &none, true).namespaced);
        assert!(names(&kind("apps", "Deployment"), &none, false).namespaced);
        assert!(names(&kind("x.io", "Cow"), &none, true).namespaced);
        assert!(!names(&kind("x.io", "Cow"), &none, false).namespaced);
    }
}
