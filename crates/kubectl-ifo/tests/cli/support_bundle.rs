//! Tests of `kubectl ifo support-bundle`, which writes an archive (the bundle) with data for
//! support engineers. By default, the bundle contains only the fields that may leave the cluster.

use super::tests_with_fake_apiserver::{
    LIVE, RULE_SETS, execute, json_response, list_response, not_found, plugin, serve,
    status_response,
};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// The text that marks everything in the simulated cluster that may not leave it without
/// `--include-text`.
const MARKER: &str = "zqx";

/// The text that marks the names in the simulated cluster that may leave it.
const NAME: &str = "visible";

/// Path of the records of completed operations.
const RECORDS: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/operationrecords";

/// Fields whose values in this test are fixed words, such as `Pod` in `kind`, and not names that a
/// user has chosen. These values stay in the bundle.
const PUBLIC_FIELDS: [&str; 14] = [
    "apiVersion",
    "kind",
    "group",
    "version",
    "resource",
    "operation",
    "component",
    "state",
    "phase",
    "reason",
    "type",
    "status",
    "debounce",
    "memory",
];

/// Fields with names that may leave. `metadata` stands for the name, the
/// namespace, the UID and the version of an object.
const NAME_FIELDS: [&str; 12] = [
    "metadata",
    "subject",
    "ownerReferences",
    "involvedObject",
    "service",
    "ruleSet",
    "detectedBy",
    "item",
    "work",
    "nodes",
    "nodeName",
    "holderIdentity",
];

/// Replaces each string in `value` by a unique string that contains [`MARKER`], or [`NAME`] if it is
/// a name that may leave. Keeps times and the values of the fields in [`PUBLIC_FIELDS`]. Also adds a
/// marked entry to each map of labels or annotations.
///
/// `parent` and `field` are the names of the fields that contain `value`. `count` makes the strings
/// unique.
fn mark(value: &mut Value, parent: &str, field: &str, count: &mut usize) {
    match value {
        Value::String(text) => {
            let is_time = text.ends_with('Z') && text.starts_with("2026");
            let is_name = NAME_FIELDS.contains(&field)
                || NAME_FIELDS.contains(&parent)
                    && ["name", "namespace", "uid", "resourceVersion"].contains(&field)
                || field == "namespaces"
                || parent == "containers" && field == "name"
                || parent == "containerStatuses" && field == "name"
                || parent == "labelExpressions" && field == "key";
            if is_time || PUBLIC_FIELDS.contains(&field) {
                return;
            }
            *count += 1;
            *text = match (is_name, text.contains(' ')) {
                (true, _) => format!("{NAME}{count}"),
                (false, true) => format!("{MARKER}{count} is broken"),
                (false, false) => format!("{MARKER}{count}"),
            };
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|it| mark(it, parent, field, count)),
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                mark(value, field, key, count);
            }
            if ["labels", "annotations", "matchLabels"].contains(&field) {
                *count += 1;
                fields.insert(format!("{MARKER}{count}.example/{MARKER}"), json!(MARKER));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn marked(mut value: Value) -> Value {
    mark(&mut value, "", "", &mut 0);
    value
}

fn metadata() -> Value {
    json!({
        "name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generateName": "g",
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {}, "annotations": {"a": "b"},
        "selfLink": "s", "finalizers": ["f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}],
        "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:x": {}}}],
    })
}

fn marked_operation() -> Value {
    marked(json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": metadata(),
        "spec": {
            "operation": "Migrating", "ruleSet": "r", "component": "kubevirt", "item": "i", "future": "field",
            "subject": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web",
                        "namespace": "ns", "uid": "u",
                        "ownerReferences": [{"apiVersion": "v1", "kind": "Pool", "name": "p", "uid": "u"}]},
        },
        "status": {
            "phase": "Active", "state": "Blocked", "reason": "Migrating", "message": "a message",
            "started": "2026-01-01T00:00:00Z", "detectedBy": ["r"], "progress": 7, "future": "field",
            "conditions": [{"type": "Detected", "status": "True", "reason": "RuleMatched",
                            "message": "word", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }))
}

fn marked_record() -> Value {
    let mut record = marked_operation();
    record["kind"] = json!("OperationRecord");
    record["status"] = json!({
        "outcome": "Superseded", "reason": "NotDetected", "message": "zqx is over",
        "started": "2026-01-01T00:00:00Z", "startTimeSource": "Detected",
        "completed": "2026-01-01T00:10:00Z", "durationSeconds": 600, "nodes": ["visible-node"],
        "expected": {"typicalSeconds": 125, "runs": 37, "source": "History"},
    });
    record["metadata"]["labels"]["ifo.kubevirt.io/state"] = json!("Superseded");
    record
}

fn marked_rule_set() -> Value {
    marked(json!({
        "metadata": metadata(),
        "spec": {
            "component": "kubevirt", "namespaces": ["a"], "nodes": "[object.node]", "labels": {"k": "v"},
            "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
            "labelSelector": {"matchLabels": {}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
            "labelExpressions": [{"key": "k", "expression": "object.metadata.name"}],
            "variables": [{"name": "v", "expression": "a + b"}],
            "rules": [{"operation": "Migrating", "expression": "word", "message": "'a b'", "reason": "object.reason",
                       "instance": "x", "debounce": "30s"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "EvaluationFailed",
                                   "message": "on an object", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))
}

fn marked_pod() -> Value {
    marked(json!({
        "metadata": metadata(),
        "spec": {
            "nodeName": "node", "serviceAccountName": "sa", "nodeSelector": {"k": "v"}, "hostname": "h",
            "containers": [{"name": "c", "image": "registry/i:t", "args": ["--flag=value"], "command": ["c"],
                            "env": [{"name": "E", "value": "v"}], "ports": [{"name": "https", "containerPort": 8443}],
                            "resources": {"limits": {"memory": "320Mi", "example.com/gpu": "1"}}}],
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.0.0.2", "message": "m",
                   "containerStatuses": [{"name": "c", "imageID": "registry/i@sha256:1",
                     "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m n"}}}]},
    }))
}

fn marked_event() -> Value {
    marked(json!({
        "metadata": metadata(), "reason": "Unhealthy", "type": "Warning", "message": "a b", "note": "n",
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u", "fieldPath": "f"},
        "source": {"component": "zqx-component", "host": "node"},
        "reportingComponent": "x", "reportingInstance": "y", "action": "An action",
        "related": {"kind": "Pod", "name": "q"},
    }))
}

const LOG: &str = "\
2026-01-01T00:00:00Z 2026-01-01T00:00:00Z  WARN ifo::observe: zqx broke namespace=zqx
2026-01-01T00:00:00Z {\"timestamp\":\"2026-01-01T00:00:00Z\",\"level\":\"INFO\",\"target\":\"zqx\",\"message\":\"zqx\",\"gvr\":\"zqx zqx\",\"zqx\":[\"zqx\"],\"user\":\"zqx\",\"span\":{\"zqx\":\"zqx\"}}
zqx
thread 'zqx' panicked at zqx:1:2: zqx
";

const METRICS: &str = "\
# HELP ifo_operations zqx
# TYPE ifo_operations gauge
ifo_operations{component=\"kubevirt\",state=\"zqx } zqx\",zqx=\"zqx\"} 3
ifo_evaluation_failures_total{ruleset=\"visible\",operation=\"Migrating\"} 1 # {trace=\"zqx\"} 1
zqx 1
ifo_leader 1
ifo_leader zqx
# EOF
";

/// Answers a request as a cluster whose names and messages are marked with [`MARKER`].
fn marked_cluster(request: &Request) -> Response {
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    let list = |item: Value| json_response(&json!({"items": [item], "metadata": {"continue": ""}}));
    match path {
        LIVE => {
            let mut response = list_response(&[marked_operation()], "");
            let warning = "299 - \"1 of 1 rule set is not working, operations may be missing: \
                           my-rules (does not compile)\"";
            response
                .headers_mut()
                .insert("Warning", warning.parse().expect("a header"));
            response
        }
        RECORDS => list(marked_record()),
        RULE_SETS => list(marked_rule_set()),
        "/version" => json_response(
            &json!({"gitVersion": "v1.34.0", "buildDate": MARKER, "platform": "a zqx"}),
        ),
        path if path.contains("/apiservices/") => json_response(&marked(json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"labels": {}, "uid": "u"},
            "spec": {"group": "live.ifo.kubevirt.io", "version": "v1alpha1", "caBundle": "x",
                     "service": {"name": "s", "namespace": "ns"}},
            "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints",
                                       "message": "no endpoints"}]},
        }))),
        path if path.contains("/customresourcedefinitions/") => json_response(&json!({
            "metadata": {"name": "operationrulesets.ifo.kubevirt.io", "annotations": {"a": MARKER}},
            "spec": {"group": "ifo.kubevirt.io", "scope": "Cluster",
                     "names": {"plural": "operationrulesets", "kind": "OperationRuleSet"},
                     "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                                   "schema": {"description": MARKER}}]},
            "status": {"storedVersions": ["v1alpha1"], "conditions": [{"type": "Established",
                       "status": "True", "reason": "InitialNamesAccepted", "message": MARKER}]},
        })),
        path if path.ends_with("/log") && query.contains("previous") => {
            status_response(400, "BadRequest", "previous container of zqx not found")
        }
        path if path.ends_with("/log") => LOG.into_response(),
        path if path.ends_with("/pods") => list(marked_pod()),
        path if path.ends_with("/deployments") => list(marked(json!({
            "metadata": metadata(), "spec": {"template": {"spec": marked_pod()["spec"]}},
        }))),
        path if path.ends_with("/events") => list(marked_event()),
        path if path.ends_with("/leases") => list(marked(json!({
            "metadata": metadata(),
            "spec": {"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 3},
        }))),
        path if path.ends_with("/poddisruptionbudgets") => status_response(
            403,
            "Forbidden",
            "User \"zqx\" cannot list it in namespace \"zqx\"",
        ),
        _ => not_found(),
    }
}

/// Returns one text with the paths and contents of all files in an archive.
fn unpacked(archive: &Path) -> String {
    let bytes = std::fs::read(archive).expect("the archive is readable");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
    let mut all = String::new();
    for entry in archive.entries().expect("it is an archive") {
        let mut entry = entry.expect("it is complete");
        let path = entry.path().expect("a path").display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("all files are text");
        all.extend(["==> ", &path, "\n", &text]);
    }
    all
}

/// Returns the paths of all files below a folder.
fn paths(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            found.extend(paths(&path).iter().map(|it| format!("{name}/{it}")));
        } else {
            found.insert(
                path.file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned(),
            );
        }
    }
    found
}

#[test]
fn a_bundle_contains_only_the_fields_that_may_leave() {
    let (_runtime, address) = serve(marked_cluster);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let archive = folder.path().join("bundle.tar.gz");
    let metrics = folder.path().join("own.txt");
    std::fs::write(&metrics, METRICS).expect("the folder is writable");
    let bundle = |more: &[&str], archive: &Path| {
        let mut command = plugin(address);
        command
            .arg("support-bundle")
            .args(more)
            .arg("-o")
            .arg(archive);
        execute(command.arg("--metrics").arg(&metrics))
    };
    let output = bundle(&[], &archive);
    output.exits(0);
    assert_eq!(output.stdout.trim(), archive.display().to_string());
    assert!(!output.stderr.contains(MARKER), "{}", output.stderr);
    let redacted = unpacked(&archive);
    let at = redacted
        .find(MARKER)
        .map(|at| &redacted[at.saturating_sub(200)..at + 20]);
    assert_eq!(at, None);
    assert!(!redacted.contains("logs/"), "{redacted}");
    for kept in [
        "\"name\": \"visible",
        "\"namespace\": \"visible",
        "\"holderIdentity\": \"visible",
        "\"nodes\": \"(left out)\"",
        "\"operation\": \"Migrating\"",
        "\"kind\": \"VirtualMachine\"",
        "\"kind\": \"OperationRecord\"",
        "\"outcome\": \"Superseded\"",
        "\"ifo.kubevirt.io/state\": \"Superseded\"",
        "\"source\": \"History\"",
        "\"durationSeconds\": 600",
        "\"resource\": \"virtualmachines\"",
        "\"reason\": \"CrashLoopBackOff\"",
        "\"reason\": \"EvaluationFailed\"",
        "ifo_leader 1\n",
        "v1.34.0",
        "not working, operations may be missing: my-rules",
    ] {
        assert!(redacted.contains(kept), "{kept}: {redacted}");
    }
    // With `--include-text`, each object contains the marker. This shows that the marker did not
    // leave in the first bundle because its field was dropped.
    let whole = folder.path().join("whole.tar.gz");
    let output = bundle(&["--include-text"], &whole);
    output.exits(0);
    let whole = unpacked(&whole);
    for file in whole.split("==> ").filter(|it| !it.is_empty()) {
        let name = file.lines().next().unwrap_or_default();
        let is_marked = !name.ends_with("versions.json");
        assert_eq!(file.contains(MARKER), is_marked, "{file}");
    }
    let logs = whole
        .lines()
        .filter(|it| it.starts_with("==> ") && it.contains("/logs/visible"));
    assert_eq!(logs.count(), 1);
}

#[test]
fn a_bundle_can_be_read_with_from() {
    let (_runtime, address) = serve(marked_cluster);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bundle = folder.path().join("bundle/");
    let output = execute(plugin(address).arg("support-bundle").arg("-o").arg(&bundle));
    output.exits(0);
    let files = paths(&bundle);
    assert!(files.contains("bundle.json"), "{files:?}");
    let from = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        execute(
            command
                .args(args)
                .arg("--from")
                .arg(&bundle)
                .env_remove("KUBECONFIG"),
        )
    };
    let list = from(&["list", "-o", "json"]);
    list.exits(0);
    list.says("texts such as messages were left out");
    list.says("1 of 1 rule set is not working: my-rules");
    let operation = &list.json()["items"][0];
    assert_eq!(operation["spec"]["subject"]["kind"], "VirtualMachine");
    let name = operation["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    let description = from(&["describe", &name]);
    description.exits(0);
    description.prints("Blocked");
    let component = from(&["list", "-c", "kubvirt"]);
    component.says("did you mean \"kubevirt\"?");
    let index = std::fs::read(bundle.join("bundle.json")).expect("the index is readable");
    let index: Value = serde_json::from_slice(&index).expect("the index is JSON");
    let part = |what: &str| {
        let parts = index["parts"].as_array().expect("the index has parts");
        parts
            .iter()
            .find(|it| it["what"] == what)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(part("PodDisruptionBudget")["result"], "Forbidden");
    assert_eq!(part("logs")["result"], "Skipped");
    assert_eq!(part("metrics")["result"], "Skipped");
    assert_eq!(part("custom resources")["result"], "NotFound");
    assert_eq!(part("rule sets")["result"], "Read");
}

#[test]
fn a_bundle_is_written_even_if_nothing_can_be_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bundle = folder.path().join("b.tar.gz");
    let (_runtime, address) = serve(|_| status_response(403, "Forbidden", "no"));
    let output = execute(plugin(address).arg("support-bundle").arg("-o").arg(&bundle));
    output.exits(0);
    output.says("missing, because");
    output.says("operations");
    let again = execute(plugin(address).arg("support-bundle").arg("-o").arg(&bundle));
    again.exits(2);
    again.says("already exists");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    let list = execute(command.arg("list").arg("--from").arg(&bundle));
    assert_eq!((list.code, &*list.stdout), (1, ""), "{}", list.stderr);
    list.says("contains no operations: missing, because you have no permission");
}

#[test]
fn a_reached_limit_is_recorded() {
    let (_runtime, address) = serve(|request| {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        if path.ends_with("/log") {
            // Without `tailLines`, the kubelet would begin with the oldest lines.
            assert!(
                query.contains("tailLines=10000&limitBytes=8388608"),
                "{query}"
            );
            return "2026-01-01T00:00:00Z line\n".repeat(10_000).into_response();
        }
        if path.ends_with("/events") {
            let first = json!({"items": [marked_event()], "metadata": {"continue": "token"}});
            return json_response(&first);
        }
        marked_cluster(request)
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bundle = folder.path().join("bundle/");
    let mut command = plugin(address);
    command.args(["support-bundle", "--include-text", "-o"]);
    let output = execute(command.arg(&bundle));
    output.exits(0);
    let incomplete = output
        .stderr
        .lines()
        .find(|it| it.contains("incomplete, because"));
    let incomplete = incomplete.expect("the summary names incomplete parts");
    assert!(
        incomplete.contains("Event,") && incomplete.contains("log of visible"),
        "{incomplete}"
    );
}

#[test]
fn no_secret_is_requested() {
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&asked);
    let (_runtime, address) = serve(move |request| {
        let line = format!("{} {}", request.method(), request.uri().path());
        seen.lock().expect("no test has panicked").push(line);
        marked_cluster(request)
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = execute(
        plugin(address)
            .arg("support-bundle")
            .arg("-o")
            .arg(folder.path().join("b")),
    );
    output.exits(0);
    let asked = asked.lock().expect("no test has panicked");
    assert!(asked.len() > 10, "{asked:?}");
    for line in asked.iter() {
        assert!(line.starts_with("GET "), "{line}");
        assert!(!line.contains("/secrets"), "{line}");
    }
}
