//! The plugin and clusters that answer oddly, by a server that says what a test tells it
//! to. What a real cluster answers is tested end to end.

use super::Said;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const CRS: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";

/// Serves what `answer` makes of a request, for as long as the runtime lives.
fn serve(
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

fn plugin(address: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command
        .env("KUBECONFIG", "/nonexistent")
        .env_remove("NO_COLOR")
        .env("NO_PROXY", "127.0.0.1")
        .args(["--server", &format!("http://{address}")])
        .stdin(Stdio::null());
    command
}

fn said(command: &mut Command) -> Said {
    let output = command.output().expect("the plugin starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said {
        code: output.status.code().expect("it was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

fn body(value: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        value.to_string(),
    )
        .into_response()
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let code = StatusCode::from_u16(code).expect("a code");
    (code, body(&status)).into_response()
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

/// A watch in which nothing happens.
fn quiet_watch() -> Response {
    type Nothing = futures::stream::Pending<Result<Vec<u8>, std::io::Error>>;
    let nothing: Nothing = futures::stream::pending();
    axum::body::Body::from_stream(nothing).into_response()
}

fn operation(number: usize) -> Value {
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

fn list(items: &[Value], resume: &str) -> Response {
    body(&json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperationList",
        "metadata": {"resourceVersion": "7", "continue": resume}, "items": items,
    }))
}

#[test]
fn each_refusal_is_one_line_that_says_what_to_do() {
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
            &["serves no operations", "kubectl apply -k deploy"],
        ),
        (
            403,
            status(403, "Forbidden", "no"),
            &[
                "--verb=get,list,watch",
                "inflightoperations.live.ifo.kubevirt.io",
            ],
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
fn nobody_there_and_nobody_answering_are_told_apart() {
    // Bound and let go: nobody listens there.
    let (runtime, address) = serve(|_| not_found());
    drop(runtime);
    let refused = said(plugin(address).arg("list"));
    assert!(
        refused.err.contains("cannot reach the cluster"),
        "{}",
        refused.err
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("an address");
    let late = said(plugin(address).args(["list", "--request-timeout", "200ms"]));
    assert!(late.err.contains("--request-timeout"), "{}", late.err);
}

#[test]
fn a_server_that_is_still_syncing_is_asked_again() {
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

/// As the Go operator writes one: without a state, a start and conditions, and of no
/// namespace.
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
fn crs_are_shown_where_the_live_api_is_not_served() {
    // As persistence mode writes one.
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

#[test]
fn crs_tell_what_is_in_flight_and_not_that_nothing_is() {
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
        err.contains("nothing says that somebody still looks"),
        "{err}"
    );
    let (code, err) = of(vec![operators()], "--for=started");
    assert_eq!(code, 0, "{err}");
}

#[test]
fn pages_are_put_together_and_a_list_that_expired_is_read_anew() {
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
fn impersonation_and_token_reach_the_server() {
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
            "{} {} {}",
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
        said.out.contains("Bearer secret jane friends"),
        "{}{}",
        said.out,
        said.err
    );
}

#[test]
fn wait_cannot_tell_of_a_server_that_does_not_answer_and_says_2_for_errors() {
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
    let missing = said(plugin(address).args(["wait", "--timeout", "1s"]));
    assert_eq!(missing.code, 2, "{}{}", missing.out, missing.err);
    let usage = said(plugin(address).args(["wait", "--for", "nothing"]));
    assert_eq!(usage.code, 2);
}

#[test]
fn quiet_does_not_count_while_the_watch_is_broken() {
    let rule_set = json!({
        "metadata": {"name": "vm", "generation": 1},
        "spec": {"component": "kubevirt", "rules": [{"operation": "Migrating"}]},
        "status": {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Watching", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    // Lists are answered, and say that all is quiet.
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
    assert!(said.err.contains("cannot tell: "), "{}", said.err);
}

#[test]
fn wait_cannot_tell_without_rule_sets() {
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
