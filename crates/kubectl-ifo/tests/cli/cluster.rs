//! A simulated cluster. A test describes the objects of the cluster in YAML, and the cluster answers
//! lists, reads and watches as a kube-apiserver does.

use super::fake_apiserver::{
    CUSTOM_RESOURCES, LIVE, RULE_SETS, forbidden, group_discovery, json_response, list_response,
    not_found, operation, quiet_watch, serve, status_response, watched_rule_set,
};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use ifo_api::completeness::{IGNORED_HEADER, Incomplete};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The objects and the behaviour of the cluster. Each object of a list is a change of a default
/// object. A number is the number in the name of the object.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// Operations on the virtual machines `vm-1`, `vm-2` and so on.
    pub operations: Vec<Value>,
    /// Records of completed operations. None if the server does not serve records.
    pub records: Option<Vec<Value>>,
    /// Operations as custom resources. None if they are not served.
    pub custom_resources: Option<Vec<Value>>,
    /// Activities. None if they are not served.
    pub activities: Option<Vec<Value>>,
    pub rule_sets: Vec<Value>,
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    /// The kind in the group `kubevirt.io`, its plural and its short name.
    pub kind: [String; 3],
    /// The header `ifo-incomplete` of lists of operations. If it is null, lists state that they are
    /// complete.
    pub incomplete: Option<Incomplete>,
    /// False if lists do not state whether they are complete.
    pub states_completeness: bool,
    /// The events of each watch of operations.
    pub events: Vec<Value>,
    /// Answers for paths: the code of an error, an error with a message, an
    /// object or a text. A path can
    /// begin or end with `*`.
    pub answers: BTreeMap<String, Value>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            operations: Vec::new(),
            records: None,
            custom_resources: None,
            activities: None,
            rule_sets: vec![json!({})],
            nodes: vec![json!("worker-3"), json!("worker-4")],
            pods: Vec::new(),
            kind: ["VirtualMachine", "virtualmachines", "vm"].map(str::to_owned),
            incomplete: None,
            states_completeness: true,
            events: Vec::new(),
            answers: BTreeMap::new(),
        }
    }
}

/// Merges `change` into `value` as a JSON merge patch.
fn merge(value: &mut Value, change: &Value) {
    match change {
        Value::Object(fields) if value.is_object() => {
            for (key, change) in fields {
                if change.is_null() {
                    value.as_object_mut().map(|it| it.remove(key));
                } else {
                    merge(&mut value[key], change);
                }
            }
        }
        change => *value = change.clone(),
    }
}

/// Returns the default object with its changes. `change` is a number, or an object that can have the
/// field `number`.
fn changed(default: impl Fn(usize) -> Value, change: &Value) -> Value {
    let number = change.as_u64().or_else(|| change["number"].as_u64());
    let mut object = default(usize::try_from(number.unwrap_or(1)).expect("a small number"));
    if change.is_object() {
        merge(&mut object, change);
        object.as_object_mut().map(|it| it.remove("number"));
    }
    object
}

/// Returns the record of an operation that began at 2026-01-01T00:00:00Z and took `number` minutes.
pub fn record(number: usize) -> Value {
    let mut record = operation(number);
    record["kind"] = json!("OperationRecord");
    record["metadata"]["uid"] = json!(format!("uid-{number}"));
    record["spec"]["initiator"] = json!("ann");
    record["status"] = json!({
        "queuedAt": "2025-12-31T23:59:18Z", "outcome": "Succeeded", "reason": "Done",
        "message": format!("message {number}"),
        "started": "2026-01-01T00:00:00Z", "startTimeSource": "Detected",
        "completed": format!("2026-01-01T00:{number:02}:00Z"), "durationSeconds": number * 60,
        "nodes": [format!("worker-{number}")],
        "expected": {"typicalSeconds": 125, "runs": 37, "source": "History"},
    });
    record
}

/// Returns a custom resource as the Go operator writes it. `ifo-apiserver` replaces this operator.
/// The object is cluster-scoped, and has no state, no start and no conditions.
fn custom_resource(_: usize) -> Value {
    json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {"name": "x-phhwd", "generateName": "x-", "generation": 1,
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"operation": "Migrating", "ruleSet": "vm", "component": "kubevirt",
                 "subject": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "x",
                             "namespace": "shop"}},
        "status": {"phase": "Active", "detectedBy": ["vm"], "lastDetected": "2026-01-01T00:00:00Z",
                   "subjectGeneration": 1},
    })
}

fn activity(_: usize) -> Value {
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "Activity",
        "metadata": {"name": "cluster", "namespace": "ifo-system", "resourceVersion": "7", "uid": "u",
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {
            "conditions": [{"type": "Idle", "status": "True", "reason": "R", "message": "m",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "operations": 0, "blocked": 0, "failing": 0, "overdue": 0,
        },
    })
}

fn pod(_: usize) -> Value {
    json!({"metadata": {"namespace": "shop"}, "status": {"phase": "Running"}})
}

fn named(name: &Value) -> Value {
    json!({"metadata": {"name": name}})
}

/// Returns true if the object has all fields of a field selector. A list has its elements.
fn is_selected(object: &Value, selector: &str) -> bool {
    let mut parts = selector.split(',').filter_map(|it| it.split_once('='));
    parts.all(|(field, value)| {
        let found = object.pointer(&format!("/{}", field.replace('.', "/")));
        let has = |it: &Value| it == value;
        match found {
            Some(Value::Array(items)) => items.iter().any(has),
            Some(found) => has(found),
            // The kube-apiserver knows the node of each Pod.
            None => field == "spec.nodeName",
        }
    })
}

fn has_labels(object: &Value, selector: &str) -> bool {
    let mut parts = selector.split(',').filter_map(|it| it.split_once('='));
    parts.all(|(key, value)| object["metadata"]["labels"][key] == value)
}

/// Returns a parameter of a request.
pub fn parameter(request: &Request, name: &str) -> String {
    let query = request.uri().query().unwrap_or_default().as_bytes();
    let mut pairs = form_urlencoded::parse(query);
    let found = pairs.find(|(key, _)| key == name);
    found.map(|(_, value)| value.into()).unwrap_or_default()
}

pub fn is_watch(request: &Request) -> bool {
    parameter(request, "watch") == "true"
}

/// Returns an answer to a watch with these events after a moment. The answer then stays open.
pub fn watch_response(events: &[Value]) -> Response {
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    let lines = lines.join("\n") + "\n";
    let later = futures::stream::once(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok::<_, std::io::Error>(lines)
    });
    axum::body::Body::from_stream(later.chain(futures::stream::pending())).into_response()
}

impl Cluster {
    /// Reads the description of a cluster.
    pub fn read(yaml: &str) -> Self {
        serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
    }

    /// Starts a server for the cluster.
    pub fn serve(self) -> (tokio::runtime::Runtime, SocketAddr) {
        serve(move |request| self.answer(request))
    }

    /// Returns the objects at a path without the namespace, such as `/api/v1/pods`.
    fn objects(&self, path: &str) -> Option<Vec<Value>> {
        let changes = |all: &[Value], default: fn(usize) -> Value| {
            Some(all.iter().map(|it| changed(default, it)).collect())
        };
        match path {
            LIVE => changes(&self.operations, operation),
            "/apis/live.ifo.kubevirt.io/v1alpha1/operationrecords" => {
                changes(self.records.as_ref()?, record)
            }
            "/apis/live.ifo.kubevirt.io/v1alpha1/activities" => {
                changes(self.activities.as_ref()?, activity)
            }
            CUSTOM_RESOURCES => changes(self.custom_resources.as_ref()?, custom_resource),
            RULE_SETS => changes(&self.rule_sets, |_| watched_rule_set()),
            "/api/v1/pods" => changes(&self.pods, pod),
            "/api/v1/nodes" => Some(self.nodes.iter().map(named).collect()),
            "/api/v1/namespaces" => Some(["shop", "secret"].map(|it| named(&json!(it))).to_vec()),
            _ => None,
        }
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request) -> Response {
        let path = request.uri().path();
        let mut answers = self.answers.iter();
        let is_at = |pattern: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => path.ends_with(end),
            (_, Some(start)) => path.starts_with(start),
            _ => path == pattern,
        };
        if let Some((_, answer)) = answers.find(|(pattern, _)| is_at(pattern)) {
            return answer_of(answer, path);
        }
        let [kind, plural, short] = &self.kind;
        match path {
            "/api" => json_response(&group_discovery("", "Pod", "pods", "po")),
            "/apis" => json_response(&group_discovery("kubevirt.io", kind, plural, short)),
            "/apis/live.ifo.kubevirt.io/v1alpha1" => version_discovery(path),
            "/apis/ifo.kubevirt.io/v1alpha1" if self.custom_resources.is_some() => {
                version_discovery(path)
            }
            "/api/v1/namespaces/secret" => forbidden(path),
            _ => self.stored(request),
        }
    }

    /// Answers a list, a watch or a read of objects.
    fn stored(&self, request: &Request) -> Response {
        let path = request.uri().path();
        let mut segments: Vec<&str> = path.split('/').collect();
        let at = segments.iter().position(|it| *it == "namespaces");
        let namespace = at.filter(|at| segments.len() > at + 2).map(|at| {
            let namespace = segments[at + 1];
            segments.drain(at..at + 2);
            namespace
        });
        let whole = segments.join("/");
        let in_namespace = |it: &Value| {
            let own = it["metadata"]["namespace"].as_str();
            namespace.is_none() || namespace == own
        };
        if let Some(mut items) = self.objects(&whole) {
            if is_watch(request) {
                let is_quiet = whole != LIVE || self.events.is_empty();
                return if is_quiet {
                    quiet_watch()
                } else {
                    watch_response(&self.events)
                };
            }
            items.retain(|it| {
                in_namespace(it)
                    && is_selected(it, &parameter(request, "fieldSelector"))
                    && has_labels(it, &parameter(request, "labelSelector"))
            });
            return self.list(request, &items, whole == LIVE);
        }
        let (list, name) = whole.rsplit_once('/').unwrap_or_default();
        let found = self.objects(list).unwrap_or_default();
        let found = found.iter().find(|it| it["metadata"]["name"] == name);
        match found.filter(|it| in_namespace(it)) {
            Some(object) => json_response(object),
            None if self.objects(list).is_some() => {
                let plural = list.rsplit('/').next().unwrap_or_default();
                status_response(404, "NotFound", &format!("{plural} {name:?} not found"))
            }
            None => not_found(),
        }
    }

    /// Returns a list. Only lists of live operations state whether they are complete.
    fn list(&self, request: &Request, items: &[Value], is_live: bool) -> Response {
        let mut answer = list_response(items, "");
        let headers = answer.headers_mut();
        let incomplete = self.incomplete.clone().filter(|_| is_live);
        let incomplete = incomplete.and_then(|it| without_ignored(it, request));
        if !is_live || !self.states_completeness || incomplete.is_some() {
            headers.remove("ifo-complete");
        }
        if let Some(incomplete) = incomplete {
            let reason = serde_json::to_string(&incomplete).expect("a reason is JSON");
            let reason = HeaderValue::from_bytes(reason.as_bytes());
            headers.insert("ifo-incomplete", reason.expect("a header"));
        }
        answer
    }
}

/// Removes the rule sets that the request ignores. Returns None if no other is left.
fn without_ignored(incomplete: Incomplete, request: &Request) -> Option<Incomplete> {
    let Incomplete::NotWorking(mut sets) = incomplete else {
        return Some(incomplete);
    };
    let header = request.headers().get(IGNORED_HEADER);
    let ignored = header.map_or("", |it| it.to_str().expect("names are ASCII"));
    let named = sets.named.len();
    sets.named
        .retain(|it| !ignored.split(',').any(|name| name == it.name));
    sets.count -= named - sets.named.len();
    (sets.count > 0).then_some(Incomplete::NotWorking(sets))
}

/// Returns the discovery document of the API version at `path`, which has the kind of operations.
fn version_discovery(path: &str) -> Response {
    json_response(&json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": &path["/apis/".len()..],
        "resources": [{"name": "inflightoperations", "kind": "InFlightOperation", "singularName": "",
                       "namespaced": true, "verbs": ["get", "list", "watch"]}],
    }))
}

fn answer_of(answer: &Value, path: &str) -> Response {
    let error = |code: u64, message: &str| {
        let reason = match code {
            403 => "Forbidden",
            404 => "NotFound",
            429 => "TooManyRequests",
            _ => "InternalError",
        };
        status_response(u16::try_from(code).expect("a status code"), reason, message)
    };
    match (answer.as_u64(), answer["code"].as_u64()) {
        (None, Some(code)) if answer["kind"] == "Status" => {
            let code = u16::try_from(code)
                .ok()
                .and_then(|it| StatusCode::from_u16(it).ok());
            (code.expect("a status code"), json_response(answer)).into_response()
        }
        (Some(403), _) => forbidden(path),
        (Some(404), _) => not_found(),
        (Some(code), _) => error(code, "no"),
        (None, Some(code)) => {
            let message = answer["message"].as_str().expect("an error has a message");
            error(code, message)
        }
        (None, None) => match answer.as_str() {
            Some(text) => text.to_owned().into_response(),
            None => json_response(answer),
        },
    }
}
