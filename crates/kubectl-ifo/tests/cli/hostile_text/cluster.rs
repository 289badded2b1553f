//! A simulated cluster, and files, whose texts contain commands for a terminal.

use crate::cluster::Cluster;
use crate::fake_apiserver::{operation, status_response};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// The beginning of each text of the attacker.
pub const MARK: &str = "zqx";

/// A text of the attacker. It would set the title of the terminal, make text blink, clear the
/// screen, delete characters, change the direction of text, and forge a line of the output.
pub const HOSTILE: &str = "zqx\u{1b}]0;t\u{7}\u{1b}[5m\u{1b}[2J\u{8}\u{7f}\u{85}\u{9b}2J\u{202e}\u{2066}\u{2028}\u{61c}\t\r\nforged line";

/// The name of the first operation. A command line can contain any character except NUL.
pub const NAME: &str = "zqx\u{1b}]0;t\u{7}\u{1b}[5m\u{9b}2J\u{202e}\r\nforged";

/// Fields that keep their values, because the plugin would not read the object otherwise.
const KEPT: [&str; 17] = [
    "apiVersion",
    "kind",
    "phase",
    "state",
    "outcome",
    "type",
    "status",
    "source",
    "creationTimestamp",
    "started",
    "completed",
    "lastTransitionTime",
    "lastTimestamp",
    "resourceVersion",
    "startTimeSource",
    "nodeName",
    "namespace",
];

/// Replaces each text in `value` by the text of the attacker, and adds such a text to labels and
/// annotations.
fn poisoned(mut value: Value) -> Value {
    poison(&mut value, "");
    value
}

fn poison(value: &mut Value, field: &str) {
    match value {
        Value::String(text) if !KEPT.contains(&field) => HOSTILE.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|it| poison(it, field)),
        Value::Object(fields) => {
            fields
                .iter_mut()
                .for_each(|(key, value)| poison(value, key));
            if ["labels", "annotations"].contains(&field) {
                fields.insert(HOSTILE.to_owned(), json!(HOSTILE));
            }
        }
        _ => {}
    }
}

/// Returns the operations: one with the known subject `vm-1`, one with an unknown state and kind.
fn operations() -> Vec<Value> {
    let mut first = operation(1);
    first["metadata"]["labels"] = json!({"a": "b"});
    first["metadata"]["uid"] = json!("u");
    first["spec"]["item"] = json!("i");
    first["spec"]["work"] = json!("w");
    first["spec"]["subject"]["uid"] = json!("u");
    first["spec"]["subject"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true},
    ]);
    first["status"] = json!({
        "phase": "Active", "state": "Failing", "reason": "r", "message": "m", "progress": 7,
        "detectedBy": ["r"], "nodes": ["worker-3", "n"], "started": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Overdue", "status": "True", "reason": "r", "message": "m",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    let mut first = poisoned(first);
    let mut second = first.clone();
    first["spec"]["subject"]["name"] = json!("vm-1");
    first["metadata"]["name"] = json!(NAME);
    second["spec"]["subject"]["kind"] = json!(HOSTILE);
    second["spec"]["subject"]["apiVersion"] = json!(HOSTILE);
    second["spec"]["subject"]["namespace"] = json!(HOSTILE);
    second["status"]["state"] = json!(HOSTILE);
    second["status"]["conditions"][0]["type"] = json!(HOSTILE);
    vec![first, second]
}

fn records() -> Vec<Value> {
    let status = json!({
        "outcome": "Failed", "reason": HOSTILE, "message": HOSTILE, "nodes": [HOSTILE],
        "started": "2026-01-01T00:00:00Z", "completed": "2026-01-01T00:01:00Z",
        "durationSeconds": 60, "startTimeSource": "Detected",
    });
    let mut records = operations();
    for record in &mut records {
        record["kind"] = json!("OperationRecord");
        // The operations in flight must not belong to the same piece of work.
        record["spec"]["work"] = json!(format!("{HOSTILE} of the record"));
        record["metadata"]["uid"] = json!(format!("{HOSTILE} of the record"));
        record["status"] = status.clone();
    }
    records[1]["status"]["outcome"] = json!(HOSTILE);
    records
}

fn rule_set() -> Value {
    let mut rule_set = poisoned(json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
        "metadata": {"name": "r", "generation": 1, "labels": {"a": "b"}},
        "spec": {"component": "c", "variables": [{"name": "v", "expression": "object.x"}],
                 "rules": [{"operation": "Migrating", "expression": "x", "message": "m"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "WatchFailed", "message": "m",
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }));
    rule_set["spec"]["target"] =
        json!({"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"});
    rule_set
}

/// Returns a cluster whose objects contain the text of the attacker.
pub fn hostile_cluster() -> Cluster {
    let pod = poisoned(json!({
        "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u", "controller": true}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }));
    let event = poisoned(json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"},
        "involvedObject": {"kind": "VirtualMachine", "name": "vm-1", "namespace": "shop"},
        "reason": "r", "message": "m", "type": "Normal", "reportingComponent": "c",
        "lastTimestamp": "2026-01-01T00:00:30Z",
    }));
    let cluster = json!({
        "operations": operations(), "records": records(), "rule_sets": [rule_set()], "pods": [pod],
        "incomplete": {"notWorking": {"count": 1, "total": 1, "named": [
            {"name": "zqx\u{9b}2J\u{85}\u{202e}", "reason": "target cannot be watched"}]}},
        "answers": {
            "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/shop/inflightoperations/*": operations()[0],
            "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets/*": rule_set(),
            "/api/v1/namespaces": {"items": [{"metadata": {"name": HOSTILE}}]},
            "*/eviction": {"code": 403, "message": format!("admission webhook {HOSTILE}")},
            "*/events": {"items": [event]},
            "/openapi/*": {"openapi": "3.0.0", "info": {"title": HOSTILE, "version": HOSTILE}, "paths": {}},
        },
    });
    serde_json::from_value(cluster).expect("the cluster is valid")
}

/// Answers each request with an error that contains the text of the attacker.
pub fn refusing_cluster(code: u16) -> Response {
    match code {
        // A proxy answers in plain text.
        503 => (axum::http::StatusCode::SERVICE_UNAVAILABLE, HOSTILE).into_response(),
        403 => status_response(403, "Forbidden", &format!("no: User {HOSTILE:?} {HOSTILE}")),
        _ => status_response(code, HOSTILE, HOSTILE),
    }
}

/// A folder with rule sets, objects and a recording.
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// Writes the files, and a kubeconfig for the server at `address`.
    pub fn new(address: SocketAddr) -> Self {
        let folder = Self(tempfile::tempdir().expect("a temporary folder can be created"));
        let object = json!({
            "apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": HOSTILE, "namespace": HOSTILE, "uid": HOSTILE,
                         "annotations": {"ifo.kubevirt.io/expect": HOSTILE, "text": HOSTILE}},
            "status": {"phase": "Moving", "parts": [{"name": HOSTILE}]},
        });
        let rules = json!({
            "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
            "metadata": {"name": "widgets"},
            "spec": {
                "component": "example",
                "target": {"group": "example.io", "version": "v1", "resource": "widgets"},
                "rules": [
                    {"operation": "Moving", "expression": "object.status.phase == 'Moving' && object.metadata.name != ''",
                     "message": "object.metadata.annotations['text']"},
                    {"operation": "Copying", "expression": "item.name != ''",
                     "forEach": "object.status.parts", "itemKey": "item.name",
                     "message": "object.metadata.name", "work": "object.metadata.uid"},
                    {"operation": "Wrong", "expression": "object.metadata.name > 7"},
                ],
            },
        });
        let mut invalid = rules.clone();
        invalid["metadata"]["name"] = json!(HOSTILE);
        invalid["spec"]["component"] = json!(HOSTILE);
        invalid["spec"]["rules"][0]["operation"] = json!(HOSTILE);
        invalid["spec"]["rules"][1]["expression"] = json!(format!("'{HOSTILE}' +"));
        invalid["spec"][HOSTILE] = json!(HOSTILE);
        let event =
            json!({"t": 1, "resource": "example.io/v1/widgets", "type": "ADDED", "object": object});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [object]});
        let gathered = [operations(), records(), vec![rule_set()]].concat();
        let gathered = json!({"apiVersion": "v1", "kind": "List", "items": gathered});
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": ""}}],
        });
        for (name, value) in [
            ("kubeconfig", &kubeconfig),
            ("rules.yaml", &rules),
            ("invalid.yaml", &invalid),
            ("objects.json", &list),
            ("object.json", &object),
            ("stream.jsonl", &event),
            ("gathered/all.json", &gathered),
        ] {
            let path = folder.0.path().join(name);
            std::fs::create_dir_all(path.parent().expect("the file has a folder"))
                .expect("the folder is writable");
            std::fs::write(path, ascii_json(value) + "\n").expect("the folder is writable");
        }
        folder
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> String {
        let path: &Path = self.0.path();
        path.join(name)
            .to_str()
            .expect("the path is UTF-8")
            .to_owned()
    }
}

/// Encodes a value as JSON that is also valid YAML: YAML does not allow all control characters.
fn ascii_json(value: &Value) -> String {
    let json = value.to_string();
    let escaped = json.chars().map(|c| match c {
        ' '..='~' => c.to_string(),
        c => format!("\\u{:04x}", u32::from(c)),
    });
    escaped.collect()
}
