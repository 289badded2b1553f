//! Tests of `kubectl ifo support-bundle` on a cluster. The command writes a support bundle: an
//! archive or a folder with the data for a bug report. Also tests the flag `--from`, with which
//! other commands of the plugin read a bundle instead of the cluster.

use crate::harness::{
    Kind, RULE_SET, TestCluster, condition, eventually, migrating, ok_if, rule_set, shared,
};
use crate::plugin::run;
use serde_json::{Value, json};
use std::path::Path;

/// A resource that `deploy/targets-default` does not allow the server to watch.
const POLICY: Kind = Kind {
    api_version: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
};

/// A text in an expression and in a message. It may leave the cluster only with `--include-text`.
const SECRET: &str = "zqxsecret";

/// Creates a VirtualMachine that migrates, a rule set for a resource that the server is not allowed
/// to watch, and an Event of a Pod. Returns the namespace of the VirtualMachine.
async fn prepare(cluster: &TestCluster) -> &'static str {
    let namespace = cluster.namespace("support-bundle").await;
    cluster.ready_rule_set(&migrating(namespace)).await;
    let machine = format!("{namespace}-machine");
    cluster.machine(namespace, &machine, "Migrating").await;
    cluster
        .until_operations(namespace, &[(&machine, "Migrating")])
        .await;
    let name = format!("{namespace}-policies");
    let secret = format!("object.metadata.name == '{SECRET}'");
    let mut rules = rule_set(&name, &POLICY, &[("Waiting", &secret)]);
    rules["spec"]["namespaces"] = json!([namespace]);
    cluster.create(&RULE_SET, None, &rules).await;
    cluster
        .rule_set_until(&name, "WatchFailed", |it| {
            condition(it, "WatchFailed")["status"] == "True"
        })
        .await;
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{namespace}-event"), "namespace": "ifo-system"},
        "involvedObject": {"kind": "Pod", "namespace": "ifo-system", "name": format!("{namespace}-pod")},
        "reason": "Unhealthy", "type": "Warning", "message": format!("{SECRET} does not answer"),
    });
    let path = "/api/v1/namespaces/ifo-system/events";
    cluster.admin.post(path, &event).await.ok();
    namespace
}

fn read(folder: &Path, file: &str) -> Value {
    let path = folder.join(file);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).expect("the file must be JSON")
}

/// Returns the result of one part of the bundle, such as `Read` or `NotFound`. `what` is the part,
/// such as `Lease`.
fn result(folder: &Path, what: &str) -> String {
    let index = read(folder, "bundle.json");
    let parts = index["parts"].as_array().expect("the index has parts");
    let part = parts.iter().find(|it| it["what"] == what);
    let part = part.unwrap_or_else(|| panic!("no {what}: {index}"));
    part["result"]
        .as_str()
        .expect("the result is a text")
        .to_owned()
}

/// Returns the paths and the contents of all files below a folder, as one text.
fn everything(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        all += &path.display().to_string();
        if path.is_dir() {
            all += &everything(&path);
        } else {
            all += &std::fs::read_to_string(&path).expect("all files are text");
        }
    }
    all
}

#[test]
fn an_administrator_gets_a_complete_bundle_without_private_texts() {
    shared(async |cluster| {
        let namespace = prepare(cluster).await;
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let (open, redacted) = (folder.path().join("open/"), folder.path().join("redacted/"));
        let bundle = async |args: &[&str], output: &Path| {
            let output = output.to_str().expect("the path is UTF-8");
            let said = run(cluster, &[&["support-bundle", "-o", output], args].concat()).await;
            assert_eq!(said.code, 0, "{}", said.err);
        };
        bundle(&["--include-text"], &open).await;
        bundle(&[], &redacted).await;

        for what in [
            "versions",
            "APIService",
            "rule sets",
            "operations",
            "CustomResourceDefinition",
            "Lease",
            "PodDisruptionBudget",
            "Event",
        ] {
            assert_eq!(result(&open, what), "Read", "{what}");
        }
        // In the tests, the server does not run in a Pod. So the plugin finds no Pods, and requests
        // no logs.
        assert_eq!(result(&open, "Pod"), "NotFound");
        assert_eq!(result(&open, "logs"), "Skipped");

        // The status of a rule set shows that the server may not watch its target.
        let rule_sets = read(&redacted, "cluster/operationrulesets.json");
        let name = format!("{namespace}-policies");
        let mut items = rule_sets["items"].as_array().expect("a list").iter();
        let policies = items.find(|it| it["metadata"]["name"] == *name);
        let policies = policies.unwrap_or_else(|| panic!("no {name}: {rule_sets}"));
        assert_eq!(condition(policies, "Ready")["reason"], "WatchFailed");

        // By default, no expression and no message is in the bundle.
        assert!(everything(&open).contains(SECRET));
        let hidden = everything(&redacted);
        let at = hidden.find(SECRET);
        assert!(
            at.is_none(),
            "{:?}",
            at.map(|at| &hidden[at.saturating_sub(200)..at + 50])
        );
        assert!(hidden.contains(namespace), "names are in the bundle");

        let from = |folder: &Path| folder.to_str().expect("the path is UTF-8").to_owned();
        let live = run(cluster, &["list", "-n", namespace, "-o", "name"]).await;
        let said = run(
            cluster,
            &[
                "list",
                "-n",
                namespace,
                "-o",
                "name",
                "--from",
                &from(&redacted),
            ],
        )
        .await;
        assert_eq!((said.code, &said.out), (0, &live.out), "{}", said.err);
        let said = run(
            cluster,
            &["summary", "-O", "json", "--from", &from(&redacted)],
        )
        .await;
        assert!(
            said.json()["byOperation"]["Migrating"]["active"].as_u64() >= Some(1),
            "{}",
            said.out
        );
        assert!(
            said.err.contains("texts such as messages were left out"),
            "{}",
            said.err
        );
        let version = run(cluster, &["version", "--from", &from(&redacted)]).await;
        assert!(version.out.contains("Server Version: v"), "{}", version.out);
    });
}

#[test]
fn a_user_with_few_rights_gets_a_bundle_that_names_what_is_missing() {
    shared(async |cluster| {
        let namespace = prepare(cluster).await;
        let user = format!("{namespace}-user");
        cluster.grant_view(namespace, &user).await;
        eventually("the user may list operations", async || {
            let said = run(cluster, &["list", "-n", namespace, "--as", &user]).await;
            ok_if(said.code == 0, &said.err)
        })
        .await;

        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let archive = folder.path().join("bundle.tar.gz");
        let archive = archive.to_str().expect("the path is UTF-8");
        let args = [
            "support-bundle",
            "--as",
            &user,
            "-n",
            namespace,
            "--include-text",
            "-o",
            archive,
        ];
        let said = run(cluster, &args).await;
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(said.out.trim(), archive);
        let refused = said
            .err
            .lines()
            .filter(|line| line.contains("no permission"));
        let refused: Vec<&str> = refused.collect();
        for what in ["rule sets", "Pod", "Event", "Lease"] {
            assert!(
                refused.iter().any(|it| it.contains(what)),
                "{what}: {}",
                said.err
            );
        }

        let said = run(cluster, &["list", "-o", "name", "--from", archive]).await;
        assert_eq!(said.code, 0, "{}", said.err);
        let live = run(cluster, &["list", "-n", namespace, "-o", "name"]).await;
        assert_eq!(said.out, live.out);
        let only = format!("only the operations in {namespace} were recorded");
        assert!(said.err.contains(&only), "{}", said.err);
        let other = run(cluster, &["list", "-n", "default", "--from", archive]).await;
        assert_eq!((other.code, &*other.out), (1, ""), "{}", other.err);
        assert!(
            other
                .err
                .contains("does not contain the operations in namespace default"),
            "{}",
            other.err
        );
        // The bundle contains no rule sets, so the plugin cannot know whether the component
        // `unknown` exists. The plugin must report this.
        let said = run(cluster, &["list", "-c", "unknown", "--from", archive]).await;
        assert!(
            said.err.contains("does not contain the rule sets"),
            "{}",
            said.err
        );
    });
}
