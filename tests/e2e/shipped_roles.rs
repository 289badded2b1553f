//! Tests that the server needs each rule of its RBAC roles in `deploy/`, and that it needs no other
//! rights.
//!
//! The test removes one rule of the roles at a time. Then the test deletes the state of earlier
//! replicas (processes of the server), and starts two new replicas: a leader and a follower. If the
//! server needs the rule, the kube-apiserver refuses a request that the rule would allow. The test
//! finds this refusal in the audit log of the kube-apiserver.

use crate::harness::{
    ControlPlane, Kind, RULE_SET, ServerProcess, apart, credentials, eventually, ok_if, rule_set,
    text,
};
use crate::installation::Cluster;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The user name of the server's ServiceAccount.
const ACCOUNT: &str = "system:serviceaccount:ifo-system:ifo-apiserver";

/// The target of the test's rule set. The target of a rule set is the resource that the server
/// watches for it. The server has no right to read Pods. So the server must write an error to the
/// status of the rule set, and needs the right to write this status.
const POD: Kind = Kind {
    api_version: "v1",
    kind: "Pod",
    plural: "pods",
};

/// API path of roles and bindings.
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";

/// One rule of a shipped role, or one shipped binding to a built-in role of Kubernetes.
struct Right {
    /// API path of the role, or of the binding.
    path: String,
    /// The rules of the role without the rule that the test removes. None for a binding: the test
    /// deletes the whole binding.
    rest: Option<Vec<Value>>,
    /// The rule that the test removes. For a binding, this is the part of the built-in role that
    /// the server needs.
    rule: Value,
}

impl Right {
    /// Returns true if an event of the audit log is a refused request that this right would allow.
    fn was_needed_in(&self, event: &Value) -> bool {
        let contains = |field: &str, value: &str| {
            let values = self.rule[field].as_array().into_iter().flatten();
            values.into_iter().any(|it| it == value)
        };
        if text(event, "/user/username") == ACCOUNT && event["responseStatus"]["code"] == 403 {
            let resource = text(event, "/objectRef/resource");
            let resource = match text(event, "/objectRef/subresource") {
                "" => resource.to_owned(),
                subresource => format!("{resource}/{subresource}"),
            };
            return contains("apiGroups", text(event, "/objectRef/apiGroup"))
                && contains("resources", &resource)
                && contains("verbs", text(event, "/verb"))
                && self.applies_to_object(event);
        }
        // The audit log of the kube-apiserver does not contain requests between replicas. But a
        // replica that receives such a request asks the kube-apiserver for permission with a
        // SubjectAccessReview. The audit log contains this review and its result.
        let spec = &event["requestObject"]["spec"];
        spec["user"] == ACCOUNT
            && event["responseObject"]["status"]["allowed"] == false
            && (contains("nonResourceURLs", text(spec, "/nonResourceAttributes/path"))
                || contains("apiGroups", text(spec, "/resourceAttributes/group"))
                    && contains("resources", text(spec, "/resourceAttributes/resource"))
                    && contains("verbs", text(spec, "/resourceAttributes/verb")))
    }

    /// Returns true if the `resourceNames` of the rule contain the name of the object in this
    /// event. Also returns true if the rule has no `resourceNames`, or if the event has no object
    /// name. For example, the event of a list request has no object name.
    fn applies_to_object(&self, event: &Value) -> bool {
        let Some(names) = self.rule["resourceNames"].as_array() else {
            return true;
        };
        let name = &event["objectRef"]["name"];
        name.is_null() || names.contains(name)
    }
}

/// Returns the shipped rights of the server: each rule of the server's own roles, and each binding
/// to a built-in role of Kubernetes.
fn rights(manifests: &[Value]) -> Vec<Right> {
    let mut rights = Vec::new();
    let own = |it: &&Value| text(it, "/metadata/name").starts_with("ifo-apiserver");
    for object in manifests.iter().filter(own) {
        let path = |plural: &str| match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!(
                "{ROLES}/namespaces/{namespace}/{plural}/{}",
                text(object, "/metadata/name")
            ),
            None => format!("{ROLES}/{plural}/{}", text(object, "/metadata/name")),
        };
        let plural = match text(object, "/kind") {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            "ClusterRoleBinding" if text(object, "/roleRef/name").starts_with("system:") => {
                let rule = json!({
                    "apiGroups": ["authentication.k8s.io", "authorization.k8s.io"],
                    "resources": ["tokenreviews", "subjectaccessreviews"], "verbs": ["create"],
                });
                let path = path("clusterrolebindings");
                rights.push(Right {
                    path,
                    rest: None,
                    rule,
                });
                continue;
            }
            "RoleBinding" if text(object, "/roleRef/name").starts_with("extension-") => {
                let rule = json!({
                    "apiGroups": [""], "resources": ["configmaps"],
                    "verbs": ["get", "list", "watch"],
                });
                let path = path("rolebindings");
                rights.push(Right {
                    path,
                    rest: None,
                    rule,
                });
                continue;
            }
            _ => continue,
        };
        let rules = object["rules"].as_array().expect("a role has rules");
        for (at, rule) in rules.iter().enumerate() {
            let mut rest = rules.clone();
            rest.remove(at);
            let rest = Some(rest);
            let (path, rule) = (path(plural), rule.clone());
            rights.push(Right { path, rest, rule });
        }
    }
    rights
}

/// A cluster in which the server is installed in persistence mode: the leader writes operations as
/// custom resources.
struct Installation<'a> {
    cluster: Cluster<'a>,
    control_plane: &'a ControlPlane,
    deployment: Value,
    api_service: Value,
}

impl Installation<'_> {
    /// Deletes the state of earlier replicas: their Lease, their CA, and their changes of the
    /// APIService. Creates the rule set of the test again.
    async fn reset(&self) {
        let admin = &self.cluster.admin;
        let lease = "/apis/coordination.k8s.io/v1/namespaces/ifo-system/leases/ifo-apiserver";
        let deleted = admin.delete(lease).await;
        assert!([200, 404].contains(&deleted.code), "{deleted:?}");
        let secret = "/api/v1/namespaces/ifo-system/secrets/ifo-apiserver-serving-ca";
        admin.merge(secret, &json!({"data": null})).await.ok();
        let api_services = "/apis/apiregistration.k8s.io/v1/apiservices";
        let name = text(&self.api_service, "/metadata/name");
        admin.delete(&format!("{api_services}/{name}")).await.ok();
        admin.post(api_services, &self.api_service).await.ok();
        // The rule set is new, so the new replicas must write its status.
        let rule_sets = RULE_SET.path(None);
        let deleted = admin.delete(&format!("{rule_sets}/rights")).await;
        assert!([200, 404].contains(&deleted.code), "{deleted:?}");
        let rules = [("Starting", "object.status.phase == 'Pending'")];
        let new = rule_set("rights", &POD, &rules);
        admin.post(&rule_sets, &new).await.ok();
    }

    /// Starts two replicas. Does not wait until they are ready, because a replica that lacks a
    /// right may never become ready. If the caller drops the returned values, the processes end.
    async fn replicas(&self, attempt: usize) -> Vec<ServerProcess> {
        let mut replicas = Vec::new();
        for replica in ["a", "b"] {
            let dir = self.folder(attempt, replica);
            std::fs::create_dir_all(&dir).expect("the folder of the control plane is writable");
            let kubeconfig = dir.join("kubeconfig");
            let account = ("ifo-system", "ifo-apiserver");
            let url = &self.control_plane.addresses.apiserver_url;
            let admin = &self.cluster.admin;
            credentials(self.control_plane, url, admin, account, &kubeconfig).await;
            replicas.push(ServerProcess::start_unready(
                &dir,
                &self.deployment,
                &kubeconfig,
            ));
        }
        replicas
    }

    fn folder(&self, attempt: usize, replica: &str) -> PathBuf {
        let dir = &self.control_plane.addresses.dir;
        dir.join(format!("rights-{attempt}-{replica}"))
    }

    /// Returns the events of the audit log after the first `skipped` lines.
    fn events(&self, skipped: usize) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.control_plane.addresses.audit_log);
        let log = log.expect("the control plane keeps an audit log");
        let lines = log.lines().skip(skipped);
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// Returns true if the event is a refused request of the server's ServiceAccount. Requests for Pods
/// do not count, because the kube-apiserver must refuse them ([`POD`]).
fn is_unexpected_refusal(event: &Value) -> bool {
    text(event, "/user/username") == ACCOUNT
        && event["responseStatus"]["code"] == 403
        && text(event, "/objectRef/resource") != POD.plural
}

#[test]
fn the_server_needs_each_rule_of_its_roles_and_no_more_rights() {
    apart("rights", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        for folder in [
            "deploy/crd",
            "deploy/crd-persistence",
            "deploy/persistence",
            "apiservice",
        ] {
            cluster.kubectl_on_folder("apply", folder).await;
        }
        let path = "/apis/apps/v1/namespaces/ifo-system/deployments/ifo-apiserver";
        let deployment = cluster.admin.get(path).await.ok();
        let rights = rights(&cluster.rendered("deploy/persistence").await);
        assert!(rights.len() > 15, "{} rights", rights.len());
        let mut api_service = cluster.rendered("apiservice").await;
        let installation = Installation {
            cluster,
            control_plane,
            deployment,
            api_service: api_service.remove(0),
        };

        // With all rights, both replicas must become ready. The kube-apiserver may refuse only
        // requests for Pods.
        installation.reset().await;
        let mut replicas = installation.replicas(0).await;
        for replica in &mut replicas {
            replica.until_ready().await;
        }
        let refusals: Vec<Value> = installation
            .events(0)
            .into_iter()
            .filter(is_unexpected_refusal)
            .collect();
        assert!(refusals.is_empty(), "{refusals:#?}");
        drop(replicas);

        for (number, right) in rights.iter().enumerate() {
            let admin = &installation.cluster.admin;
            let shipped = admin.get(&right.path).await.ok();
            match &right.rest {
                Some(rest) => admin.merge(&right.path, &json!({"rules": rest})).await.ok(),
                None => admin.delete(&right.path).await.ok(),
            };
            installation.reset().await;
            let skipped = installation.events(0).len();
            let replicas = installation.replicas(number + 1).await;
            let what = format!(
                "the kube-apiserver refuses a request that the rule {} of {} would allow",
                right.rule, right.path
            );
            eventually(&what, async || {
                let events = installation.events(skipped);
                let needed = events.iter().any(|event| right.was_needed_in(event));
                ok_if(
                    needed,
                    events
                        .iter()
                        .filter(|event| is_unexpected_refusal(event))
                        .count(),
                )
            })
            .await;
            drop(replicas);
            if right.rest.is_some() {
                let rules = json!({"rules": shipped["rules"]});
                admin.merge(&right.path, &rules).await.ok();
            } else {
                let mut binding = shipped;
                binding["metadata"] = json!({"name": binding["metadata"]["name"]});
                let (bindings, _) = right.path.rsplit_once('/').expect("a path has slashes");
                admin.post(bindings, &binding).await.ok();
            }
        }
    });
}
