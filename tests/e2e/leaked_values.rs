//! Test of leaks of confidential values. Users who may not read an object may still read statuses, logs
//! or metrics. So values of a watched object must not appear in the status of rule sets, in the log or in
//! metrics.

use crate::harness::{
    CRD, Kind, OPERATION, RULE_SET, TestCluster, condition, crd, eventually, ok_if, rule_set,
    shared, text,
};
use serde_json::{Value, json};

/// Text that is part of each label, each annotation and each string in `spec` of the watched
/// object.
const MARKER: &str = "zqxvalue";

/// A number that the watched object contains. This number must not be leaked, either.
const NUMBER: u64 = 918_273_645;

/// The kind of the watched object. No other test uses this kind.
const VAULT: Kind = Kind {
    api_version: "leaks.example.com/v1",
    kind: "Vault",
    plural: "vaults",
};

/// Installs the CRD of a kind, and gives the server the right to read its objects.
async fn install(cluster: &TestCluster, kind: &Kind) {
    cluster.create(&CRD, None, &crd(kind, "Namespaced")).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("e2e-{}", kind.plural)},
        "rules": [{
            "apiGroups": [kind.group_version().0], "resources": [kind.plural],
            "verbs": ["get", "list", "watch"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("e2e-{}", kind.plural)},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": format!("e2e-{}", kind.plural),
        },
        "subjects": [{
            "kind": "ServiceAccount", "name": "ifo-apiserver", "namespace": "ifo-system",
        }],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let (roles, bindings) = (
        format!("{rbac}/clusterroles"),
        format!("{rbac}/clusterrolebindings"),
    );
    cluster.admin.post(&roles, &role).await.ok();
    cluster.admin.post(&bindings, &binding).await.ok();
}

/// Creates an object. If the kube-apiserver does not serve the kind yet, tries again.
async fn create_when_served(cluster: &TestCluster, kind: &Kind, namespace: &str, object: &Value) {
    let path = kind.path(Some(namespace));
    eventually(&format!("{} can be created", kind.kind), async || {
        let answer = cluster.admin.post(&path, object).await;
        ok_if(answer.code == 201, answer)
    })
    .await;
}

async fn metrics(cluster: &TestCluster) -> String {
    let admin = [
        ("X-Remote-User", "admin"),
        ("X-Remote-Group", "system:masters"),
    ];
    cluster
        .front_proxy()
        .get_with("/metrics", &admin)
        .await
        .text
}

/// Returns rule sets for [`VAULT`]. Each rule set has one expression that fails on the watched
/// object. In each rule set, the expression is in another field (such as `message`), or fails for
/// another cause (such as a wrong type). The rule sets are named `PREFIX-0`, `PREFIX-1` and so on.
fn failing(prefix: &str) -> Vec<Value> {
    let fields = [
        ("expression", "int(object.spec.text) > 1"),
        ("expression", "object.spec.text"),
        (
            "expression",
            "object.spec.text.matches(object.spec.pattern)",
        ),
        (
            "expression",
            "object.spec.text.charAt(object.spec.number) == ''",
        ),
        ("message", "string(timestamp(object.spec.text))"),
        ("message", "object.spec.mixed.join(', ')"),
        ("message", "object.spec.format.format([1])"),
        ("message", "object.spec.number"),
        ("reason", "object.spec.text"),
        ("state", "object.spec.text"),
        ("progress", "object.spec.list"),
        ("startedAt", "object.spec.text"),
        ("instance", "object.spec.long"),
        ("outcome", "object.spec.text"),
        ("forEach", "object.spec.text"),
        ("forEach", "object.spec.list"),
        ("label", "string(timestamp(object.spec.text))"),
    ];
    let all = fields.iter().enumerate();
    all.map(|(at, (field, source))| {
        let expression = if *field == "outcome" {
            "!has(object.spec)"
        } else {
            "true"
        };
        let name = format!("{prefix}-{at}");
        let mut rules = rule_set(&name, &VAULT, &[("Opening", expression)]);
        if *field == "label" {
            let label = json!([{"key": "example.com/secret", "expression": source}]);
            rules["spec"]["labelExpressions"] = label;
        } else {
            rules["spec"]["rules"][0][*field] = json!(source);
        }
        rules
    })
    .collect()
}

/// Returns the watched object. Its values must not appear in statuses, the log or metrics.
fn vault() -> Value {
    json!({
        "apiVersion": VAULT.api_version, "kind": VAULT.kind, "metadata": {
            "name": "zqxsubject", "labels": {"zqxvalue": "zqxvalue"},
            "annotations": {"zqxvalue": "zqxvalue"},
        },
        "spec": {
            "text": "zqxvalue is secret", "number": NUMBER, "pattern": "zqxvalue(",
            "list": ["zqxvalue", "zqxvalue"], "mixed": ["zqxvalue", NUMBER],
            "map": {"zqxvalue": "zqxvalue"}, "format": "zqxvalue %zqxvalue",
            "long": "zqxvalue".repeat(100),
        },
    })
}

fn assert_no_value(what: &str, text: &str) {
    for quoted in [MARKER.to_owned(), NUMBER.to_string()] {
        let line = text.lines().find(|line| line.contains(&quoted));
        assert_eq!(line, None, "{what} must not contain {quoted}");
    }
}

#[test]
fn values_of_objects_never_appear_in_statuses_logs_or_metrics() {
    shared(async |cluster| {
        let name_prefix = cluster.namespace("leaks").await;
        let namespace = cluster.namespace("zqxsubject").await;
        install(cluster, &VAULT).await;
        create_when_served(cluster, &VAULT, namespace, &vault()).await;
        // The expressions of this rule set do not fail. Its field `message` copies a value of the
        // object to the operation. The author of the rule set wants this copy, so it is no leak.
        let mut shown = rule_set(name_prefix, &VAULT, &[("Shown", "true")]);
        shown["spec"]["rules"][0]["message"] = json!("object.spec.text");
        cluster.ready_rule_set(&shown).await;
        let rule_sets = failing(name_prefix);
        for rule_set in &rule_sets {
            cluster.create(&RULE_SET, None, rule_set).await;
        }
        for rule_set in &rule_sets {
            let name = text(rule_set, "/metadata/name");
            let failed = cluster
                .rule_set_until(name, "EvaluationFailed", |it| {
                    condition(it, "EvaluationFailed")["status"] == "True"
                })
                .await;
            let status = failed["status"].to_string();
            assert_no_value("the status", &status);
            assert!(!status.contains("zqxsubject"), "{status}");
        }
        let path = OPERATION.path(Some(namespace));
        let operations = eventually("the value in the message of an operation", async || {
            let text = cluster.admin.get(&path).await.text;
            ok_if(text.contains("zqxvalue is secret"), &text)?;
            Ok(text)
        })
        .await;
        assert!(operations.contains("zqxsubject"), "{operations}");

        let metrics = metrics(cluster).await;
        assert_no_value("a metric", &metrics);
        // This metric has a series for each namespace, as metrics of namespaces usually do.
        let is_namespace = |line: &&str| line.starts_with("ifo_idle{scope=\"namespace\"");
        let others: Vec<&str> = metrics.lines().filter(|it| !is_namespace(it)).collect();
        let leak = others.iter().find(|line| line.contains("zqxsubject"));
        assert_eq!(leak, None);
        let log = cluster
            .control_plane
            .addresses
            .dir
            .join("ifo-apiserver.log");
        let log = std::fs::read_to_string(log).expect("the server writes a log");
        assert_no_value("the log", &log);
        // In contrast to the status and the metrics, the log must name the object on which a rule
        // fails. An administrator needs this name to correct the rule.
        let failed = |line: &&str| {
            line.contains("an expression of a rule set failed") && line.contains("zqxsubject")
        };
        assert!(
            log.lines().any(|line| failed(&line)),
            "{}",
            cluster.log_tail()
        );
        for rule_set in rule_sets.iter().chain([&shown]) {
            let name = text(rule_set, "/metadata/name");
            let path = format!("{}/{name}", RULE_SET.path(None));
            cluster.admin.delete(&path).await.ok();
        }
    });
}
