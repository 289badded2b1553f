//! Tests of the kubectl plugin on a real cluster. The tests in `crates/kubectl-ifo/tests/cli` prove
//! what each command prints. The tests here prove that the commands understand the discovery, the
//! objects and the refusals of a real kube-apiserver.

use crate::harness::{
    Cluster, DEADLINE, Kind, NODE, POD, RULE_SET, VMI, apart, eventually, items, migrating, ok_if,
    rule_set, shared, text,
};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::process::Command;

/// The exit code and the output of the plugin.
pub struct PluginOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl PluginOutput {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Runs the plugin with the kubeconfig of the administrator until it exits.
pub async fn run(cluster: &Cluster, args: &[&str]) -> PluginOutput {
    let output = Command::new(crate::plugin())
        .args(args)
        .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE, output)
        .await
        .expect("the plugin must exit before the deadline")
        .expect("the plugin must start");
    let text = |bytes| String::from_utf8(bytes).expect("the plugin prints UTF-8");
    PluginOutput {
        code: output.status.code().expect("no signal kills the plugin"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

const CONFIG_MAP: Kind = Kind::new("v1", "ConfigMap", "configmaps");

/// Creates a rule set for VirtualMachines, and one for VirtualMachineInstances. Then creates a
/// VirtualMachine that migrates, a ConfigMap with the VirtualMachine as its owner, and a
/// VirtualMachineInstance with the ConfigMap as its owner. Returns the operations.
async fn create_owner_chain(cluster: &Cluster, namespace: &str) -> Vec<Value> {
    let mut machines = migrating(namespace);
    machines["metadata"]["name"] = json!(format!("{namespace}-machines"));
    // The component is the name of the namespace, so that commands can select its operations.
    machines["spec"]["component"] = json!(namespace);
    cluster.ready_rule_set(&machines).await;
    let booting = [("Booting", "object.status.phase == 'Scheduling'")];
    let mut instances = rule_set(namespace, &VMI, &booting);
    instances["spec"]["namespaces"] = json!([namespace]);
    cluster.ready_rule_set(&instances).await;
    let owned = |owner: &Value| {
        let (name, uid) = (text(owner, "/metadata/name"), text(owner, "/metadata/uid"));
        let (api_version, kind) = (&owner["apiVersion"], &owner["kind"]);
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}])
    };
    let machine = cluster.machine(namespace, "web", "Migrating").await;
    // No rule set watches ConfigMaps, so there is no operation on the ConfigMap. The plugin must
    // read the ConfigMap from the cluster to find its owner, the VirtualMachine.
    let between = json!({"metadata": {"ownerReferences": owned(&machine)}});
    let between = CONFIG_MAP.object("between", between);
    let between = cluster.create(&CONFIG_MAP, Some(namespace), &between).await;
    let instance = json!({
        "metadata": {"ownerReferences": owned(&between)}, "status": {"phase": "Scheduling"},
    });
    let instance = VMI.object("web", instance);
    cluster.create(&VMI, Some(namespace), &instance).await;
    let found = [("web", "Booting"), ("web", "Migrating")];
    cluster.until_operations(namespace, &found).await
}

/// Runs the plugin with the arguments in `line`. Checks the exit code, and that the output contains
/// `part`. White space does not count.
async fn check(cluster: &Cluster, line: &str, code: i32, part: &str) {
    let args: Vec<&str> = line.split(' ').collect();
    let said = run(cluster, &args).await;
    let all = said.out + &said.err;
    assert_eq!(said.code, code, "{args:?}: {all}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&all).contains(&words(part)), "{args:?}: {all}");
}

#[test]
fn each_command_works_on_a_real_cluster() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("plugin").await;
        let operations = create_owner_chain(cluster, namespace).await;
        let name = text(&operations[1], "/metadata/name");
        let rule_set = format!("ruleSet: {namespace}-machines");
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/rules/generic");
        let instance = "└── VirtualMachineInstance/web Booting";
        // The ConfigMap joins the two other objects, although there is no operation on it.
        let chain = format!("└── ConfigMap/between {instance}");
        let cases: [(&str, i32, &str); 15] = [
            ("list -n NS", 0, "VirtualMachine/web"),
            ("list -n NS -o name", 0, name),
            ("get NAME -o yaml", 0, name),
            ("get none", 1, "none"),
            ("summary -c NS", 0, "Migrating"),
            ("tree -n NS", 0, instance),
            ("tree -n NS --for cm/between", 0, "ConfigMap/between"),
            (
                "tree -n NS --for virtualmachines.kubevirt.io/web",
                0,
                &chain,
            ),
            ("tree --for cow/none", 2, "there is no kind \"cow\""),
            ("describe -n NS VirtualMachine/web", 0, &rule_set),
            ("wait -c NS --for started", 0, ""),
            ("wait -c NS --timeout=0", 1, "VirtualMachine/web"),
            ("wait -c none", 2, "there is no component"),
            ("version", 0, "Server Version: v"),
            // The shipped rules must read only fields that the schemas of the cluster have.
            ("rules check --cluster SHIPPED", 0, "ok"),
        ];
        for (line, code, part) in cases {
            let words = [("NS", namespace), ("NAME", name), ("SHIPPED", shipped)];
            let fill = |line: String, (word, value)| line.replace(word, value);
            let line = words.into_iter().fold(line.to_owned(), fill);
            check(cluster, &line, code, part).await;
        }
        cluster.set_status(namespace, "web", "Running").await;
        let wait = format!("wait -c {namespace} --timeout 3m");
        check(cluster, &wait, 0, "").await;
    });
}

#[test]
fn kubectl_finds_the_plugin() {
    shared(async |cluster| {
        let plugin = crate::plugin();
        let folder = plugin.parent().expect("the binary is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(&cluster.control_plane.addresses.kubectl)
            .args(["ifo", "version"])
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
            .output()
            .await
            .expect("kubectl must start");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("Server Version: v"), "{out}{output:?}");
    });
}

#[test]
fn missing_rights_are_named_and_existing_ones_are_used() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("plugin-user").await;
        let operations = create_owner_chain(cluster, namespace).await;
        let name = text(&operations[1], "/metadata/name");
        let user = &format!("{namespace}-user");
        let advice = format!("User \"{user}\" cannot list resource \"inflightoperations\"");
        check(cluster, &format!("list --as {user}"), 1, &advice).await;
        check(
            cluster,
            &format!("list --as {user}"),
            1,
            "bind the ClusterRole ifo-view",
        )
        .await;
        let advice = format!("in the namespace \"{namespace}\"");
        let list = format!("list --as {user} -n {namespace}");
        check(cluster, &list, 1, &advice).await;

        cluster.grant_view(namespace, user).await;
        eventually("the user may list operations", async || {
            let said = run(cluster, &["list", "-n", namespace, "--as", user]).await;
            ok_if(said.code == 0, &said.err)
        })
        .await;
        let refused = "<not shown: operationrulesets.ifo.kubevirt.io";
        let line = format!("describe -n {namespace} --as {user} {name}");
        check(cluster, &line, 0, refused).await;
        // The user may list operations only in one namespace. So `wait` cannot know that no
        // operation is in flight elsewhere.
        let said = run(cluster, &["wait", "--as", user, "--timeout=0"]).await;
        assert_ne!(said.code, 0, "{}", said.err);
    });
}

const BUDGET: Kind = Kind::new("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");

/// The kube-apiserver answers the dry-run evictions, and evicts nothing.
#[test]
fn the_answers_to_dry_run_evictions_are_shown_and_no_pod_is_evicted() {
    shared(async |cluster| {
        // The namespace is also the name of the node. The budget allows no disruption of `guarded`.
        let namespace = cluster.new_namespace("impact").await;
        cluster
            .create(&NODE, None, &NODE.object(namespace, json!({})))
            .await;
        let selector = json!({"matchLabels": {"app": "guarded"}});
        let budget = json!({"spec": {"maxUnavailable": 0, "selector": selector}});
        let budget = BUDGET.object("budget", budget);
        cluster.create(&BUDGET, Some(namespace), &budget).await;
        for name in ["guarded", "free"] {
            let containers = json!([{"name": "web", "image": "example.com/web:1"}]);
            let pod = POD.object(
                name,
                json!({
                    "metadata": {"labels": {"app": name}},
                    "spec": {"nodeName": namespace, "containers": containers},
                }),
            );
            let pods = POD.path(Some(namespace));
            cluster.admin.create_when_served(&pods, &pod).await;
            // No kubelet runs. A budget has no effect on a Pod that is not running.
            let running = json!({"status": {"phase": "Running"}});
            let path = format!("{pods}/{name}/status");
            cluster.admin.merge(&path, &running).await.ok();
        }

        let said = run(cluster, &["impact", namespace, "-o", "json"]).await;
        assert_eq!(said.code, 1, "{}", said.err);
        let impact = said.json();
        let effect = |name: &str| {
            let mut pods = impact["interrupted"].as_array().expect("a list").iter();
            pods.find(|it| it["name"] == name).map(|it| &it["effect"])
        };
        assert_eq!(effect("guarded"), Some(&json!("Stays")), "{impact}");
        assert_eq!(effect("free"), Some(&json!("Evicted")), "{impact}");
        let blocker = &impact["blockers"][0];
        assert_eq!(blocker["name"], "guarded", "{impact}");
        let message = blocker["message"].as_str().unwrap_or_default();
        assert!(message.contains("disruption budget"), "{impact}");
        assert_eq!(impact["blockers"][1], Value::Null, "{impact}");
        let pods = cluster.admin.get(&POD.path(Some(namespace))).await.ok();
        let is_deleted = |it: &Value| it["metadata"].get("deletionTimestamp").is_some();
        assert!(items(&pods).len() == 2 && !items(&pods).iter().any(is_deleted));

        // A user who may only read gets no answer to an eviction.
        let user = format!("{namespace}-user");
        cluster.grant_view(namespace, &user).await;
        eventually("the user may list Pods", async || {
            let args = ["impact", namespace, "-n", namespace, "--as", &user];
            let said = run(cluster, &args).await;
            let refused = said.err.contains("missing: evictions: ")
                && said
                    .err
                    .contains("cannot create resource \"pods/eviction\"");
            ok_if(said.code == 3 && refused, &said.err)
        })
        .await;
    });
}

#[test]
fn wait_does_not_say_idle_while_no_replica_leads() {
    apart("handover", async |cluster| {
        let folders = ["deploy/crd", "deploy", "deploy/targets-default"];
        cluster.apply_folders(&folders).await;
        let mut leader = cluster.server().await;
        cluster.register_server(&leader).await;
        let deployment = cluster.deployment().await;
        let mut follower = cluster.start_unready("follower", &deployment).await;
        follower.until_ready().await;
        cluster.apply_registration("apiservice", &follower).await;
        let working = [("Working", "object.metadata.name == 'busy'")];
        let rules = rule_set("work", &POD, &working);
        cluster.create(&RULE_SET, None, &rules).await;
        let wait = async || run(cluster, &["wait", "-c", "kubevirt", "--timeout=0"]).await;
        eventually("the component is idle", async || {
            let output = wait().await;
            ok_if(output.code == 0, (output.out, output.err))
        })
        .await;

        leader.kill().await;
        let containers = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
        let pods = POD.path(Some("default"));
        let busy = POD.object("busy", containers);
        cluster.admin.create_when_served(&pods, &busy).await;
        eventually("the new leader has detected the operation", async || {
            let output = wait().await;
            assert_ne!(output.code, 0, "{}", output.out);
            ok_if(output.code == 1, output.err)
        })
        .await;
    });
}
