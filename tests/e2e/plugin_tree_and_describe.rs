//! Tests of the plugin's commands `kubectl ifo tree` and `kubectl ifo describe` on a cluster.

use crate::harness::{
    Lines, TestCluster, VM, VMI, eventually, migrating, ok_if, rule_set, shared, text,
};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::process::Command;

/// The exit code and the output of the plugin.
struct PluginOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs the plugin as an administrator.
async fn ifo(cluster: &TestCluster, args: &[&str]) -> PluginOutput {
    let said = Command::new(crate::plugin())
        .args(args)
        .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    PluginOutput {
        code: said.status.code(),
        out: text(said.stdout),
        err: text(said.stderr),
    }
}

/// Returns the lines of a text without the age at the end of each line, because the age changes
/// from run to run.
fn without_ages(text: &str) -> Vec<String> {
    let lines = text.lines();
    lines
        .map(|line| match line.rsplit_once("  ") {
            Some((rest, age)) if age.ends_with('s') && age.len() < 5 => rest.trim_end().to_owned(),
            _ => line.to_owned(),
        })
        .collect()
}

/// Creates a rule set for VirtualMachineInstances. Then creates a VirtualMachine that migrates, a
/// ConfigMap with the VirtualMachine as its owner, and a VirtualMachineInstance with the ConfigMap
/// as its owner. Returns the VirtualMachine.
async fn create_owner_chain(cluster: &TestCluster, namespace: &str) -> Value {
    let mut rules = rule_set(
        namespace,
        &VMI,
        &[("Booting", "object.status.phase == 'Scheduling'")],
    );
    rules["spec"]["namespaces"] = json!([namespace]);
    cluster.ready_rule_set(&rules).await;
    let owned = |kind: &str, api_version: &str, owner: &Value| {
        json!([{
            "apiVersion": api_version, "kind": kind,
            "name": text(owner, "/metadata/name"), "uid": text(owner, "/metadata/uid"),
        }])
    };
    let machine = cluster.machine(namespace, "web", "Migrating").await;
    // No rule set watches ConfigMaps, so there is no operation on the ConfigMap. The plugin must
    // read the ConfigMap from the cluster to find its owner, the VirtualMachine.
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let between = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "between", "ownerReferences": owned(VM.kind, VM.api_version, &machine)},
    });
    let between = cluster.admin.post(&path, &between).await.ok();
    let instance = json!({
        "apiVersion": VMI.api_version, "kind": VMI.kind,
        "metadata": {"name": "web", "ownerReferences": owned("ConfigMap", "v1", &between)},
        "status": {"phase": "Scheduling"},
    });
    cluster.create(&VMI, Some(namespace), &instance).await;
    machine
}

#[test]
fn the_tree_follows_owners_without_operations() {
    shared(async |cluster| {
        let namespace = cluster.namespace("plugin-tree").await;
        let mut machines = migrating(namespace);
        machines["metadata"]["name"] = json!(format!("{namespace}-machines"));
        cluster.ready_rule_set(&machines).await;
        create_owner_chain(cluster, namespace).await;
        let found = [("web", "Booting"), ("web", "Migrating")];
        cluster.until_operations(namespace, &found).await;

        let said = ifo(cluster, &["tree", "-n", namespace]).await;
        assert_eq!(said.code, Some(0), "{}", said.err);
        let expected = [
            "kubevirt".to_owned(),
            format!("  {namespace}"),
            "    VirtualMachine/web              Migrating".to_owned(),
            "    └── VirtualMachineInstance/web  Booting".to_owned(),
        ];
        assert_eq!(without_ages(&said.out), expected, "{}", said.out);

        // The flag `--for` accepts a kind, and a plural with its API group. The tree then also has
        // the ConfigMap, although there is no operation on the ConfigMap.
        for target in ["VirtualMachine/web", "virtualmachines.kubevirt.io/web"] {
            let said = ifo(cluster, &["tree", "-n", namespace, "--for", target]).await;
            assert_eq!(said.code, Some(0), "{}", said.err);
            let expected = [
                "kubevirt".to_owned(),
                format!("  {namespace}"),
                "    VirtualMachine/web                  Migrating".to_owned(),
                "    └── ConfigMap/between".to_owned(),
                "        └── VirtualMachineInstance/web  Booting".to_owned(),
            ];
            assert_eq!(without_ages(&said.out), expected, "{}", said.out);
        }
        // `--for` also accepts a short name such as `cm`, and an object without an operation.
        let said = ifo(
            cluster,
            &["tree", "-n", namespace, "--for", "cm/between", "-o", "json"],
        )
        .await;
        let tree: Value = serde_json::from_str(&said.out).expect(&said.err);
        let top = &tree["components"][0]["namespaces"][0]["resources"][0];
        assert_eq!(top["kind"], "ConfigMap", "{tree}");
        assert_eq!(top["children"][0]["kind"], VMI.kind, "{tree}");

        for (target, why) in [
            ("Pod/none", "."),
            ("cow/none", ": the cluster has no resource \"cow\""),
        ] {
            let said = ifo(cluster, &["tree", "-n", namespace, "--for", target]).await;
            assert_eq!((said.code, &*said.out), (Some(0), ""));
            let expected = format!("Nothing is in flight for {target}{why}");
            assert!(said.err.starts_with(&expected), "{}", said.err);
        }

        // With `-w`, the plugin must print the tree again when an operation starts.
        let kubeconfig = cluster.control_plane.addresses.kubeconfig.to_str().unwrap();
        let mut lines = Lines::of(
            &crate::plugin(),
            &["tree", "-n", namespace, "-w", "--kubeconfig", kubeconfig],
        );
        let count = |lines: &[String], wanted: &str| {
            lines.iter().filter(|line| line.contains(wanted)).count()
        };
        let first = |lines: &[String]| (count(lines, "Booting") > 0).then_some(());
        lines.until("the tree", first).await;
        cluster.machine(namespace, "other", "Migrating").await;
        let second = |lines: &[String]| {
            let is_there = count(lines, "VirtualMachine/other") > 0;
            (is_there && count(lines, "Booting") > 1).then_some(())
        };
        lines.until("the tree with the new operation", second).await;
    });
}

#[test]
fn describe_shows_rule_relatives_and_events() {
    shared(async |cluster| {
        let namespace = cluster.namespace("plugin-describe").await;
        let mut machines = migrating(namespace);
        let rules = format!("{namespace}-machines");
        machines["metadata"]["name"] = json!(rules);
        cluster.ready_rule_set(&machines).await;
        let machine = create_owner_chain(cluster, namespace).await;
        let found = [("web", "Booting"), ("web", "Migrating")];
        let operations = cluster.until_operations(namespace, &found).await;
        let name = text(&operations[1], "/metadata/name");
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "web.1", "namespace": namespace},
            "involvedObject": {
                "apiVersion": VM.api_version, "kind": VM.kind, "name": "web",
                "namespace": namespace, "uid": text(&machine, "/metadata/uid"),
            },
            "type": "Warning", "reason": "NoRoom", "message": "no node has room",
            "source": {"component": "scheduler"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        cluster.admin.post(&path, &event).await.ok();

        for target in [name, "VirtualMachine/web"] {
            let said = ifo(cluster, &["describe", "-n", namespace, target]).await;
            assert_eq!(said.code, Some(0), "{}", said.err);
            let lines: Vec<String> = said
                .out
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            for expected in [
                format!("Name: {name}"),
                format!("ruleSet: {rules}"),
                "expression: object.status.printableStatus == 'Migrating'".to_owned(),
            ] {
                assert!(lines.contains(&expected), "{expected}: {}", said.out);
            }
            for beginning in ["Warning NoRoom", "Detected True"] {
                let is_there = lines.iter().any(|line| line.starts_with(beginning));
                assert!(is_there, "{beginning}: {}", said.out);
            }
        }

        let said = ifo(cluster, &["describe", name, "-o", "json"]).await;
        let object: Value = serde_json::from_str(&said.out).expect(&said.err);
        assert_eq!(object["metadata"]["uid"], operations[1]["metadata"]["uid"]);

        // The user may read operations, but neither rule sets nor Events. So `describe` must print
        // that it does not show them.
        let user = format!("{namespace}-viewer");
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "viewer"},
            "rules": [{
                "apiGroups": ["live.ifo.kubevirt.io"], "resources": ["inflightoperations"],
                "verbs": ["get", "list", "watch"],
            }],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "viewer"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer",
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user,
            }],
        });
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        cluster
            .admin
            .post(&format!("{rbac}/roles"), &role)
            .await
            .ok();
        let path = format!("{rbac}/rolebindings");
        cluster.admin.post(&path, &binding).await.ok();
        let args = ["describe", "-n", namespace, "--as", &user, name];
        let said = eventually("the user may read operations", async || {
            let said = ifo(cluster, &args).await;
            ok_if(said.code == Some(0), &said.err)?;
            Ok(said)
        })
        .await;
        for why in [
            "<not shown: you may not get operationrulesets.ifo.kubevirt.io",
            &format!("<not shown: you may not list events in namespace {namespace};"),
        ] {
            assert!(said.out.contains(why), "{why}: {}", said.out);
        }

        let said = ifo(
            cluster,
            &["describe", "-n", namespace, "VirtualMachine/none"],
        )
        .await;
        assert_eq!((said.code, &*said.out), (Some(1), ""));
        assert_eq!(
            said.err,
            "error: there is no operation on VirtualMachine/none; see what there is: kubectl ifo list -A\n"
        );
    });
}
