//! Tests of the ValidatingAdmissionPolicies in `deploy/rbac/admission.yaml`. There are two
//! policies:
//!
//! - A ClusterRole with the label [`AGGREGATE_TO_TARGETS`] gives rights to the ifo server. The
//!   policy allows only the verbs get, list and watch in this ClusterRole, and no nonResourceURLs.
//! - A user may create a rule set only if the user may list the resource that the rule set watches
//!   (its target). The same holds for a change of the rule set's spec.

use crate::harness::{
    ApiAnswer, Caller, RULE_SET, TestCluster, VM, eventually, migrating, ok_if, rule_set, shared,
    text,
};
use serde_json::{Value, json};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const AGGREGATE_TO_TARGETS: &str = "ifo.kubevirt.io/aggregate-to-targets";

fn role(name: &str, label: &str, rule: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {AGGREGATE_TO_TARGETS: label}}, "rules": [rule],
    })
}

/// Creates a role with these rules, and binds it to a user. If `namespace` is None, these are a
/// ClusterRole and a ClusterRoleBinding.
async fn grant(cluster: &TestCluster, user: &str, namespace: Option<&str>, rules: &Value) {
    let kind_prefix = if namespace.is_some() { "" } else { "Cluster" };
    let folder = namespace.map_or_else(String::new, |it| format!("namespaces/{it}/"));
    let path_prefix = format!(
        "/apis/rbac.authorization.k8s.io/v1/{folder}{}",
        kind_prefix.to_lowercase()
    );
    let name = format!("{user}-{}", kind_prefix.to_lowercase());
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind_prefix}Role"),
        "metadata": {"name": name}, "rules": rules,
    });
    cluster
        .admin
        .post(&format!("{path_prefix}roles"), &role)
        .await
        .ok();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind_prefix}RoleBinding"),
        "metadata": {"name": name},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": format!("{kind_prefix}Role"), "name": name,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let bindings = format!("{path_prefix}rolebindings");
    cluster.admin.post(&bindings, &binding).await.ok();
}

/// Repeats a request until the kube-apiserver refuses it with a message that contains `text`. A new
/// policy takes effect only after some seconds.
async fn until_refused(text: &str, mut request: impl AsyncFnMut() -> ApiAnswer) {
    eventually("the policy refuses the request", async || {
        let answer = request().await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        ok_if(answer.code >= 400 && message.contains(text), &answer)
    })
    .await;
}

#[test]
fn a_role_for_targets_may_only_grant_reading() {
    shared(async |cluster| {
        let dry_run = format!("{ROLES}?dryRun=All");
        let reads = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]});
        let writes = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "update"]});
        let all = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]});
        let urls = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
        for refused in [&writes, &all] {
            until_refused("may only have the verbs get, list and watch", async || {
                cluster
                    .admin
                    .post(&dry_run, &role("a", "true", refused))
                    .await
            })
            .await;
        }
        until_refused("may not have nonResourceURLs", async || {
            cluster
                .admin
                .post(&dry_run, &role("a", "true", &urls))
                .await
        })
        .await;
        cluster
            .admin
            .post(&dry_run, &role("a", "true", &reads))
            .await
            .ok();
        cluster
            .admin
            .post(&dry_run, &role("a", "false", &writes))
            .await
            .ok();

        // The policy also refuses to add the label to an existing role that grants other verbs.
        let name = format!("{}-role", cluster.namespace("admission").await);
        cluster
            .admin
            .post(ROLES, &role(&name, "false", &writes))
            .await
            .ok();
        let label = json!({"metadata": {"labels": {AGGREGATE_TO_TARGETS: "true"}}});
        let answer = cluster
            .admin
            .merge(&format!("{ROLES}/{name}"), &label)
            .await;
        answer.refused(422);
    });
}

/// Sends a dry run of the creation of a rule set, as this user.
async fn create_as(user: &Caller, rule_set: &Value) -> ApiAnswer {
    user.post(&format!("{}?dryRun=All", RULE_SET.path(None)), rule_set)
        .await
}

#[test]
fn the_author_of_a_rule_set_needs_the_right_to_list_its_target() {
    shared(async |cluster| {
        let (mine, other) = (
            cluster.namespace("author").await,
            cluster.namespace("author-other").await,
        );
        let name = format!("{mine}-user");
        let may_write = json!([{
            "apiGroups": ["ifo.kubevirt.io"], "resources": ["operationrulesets"],
            "verbs": ["create", "get", "patch"],
        }]);
        grant(cluster, &name, None, &may_write).await;
        let user = cluster.user(&name);
        let within = |namespaces: &[&str]| {
            let mut set = rule_set(&format!("{mine}-set"), &VM, &[("Moving", "true")]);
            if !namespaces.is_empty() {
                set["spec"]["namespaces"] = namespaces.into();
            }
            set
        };
        let right = "needs the right to list its target: virtualmachines.kubevirt.io in ";
        until_refused(&format!("{right}all namespaces"), async || {
            create_as(&user, &within(&[])).await
        })
        .await;
        until_refused(&format!("{right}{mine}"), async || {
            create_as(&user, &within(&[mine])).await
        })
        .await;

        let list = json!([{
            "apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["list"],
        }]);
        grant(cluster, &name, Some(mine), &list).await;
        eventually(
            "the rule set for the own namespace is accepted",
            async || {
                let answer = create_as(&user, &within(&[mine])).await;
                ok_if(answer.code == 201, &answer)
            },
        )
        .await;
        let message = create_as(&user, &within(&[mine, other])).await.refused(403);
        assert!(
            message.contains(&format!("{right}{mine}, {other}")),
            "{message}"
        );
        let message = create_as(&user, &within(&[mine, other, "third"]))
            .await
            .refused(403);
        assert!(
            message.contains(&format!("{right}all namespaces")),
            "{message}"
        );

        // A change of the spec needs the right to list the target. A change of the labels needs no
        // such right.
        let existing = cluster.ready_rule_set(&migrating(other)).await;
        let path = format!(
            "{}/{}",
            RULE_SET.path(None),
            text(&existing, "/metadata/name")
        );
        let labels = json!({"metadata": {"labels": {"team": "a"}}});
        user.merge(&path, &labels).await.ok();
        let change = json!({"spec": {"component": "another"}});
        let message = user.merge(&path, &change).await.refused(403);
        assert!(message.contains(right), "{message}");
    });
}
