//! Tests of rule sets, which define how the server detects operations. The kube-apiserver must
//! refuse malformed rule sets. For the other rule sets, the tests check the conditions that the
//! server writes to the status.

use crate::harness::{
    CRD, Kind, RULE_SET, alone, columns, condition, crd, is, migrating, rule_set, shared, text,
};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn a_rule_set_becomes_ready_and_kubectl_shows_it() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("ready").await;
        let ready = cluster.ready_rule_set(&migrating(namespace)).await;
        assert_eq!(ready["status"]["watchActive"], true, "{ready}");
        assert_eq!(
            ready["status"]["observedGeneration"],
            ready["metadata"]["generation"]
        );
        assert_eq!(condition(&ready, "Validated")["status"], "True");
        for kind in [
            "InvalidRule",
            "NotInstalled",
            "InvalidTarget",
            "WatchFailed",
        ] {
            assert_eq!(condition(&ready, kind), &Value::Null, "{ready}");
        }

        let table = cluster.kubectl(&format!("get ors {namespace}")).await;
        let lines: Vec<Vec<&str>> = table.lines().map(columns).collect();
        let header = ["NAME", "COMPONENT", "TARGET", "READY", "REASON", "AGE"];
        assert_eq!(lines[0], header, "{table}");
        let row = [namespace, "kubevirt", "virtualmachines", "True", "Watching"];
        assert_eq!(lines[1][..5], row, "{table}");
    });
}

#[test]
fn fields_that_the_crd_lacks_are_reported() {
    alone(async |cluster| {
        let namespace = cluster.new_namespace("fields").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        // The CRD of an older release of ifo lacks a field that this server knows.
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let patch = json!([{"op": "remove", "path": format!("{spec}/labelExpressions")}]);
        let definition = "crd operationrulesets.ifo.kubevirt.io";
        let line = format!("patch {definition} --type=json -p {patch}");
        cluster.kubectl(&line).await;
        let outdated = cluster.until_rule_set(namespace, "OutdatedDefinition", "True");
        let reported = outdated.await;
        let message = text(condition(&reported, "OutdatedDefinition"), "/message");
        assert!(message.contains("labelExpressions"), "{message}");

        cluster.apply(&cluster.kustomize("deploy/crd").await).await;
        cluster
            .rule_set_until(namespace, "a complete definition", |it| {
                condition(it, "OutdatedDefinition").is_null()
            })
            .await;
    });
}

#[test]
fn the_api_server_refuses_malformed_rule_sets_and_accepts_valid_ones() {
    shared(async |cluster| {
        let mut wrong = Vec::new();
        for (name, yaml) in [fixtures("invalid"), fixtures("valid")].concat() {
            // Each invalid fixture has a comment with a part of the error message.
            let expected = yaml
                .lines()
                .find_map(|line| line.strip_prefix("# expect: "));
            assert_eq!(expected.is_some(), name.contains("/invalid/"), "{name}");
            let path = format!("{}?dryRun=All", RULE_SET.path(None));
            let answer = cluster
                .admin
                .send(Method::POST, &path, "application/yaml", yaml.clone());
            let answer = answer.await;
            let message = text(&answer.body, "/message");
            let is_right = match expected {
                Some(part) => matches!(answer.code, 400 | 422) && message.contains(part),
                None => answer.code == 201,
            };
            if !is_right {
                wrong.push(format!("{name}: {answer:?}\n  expected: {expected:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// A kind that the server is not allowed to read.
const WIDGET: Kind = Kind::new("e2e.example.com/v1", "Widget", "widgets");

/// The CRD of a target is missing and installed later. Then the server lacks the right to read it.
#[test]
fn a_target_is_watched_when_it_is_installed_and_the_right_is_granted() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("target").await;
        let running = [("Running", "object.status.phase == 'Running'")];
        let rules = rule_set(namespace, &WIDGET, &running);
        cluster.create(&RULE_SET, None, &rules).await;
        let until = async |what: &str| cluster.until_rule_set(namespace, what, "True").await;
        let waiting = until("NotInstalled").await;
        let message = text(condition(&waiting, "NotInstalled"), "/message");
        assert!(message.contains("e2e.example.com"), "{message}");
        assert!(is(&waiting, "Ready", "NotInstalled"), "{waiting}");
        assert!(is(&waiting, "Validated", "True"), "{waiting}");

        let definition = crd(&WIDGET, "Namespaced");
        cluster.create(&CRD, None, &definition).await;
        let failed = until("WatchFailed").await;
        let message = text(condition(&failed, "WatchFailed"), "/message");
        for part in ["widgets", "e2e.example.com", "watch", "cluster scope"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(is(&failed, "Ready", "False"), "{failed}");
        assert_eq!(condition(&failed, "NotInstalled"), &Value::Null);
        assert_ne!(failed["status"]["watchActive"], true, "{failed}");

        // The message contains the commands that grant the missing right.
        let (_, commands) = message
            .split_once("or run: ")
            .expect("the message must contain commands");
        for command in commands.split(" && ") {
            let line = command.strip_prefix("kubectl ").expect("it is kubectl");
            cluster.kubectl(line).await;
        }
        let ready = until("Ready").await;
        assert_eq!(condition(&ready, "WatchFailed"), &Value::Null, "{ready}");
        assert_eq!(ready["status"]["watchActive"], true);
        let object = WIDGET.object("a", json!({"status": {"phase": "Running"}}));
        cluster.create(&WIDGET, Some(namespace), &object).await;
        let running = [("a", "Running")];
        cluster.until_operations(namespace, &running).await;
    });
}

/// Returns the paths and the contents of the files in a folder of fixtures.
fn fixtures(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/rulesets")
        .join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of the fixtures exists")
        .map(|entry| {
            let path = entry.expect("the folder is readable").path();
            let yaml = std::fs::read_to_string(&path).expect("a fixture is a UTF-8 file");
            (path.display().to_string(), yaml)
        })
        .collect();
    files.sort();
    files
}
