//! Tests that the server needs each rule of its RBAC roles in `deploy/`, and that it needs no other
//! rights.
//!
//! The test removes one rule of the roles at a time. Then the test deletes the state of earlier
//! replicas (processes of the server), and starts two new replicas: a leader and a follower. If the
//! server needs the rule, the kube-apiserver refuses a request that the rule would allow. The test
//! finds this refusal in the audit log of the kube-apiserver.

use crate::harness::{
    ACCOUNT, API_SERVICE, Cluster, POD, RULE_SET, ServerProcess, apart, eventually, ok_if,
    rule_set, text,
};
use serde_json::{Value, json};

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
        let namespace = object["metadata"]["namespace"].as_str();
        let folder = namespace.map_or_else(String::new, |it| format!("namespaces/{it}/"));
        let name = text(object, "/metadata/name");
        let plural = format!("{}s", text(object, "/kind").to_lowercase());
        let path = format!("{ROLES}/{folder}{plural}/{name}");
        let rule = match (text(object, "/kind"), text(object, "/roleRef/name")) {
            ("ClusterRole" | "Role", _) => None,
            ("ClusterRoleBinding", role) if role.starts_with("system:") => Some(json!({
                "apiGroups": ["authentication.k8s.io", "authorization.k8s.io"],
                "resources": ["tokenreviews", "subjectaccessreviews"], "verbs": ["create"],
            })),
            ("RoleBinding", role) if role.starts_with("extension-") => Some(json!({
                "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"],
            })),
            _ => continue,
        };
        if let Some(rule) = rule {
            let rest = None;
            rights.push(Right { path, rest, rule });
            continue;
        }
        let rules = object["rules"].as_array().expect("a role has rules");
        for (at, rule) in rules.iter().enumerate() {
            let mut rest = rules.clone();
            rest.remove(at);
            rights.push(Right {
                path: path.clone(),
                rest: Some(rest),
                rule: rule.clone(),
            });
        }
    }
    rights
}

/// Deletes the state of earlier replicas: their Lease, their CA, and their changes of the APIService.
/// Creates the rule set of the test again. Its target are Pods, which the server may not read. So the
/// server must write an error to its status, and needs the right to write this status.
async fn reset(cluster: &Cluster, api_service: &Value) {
    let admin = &cluster.admin;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/ifo-system/leases/ifo-apiserver";
    let rights = RULE_SET.one(None, "rights");
    for path in [lease, &rights] {
        let deleted = admin.delete(path).await;
        assert!([200, 404].contains(&deleted.code), "{deleted:?}");
    }
    let secret = "/api/v1/namespaces/ifo-system/secrets/ifo-apiserver-serving-ca";
    admin.merge(secret, &json!({"data": null})).await.ok();
    let (api_services, _) = API_SERVICE.rsplit_once('/').expect("a path");
    admin.delete(API_SERVICE).await.ok();
    admin.post(api_services, api_service).await.ok();
    let rules = [("Starting", "object.status.phase == 'Pending'")];
    let new = rule_set("rights", &POD, &rules);
    cluster.create(&RULE_SET, None, &new).await;
}

/// Starts two replicas. Does not wait until they are ready, because a replica that lacks a right may
/// never become ready.
async fn replicas(cluster: &Cluster, deployment: &Value, attempt: usize) -> Vec<ServerProcess> {
    let mut replicas = Vec::new();
    for replica in ["a", "b"] {
        let folder = format!("rights-{attempt}-{replica}");
        replicas.push(cluster.start_unready(&folder, deployment).await);
    }
    replicas
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
    apart("rights", async |cluster| {
        let crds = ["deploy/crd", "deploy/crd-persistence"];
        cluster.apply_folders(&crds).await;
        cluster
            .apply_folders(&["deploy/persistence", "apiservice"])
            .await;
        let deployment = cluster.deployment().await;
        let rights = rights(&cluster.kustomize("deploy/persistence").await);
        assert!(rights.len() > 15, "{} rights", rights.len());
        let api_service = cluster.kustomize("apiservice").await.remove(0);

        // With all rights, both replicas must become ready. The kube-apiserver may refuse only
        // requests for Pods.
        reset(cluster, &api_service).await;
        let mut all = replicas(cluster, &deployment, 0).await;
        for replica in &mut all {
            replica.until_ready().await;
        }
        let mut refusals = cluster.audit_log(0);
        refusals.retain(is_unexpected_refusal);
        assert!(refusals.is_empty(), "{refusals:#?}");
        drop(all);

        for (number, right) in rights.iter().enumerate() {
            let admin = &cluster.admin;
            let shipped = admin.get(&right.path).await.ok();
            match &right.rest {
                Some(rest) => admin.merge(&right.path, &json!({"rules": rest})).await.ok(),
                None => admin.delete(&right.path).await.ok(),
            };
            reset(cluster, &api_service).await;
            let skipped = cluster.audit_log(0).len();
            let replicas = replicas(cluster, &deployment, number + 1).await;
            let what = format!(
                "the kube-apiserver refuses a request that the rule {} of {} would allow",
                right.rule, right.path
            );
            eventually(&what, async || {
                let events = cluster.audit_log(skipped);
                let needed = events.iter().any(|event| right.was_needed_in(event));
                let refused = events.iter().filter(|event| is_unexpected_refusal(event));
                ok_if(needed, refused.count())
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
