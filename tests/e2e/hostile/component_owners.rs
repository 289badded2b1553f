//! Attacker: a user who may write rule sets, but who is not in the group that owns a component. The
//! user writes rule sets with this component. The component `component-owners` of the kustomization
//! contains the policy that refuses them.

use crate::harness::{Caller, ControlPlane, RULE_SET, VM, administrator, apart, eventually};
use crate::harness::{ok_if, rule_set};
use crate::installation::Cluster;
use serde_json::{Value, json};

const OWNERS: &str = "kubevirt-team";
const REFUSAL: &str = "the author of a rule set needs the right to use its component: ";

/// Returns a rule set with this name and component.
fn of(name: &str, component: &str) -> Value {
    let mut rules = rule_set(name, &VM, &[("Moving", "true")]);
    rules["spec"]["component"] = json!(component);
    rules
}

/// Returns the path of a rule set.
fn path(name: &str) -> String {
    format!("{}/{name}", RULE_SET.path(None))
}

/// Gives the verbs in `rules` to the subject in the whole cluster.
fn grant(name: &str, subject: &Value, rules: &Value) -> [Value; 2] {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    [role, binding]
}

fn group(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name})
}

/// The right to use a component, as docs/rules.md shows it.
fn use_of(component: &str) -> Value {
    json!([{
        "apiGroups": ["ifo.kubevirt.io"], "resources": ["components"],
        "resourceNames": [component], "verbs": ["use"],
    }])
}

/// Installs the CRD of rule sets and the policy. Lets every user write rule sets.
async fn install(cluster: &Cluster<'_>) {
    cluster.kubectl_on_folder("apply", "deploy/crd").await;
    let write = json!([{
        "apiGroups": ["ifo.kubevirt.io"], "resources": ["operationrulesets"],
        "verbs": ["create", "get", "patch", "delete"],
    }]);
    let mut objects: Vec<Value> = grant("write", &group("system:authenticated"), &write).into();
    objects.extend(grant("kubevirt", &group(OWNERS), &use_of("kubevirt")));
    objects.extend(grant("other", &group("other-team"), &use_of("other")));
    let policy = include_str!("../../../deploy/components/component-owners/admission.yaml");
    let policy: Vec<Value> = serde_saphyr::from_multiple(policy).expect("the policy is YAML");
    objects.extend(policy);
    cluster
        .try_apply(&objects)
        .await
        .expect("the objects are valid");
}

/// Returns a client that sends its requests as this user, who is in these groups.
async fn user(control_plane: &ControlPlane, name: &str, groups: &[&str]) -> Caller {
    let (mut config, _) = administrator(control_plane).await;
    config.auth_info.impersonate = Some(name.to_owned());
    config.auth_info.impersonate_groups = Some(groups.iter().map(|it| (*it).to_owned()).collect());
    Caller::new(config)
}

#[test]
fn only_the_owners_of_a_component_write_rule_sets_of_this_component() {
    apart("component-owners", async |control_plane: &ControlPlane| {
        let cluster = Cluster::of(control_plane).await;
        install(&cluster).await;
        let authenticated = "system:authenticated";
        let attacker = user(control_plane, "attacker", &["other-team", authenticated]).await;
        let owner = user(control_plane, "owner", &[OWNERS, authenticated]).await;
        let rule_sets = RULE_SET.path(None);
        let refused = async |component: &str| {
            let rules = of("attack", component);
            let answer = attacker
                .post(&format!("{rule_sets}?dryRun=All"), &rules)
                .await;
            let message = answer.body["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let expected = format!("{REFUSAL}{}", component.to_lowercase());
            ok_if(answer.code == 403 && message.contains(&expected), &answer)
        };
        // The policy takes effect only after some seconds.
        eventually("the attacker cannot use the component", async || {
            refused("kubevirt").await
        })
        .await;
        // kubectl ifo -c ignores the case.
        refused("KubeVirt").await.expect("the case does not matter");
        refused("unknown")
            .await
            .expect("every component needs the right");

        // The owner can create a rule set, and the attacker can neither change nor delete it.
        owner.post(&rule_sets, &of("own", "kubevirt")).await.ok();
        let rename = json!({"spec": {"component": "other"}});
        let message = attacker.merge(&path("own"), &rename).await.refused(403);
        assert!(message.contains(&format!("{REFUSAL}kubevirt")), "{message}");
        let message = attacker.delete(&path("own")).await.refused(403);
        assert!(message.contains(&format!("{REFUSAL}kubevirt")), "{message}");

        // The attacker cannot change an own rule set to the component.
        attacker.post(&rule_sets, &of("other", "other")).await.ok();
        let take = json!({"spec": {"component": "kubevirt"}});
        let message = attacker.merge(&path("other"), &take).await.refused(403);
        assert!(message.contains(&format!("{REFUSAL}kubevirt")), "{message}");
        let change = json!({"spec": {"rules": [{"operation": "Moved", "expression": "true"}]}});
        attacker.merge(&path("other"), &change).await.ok();
        let found = cluster.admin.get(&path("own")).await.ok();
        assert_eq!(found["spec"]["component"], "kubevirt");

        // Changes of the metadata need no right to the component, because they change no operation.
        let label = json!({"metadata": {"labels": {"team": "a"}}});
        attacker.merge(&path("own"), &label).await.ok();
        // The owner keeps all rights, and so have administrators and Kubernetes' own controllers.
        owner.merge(&path("own"), &change).await.ok();
        cluster.admin.merge(&path("own"), &rename).await.ok();
        cluster.admin.merge(&path("own"), &take).await.ok();
        owner.delete(&path("own")).await.ok();
        cluster
            .admin
            .post(&rule_sets, &of("orphan", "kubevirt"))
            .await
            .ok();
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        let groups = ["system:serviceaccounts:kube-system", authenticated];
        let collector = user(control_plane, collector, &groups).await;
        collector.delete(&path("orphan")).await.ok();
        attacker.delete(&path("other")).await.ok();
    });
}
