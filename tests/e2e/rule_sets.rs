//! Tests of rule sets, which define how the server detects operations. The kube-apiserver must
//! refuse malformed rule sets. For the other rule sets, the tests check the conditions that the
//! server writes to the status.

use crate::harness::{
    CRD, OPERATION, RULE_SET, alone, columns, condition, eventually, is, items, migrating, ok_if,
    shared, text,
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
fn fields_that_the_server_or_the_crd_does_not_know_are_reported() {
    alone(async |cluster| {
        let namespace = cluster.new_namespace("fields").await;
        let definition = CRD.one(None, "operationrulesets.ifo.kubevirt.io");
        let original = cluster.admin.get(&definition).await.ok();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let store = async |change: &dyn Fn(&mut Value)| {
            // The kube-apiserver also writes the CRD, so the PUT can fail with a conflict.
            eventually("the CRD is changed", async || {
                let mut object = cluster.admin.get(&definition).await.ok();
                object["spec"] = original["spec"].clone();
                change(object.pointer_mut(spec).expect("the schema has fields"));
                let (kind, body) = ("application/json", object.to_string());
                let answer = cluster
                    .admin
                    .send(Method::PUT, &definition, kind, body)
                    .await;
                ok_if(answer.code == 200, &answer.text)
            })
            .await;
        };

        // The CRD of a newer release of ifo has a field that this server does not know.
        store(&|fields| fields["newer"] = json!({"type": "string"})).await;
        let mut rules = migrating(namespace);
        rules["spec"]["newer"] = json!("yes");
        eventually("the kube-apiserver uses the new schema", async || {
            let path = RULE_SET.path(None);
            let _ = cluster.admin.delete(&format!("{path}/{namespace}")).await;
            let created = cluster.admin.post(&path, &rules).await;
            let is_kept = created.body["spec"]["newer"] == "yes";
            ok_if(created.code == 201 && is_kept, &created.body)
        })
        .await;
        // The server's watch of rule sets began before the change of the CRD. Such a watch delivers
        // objects without the new field. After some time, the kube-apiserver ends this watch. The
        // next watch delivers the field. So the test changes the rule set repeatedly.
        let path = RULE_SET.one(None, namespace);
        let mut changes = 0;
        let reported = eventually("UnknownFields", async || {
            changes += 1;
            let patch = json!({"metadata": {"labels": {"changes": changes.to_string()}}});
            let object = cluster.admin.merge(&path, &patch).await.ok();
            let has = |kind| is(&object, kind, "True");
            ok_if(has("UnknownFields") && has("Ready"), &object["status"])?;
            Ok(object)
        })
        .await;
        let message = text(condition(&reported, "UnknownFields"), "/message");
        assert!(message.contains("spec.newer"), "{message}");

        // The CRD of an older release of ifo lacks a field that this server knows.
        store(&|fields| {
            let fields = fields.as_object_mut().expect("an object");
            let removed = fields.remove("labelExpressions");
            removed.expect("a field of this release");
        })
        .await;
        let outdated = cluster.until_rule_set(namespace, "OutdatedDefinition", "True");
        let reported = outdated.await;
        let message = text(condition(&reported, "OutdatedDefinition"), "/message");
        assert!(message.contains("labelExpressions"), "{message}");

        store(&|_| {}).await;
        cluster
            .rule_set_until(namespace, "a complete definition", |it| {
                let kinds = ["OutdatedDefinition", "UnknownFields"];
                kinds.iter().all(|kind| condition(it, kind).is_null())
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

#[test]
fn shipped_rule_sets_are_ready_or_wait_for_their_targets() {
    // The shipped rule sets watch all namespaces. In the namespaces of other tests, they would
    // detect additional operations. So no other test runs at the same time.
    alone(async |cluster| {
        let shipped = cluster.kustomize("rules").await;
        cluster.apply(&shipped).await;
        let rule_sets = shipped.iter().filter(|it| it["kind"] == RULE_SET.kind);
        let names: Vec<&str> = rule_sets
            .clone()
            .map(|it| text(it, "/metadata/name"))
            .collect();
        assert!(!names.is_empty());
        for rule_set in rule_sets {
            let name = text(rule_set, "/metadata/name");
            let is_settled = |it: &Value| {
                // The VirtualMachines of earlier tests have statuses that KubeVirt never
                // writes. So the evaluation of rules may fail on these VirtualMachines.
                let states = ["True", "NotInstalled", "InvalidTarget", "EvaluationFailed"];
                states.iter().any(|state| is(it, "Ready", state))
            };
            let what = "Ready, or without its target";
            let settled = cluster.rule_set_until(name, what, is_settled).await;
            if matches!(text(rule_set, "/spec/target/group"), "" | "apps") {
                assert!(is(&settled, "Ready", "True"), "{settled}");
            }
            assert!(is(&settled, "Validated", "True"), "{settled}");
        }
        for name in &names {
            cluster.delete_rule_set(name).await;
        }
        let have_ended = |list: &Value| {
            let owners = items(list).iter().map(|it| text(it, "/spec/ruleSet"));
            !owners.into_iter().any(|owner| names.contains(&owner))
        };
        let what = "the operations of these rule sets have ended";
        let path = OPERATION.path(None);
        cluster.admin.until_object(what, &path, have_ended).await;
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
