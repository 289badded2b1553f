//! Tables of well-known kinds and API groups. From these tables, [`is_namespaced`] reads whether a
//! kind is namespaced or cluster-scoped.

/// API groups and names of cluster-scoped kinds that are common in folders of manifests.
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

/// API groups in which a kind counts as namespaced if it is not in [`CLUSTER_SCOPED`].
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

/// Returns true if a kind is namespaced. Returns None if the tables contain neither the kind nor
/// its group.
pub(super) fn is_namespaced(group: &str, kind: &str) -> Option<bool> {
    if CLUSTER_SCOPED.contains(&(group, kind)) {
        return Some(false);
    }
    NAMESPACED_GROUPS.contains(&group).then_some(true)
}
