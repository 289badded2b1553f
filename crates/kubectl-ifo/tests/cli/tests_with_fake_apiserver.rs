//! Tests of the plugin with a fake API server. Each test defines the answers of the server. This
//! module also has the helpers for other tests with a fake API server. The tests with a real
//! cluster are in `tests/e2e`.

use super::CommandOutput;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::io::{BufRead as _, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Path of the live API: the operations that `ifo-apiserver` serves.
pub const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
/// Path of the operations that are stored as custom resources. `ifo-apiserver` writes them only in
/// persistence mode.
const CRS: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
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

#[test]
fn each_error_status_is_reported_in_one_line_with_a_remedy() {
    for (code, answer, hints) in [
        (
            401,
            status_response(401, "Unauthorized", "Unauthorized"),
            &["log in"][..],
        ),
        (
            503,
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response(),
            &["service unavailable", "kubectl get apiservice"],
        ),
        (
            500,
            status_response(500, "InternalError", "it broke\nbadly"),
            &["it broke badly"],
        ),
        (
            404,
            not_found(),
            &[
                "serves no operations",
                "https://github.com/kubevirt/ifo/blob/HEAD/docs/installation.md",
            ],
        ),
        (
            403,
            status_response(403, "Forbidden", "no"),
            &[
                "inflightoperations.live.ifo.kubevirt.io",
                "an administrator can bind the ClusterRole ifo-view to you",
            ],
        ),
        (
            429,
            status_response(429, "TooManyRequests", "too many requests"),
            &["overloaded (too many requests)"],
        ),
    ] {
        let (parts, answer) = answer.into_parts();
        let bytes = tokio::runtime::Runtime::new()
            .expect("a runtime can be created")
            .block_on(async { axum::body::to_bytes(answer, 1 << 20).await.expect("a body") });
        let (_runtime, address) = serve(move |_| {
            Response::from_parts(parts.clone(), axum::body::Body::from(bytes.clone()))
        });
        let output = execute(plugin(address).arg("list"));
        assert_eq!(output.code, 1, "{code}: {}", output.stderr);
        assert_eq!(
            output.stderr.lines().count(),
            1,
            "{code}: {}",
            output.stderr
        );
        assert!(
            output.stderr.starts_with("error: "),
            "{code}: {}",
            output.stderr
        );
        for hint in hints {
            assert!(output.stderr.contains(hint), "{code}: {}", output.stderr);
        }
    }
}

#[test]
fn a_refused_connection_is_distinguished_from_a_timeout() {
    // The server has stopped, so nothing listens on its port.
    let (runtime, address) = serve(|_| not_found());
    drop(runtime);
    let refused = execute(plugin(address).arg("list"));
    assert!(
        refused.stderr.contains("cannot reach the cluster") && !refused.stderr.contains("Error"),
        "{}",
        refused.stderr
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = silent
        .local_addr()
        .expect("a bound listener has an address");
    let late = execute(plugin(address).args(["list", "--request-timeout", "200ms"]));
    late.says("--request-timeout");
}

#[test]
fn requests_to_a_server_that_is_syncing_are_retried() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |_| {
        if requests.fetch_add(1, Ordering::Relaxed) < 2 {
            status_response(429, "TooManyRequests", "storage is (re)initializing")
        } else {
            list_response(&[operation(1)], "")
        }
    });
    let output = execute(plugin(address).arg("list"));
    output.exits(0);
    output.prints("VirtualMachine/vm-1");
}

/// Returns a custom resource as the Go operator writes it. `ifo-apiserver` replaces this operator.
/// The object is cluster-scoped, and has no state, no start and no conditions.
fn operator_resource() -> Value {
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

#[test]
fn custom_resources_are_listed_where_the_live_api_is_not_served() {
    // This custom resource has the fields that persistence mode writes.
    let mut completed = operator_resource();
    completed["metadata"]["name"] = json!("b");
    completed["status"] = json!({
        "phase": "Completed", "state": "Ended", "started": "2026-01-02T00:00:00Z",
        "completed": "2026-01-02T00:01:00Z",
    });
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        CRS => list_response(&[operator_resource(), completed.clone()], ""),
        _ => not_found(),
    });
    let shown = execute(plugin(address).args(["list", "-n", "shop", "-O", "wide"]));
    shown.exits(0);
    assert_eq!(
        shown.stderr,
        "note: live.ifo.kubevirt.io is not served; showing the objects of inflightoperations.ifo.kubevirt.io\n"
    );
    assert_eq!(shown.stdout.lines().count(), 2, "{}", shown.stdout);
    shown.prints("2026-01-01T00:00:00Z");
    let elsewhere = execute(plugin(address).args(["list", "-n", "other", "-o", "name"]));
    assert_eq!(elsewhere.stdout, "");
    let names = execute(plugin(address).args(["list", "-A", "-o", "name"]));
    assert_eq!(
        names.stdout,
        "inflightoperation.ifo.kubevirt.io/b\ninflightoperation.ifo.kubevirt.io/x-phhwd\n"
    );
    let all = execute(plugin(address).args(["list", "-A", "-O", "wide"]));
    all.prints("2026-01-02T00:00:00Z");
}

/// Returns the discovery document of the API version at `path`, which has one kind.
fn version_discovery(path: &str) -> Response {
    let version = path
        .strip_prefix("/apis/")
        .expect("the path is that of an API group");
    json_response(&json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
        "resources": [{"name": "inflightoperations", "kind": "InFlightOperation", "singularName": "",
                       "namespaced": true, "verbs": ["get", "list", "watch"]}],
    }))
}

/// Answers like a kube-apiserver to a user without rights: 403 for every resource of an API group,
/// and 404 for other paths. A kube-apiserver authorizes a request before it looks up the resource.
/// So the user gets 403 even if the resource does not exist.
fn refuse(request: &Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/apis/") && path.matches('/').count() > 3 {
        status_response(403, "Forbidden", "no: User \"cora\" cannot list it")
    } else {
        not_found()
    }
}

#[test]
fn a_user_without_rights_on_an_api_that_is_not_served_sees_the_served_api() {
    let api_version_path = |path: &str| path.strip_suffix("/inflightoperations").map(str::to_owned);
    let version = api_version_path(CRS).expect("a version");
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        CRS => list_response(&[operator_resource()], ""),
        path if path == version => version_discovery(path),
        _ => refuse(request),
    });
    for command in [
        &["list", "-o", "name"][..],
        &["list", "-o", "name", "-n", "shop"],
    ] {
        let shown = execute(plugin(address).args(command));
        assert_eq!(shown.code, 0, "{command:?}: {}", shown.stderr);
        assert_eq!(shown.stdout, "inflightoperation.ifo.kubevirt.io/x-phhwd\n");
        shown.says_first("note: live.ifo.kubevirt.io is not served");
    }
}

#[test]
fn a_user_of_one_namespace_sees_custom_resources_without_the_live_api() {
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        CRS => list_response(&[operator_resource()], ""),
        "/api/v1/namespaces" => {
            json_response(&json!({"items": [{"metadata": {"name": "team-a"}}]}))
        }
        // Discovery fails, but the answer 404 to a list in the namespace shows that the API is not
        // served.
        "/apis/live.ifo.kubevirt.io/v1alpha1" => status_response(500, "InternalError", "broken"),
        path if path.contains("/namespaces/team-a/") => not_found(),
        _ => refuse(request),
    });
    let shown = execute(plugin(address).args(["list", "-o", "name"]));
    assert_eq!(
        (shown.code, &*shown.stdout),
        (0, "inflightoperation.ifo.kubevirt.io/x-phhwd\n"),
        "{}",
        shown.stderr
    );
}

#[test]
fn an_api_that_is_not_installed_is_not_reported_as_a_missing_right() {
    let (_runtime, address) = serve(refuse);
    for command in [&["list"][..], &["wait", "--timeout=0"]] {
        let output = execute(plugin(address).args(command));
        assert_ne!(output.code, 0);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(
            output
                .stderr
                .starts_with("error: this cluster serves no operations"),
            "{command:?}: {}",
            output.stderr
        );
    }
    // The API group is served, but discovery contains no resource for operations.
    let (_runtime, address) = serve(|request| match request.uri().path() {
        "/apis/ifo.kubevirt.io/v1alpha1" => json_response(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ifo.kubevirt.io/v1alpha1",
            "resources": [],
        })),
        _ => refuse(request),
    });
    let none = execute(plugin(address).arg("list"));
    none.says("serves no operations");
}

#[test]
fn the_missing_right_is_that_on_the_served_resource() {
    for (served, resource) in [
        (LIVE, "inflightoperations.live.ifo.kubevirt.io"),
        (CRS, "inflightoperations.ifo.kubevirt.io"),
    ] {
        let (version, _) = served.rsplit_once('/').expect("a version");
        let (_runtime, address) = serve(move |request| match request.uri().path() {
            path if path == version => version_discovery(path),
            _ => refuse(request),
        });
        let refused = execute(plugin(address).arg("list"));
        refused.says_first(format!("error: you may not list {resource}"));
    }
}

#[test]
fn custom_resources_show_operations_but_never_prove_idle() {
    let wait = |items: Vec<Value>, goal: &str| {
        let (_runtime, address) = serve(move |request| match request.uri().path() {
            CRS if request.uri().query().is_some_and(|it| it.contains("watch")) => quiet_watch(),
            CRS => list_response(&items, ""),
            _ => not_found(),
        });
        let output = execute(plugin(address).args(["wait", goal, "--timeout", "5s"]));
        (output.code, output.stderr)
    };
    let (code, err) = wait(Vec::new(), "--for=idle");
    assert_eq!(code, 3, "{err}");
    assert!(
        err.contains("custom resources show only the operations"),
        "{err}"
    );
    let (code, err) = wait(vec![operator_resource()], "--for=started");
    assert_eq!(code, 0, "{err}");
}

#[test]
fn pages_are_joined_and_an_expired_list_is_restarted() {
    let (_runtime, address) = serve(|request| {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("continue=next") {
            status_response(410, "Expired", "too old")
        } else if query.contains("limit=500") {
            list_response(&[operation(1)], "next")
        } else {
            list_response(&[operation(1), operation(2)], "")
        }
    });
    let output = execute(plugin(address).args(["list", "-o", "name"]));
    assert_eq!(
        output.stdout.lines().count(),
        2,
        "{}{}",
        output.stdout,
        output.stderr
    );
}

#[test]
fn ten_thousand_operations_are_listed_from_all_pages() {
    let (_runtime, address) = serve(|request| {
        let query = request.uri().query().unwrap_or_default();
        let begin: usize = query
            .split('&')
            .find_map(|it| it.strip_prefix("continue="))
            .and_then(|it| it.parse().ok())
            .unwrap_or_default();
        let items: Vec<Value> = (begin..begin + 500).map(operation).collect();
        let next = begin + 500;
        let resume = if next < 10_000 {
            next.to_string()
        } else {
            String::new()
        };
        list_response(&items, &resume)
    });
    let output = execute(plugin(address).arg("list"));
    assert_eq!(output.stdout.lines().count(), 10_001, "{}", output.stderr);
}

#[test]
fn impersonation_headers_are_sent_and_tokens_never_over_plain_http() {
    let (_runtime, address) = serve(|request| {
        let header = |name: &str| {
            let value = request
                .headers()
                .get(name)
                .map(|it| it.to_str().unwrap_or_default());
            value.unwrap_or_default().to_owned()
        };
        let mut item = operation(1);
        item["status"]["message"] = json!(format!(
            "{}{} {}",
            header("authorization"),
            header("impersonate-user"),
            header("impersonate-group")
        ));
        list_response(&[item], "")
    });
    let output = execute(plugin(address).args([
        "list",
        "--token",
        "secret",
        "--as",
        "jane",
        "--as-group",
        "friends",
    ]));
    assert!(
        output.stdout.contains("  jane friends") && !output.stdout.contains("secret"),
        "{}{}",
        output.stdout,
        output.stderr
    );
}

#[test]
fn wait_exits_3_if_the_state_is_unknown_and_2_for_errors() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
        }
        LIVE => list_response(&[], ""),
        RULE_SETS => (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response(),
        _ => not_found(),
    });
    let unavailable = execute(plugin(address).args(["wait", "--timeout", "1s"]));
    assert_eq!(
        unavailable.code, 3,
        "{}{}",
        unavailable.stdout, unavailable.stderr
    );
    let (_runtime, address) = serve(|_| not_found());
    let missing = execute(plugin(address).args(["wait", "--timeout", "3m"]));
    assert_eq!(missing.code, 2, "{}{}", missing.stdout, missing.stderr);
    let usage = execute(plugin(address).args(["wait", "--for", "nothing"]));
    assert_eq!(usage.code, 2);
}

#[test]
fn the_quiet_period_does_not_elapse_while_the_watch_is_broken() {
    let rule_set = watched_rule_set();
    // Only watches fail. Lists succeed and have no operations.
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
        }
        LIVE => list_response(&[], ""),
        RULE_SETS => json_response(&json!({"items": [rule_set.clone()]})),
        _ => not_found(),
    });
    let args = ["wait", "--quiet-period", "2s", "--timeout", "6s"];
    let output = execute(plugin(address).args(args));
    assert_eq!(output.code, 3, "{}{}", output.stdout, output.stderr);
    output.says("unknown: ");
}

/// Returns a rule set whose status says that `ifo-apiserver` watches its target, the virtual
/// machines.
pub fn watched_rule_set() -> Value {
    json!({
        "metadata": {"name": "vm", "generation": 1},
        "spec": {
            "component": "kubevirt", "rules": [{"operation": "Migrating"}],
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

/// Starts a server with these operations. The server also has the kinds `Pod` and `VirtualMachine`,
/// the namespaces `shop` and `secret`, and a rule set for `VirtualMachine` objects. The user may
/// not get the namespace `secret`.
pub fn serve_cluster(operations: Vec<Value>) -> (tokio::runtime::Runtime, SocketAddr) {
    serve(move |request| match request.uri().path() {
        path if path.starts_with("/apis/live.ifo.kubevirt.io/v1alpha1/") => {
            if request.uri().query().unwrap_or_default().contains("watch=") {
                quiet_watch()
            } else {
                list_response(&operations, "")
            }
        }
        RULE_SETS => json_response(&json!({"items": [watched_rule_set()]})),
        "/api" => json_response(&group_discovery("", "Pod", "pods", "po")),
        "/apis" => json_response(&group_discovery(
            "kubevirt.io",
            "VirtualMachine",
            "virtualmachines",
            "vm",
        )),
        "/api/v1/namespaces" => json_response(&json!({"items": [
            {"metadata": {"name": "shop"}}, {"metadata": {"name": "secret"}},
        ]})),
        "/api/v1/namespaces/shop" => json_response(&json!({"metadata": {"name": "shop"}})),
        "/api/v1/namespaces/secret" => status_response(403, "Forbidden", "no"),
        path if path.starts_with("/api/v1/namespaces/") => {
            let name = path.rsplit('/').next();
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": format!("namespaces {:?} not found", name.unwrap_or_default()),
                "reason": "NotFound", "code": 404,
                "details": {"name": name, "kind": "namespaces"},
            });
            (StatusCode::NOT_FOUND, json_response(&status)).into_response()
        }
        _ => not_found(),
    })
}

#[test]
fn kinds_are_resolved_by_discovery() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    for kind in ["vm", "VirtualMachines", "virtualmachine", "vm.kubevirt.io"] {
        for command in [
            &["list", "-o", "name"][..],
            &["tree", "-o", "name"],
            &["get", "vm-1-migrating", "-o", "name"],
        ] {
            let output = execute(plugin(address).args(command).args(["-k", kind]));
            assert_eq!(
                output.stdout, "inflightoperation.live.ifo.kubevirt.io/vm-1-migrating\n",
                "{command:?} {kind} {}",
                output.stderr
            );
        }
        let summary = execute(plugin(address).args(["summary", "-k", kind]));
        assert!(summary.stdout.starts_with("1 active"), "{}", summary.stdout);
        let busy = execute(plugin(address).args(["wait", "--timeout=0", "-k", kind]));
        assert_eq!(busy.code, 1, "{kind}: {}{}", busy.stdout, busy.stderr);
    }
    let unknown = execute(plugin(address).args(["list", "-k", "Typo"]));
    assert_eq!(
        (unknown.code, &*unknown.stderr),
        (
            2,
            "error: the cluster has no resource \"Typo\"; see: kubectl api-resources\n"
        )
    );
}

#[test]
fn wait_does_not_report_idle_for_a_missing_namespace() {
    let (_runtime, address) = serve_cluster(Vec::new());
    for (namespace, code) in [("shop", 0), ("secret", 0), ("shpo", 2)] {
        let output = execute(plugin(address).args(["wait", "--timeout", "3m", "-n", namespace]));
        assert_eq!(output.code, code, "{namespace}: {}", output.stderr);
    }
}

#[test]
fn formats_that_only_kubectl_has_are_errors_and_not_filters() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    for format in [
        "jsonpath={.items}",
        "custom-columns=A:.a,B:.b",
        "go-template={{.}}",
    ] {
        for command in ["list", "summary", "tree", "wait"] {
            let output = execute(plugin(address).args([command, "-o", format]));
            assert_eq!(output.code, 2, "{command} {format}: {}", output.stdout);
            output.says("unsupported output format");
        }
    }
    for flag in ["-o", "-O"] {
        let output = execute(plugin(address).args(["list", flag, "JSON"]));
        assert_eq!(output.json()["items"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn wait_with_zero_timeout_checks_once_and_negative_is_unlimited() {
    let (_runtime, address) = serve_cluster(Vec::new());
    let quiet = execute(plugin(address).args(["wait", "--timeout=0"]));
    assert_eq!(
        (quiet.code, &*quiet.stdout),
        (0, "idle: no operation in flight\n")
    );
    let unlimited = execute(plugin(address).args(["wait", "--timeout=-1s"]));
    unlimited.exits(0);
    let not_started = execute(plugin(address).args(["wait", "--for=started", "--timeout", "0"]));
    not_started.exits(1);
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    let busy = execute(plugin(address).args(["wait", "--timeout=0s"]));
    busy.exits(1);
    busy.says_first("not idle: VirtualMachine/vm-1 in shop: Migrating");
}

/// Starts a server with these operations, which does not state whether its lists are complete.
/// `rule_sets` is its answer to a list of rule sets.
fn serve_with_rule_sets(
    operations: Vec<Value>,
    rule_sets: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> (tokio::runtime::Runtime, SocketAddr) {
    serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => quiet_watch(),
        LIVE => {
            let mut list = list_response(&operations, "");
            list.headers_mut().remove("ifo-complete");
            list
        }
        RULE_SETS => rule_sets(),
        _ => not_found(),
    })
}

/// Returns a rule set of another component, `olm`. The status of the rule set says that
/// `ifo-apiserver` does not watch its target.
fn failing_rule_set() -> Value {
    let mut broken = watched_rule_set();
    broken["metadata"]["name"] = json!("broken");
    broken["spec"]["component"] = json!("olm");
    broken["status"]["conditions"][0]["status"] = json!("False");
    broken["status"]["conditions"][0]["message"] = json!("it does not compile");
    broken
}

#[test]
fn an_active_operation_decides_even_if_other_targets_are_not_watched() {
    let partly = || json_response(&json!({"items": [watched_rule_set(), failing_rule_set()]}));
    let refused = || status_response(403, "Forbidden", "no: User \"jane\" cannot list it");
    let none = || json_response(&json!({"items": []}));
    for rule_sets in [partly as fn() -> Response, refused, none] {
        let (_runtime, address) = serve_with_rule_sets(vec![operation(1)], rule_sets);
        let wait = |goal: &str, timeout: &str| {
            execute(plugin(address).args(["wait", "--for", goal, "--timeout", timeout]))
        };
        for timeout in ["0", "3m"] {
            let started = wait("started", timeout);
            assert_eq!(started.code, 0, "{timeout}: {}", started.stderr);
            assert!(
                started.stdout.starts_with("started: "),
                "{}",
                started.stdout
            );
        }
        for (goal, timeout, why) in [
            ("idle", "0", "not idle: VirtualMachine/vm-1 in shop"),
            ("idle", "3s", "timed out: VirtualMachine/vm-1 in shop"),
            ("completed", "0", "not completed: VirtualMachine/vm-1"),
            ("completed", "3s", "timed out: VirtualMachine/vm-1"),
        ] {
            let busy = wait(goal, timeout);
            assert_eq!(busy.code, 1, "{goal} {timeout}: {}", busy.stderr);
            assert!(
                busy.stderr.contains(why),
                "{goal} {timeout}: {}",
                busy.stderr
            );
            assert!(!busy.stderr.contains("unknown: "), "{}", busy.stderr);
        }
        // Without an operation in flight, the result is unknown because of the rule sets. The
        // reason is printed once.
        let (_runtime, address) = serve_with_rule_sets(Vec::new(), rule_sets);
        let unknown = execute(plugin(address).args(["wait", "--timeout", "0"]));
        assert_eq!(
            (unknown.code, unknown.stderr.lines().count()),
            (3, 1),
            "{}",
            unknown.stderr
        );
        // The result is also unknown if the command ignores the only operation in flight.
        let mut failing = operation(1);
        failing["status"]["state"] = json!("Failing");
        let (_runtime, address) = serve_with_rule_sets(vec![failing], rule_sets);
        let ignored = ["wait", "--ignore-failing", "--timeout", "0"];
        let ignored = execute(plugin(address).args(ignored));
        ignored.exits(3);
    }
}

#[test]
fn wait_does_not_report_idle_if_operations_end_and_rule_sets_cannot_be_read() {
    let deleted = json!({"type": "DELETED", "object": operation(1)});
    let has_ended = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            let event = Ok::<_, std::io::Error>(format!("{deleted}\n"));
            let has_ended = Arc::clone(&has_ended);
            let later = futures::stream::once(async move {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                has_ended.store(1, Ordering::Relaxed);
                event
            });
            let nothing = futures::stream::pending();
            let events = futures::StreamExt::chain(later, nothing);
            axum::body::Body::from_stream(events).into_response()
        }
        LIVE if has_ended.load(Ordering::Relaxed) == 0 => list_response(&[operation(1)], ""),
        LIVE => list_response(&[], ""),
        RULE_SETS => status_response(403, "Forbidden", "no: User \"jane\" cannot list it"),
        _ => not_found(),
    });
    let args = ["wait", "-c", "kubevirt", "--timeout", "3m"];
    let output = execute(plugin(address).args(args));
    output.exits(3);
    output.says("unknown: you may not list operationrulesets");
}

#[test]
fn wait_with_quiet_reports_only_by_exit_code() {
    let (_runtime, busy) = serve_cluster(vec![operation(1)]);
    let (_other, idle) = serve_cluster(Vec::new());
    let (_third, partly) = serve(|request| match request.uri().path() {
        path if path.contains("/namespaces/team-a/") => list_response(&[operation(1)], ""),
        "/apis/live.ifo.kubevirt.io/v1alpha1" => {
            version_discovery("/apis/live.ifo.kubevirt.io/v1alpha1")
        }
        "/api/v1/namespaces" => {
            json_response(&json!({"items": [{"metadata": {"name": "team-a"}}]}))
        }
        _ => refuse(request),
    });
    for (address, args, code) in [
        (busy, &["--timeout=0"][..], 1),
        (busy, &["--for=started"], 0),
        (idle, &["--timeout=0"], 0),
        (idle, &["--for=started", "--timeout=0"], 1),
        (partly, &["--timeout=0"], 1),
    ] {
        let quiet = execute(plugin(address).args(["wait", "-q"]).args(args));
        assert_eq!(
            (quiet.code, &*quiet.stdout, &*quiet.stderr),
            (code, "", ""),
            "{args:?}"
        );
    }
    let late = wait_until_timeout(busy, &["-q"]);
    assert_eq!((late.code, &*late.stdout, &*late.stderr), (1, "", ""));
    let (_runtime, address) =
        serve_with_rule_sets(Vec::new(), || json_response(&json!({"items": []})));
    let unknown = execute(plugin(address).args(["wait", "-q", "--timeout=0"]));
    assert_eq!((unknown.code, unknown.stderr.lines().count()), (3, 1));
}

/// Runs a `wait` that times out. On a busy machine, the plugin may not have read the operations
/// before the timeout. Then this function repeats the command with a longer timeout.
fn wait_until_timeout(address: SocketAddr, args: &[&str]) -> CommandOutput {
    let mut timeouts = ["2s", "20s", "60s"].into_iter();
    loop {
        let timeout = timeouts.next().expect("a minute is enough");
        let wait = ["wait", "--timeout", timeout];
        let output = execute(plugin(address).args(wait).args(args));
        if output.code != 3 || timeout == "60s" {
            return output;
        }
    }
}

#[test]
fn the_last_message_of_wait_gives_the_reason() {
    let (_runtime, address) = serve_cluster(Vec::new());
    let short = wait_until_timeout(address, &["--quiet-period", "10m"]);
    short.exits(1);
    short.says("timed out: no operation in flight, but not yet for the quiet period");
    assert!(
        !short.stderr.contains("waiting: no operation"),
        "{}",
        short.stderr
    );
    let mut blocked = operation(1);
    blocked["status"]["state"] = json!("Blocked");
    let (_runtime, address) = serve_cluster(vec![blocked]);
    for timeout in ["0", "3m"] {
        let output =
            execute(plugin(address).args(["wait", "--ignore-blocked", "--timeout", timeout]));
        assert_eq!(
            (output.code, &*output.stdout),
            (0, "idle: no operation in flight, but 1 held or ignored\n"),
            "{}",
            output.stderr
        );
    }
    let mut held = operation(1);
    held["status"]["state"] = json!("Held");
    let (_runtime, address) = serve_cluster(vec![held]);
    for timeout in ["0", "3m"] {
        let output = execute(plugin(address).args(["wait", "--timeout", timeout]));
        assert_eq!(
            (output.code, &*output.stdout),
            (0, "idle: no operation in flight, but 1 held or ignored\n"),
            "{}",
            output.stderr
        );
    }
    let started = execute(plugin(address).args(["wait", "--for=started", "--timeout=0"]));
    assert_eq!(
        (started.code, started.stderr.lines().last()),
        (
            1,
            Some("not started: no operation in flight, but 1 held or ignored")
        ),
        "a held operation is not work in flight"
    );
    let (_runtime, address) = serve_cluster(Vec::new());
    for (timeout, prefix) in [("0", "not completed"), ("2s", "timed out")] {
        let output =
            execute(plugin(address).args(["wait", "--for=completed", "--timeout", timeout]));
        assert_eq!(
            (output.code, output.stderr.lines().last()),
            (1, Some(&*format!("{prefix}: no operation has started"))),
            "{}",
            output.stderr
        );
    }
    let contradictory = ["wait", "--for=started", "--quiet-period=3s"];
    assert_eq!(execute(plugin(address).args(contradictory)).code, 2);
}

#[test]
fn a_watched_list_reports_that_it_is_not_up_to_date() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
        }
        LIVE => list_response(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut child = plugin(address)
        .args(["list", "-w"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the plugin can be started");
    let mut line = String::new();
    let stderr = child.stderr.take().expect("the stream is piped");
    let read = std::io::BufReader::new(stderr).read_line(&mut line);
    child.kill().expect("the plugin still runs");
    child.wait().expect("the plugin can be waited for");
    read.expect("the output is UTF-8");
    assert!(line.starts_with("note: not up to date: "), "{line}");
}

#[test]
fn a_watched_list_reports_operations_that_ended_while_the_watch_was_broken() {
    let watches = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&watches);
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
            } else {
                quiet_watch()
            }
        }
        // After the first watch has failed, the list is empty. So the operation has ended during
        // the interruption.
        LIVE if watches.load(Ordering::Relaxed) > 0 => list_response(&[], ""),
        LIVE => list_response(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut child = plugin(address)
        .args(["list", "-w"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the plugin can be started");
    let lines = |text: Box<dyn std::io::Read>, count: usize| -> Vec<String> {
        let lines = std::io::BufReader::new(text).lines().take(count);
        lines
            .map(|line| line.expect("the output is UTF-8"))
            .collect()
    };
    let err = lines(
        Box::new(child.stderr.take().expect("the stream is piped")),
        2,
    );
    let out = lines(
        Box::new(child.stdout.take().expect("the stream is piped")),
        3,
    );
    child.kill().expect("the plugin still runs");
    child.wait().expect("the plugin can be waited for");
    assert!(err[0].starts_with("note: not up to date: "), "{err:?}");
    assert_eq!(err[1], "note: up to date again");
    assert!(out[1].contains("Progressing"), "{out:?}");
    assert!(
        out[2].contains("VirtualMachine/vm-1") && out[2].contains("Ended"),
        "{out:?}"
    );
}

#[test]
fn errors_of_an_invalid_kubeconfig_do_not_quote_secrets() {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let path = folder.path().join("config");
    let text = "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    token: verysecret\n    password: [hunter2\n";
    std::fs::write(&path, text).expect("the file can be written");
    let list = |by: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command.env_remove("KUBECONFIG");
        if by == "KUBECONFIG" {
            command.env(by, &path);
        } else {
            command.arg(by).arg(&path);
        }
        execute(command.arg("list"))
    };
    for by in ["KUBECONFIG", "--kubeconfig"] {
        let output = list(by);
        assert_eq!(output.code, 1);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(
            !output.stderr.contains("secret") && !output.stderr.contains("hunter"),
            "{}",
            output.stderr
        );
        output.says("line ");
    }
}

#[test]
fn missing_kubeconfigs_are_skipped_and_loopback_uses_no_proxy() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let path = folder.path().join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "a", "user": {}}],
    });
    std::fs::write(&path, config.to_string()).expect("the file can be written");
    let with = |kubeconfig: String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command
            .env("KUBECONFIG", kubeconfig)
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env_remove("NO_PROXY")
            .env_remove("no_proxy");
        execute(command.args(["list", "-o", "name"]))
    };
    let found = with(format!("/nonexistent/a:{}:/nonexistent/b", path.display()));
    found.exits(0);
    let missing = with("/nonexistent/a:/nonexistent/b".to_owned());
    missing.says_first("error: cannot read /nonexistent/a: ");
}

#[test]
fn the_proxy_of_the_environment_respects_no_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    proxy
        .set_nonblocking(true)
        .expect("a socket can be non-blocking");
    let address = proxy
        .local_addr()
        .expect("a bound listener has an address")
        .to_string();
    // Lists operations and returns the first line of the first request to the proxy. None if the
    // plugin does not use the proxy.
    let request_to_proxy = |server: &str, no_proxy: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command
            .env("KUBECONFIG", "/nonexistent")
            .env("HTTPS_PROXY", format!("http://{address}"))
            .env("HTTP_PROXY", &address)
            .env("NO_PROXY", no_proxy)
            .args(["list", "--request-timeout=3m", "--server", server]);
        let plugin = std::thread::spawn(move || execute(&mut command));
        let mut first = None;
        while !plugin.is_finished() {
            if let Ok((mut stream, _)) = proxy.accept() {
                stream.set_nonblocking(false).expect("a socket can block");
                let mut start = [0; 32];
                stream
                    .read_exact(&mut start)
                    .expect("a request has at least 32 bytes");
                let start = String::from_utf8_lossy(&start).into_owned();
                first.get_or_insert(start);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_ne!(plugin.join().expect("the thread must not panic").code, 0);
        first.map(|it| it.lines().next().unwrap_or_default().to_owned())
    };
    // The plugin uses no proxy for a loopback address. So the test uses 0.0.0.0, which is not a
    // loopback address. No server listens on its port 1.
    for (server, no_proxy, uses_proxy) in [
        ("https://0.0.0.0:1", "", true),
        ("http://0.0.0.0:1", "", true),
        ("https://0.0.0.0:1", "127.0.0.1", true),
        ("https://0.0.0.0:1", "0.0.0.0:2", true),
        ("https://0.0.0.0:1", "0.0.0.0:1", false),
        ("https://0.0.0.0:1", "example,0.0.0.0/8", false),
    ] {
        let expected = uses_proxy.then(|| "CONNECT 0.0.0.0:1 HTTP/1.1".to_owned());
        assert_eq!(
            request_to_proxy(server, no_proxy),
            expected,
            "{server} {no_proxy}"
        );
    }
    for (variable, value) in [("HTTP_PROXY", "http://a b"), ("HTTPS_PROXY", "http://a b")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command.env_remove("HTTPS_PROXY").env(variable, value);
        let output = execute(command.args(["list", "--server", "0.0.0.0:1"]));
        assert_eq!(output.code, 1);
        output.says("; correct proxy-url in the kubeconfig, or ");
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}

#[test]
fn printed_names_are_accepted_and_found_objects_are_shown() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    let printed = execute(plugin(address).args(["list", "-o", "name"])).stdout;
    for name in [printed.trim(), "ifo/vm-1-migrating", "vm-1-migrating"] {
        let output = execute(plugin(address).args(["get", name, "-o", "name"]));
        assert_eq!(output.stdout, printed, "{name}: {}", output.stderr);
    }
    let some = execute(plugin(address).args(["get", "vm-1-migrating", "other", "-o", "name"]));
    assert_eq!((some.code, &some.stdout), (1, &printed));
    some.says("no operation \"other\"");
    let filtered = execute(plugin(address).args(["get", "vm-1-migrating", "-k", "po"]));
    assert_eq!(filtered.code, 1);
    filtered.says("the filters exclude it: its subject is VirtualMachine/vm-1 in shop");
}

#[test]
fn a_selector_filters_a_tree_without_changing_ownership() {
    let owned = |number: usize, owner: usize| {
        let mut operation = operation(number);
        operation["metadata"]["labels"] = json!({"team": "a"});
        operation["spec"]["subject"]["uid"] = json!(number.to_string());
        operation["spec"]["subject"]["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "name": format!("vm-{owner}"), "uid": owner.to_string(),
        }]);
        operation
    };
    // VirtualMachine 0 owns 1, and 1 owns 2 and 3. The selector matches the operations of 2 and 3.
    let mut top = operation(0);
    top["spec"]["subject"]["uid"] = json!("0");
    let mut between = owned(1, 0);
    between["metadata"]["labels"] = json!({});
    let selected = [owned(2, 1), owned(3, 1)];
    let all = [top, between, selected[0].clone(), selected[1].clone()];
    let (_runtime, address) = serve(move |request| {
        let query = request.uri().query().unwrap_or_default();
        match request.uri().path() {
            LIVE if query.contains("labelSelector=team") => list_response(&selected, ""),
            LIVE if query.contains("labelSelector=") => list_response(&[], ""),
            LIVE => list_response(&all, ""),
            "/api" | "/apis" => json_response(&group_discovery("", "Pod", "pods", "po")),
            _ => not_found(),
        }
    });
    let tree = |args: &[&str]| {
        let output = execute(plugin(address).arg("tree").args(args));
        let lines = output.stdout.lines().map(|line| {
            let words = line.split_whitespace();
            words
                .filter(|it| *it != "45s")
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        });
        (lines.collect::<Vec<_>>(), output.stderr)
    };
    let (lines, err) = tree(&["--for", "VirtualMachine/vm-0", "-l", "team=a"]);
    let expected = [
        "kubevirt",
        "shop",
        "VirtualMachine/vm-0",
        "└── VirtualMachine/vm-1",
        "├── VirtualMachine/vm-2 Migrating",
        "└── VirtualMachine/vm-3 Migrating",
    ];
    assert_eq!(lines, expected, "{err}");
    let (lines, err) = tree(&["-l", "team=a"]);
    let expected = [
        "kubevirt",
        "shop",
        "VirtualMachine/vm-1",
        "├── VirtualMachine/vm-2 Migrating",
        "└── VirtualMachine/vm-3 Migrating",
    ];
    assert_eq!(lines, expected, "{err}");
    // The selector matches no operation, so the tree is empty. The object `vm-0` exists, so the
    // command must not report that it is missing.
    let (lines, err) = tree(&["--for", "VirtualMachine/vm-0", "-l", "other=a"]);
    assert!(lines.is_empty(), "{lines:?}");
    assert!(!err.contains("no resource"), "{err}");
}

#[test]
fn an_empty_list_is_explained_by_filters_or_missing_rule_sets() {
    let (_runtime, address) = serve_cluster(Vec::new());
    let all = execute(plugin(address).arg("list"));
    assert_eq!(all.stderr, "No operations in flight.\n");
    for command in ["list", "tree"] {
        let some = execute(plugin(address).args([command, "-c", "kubevirt"]));
        assert_eq!(
            some.stderr,
            "No operations in flight that fit the filters.\n"
        );
    }
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => {
            let mut empty = list_response(&[], "");
            let warning = "299 - \"no rule set is installed, so no operation can be detected\"";
            let headers = empty.headers_mut();
            headers.insert("warning", warning.parse().expect("a header"));
            empty
        }
        RULE_SETS => json_response(&json!({"items": []})),
        _ => not_found(),
    });
    for command in ["list", "tree", "summary"] {
        let none = execute(plugin(address).arg(command));
        for part in [
            "no OperationRuleSet is installed",
            "kubectl apply -k https://github.com/kubevirt/ifo//rules\n",
        ] {
            assert!(none.stderr.contains(part), "{part}: {}", none.stderr);
        }
    }
}

#[test]
fn a_version_that_cannot_be_read_has_a_reason() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response(),
        _ => not_found(),
    });
    let down = execute(plugin(address).arg("version"));
    down.says("not available");
    let (_runtime, address) = serve(|_| not_found());
    let none = execute(plugin(address).arg("version"));
    none.says("kubectl get apiservice");
}
