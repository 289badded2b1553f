//! Tests of invalid rule sets. If a rule set violates the schema of the CRD, the kube-apiserver
//! refuses it. If a rule set has another error, the kube-apiserver accepts it, and the server under
//! test reports the error in the status of the rule set.

use crate::harness::{condition, migrating, shared, text};
use serde_json::json;
use std::path::Path;

#[test]
fn kubectl_apply_reports_schema_violations_of_rule_sets() {
    shared(async |cluster| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rulesets/invalid");
        for (file, field, why) in [
            (
                "item-key-without-for-each",
                "spec.rules[0].itemKey",
                "itemKey needs forEach, which is missing",
            ),
            (
                "debounce-not-a-duration",
                "spec.rules[0].debounce",
                "should match",
            ),
            (
                "supersedes-empty-entry",
                "spec.rules[0].supersedes[0]",
                "should be at least 1 chars long",
            ),
            (
                "variable-name-not-an-identifier",
                "spec.variables[0].name",
                "should match '^[A-Za-z_][A-Za-z0-9_]*$'",
            ),
        ] {
            let path = folder.join(format!("{file}.yaml"));
            let path = path.to_str().expect("the path of the repository is UTF-8");
            let result = cluster.kubectl(&["apply", "-f", path]).await;
            let error = result.expect_err("the rule set must be refused");
            assert!(
                error.contains(field) && error.contains(why),
                "{file}: {error}"
            );
        }
    });
}

#[test]
fn compile_errors_are_in_status_with_field_line_and_column() {
    shared(async |cluster| {
        let namespace = cluster.namespace("uncompiled").await;
        let mut rules = migrating(namespace);
        rules["spec"]["variables"] = json!([
            {"name": "early", "expression": "variables.late"},
            {"name": "late", "expression": "true"},
        ]);
        rules["spec"]["labelSelector"] = json!({"matchExpressions": [
            {"key": "example.com/tier", "operator": "Near", "values": ["gold"]},
        ]});
        rules["spec"]["rules"] = json!([
            {"operation": "Good", "expression": "object.status.good"},
            {"operation": "Waits", "expression": "true", "state": "'Waiting'"},
            {"operation": "Unknown", "expression": "object.status.good &&\n  variables.none"},
            {"operation": "Number", "expression": "true", "message": "1 + 1"},
            {"operation": "Items", "expression": "true", "message": "item.name"},
            {"operation": "Long", "expression": "true", "debounce": "25h"},
        ]);
        cluster
            .create(&crate::harness::RULE_SET, None, &rules)
            .await;
        let refused = cluster
            .rule_set_until(namespace, "InvalidRule", |it| {
                condition(it, "InvalidRule")["status"] == "True"
            })
            .await;
        let message = text(condition(&refused, "InvalidRule"), "/message");
        for part in [
            "variables[early].expression: 1:10: ",
            "labelSelector: operator \"Near\" of \"example.com/tier\" is not one of In, ",
            "rules[Waits].state: 1:1: \"Waiting\" is not one of Progressing, Blocked, Held, Failing",
            "rules[Unknown].expression: 2:12: ",
            "rules[Number].message: 1:",
            "rules[Items].message: 1:1: ",
            "rules[Long].debounce: \"25h\" is more than 24h",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(!message.contains("Good"), "{message}");
        assert_eq!(condition(&refused, "Ready")["reason"], "InvalidRule");
        assert_ne!(refused["status"]["watchActive"], true);
    });
}
