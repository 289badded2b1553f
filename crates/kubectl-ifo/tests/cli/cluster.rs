//! Tests of the plugin with a simulated server that answers as each test defines. Answers of a real
//! cluster are tested end to end.

use super::Said;
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

pub const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const CRS: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
pub const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";

/// Serves `answer` for each request, until the runtime is dropped.
pub fn serve(
    answer: impl Fn(&Request) -> Response + Clone + Send + Sync + 'static,
) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    let address = listener.local_addr().expect("an address");
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

pub fn said(command: &mut Command) -> Said {
    let output = command.output().expect("the plugin starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said {
        code: output.status.code().expect("it was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub fn body(value: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        value.to_string(),
    )
        .into_response()
}

pub fn status(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let code = StatusCode::from_u16(code).expect("a code");
    (code, body(&status)).into_response()
}

pub fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

/// A watch without events.
fn quiet_watch() -> Response {
    type Nothing = futures::stream::Pending<Result<Vec<u8>, std::io::Error>>;
    let nothing: Nothing = futures::stream::pending();
    axum::body::Body::from_stream(nothing).into_response()
}

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

pub fn list(items: &[Value], resume: &str) -> Response {
    body(&json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperationList",
        "metadata": {"resourceVersion": "7", "continue": resume}, "items": items,
    }))
}

#[test]
fn each_refusal_is_one_line_with_a_remedy() {
    for (code, answer, hints) in [
        (
            401,
            status(401, "Unauthorized", "Unauthorized"),
            &["log in"][..],
        ),
        (
            503,
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response(),
            &["service unavailable", "kubectl get apiservice"],
        ),
        (
            500,
            status(500, "InternalError", "it broke\nbadly"),
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
            status(403, "Forbidden", "no"),
            &[
                "inflightoperations.live.ifo.kubevirt.io",
                "kubectl create clusterrolebinding ifo-view-NAME --clusterrole=ifo-view --user=NAME",
            ],
        ),
        (
            429,
            status(429, "TooManyRequests", "too many requests"),
            &["overloaded (too many requests)"],
        ),
    ] {
        let (parts, answer) = answer.into_parts();
        let bytes = tokio::runtime::Runtime::new()
            .expect("a runtime")
            .block_on(async { axum::body::to_bytes(answer, 1 << 20).await.expect("a body") });
        let (_runtime, address) = serve(move |_| {
            Response::from_parts(parts.clone(), axum::body::Body::from(bytes.clone()))
        });
        let said = said(plugin(address).arg("list"));
        assert_eq!(said.code, 1, "{code}: {}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{code}: {}", said.err);
        assert!(said.err.starts_with("error: "), "{code}: {}", said.err);
        for hint in hints {
            assert!(said.err.contains(hint), "{code}: {}", said.err);
        }
    }
}

#[test]
fn a_refused_connection_is_distinguished_from_a_timeout() {
    // The port was bound and released, so no server listens there.
    let (runtime, address) = serve(|_| not_found());
    drop(runtime);
    let refused = said(plugin(address).arg("list"));
    assert!(
        refused.err.contains("cannot reach the cluster") && !refused.err.contains("Error"),
        "{}",
        refused.err
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("an address");
    let late = said(plugin(address).args(["list", "--request-timeout", "200ms"]));
    assert!(late.err.contains("--request-timeout"), "{}", late.err);
}

#[test]
fn requests_to_a_server_that_is_syncing_are_retried() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |_| {
        if asked.fetch_add(1, Ordering::Relaxed) < 2 {
            status(429, "TooManyRequests", "storage is (re)initializing")
        } else {
            list(&[operation(1)], "")
        }
    });
    let said = said(plugin(address).arg("list"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("VirtualMachine/vm-1"), "{}", said.out);
}

/// A custom resource as the Go operator writes it: without a state, a start and conditions, and
/// cluster-scoped.
fn operators() -> Value {
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
    // A custom resource as persistence mode writes it.
    let mut over = operators();
    over["metadata"]["name"] = json!("b");
    over["status"] = json!({
        "phase": "Completed", "state": "Ended", "started": "2026-01-02T00:00:00Z",
        "completed": "2026-01-02T00:01:00Z",
    });
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        CRS => list(&[operators(), over.clone()], ""),
        _ => not_found(),
    });
    let shown = said(plugin(address).args(["list", "-n", "shop", "-O", "wide"]));
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert_eq!(
        shown.err,
        "note: live.ifo.kubevirt.io is not served; showing the objects of inflightoperations.ifo.kubevirt.io\n"
    );
    assert_eq!(shown.out.lines().count(), 2, "{}", shown.out);
    assert!(shown.out.contains("2026-01-01T00:00:00Z"), "{}", shown.out);
    let elsewhere = said(plugin(address).args(["list", "-n", "other", "-o", "name"]));
    assert_eq!(elsewhere.out, "");
    let names = said(plugin(address).args(["list", "-A", "-o", "name"]));
    assert_eq!(
        names.out,
        "inflightoperation.ifo.kubevirt.io/b\ninflightoperation.ifo.kubevirt.io/x-phhwd\n"
    );
    let all = said(plugin(address).args(["list", "-A", "-O", "wide"]));
    assert!(all.out.contains("2026-01-02T00:00:00Z"), "{}", all.out);
}

/// Discovery of the API version at `path`, with one kind.
fn discovery(path: &str) -> Response {
    let version = path.strip_prefix("/apis/").expect("of a group");
    body(&json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
        "resources": [{"name": "inflightoperations", "kind": "InFlightOperation", "singularName": "",
                       "namespaced": true, "verbs": ["get", "list", "watch"]}],
    }))
}

/// As in kube-apiserver, a request without the right is refused before the existence of the API is
/// checked.
fn refusing(request: &Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/apis/") && path.matches('/').count() > 3 {
        status(403, "Forbidden", "no: User \"cora\" cannot list it")
    } else {
        not_found()
    }
}

#[test]
fn a_user_without_rights_on_an_unserved_api_sees_the_served_one() {
    let crs = |path: &str| path.strip_suffix("/inflightoperations").map(str::to_owned);
    let version = crs(CRS).expect("a version");
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        CRS => list(&[operators()], ""),
        path if path == version => discovery(path),
        _ => refusing(request),
    });
    for command in [
        &["list", "-o", "name"][..],
        &["list", "-o", "name", "-n", "shop"],
    ] {
        let shown = said(plugin(address).args(command));
        assert_eq!(shown.code, 0, "{command:?}: {}", shown.err);
        assert_eq!(shown.out, "inflightoperation.ifo.kubevirt.io/x-phhwd\n");
        assert!(
            shown
                .err
                .starts_with("note: live.ifo.kubevirt.io is not served"),
            "{}",
            shown.err
        );
    }
    let version = said(plugin(address).arg("version"));
    assert!(
        version.err.contains("only the objects of"),
        "{}",
        version.err
    );
}

#[test]
fn a_user_of_one_namespace_sees_custom_resources_without_the_live_api() {
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        CRS => list(&[operators()], ""),
        "/api/v1/namespaces" => body(&json!({"items": [{"metadata": {"name": "team-a"}}]})),
        // Discovery does not answer, but the list of the namespace does.
        "/apis/live.ifo.kubevirt.io/v1alpha1" => status(500, "InternalError", "broken"),
        path if path.contains("/namespaces/team-a/") => not_found(),
        _ => refusing(request),
    });
    let shown = said(plugin(address).args(["list", "-o", "name"]));
    assert_eq!(
        (shown.code, &*shown.out),
        (0, "inflightoperation.ifo.kubevirt.io/x-phhwd\n"),
        "{}",
        shown.err
    );
}

#[test]
fn an_api_that_is_not_installed_is_not_reported_as_a_missing_right() {
    let (_runtime, address) = serve(refusing);
    for command in [&["list"][..], &["wait", "--timeout=0"], &["version"]] {
        let said = said(plugin(address).args(command));
        assert_ne!(said.code, 0);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(
            said.err
                .starts_with("error: this cluster serves no operations"),
            "{command:?}: {}",
            said.err
        );
    }
    // The group is served only for the rule sets.
    let (_runtime, address) = serve(|request| match request.uri().path() {
        "/apis/ifo.kubevirt.io/v1alpha1" => body(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ifo.kubevirt.io/v1alpha1",
            "resources": [],
        })),
        _ => refusing(request),
    });
    let none = said(plugin(address).arg("list"));
    assert!(none.err.contains("serves no operations"), "{}", none.err);
}

#[test]
fn the_missing_right_is_that_on_the_served_resource() {
    for (served, resource) in [
        (LIVE, "inflightoperations.live.ifo.kubevirt.io"),
        (CRS, "inflightoperations.ifo.kubevirt.io"),
    ] {
        let (version, _) = served.rsplit_once('/').expect("a version");
        let (_runtime, address) = serve(move |request| match request.uri().path() {
            path if path == version => discovery(path),
            _ => refusing(request),
        });
        let refused = said(plugin(address).arg("list"));
        assert!(
            refused
                .err
                .starts_with(&format!("error: you may not list {resource}")),
            "{}",
            refused.err
        );
    }
}

#[test]
fn custom_resources_show_operations_but_never_prove_idle() {
    let of = |items: Vec<Value>, goal: &str| {
        let (_runtime, address) = serve(move |request| match request.uri().path() {
            CRS if request.uri().query().is_some_and(|it| it.contains("watch")) => quiet_watch(),
            CRS => list(&items, ""),
            _ => not_found(),
        });
        let said = said(plugin(address).args(["wait", goal, "--timeout", "5s"]));
        (said.code, said.err)
    };
    let (code, err) = of(Vec::new(), "--for=idle");
    assert_eq!(code, 3, "{err}");
    assert!(
        err.contains("custom resources show only the operations"),
        "{err}"
    );
    let (code, err) = of(vec![operators()], "--for=started");
    assert_eq!(code, 0, "{err}");
}

#[test]
fn pages_are_joined_and_an_expired_list_is_restarted() {
    let (_runtime, address) = serve(|request| {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("continue=next") {
            status(410, "Expired", "too old")
        } else if query.contains("limit=500") {
            list(&[operation(1)], "next")
        } else {
            list(&[operation(1), operation(2)], "")
        }
    });
    let said = said(plugin(address).args(["list", "-o", "name"]));
    assert_eq!(said.out.lines().count(), 2, "{}{}", said.out, said.err);
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
        list(&items, &resume)
    });
    let said = said(plugin(address).arg("list"));
    assert_eq!(said.out.lines().count(), 10_001, "{}", said.err);
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
        list(&[item], "")
    });
    let said = said(plugin(address).args([
        "list",
        "--token",
        "secret",
        "--as",
        "jane",
        "--as-group",
        "friends",
    ]));
    assert!(
        said.out.contains("  jane friends") && !said.out.contains("secret"),
        "{}{}",
        said.out,
        said.err
    );
}

#[test]
fn wait_exits_3_without_an_answer_and_2_for_errors() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
        }
        LIVE => list(&[], ""),
        RULE_SETS => (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response(),
        _ => not_found(),
    });
    let blind = said(plugin(address).args(["wait", "--timeout", "1s"]));
    assert_eq!(blind.code, 3, "{}{}", blind.out, blind.err);
    let (_runtime, address) = serve(|_| not_found());
    let missing = said(plugin(address).args(["wait", "--timeout", "3m"]));
    assert_eq!(missing.code, 2, "{}{}", missing.out, missing.err);
    let usage = said(plugin(address).args(["wait", "--for", "nothing"]));
    assert_eq!(usage.code, 2);
}

#[test]
fn the_quiet_period_does_not_elapse_while_the_watch_is_broken() {
    let rule_set = watching();
    // Lists are answered, and report a quiet cluster.
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
        }
        LIVE => list(&[], ""),
        RULE_SETS => body(&json!({"items": [rule_set.clone()]})),
        _ => not_found(),
    });
    let args = ["wait", "--quiet-period", "2s", "--timeout", "6s"];
    let said = said(plugin(address).args(args));
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert!(said.err.contains("unknown: "), "{}", said.err);
}

#[test]
fn wait_exits_3_without_rule_sets() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => list(&[], ""),
        RULE_SETS => body(&json!({"items": []})),
        _ => not_found(),
    });
    let said = said(plugin(address).arg("wait"));
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert!(
        said.err.contains("no OperationRuleSet is installed"),
        "{}",
        said.err
    );
}

/// A rule set whose target is being watched.
pub fn watching() -> Value {
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

/// Discovery of one group with one kind.
pub fn group(group: &str, kind: &str, plural: &str, short: &str) -> Value {
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

/// A cluster with pods, machines, a namespace `shop`, a rule set for machines, and these
/// operations.
pub fn cluster(operations: Vec<Value>) -> (tokio::runtime::Runtime, SocketAddr) {
    serve(move |request| match request.uri().path() {
        path if path.starts_with("/apis/live.ifo.kubevirt.io/v1alpha1/") => {
            if request.uri().query().unwrap_or_default().contains("watch=") {
                quiet_watch()
            } else {
                list(&operations, "")
            }
        }
        RULE_SETS => body(&json!({"items": [watching()]})),
        "/api" => body(&group("", "Pod", "pods", "po")),
        "/apis" => body(&group(
            "kubevirt.io",
            "VirtualMachine",
            "virtualmachines",
            "vm",
        )),
        "/api/v1/namespaces" => body(&json!({"items": [
            {"metadata": {"name": "shop"}}, {"metadata": {"name": "secret"}},
        ]})),
        "/api/v1/namespaces/shop" => body(&json!({"metadata": {"name": "shop"}})),
        "/api/v1/namespaces/secret" => status(403, "Forbidden", "no"),
        path if path.starts_with("/api/v1/namespaces/") => {
            let name = path.rsplit('/').next();
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": format!("namespaces {:?} not found", name.unwrap_or_default()),
                "reason": "NotFound", "code": 404,
                "details": {"name": name, "kind": "namespaces"},
            });
            (StatusCode::NOT_FOUND, body(&status)).into_response()
        }
        _ => not_found(),
    })
}

#[test]
fn kinds_are_resolved_by_discovery() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    for kind in ["vm", "VirtualMachines", "virtualmachine", "vm.kubevirt.io"] {
        for command in [
            &["list", "-o", "name"][..],
            &["tree", "-o", "name"],
            &["get", "vm-1-migrating", "-o", "name"],
        ] {
            let said = said(plugin(address).args(command).args(["-k", kind]));
            assert_eq!(
                said.out, "inflightoperation.live.ifo.kubevirt.io/vm-1-migrating\n",
                "{command:?} {kind} {}",
                said.err
            );
        }
        let summary = said(plugin(address).args(["summary", "-k", kind]));
        assert!(summary.out.starts_with("1 active"), "{}", summary.out);
        let busy = said(plugin(address).args(["wait", "--timeout=0", "-k", kind]));
        assert_eq!(busy.code, 1, "{kind}: {}{}", busy.out, busy.err);
    }
    let unknown = said(plugin(address).args(["list", "-k", "Typo"]));
    assert_eq!(
        (unknown.code, &*unknown.err),
        (
            2,
            "error: the cluster has no resource \"Typo\"; see: kubectl api-resources\n"
        )
    );
}

#[test]
fn wait_does_not_report_idle_for_a_kind_without_rule_sets() {
    let (_runtime, address) = cluster(Vec::new());
    let wait = |kind: &str, timeout: &str| {
        let said = said(plugin(address).args(["wait", "--timeout", timeout, "-k", kind]));
        (said.code, said.err)
    };
    for timeout in ["0", "3m"] {
        assert_eq!(wait("vm", timeout).0, 0);
        for kind in ["po", "Pod", "vm,pods"] {
            let (code, err) = wait(kind, timeout);
            assert_eq!(code, 3, "{kind}: {err}");
            assert!(err.contains("no OperationRuleSet detects"), "{err}");
        }
        let (code, err) = wait("Typo", timeout);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("no resource \"Typo\""), "{err}");
    }
}

#[test]
fn wait_does_not_report_idle_for_a_label_that_no_rule_set_sets() {
    // The server finds no operation by a label that no operation has.
    let (_runtime, address) = cluster(Vec::new());
    for timeout in ["0", "3m"] {
        for (selector, code) in [
            ("ifo.kubevirt.io/subject-kind=VirtualMachine", 0),
            ("ifo.kubevirt.io/subjct-kind=VirtualMachine", 3),
        ] {
            let args = ["wait", "--timeout", timeout, "-l", selector];
            let said = said(plugin(address).args(args));
            assert_eq!(said.code, code, "{selector}: {}", said.err);
            let told = said
                .err
                .contains("label \"ifo.kubevirt.io/subjct-kind\": check --selector");
            assert_eq!(told, code == 3, "{}", said.err);
        }
    }
}

#[test]
fn wait_does_not_report_idle_for_a_missing_namespace() {
    let (_runtime, address) = cluster(Vec::new());
    for (namespace, code) in [("shop", 0), ("secret", 0), ("shpo", 2)] {
        let said = said(plugin(address).args(["wait", "--timeout", "3m", "-n", namespace]));
        assert_eq!(said.code, code, "{namespace}: {}", said.err);
    }
}

#[test]
fn formats_that_only_kubectl_has_are_errors_and_not_filters() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    for format in [
        "jsonpath={.items}",
        "custom-columns=A:.a,B:.b",
        "go-template={{.}}",
    ] {
        for command in ["list", "summary", "tree", "wait"] {
            let said = said(plugin(address).args([command, "-o", format]));
            assert_eq!(said.code, 2, "{command} {format}: {}", said.out);
            assert!(
                said.err.contains("unsupported output format"),
                "{}",
                said.err
            );
        }
    }
    for flag in ["-o", "-O"] {
        let said = said(plugin(address).args(["list", flag, "JSON"]));
        assert_eq!(said.json()["items"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn wait_with_zero_timeout_checks_once_and_negative_is_unlimited() {
    let (_runtime, address) = cluster(Vec::new());
    let quiet = said(plugin(address).args(["wait", "--timeout=0"]));
    assert_eq!(
        (quiet.code, &*quiet.out),
        (0, "idle: no operation in flight\n")
    );
    let unlimited = said(plugin(address).args(["wait", "--timeout=-1s"]));
    assert_eq!(unlimited.code, 0, "{}", unlimited.err);
    let not_started = said(plugin(address).args(["wait", "--for=started", "--timeout", "0"]));
    assert_eq!(not_started.code, 1, "{}", not_started.err);
    let (_runtime, address) = cluster(vec![operation(1)]);
    let busy = said(plugin(address).args(["wait", "--timeout=0s"]));
    assert_eq!(busy.code, 1, "{}", busy.err);
    assert!(
        busy.err
            .starts_with("not idle: VirtualMachine/vm-1 in shop: Migrating"),
        "{}",
        busy.err
    );
}

/// A cluster with these active operations and this answer for rule sets.
fn with_rule_sets(
    operations: Vec<Value>,
    rule_sets: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> (tokio::runtime::Runtime, SocketAddr) {
    serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => quiet_watch(),
        LIVE => list(&operations, ""),
        RULE_SETS => rule_sets(),
        _ => not_found(),
    })
}

/// A rule set of another component whose target is not being watched.
fn broken() -> Value {
    let mut broken = watching();
    broken["metadata"]["name"] = json!("broken");
    broken["spec"]["component"] = json!("olm");
    broken["status"]["conditions"][0]["status"] = json!("False");
    broken["status"]["conditions"][0]["message"] = json!("it does not compile");
    broken
}

#[test]
fn an_active_operation_decides_even_if_other_targets_are_not_watched() {
    let partly = || body(&json!({"items": [watching(), broken()]}));
    let refused = || status(403, "Forbidden", "no: User \"jane\" cannot list it");
    let none = || body(&json!({"items": []}));
    for rule_sets in [partly as fn() -> Response, refused, none] {
        let (_runtime, address) = with_rule_sets(vec![operation(1)], rule_sets);
        let wait = |goal: &str, timeout: &str| {
            said(plugin(address).args(["wait", "--for", goal, "--timeout", timeout]))
        };
        for timeout in ["0", "3m"] {
            let started = wait("started", timeout);
            assert_eq!(started.code, 0, "{timeout}: {}", started.err);
            assert!(started.out.starts_with("started: "), "{}", started.out);
        }
        for (goal, timeout, why) in [
            ("idle", "0", "not idle: VirtualMachine/vm-1 in shop"),
            ("idle", "3s", "timed out: VirtualMachine/vm-1 in shop"),
            ("completed", "0", "not completed: VirtualMachine/vm-1"),
            ("completed", "3s", "timed out: VirtualMachine/vm-1"),
        ] {
            let busy = wait(goal, timeout);
            assert_eq!(busy.code, 1, "{goal} {timeout}: {}", busy.err);
            assert!(busy.err.contains(why), "{goal} {timeout}: {}", busy.err);
            assert!(!busy.err.contains("unknown: "), "{}", busy.err);
        }
        // If nothing is in flight, the reason for the unknown result is printed once.
        let (_runtime, address) = with_rule_sets(Vec::new(), rule_sets);
        let unknown = said(plugin(address).args(["wait", "--timeout", "0"]));
        assert_eq!(
            (unknown.code, unknown.err.lines().count()),
            (3, 1),
            "{}",
            unknown.err
        );
        // An operation that the wait ignores proves nothing.
        let mut failing = operation(1);
        failing["status"]["state"] = json!("Failing");
        let (_runtime, address) = with_rule_sets(vec![failing], rule_sets);
        let ignored = ["wait", "--ignore-failing", "--timeout", "0"];
        let ignored = said(plugin(address).args(ignored));
        assert_eq!(ignored.code, 3, "{}", ignored.err);
    }
}

#[test]
fn operations_that_end_while_rule_sets_fail_do_not_make_it_idle() {
    let deleted = json!({"type": "DELETED", "object": operation(1)});
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            let event = Ok::<_, std::io::Error>(format!("{deleted}\n"));
            let later = futures::stream::once(async move {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                event
            });
            let nothing = futures::stream::pending();
            let events = futures::StreamExt::chain(later, nothing);
            axum::body::Body::from_stream(events).into_response()
        }
        LIVE => list(&[operation(1)], ""),
        RULE_SETS => status(403, "Forbidden", "no: User \"jane\" cannot list it"),
        _ => not_found(),
    });
    let said = said(plugin(address).args(["wait", "--timeout", "3m"]));
    assert_eq!(said.code, 3, "{}", said.err);
    assert!(
        said.err
            .contains("unknown: you may not list operationrulesets"),
        "{}",
        said.err
    );
}

#[test]
fn wait_with_quiet_reports_only_by_exit_code() {
    let (_runtime, busy) = cluster(vec![operation(1)]);
    let (_other, idle) = cluster(Vec::new());
    let (_third, partly) = serve(|request| match request.uri().path() {
        path if path.contains("/namespaces/team-a/") => list(&[operation(1)], ""),
        "/apis/live.ifo.kubevirt.io/v1alpha1" => discovery("/apis/live.ifo.kubevirt.io/v1alpha1"),
        "/api/v1/namespaces" => body(&json!({"items": [{"metadata": {"name": "team-a"}}]})),
        _ => refusing(request),
    });
    for (address, args, code) in [
        (busy, &["--timeout=0"][..], 1),
        (busy, &["--for=started"], 0),
        (idle, &["--timeout=0"], 0),
        (idle, &["--for=started", "--timeout=0"], 1),
        (partly, &["--timeout=0"], 1),
    ] {
        let quiet = said(plugin(address).args(["wait", "-q"]).args(args));
        assert_eq!(
            (quiet.code, &*quiet.out, &*quiet.err),
            (code, "", ""),
            "{args:?}"
        );
    }
    let late = timed_out(busy, &["-q"]);
    assert_eq!((late.code, &*late.out, &*late.err), (1, "", ""));
    let (_runtime, address) = with_rule_sets(Vec::new(), || body(&json!({"items": []})));
    let unknown = said(plugin(address).args(["wait", "-q", "--timeout=0"]));
    assert_eq!((unknown.code, unknown.err.lines().count()), (3, 1));
}

/// The output of a wait that times out. On a busy machine, the first timeout can be too short to
/// read the operations.
fn timed_out(address: SocketAddr, args: &[&str]) -> Said {
    let mut timeouts = ["2s", "20s", "60s"].into_iter();
    loop {
        let timeout = timeouts.next().expect("a minute is enough");
        let wait = ["wait", "--timeout", timeout];
        let said = said(plugin(address).args(wait).args(args));
        if said.code != 3 || timeout == "60s" {
            return said;
        }
    }
}

#[test]
fn the_last_message_of_wait_gives_the_reason() {
    let (_runtime, address) = cluster(Vec::new());
    let short = timed_out(address, &["--quiet-period", "10m"]);
    assert_eq!(short.code, 1, "{}", short.err);
    assert!(
        short.err.contains(
            "timed out: no operation in flight, but not yet for the quiet period of 600 s"
        ),
        "{}",
        short.err
    );
    assert!(
        !short.err.contains("waiting: no operation"),
        "{}",
        short.err
    );
    let mut blocked = operation(1);
    blocked["status"]["state"] = json!("Blocked");
    let (_runtime, address) = cluster(vec![blocked]);
    for timeout in ["0", "3m"] {
        let said = said(plugin(address).args(["wait", "--ignore-blocked", "--timeout", timeout]));
        assert_eq!(
            (said.code, &*said.out),
            (0, "idle: no operation in flight, but 1 blocked (ignored)\n"),
            "{}",
            said.err
        );
    }
    let (_runtime, address) = cluster(Vec::new());
    for (timeout, begin) in [("0", "not completed"), ("2s", "timed out")] {
        let said = said(plugin(address).args(["wait", "--for=completed", "--timeout", timeout]));
        assert_eq!(
            (said.code, said.err.lines().last()),
            (
                1,
                Some(&*format!(
                    "{begin}: no operation has started, so none has completed"
                ))
            ),
            "{}",
            said.err
        );
    }
    let senseless = ["wait", "--for=started", "--quiet-period=3s"];
    assert_eq!(said(plugin(address).args(senseless)).code, 2);
}

#[test]
fn a_watched_list_says_when_it_is_out_of_date() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
        }
        LIVE => list(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut child = plugin(address)
        .args(["list", "-w"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the plugin starts");
    let mut line = String::new();
    let stderr = child.stderr.take().expect("it was asked for");
    let read = std::io::BufReader::new(stderr).read_line(&mut line);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    read.expect("text");
    assert!(line.starts_with("note: not up to date: "), "{line}");
}

#[test]
fn a_watched_list_reports_operations_that_ended_while_the_watch_was_broken() {
    let asked = Arc::new(AtomicUsize::new(0));
    let broken = Arc::clone(&asked);
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            if broken.fetch_add(1, Ordering::Relaxed) == 0 {
                (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
            } else {
                quiet_watch()
            }
        }
        // When the watch is restored, the operation is deleted.
        LIVE if asked.load(Ordering::Relaxed) > 0 => list(&[], ""),
        LIVE => list(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut child = plugin(address)
        .args(["list", "-w"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the plugin starts");
    let lines = |text: Box<dyn std::io::Read>, count: usize| -> Vec<String> {
        let lines = std::io::BufReader::new(text).lines().take(count);
        lines.map(|line| line.expect("text")).collect()
    };
    let err = lines(Box::new(child.stderr.take().expect("it was asked for")), 2);
    let out = lines(Box::new(child.stdout.take().expect("it was asked for")), 3);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
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
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    let text = "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    token: verysecret\n    password: [hunter2\n";
    std::fs::write(&path, text).expect("it can be written");
    let output = |by: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command.env_remove("KUBECONFIG");
        if by == "KUBECONFIG" {
            command.env(by, &path);
        } else {
            command.arg(by).arg(&path);
        }
        said(command.arg("list"))
    };
    for by in ["KUBECONFIG", "--kubeconfig"] {
        let said = output(by);
        assert_eq!(said.code, 1);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(
            !said.err.contains("secret") && !said.err.contains("hunter"),
            "{}",
            said.err
        );
        assert!(said.err.contains("line "), "{}", said.err);
    }
}

#[test]
fn missing_kubeconfigs_are_skipped_and_loopback_uses_no_proxy() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "a", "user": {}}],
    });
    std::fs::write(&path, config.to_string()).expect("it can be written");
    let with = |kubeconfig: String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command
            .env("KUBECONFIG", kubeconfig)
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env_remove("NO_PROXY")
            .env_remove("no_proxy");
        said(command.args(["list", "-o", "name"]))
    };
    let found = with(format!("/nonexistent/a:{}:/nonexistent/b", path.display()));
    assert_eq!(found.code, 0, "{}", found.err);
    let missing = with("/nonexistent/a:/nonexistent/b".to_owned());
    assert!(
        missing
            .err
            .starts_with("error: cannot read /nonexistent/a: "),
        "{}",
        missing.err
    );
}

#[test]
fn the_proxy_of_the_environment_respects_no_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    proxy.set_nonblocking(true).expect("it can be asked for");
    let address = proxy.local_addr().expect("it listens").to_string();
    // The requests to the proxy, if any, while the plugin lists operations.
    let asked = |server: &str, no_proxy: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command
            .env("KUBECONFIG", "/nonexistent")
            .env("HTTPS_PROXY", format!("http://{address}"))
            .env("HTTP_PROXY", &address)
            .env("NO_PROXY", no_proxy)
            .args(["list", "--request-timeout=3m", "--server", server]);
        let plugin = std::thread::spawn(move || said(&mut command));
        let mut first = None;
        while !plugin.is_finished() {
            if let Ok((mut stream, _)) = proxy.accept() {
                stream.set_nonblocking(false).expect("it can be asked for");
                let mut start = [0; 32];
                stream
                    .read_exact(&mut start)
                    .expect("it asks for something");
                let start = String::from_utf8_lossy(&start).into_owned();
                first.get_or_insert(start);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_ne!(plugin.join().expect("it ends").code, 0);
        first.map(|it| it.lines().next().unwrap_or_default().to_owned())
    };
    // An address other than loopback, at which no server listens.
    for (server, no_proxy, is_asked) in [
        ("https://0.0.0.0:1", "", true),
        ("http://0.0.0.0:1", "", true),
        ("https://0.0.0.0:1", "127.0.0.1", true),
        ("https://0.0.0.0:1", "0.0.0.0:2", true),
        ("https://0.0.0.0:1", "0.0.0.0:1", false),
        ("https://0.0.0.0:1", "example,0.0.0.0/8", false),
    ] {
        let want = is_asked.then(|| "CONNECT 0.0.0.0:1 HTTP/1.1".to_owned());
        assert_eq!(asked(server, no_proxy), want, "{server} {no_proxy}");
    }
    for (variable, value) in [("HTTP_PROXY", "http://a b"), ("HTTPS_PROXY", "http://a b")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command.env_remove("HTTPS_PROXY").env(variable, value);
        let said = said(command.args(["list", "--server", "0.0.0.0:1"]));
        assert_eq!(said.code, 1);
        assert!(
            said.err
                .contains("; correct proxy-url in the kubeconfig, or "),
            "{}",
            said.err
        );
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
}

#[test]
fn printed_names_are_accepted_and_found_objects_are_shown() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    let printed = said(plugin(address).args(["list", "-o", "name"])).out;
    for name in [printed.trim(), "ifo/vm-1-migrating", "vm-1-migrating"] {
        let said = said(plugin(address).args(["get", name, "-o", "name"]));
        assert_eq!(said.out, printed, "{name}: {}", said.err);
    }
    let some = said(plugin(address).args(["get", "vm-1-migrating", "other", "-o", "name"]));
    assert_eq!((some.code, &some.out), (1, &printed));
    assert!(some.err.contains("no operation \"other\""), "{}", some.err);
    let filtered = said(plugin(address).args(["get", "vm-1-migrating", "-k", "po"]));
    assert_eq!(filtered.code, 1);
    assert!(
        filtered
            .err
            .contains("the filters exclude it: its subject is VirtualMachine/vm-1 in shop"),
        "{}",
        filtered.err
    );
}

#[test]
fn a_selector_filters_a_tree_without_changing_ownership() {
    let owned = |number: usize, owner: usize| {
        let mut it = operation(number);
        it["metadata"]["labels"] = json!({"team": "a"});
        it["spec"]["subject"]["uid"] = json!(number.to_string());
        it["spec"]["subject"]["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "name": format!("vm-{owner}"), "uid": owner.to_string(),
        }]);
        it
    };
    // 0 owns 1, which owns 2 and 3. The selector matches 2 and 3.
    let mut top = operation(0);
    top["spec"]["subject"]["uid"] = json!("0");
    let mut between = owned(1, 0);
    between["metadata"]["labels"] = json!({});
    let selected = [owned(2, 1), owned(3, 1)];
    let all = [top, between, selected[0].clone(), selected[1].clone()];
    let (_runtime, address) = serve(move |request| {
        let query = request.uri().query().unwrap_or_default();
        match request.uri().path() {
            LIVE if query.contains("labelSelector=team") => list(&selected, ""),
            LIVE if query.contains("labelSelector=") => list(&[], ""),
            LIVE => list(&all, ""),
            "/api" | "/apis" => body(&group("", "Pod", "pods", "po")),
            _ => not_found(),
        }
    });
    let tree = |args: &[&str]| {
        let said = said(plugin(address).arg("tree").args(args));
        let lines = said.out.lines().map(|line| {
            let words = line.split_whitespace();
            words
                .filter(|it| *it != "45s")
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        });
        (lines.collect::<Vec<_>>(), said.err)
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
    // Nothing matches the selector, but the resource exists.
    let (lines, err) = tree(&["--for", "VirtualMachine/vm-0", "-l", "other=a"]);
    assert!(lines.is_empty(), "{lines:?}");
    assert!(!err.contains("no resource"), "{err}");
}

#[test]
fn an_empty_list_says_if_filters_or_missing_rule_sets_are_the_reason() {
    let (_runtime, address) = cluster(Vec::new());
    let all = said(plugin(address).arg("list"));
    assert_eq!(all.err, "No operations in flight.\n");
    for command in ["list", "tree"] {
        let some = said(plugin(address).args([command, "-c", "kubevirt"]));
        assert_eq!(some.err, "No operations in flight that fit the filters.\n");
    }
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => {
            let mut empty = list(&[], "");
            let warning = "299 - \"no rule set is installed, so no operation can be detected\"";
            let headers = empty.headers_mut();
            headers.insert("warning", warning.parse().expect("a header"));
            empty
        }
        RULE_SETS => body(&json!({"items": []})),
        _ => not_found(),
    });
    for command in ["list", "tree", "summary"] {
        let none = said(plugin(address).arg(command));
        for part in [
            "no OperationRuleSet is installed",
            "kubectl apply -k https://github.com/kubevirt/ifo//rules\n",
        ] {
            assert!(none.err.contains(part), "{part}: {}", none.err);
        }
    }
}

#[test]
fn version_shows_the_server_it_can_reach() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response(),
        _ => not_found(),
    });
    let down = said(plugin(address).arg("version"));
    assert!(down.err.contains("not available"), "{}", down.err);
    let (_runtime, address) = serve(|request| match request.uri().path() {
        CRS => list(&[], ""),
        _ => not_found(),
    });
    let crs = said(plugin(address).arg("version"));
    assert!(
        crs.err
            .contains("only the objects of inflightoperations.ifo.kubevirt.io"),
        "{}",
        crs.err
    );
    let (_runtime, address) = serve(|_| not_found());
    let none = said(plugin(address).arg("version"));
    assert!(none.err.contains("serves no operations"), "{}", none.err);
}
