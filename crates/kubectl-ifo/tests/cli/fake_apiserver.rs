//! A fake API server. Each test defines the answers of the server. The tests with a real cluster are
//! in `tests/e2e`.

use super::CommandOutput;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Path of the live API: the operations that `ifo-apiserver` serves.
pub const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
/// Path of the records of completed operations.
pub const RECORDS: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/operationrecords";
/// Path of the operations as custom resources.
pub const CUSTOM_RESOURCES: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
/// Path of the rule sets.
pub const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";

/// Starts a server that calls `answer` for each request. The server stops when the returned runtime
/// is dropped.
pub fn serve(
    answer: impl Fn(&Request) -> Response + Clone + Send + Sync + 'static,
) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be created");
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .expect("loopback has a free port");
    let address = listener
        .local_addr()
        .expect("a bound listener has an address");
    let router = axum::Router::new().fallback(move |request: Request| {
        let response = answer(&request);
        async move { response }
    });
    runtime.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            connections.spawn(async move {
                let io = hyper_util::rt::TokioIo::new(stream);
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(io, service)
                    .await;
            });
        }
    });
    (runtime, address)
}

/// Returns the command that runs the plugin with the server at `address`. No kubeconfig is read.
pub fn plugin(address: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command
        .env("KUBECONFIG", "/nonexistent")
        .env_remove("NO_COLOR")
        .env("NO_PROXY", "127.0.0.1")
        .args(["--server", &format!("http://{address}")])
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn execute(command: &mut Command) -> CommandOutput {
    let output = command.output().expect("the plugin can be started");
    let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
    CommandOutput {
        code: output.status.code().expect("no signal killed the plugin"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

pub fn json_response(value: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        value.to_string(),
    )
        .into_response()
}

/// Returns an error answer with an object of the kind `Status`, as a kube-apiserver sends it.
pub fn status_response(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let code = StatusCode::from_u16(code).expect("the status code is valid");
    (code, json_response(&status)).into_response()
}

/// Returns the answer of a kube-apiserver to the user `jane`, who may not read the objects at `path`.
pub fn forbidden(path: &str) -> Response {
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    let group = match parts.remove(0) {
        "apis" => parts.remove(0),
        _ => "",
    };
    let place = match parts.as_slice() {
        [_, "namespaces", namespace, _, ..] => {
            let place = format!("in the namespace \"{namespace}\"");
            parts.drain(1..3);
            place
        }
        _ => "at the cluster scope".to_owned(),
    };
    let plural = parts.get(1).copied().unwrap_or_default();
    let (resource, verb, name) = match parts.get(2) {
        Some(name) => (plural.to_owned(), "get", format!(" {name:?}")),
        None => (plural.to_owned(), "list", String::new()),
    };
    let resource = format!("{resource}.{group}");
    let resource = resource.trim_end_matches('.');
    let message = format!(
        "{resource}{name} is forbidden: User \"jane\" cannot {verb} resource \"{plural}\" in API group \"{group}\" {place}"
    );
    status_response(403, "Forbidden", &message)
}

/// Returns the answer of a kube-apiserver for an unknown path.
pub fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

/// Returns an answer to a watch. The answer stays open and has no events.
pub fn quiet_watch() -> Response {
    type Empty = futures::stream::Pending<Result<Vec<u8>, std::io::Error>>;
    let events: Empty = futures::stream::pending();
    axum::body::Body::from_stream(events).into_response()
}

/// Returns an active operation on `VirtualMachine` number `number`.
pub fn operation(number: usize) -> Value {
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {
            "name": format!("vm-{number}-migrating"), "namespace": "shop",
            "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "operation": "Migrating", "ruleSet": "vm", "component": "kubevirt",
            "subject": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                        "name": format!("vm-{number}"), "namespace": "shop"},
        },
        "status": {"phase": "Active", "state": "Progressing", "reason": "Migrating"},
    })
}

/// Returns a page of a list that states that it is complete. `continue_token` is empty on the last
/// page.
pub fn list_response(items: &[Value], continue_token: &str) -> Response {
    let mut answer = json_response(&json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperationList",
        "metadata": {"resourceVersion": "7", "continue": continue_token}, "items": items,
    }));
    let stated = "true".parse().expect("a header");
    answer.headers_mut().insert("ifo-complete", stated);
    answer
}

/// Returns a rule set whose status says that `ifo-apiserver` watches its target, the virtual
/// machines.
pub fn watched_rule_set() -> Value {
    json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
        "metadata": {"name": "vm", "generation": 1},
        "spec": {
            "component": "kubevirt", "rules": [{"operation": "Migrating", "expression": "x"}],
            "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
        },
        "status": {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Watching", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

/// Returns the aggregated discovery of one API group with one kind.
pub fn group_discovery(group: &str, kind: &str, plural: &str, short: &str) -> Value {
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {"name": group}, "versions": [{
            "version": "v1", "freshness": "Current", "resources": [{
                "resource": plural, "singularResource": kind.to_lowercase(), "scope": "Namespaced",
                "responseKind": {"group": group, "version": "v1", "kind": kind},
                "shortNames": [short], "verbs": ["get", "list", "watch"],
            }],
        }]}],
    })
}
