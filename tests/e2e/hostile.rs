//! Tests with hostile input: rule sets, watched objects and requests that could use up the memory
//! or processor time of the server under test. Other users must not be affected.

mod component_owners;
mod http2_client;
mod memory_under_floods;
mod slow_rules;
mod too_many_operations;

use crate::harness::TestCluster;
use serde_json::json;

/// Gives the server the right to read all resources of an API group. `role` is the name of the
/// created ClusterRole.
async fn allow(cluster: &TestCluster, role: &str, group: &str) {
    let cluster_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role},
        "rules": [{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": role,
        },
        "subjects": [{
            "kind": "ServiceAccount", "namespace": "ifo-system", "name": "ifo-apiserver",
        }],
    });
    cluster.apply(&[cluster_role, binding]).await;
}

/// Environment variables of a server that writes no custom resources.
const WITHOUT_PERSISTENCE: [(&str, &str); 1] = [("PERSISTENCE", "off")];

/// Returns the peak resident memory of a process in bytes, or 0 if the system does not report it.
pub fn peak_memory(pid: u32) -> u64 {
    process_status_bytes(pid, "VmHWM:")
}

/// Returns the value of the line `name` of `/proc/PID/status` in bytes, or 0 if there is no such
/// line. For example, `VmRSS:` is the resident memory, and `VmHWM:` is its peak.
fn process_status_bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes =
        found.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}
