//! Tests of the ValidatingAdmissionPolicies in `deploy/rbac/admission.yaml` and in the component
//! `component-owners`:
//!
//! - A ClusterRole with the label [`AGGREGATE_TO_TARGETS`] gives rights to the ifo server. The
//!   policy allows only the verbs get, list and watch in this ClusterRole, and no nonResourceURLs.
//! - A user may create a rule set only if the user may list the resource that the rule set watches
//!   (its target). The same holds for a change of the rule set's spec.
//! - Only the owners of a component may write rule sets of this component.

use crate::harness::{
    ApiAnswer, Caller, RULE_SET, VM, apart, eventually, migrating, ok_if, rule_set, shared, text,
};
use serde_json::{Value, json};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const AGGREGATE_TO_TARGETS: &str = "ifo.kubevirt.io/aggregate-to-targets";

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
        let role = |name: &str, label: &str, rule: &Value| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name, "labels": {AGGREGATE_TO_TARGETS: label}}, "rules": [rule],
            })
        };
        let verbs = |verbs: &[&str]| json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs});
        let dry_run = async |label: &str, rule: &Value| {
            let path = format!("{ROLES}?dryRun=All");
            cluster.admin.post(&path, &role("a", label, rule)).await
        };
        let writes = verbs(&["get", "update"]);
        let urls = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
        let only_reads = "may only have the verbs get, list and watch";
        for (rule, message) in [
            (&writes, only_reads),
            (&verbs(&["*"]), only_reads),
            (&urls, "may not have nonResourceURLs"),
        ] {
            until_refused(message, async || dry_run("true", rule).await).await;
        }
        dry_run("true", &verbs(&["get", "list", "watch"]))
            .await
            .ok();
        dry_run("false", &writes).await.ok();

        // The policy also refuses to add the label to an existing role that grants other verbs.
        let name = format!("{}-role", cluster.new_namespace("admission").await);
        cluster
            .admin
            .post(ROLES, &role(&name, "false", &writes))
            .await
            .ok();
        let label = json!({"metadata": {"labels": {AGGREGATE_TO_TARGETS: "true"}}});
        let path = format!("{ROLES}/{name}");
        cluster.admin.merge(&path, &label).await.refused(422);
    });
}

#[test]
fn the_author_of_a_rule_set_needs_the_right_to_list_its_target() {
    shared(async |cluster| {
        let mine = cluster.new_namespace("author").await;
        let other = cluster.new_namespace("author-other").await;
        let name = format!("{mine}-user");
        let may_write = json!([{
            "apiGroups": ["ifo.kubevirt.io"], "resources": ["operationrulesets"],
            "verbs": ["create", "get", "patch"],
        }]);
        cluster.grant(&name, None, &may_write).await;
        let user = cluster.user(&name, &[]);
        let create = async |namespaces: &[&str]| {
            let mut set = rule_set(&format!("{mine}-set"), &VM, &[("Moving", "true")]);
            if !namespaces.is_empty() {
                set["spec"]["namespaces"] = namespaces.into();
            }
            let path = format!("{}?dryRun=All", RULE_SET.path(None));
            user.post(&path, &set).await
        };
        let right = "needs the right to list its target: virtualmachines.kubevirt.io in ";
        let everywhere = format!("{right}all namespaces");
        until_refused(&everywhere, async || create(&[]).await).await;
        let message = create(&[mine]).await.refused(403);
        assert!(message.contains(&format!("{right}{mine}")), "{message}");

        let list = json!([{
            "apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["list"],
        }]);
        cluster.grant(&name, Some(mine), &list).await;
        eventually("a rule set for the own namespace is accepted", async || {
            let answer = create(&[mine]).await;
            ok_if(answer.code == 201, &answer)
        })
        .await;
        let both = format!("{right}{mine}, {other}");
        for (namespaces, expected) in [
            (&[mine, other][..], both),
            (&[mine, other, "c"], everywhere),
        ] {
            let message = create(namespaces).await.refused(403);
            assert!(message.contains(&expected), "{message}");
        }

        // A change of the spec needs the right to list the target. A change of the labels needs no
        // such right.
        let existing = cluster.ready_rule_set(&migrating(other)).await;
        let path = RULE_SET.one(None, text(&existing, "/metadata/name"));
        let labels = json!({"metadata": {"labels": {"team": "a"}}});
        user.merge(&path, &labels).await.ok();
        let change = json!({"spec": {"component": "another"}});
        let message = user.merge(&path, &change).await.refused(403);
        assert!(message.contains(right), "{message}");
    });
}

/// The attacker may write rule sets, but is not in the group that owns the component `kubevirt`.
#[test]
fn only_the_owners_of_a_component_write_rule_sets_of_this_component() {
    apart("component-owners", async |cluster| {
        cluster.apply_folders(&["deploy/crd"]).await;
        let write = json!([{
            "apiGroups": ["ifo.kubevirt.io"], "resources": ["operationrulesets"],
            "verbs": ["create", "get", "patch", "delete"],
        }]);
        cluster
            .grant("group:system:authenticated", None, &write)
            .await;
        // The right to use a component, as docs/rules.md shows it.
        for (group, component) in [("kubevirt-team", "kubevirt"), ("other-team", "other")] {
            let right = json!([{
                "apiGroups": ["ifo.kubevirt.io"], "resources": ["components"],
                "resourceNames": [component], "verbs": ["use"],
            }]);
            cluster.grant(&format!("group:{group}"), None, &right).await;
        }
        let policy = "deploy/components/component-owners/admission.yaml";
        cluster.kubectl(&format!("apply -f {policy}")).await;

        let attacker = cluster.user("attacker", &["other-team"]);
        let owner = cluster.user("owner", &["kubevirt-team"]);
        let of = |name: &str, component: &str| {
            let mut rules = rule_set(name, &VM, &[("Moving", "true")]);
            rules["spec"]["component"] = json!(component);
            rules
        };
        let path = |name: &str| RULE_SET.one(None, name);
        let rule_sets = RULE_SET.path(None);
        let refusal = "the author of a rule set needs the right to use its component: ";
        // kubectl ifo -c ignores the case.
        for component in ["kubevirt", "KubeVirt", "unknown"] {
            let expected = format!("{refusal}{}", component.to_lowercase());
            let dry_run = format!("{rule_sets}?dryRun=All");
            let attack = of("attack", component);
            until_refused(&expected, async || attacker.post(&dry_run, &attack).await).await;
        }

        // The owner can create a rule set, and the attacker can neither change nor delete it. The
        // attacker cannot change an own rule set to the component.
        owner.post(&rule_sets, &of("own", "kubevirt")).await.ok();
        attacker.post(&rule_sets, &of("other", "other")).await.ok();
        let rename = json!({"spec": {"component": "other"}});
        let take = json!({"spec": {"component": "kubevirt"}});
        for answer in [
            attacker.merge(&path("own"), &rename).await,
            attacker.delete(&path("own")).await,
            attacker.merge(&path("other"), &take).await,
        ] {
            let message = answer.refused(403);
            assert!(message.contains(&format!("{refusal}kubevirt")), "{message}");
        }
        let change = json!({"spec": {"rules": [{"operation": "Moved", "expression": "true"}]}});
        attacker.merge(&path("other"), &change).await.ok();
        // Changes of the metadata need no right to the component, because they change no operation.
        let label = json!({"metadata": {"labels": {"team": "a"}}});
        attacker.merge(&path("own"), &label).await.ok();

        // The owner keeps all rights, and so have administrators and Kubernetes' own controllers.
        let changes: [(&Caller, &Value); 3] = [
            (&owner, &change),
            (&cluster.admin, &rename),
            (&cluster.admin, &take),
        ];
        for (user, patch) in changes {
            user.merge(&path("own"), patch).await.ok();
        }
        owner.delete(&path("own")).await.ok();
        let orphan = of("orphan", "kubevirt");
        cluster.admin.post(&rule_sets, &orphan).await.ok();
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        let collector = cluster.user(collector, &["system:serviceaccounts:kube-system"]);
        collector.delete(&path("orphan")).await.ok();
    });
}
