//! Tests of the requests that the plugin sends: their headers, their number, and their way through a
//! proxy.

use super::cluster::{Cluster, parameter};
use super::fake_apiserver::{
    LIVE, execute, json_response, list_response, not_found, operation, plugin, serve,
    status_response,
};
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Starts a server that also records the requests.
fn serve_logged(
    answer: impl Fn(&Request) -> Response + Clone + Send + Sync + 'static,
    entry: fn(&Request) -> String,
) -> (
    tokio::runtime::Runtime,
    SocketAddr,
    impl Fn() -> Vec<String>,
) {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let entries = log.clone();
    let (runtime, address) = serve(move |request| {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(entry(request));
        answer(request)
    });
    let take = move || std::mem::take(&mut *entries.lock().unwrap_or_else(PoisonError::into_inner));
    (runtime, address, take)
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

#[test]
fn a_request_has_a_time_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = silent.local_addr().expect("a listener has an address");
    let late = execute(plugin(address).args(["list", "--request-timeout", "200ms"]));
    late.exits(1);
    late.says("--request-timeout");
}

#[test]
fn all_pages_are_read_and_an_expired_list_is_read_in_one_page() {
    for (expires, count) in [(false, 10_000), (true, 1_000)] {
        let (_runtime, address) = serve(move |request| {
            let begin: usize = parameter(request, "continue").parse().unwrap_or_default();
            if expires && begin > 0 {
                return status_response(410, "Expired", "too old");
            }
            let end = match parameter(request, "limit").parse::<usize>() {
                Ok(limit) => begin + limit,
                Err(_) => count,
            };
            let items: Vec<Value> = (begin..end).map(operation).collect();
            let next = if end < count {
                end.to_string()
            } else {
                String::new()
            };
            list_response(&items, &next)
        });
        let output = execute(plugin(address).args(["list", "-o", "name"]));
        assert_eq!(output.stdout.lines().count(), count, "{}", output.stderr);
    }
}

#[test]
fn impersonation_headers_are_sent_and_tokens_never_over_plain_http() {
    let header_names = [
        "authorization",
        "impersonate-user",
        "impersonate-group",
        "impersonate-extra-scopes",
    ];
    let (_runtime, address) = serve(move |request| {
        let values = header_names
            .iter()
            .flat_map(|it| request.headers().get_all(*it));
        let values: Vec<&str> = values.map(|it| it.to_str().unwrap_or_default()).collect();
        let mut item = operation(1);
        item["status"]["message"] = json!(values.join(" "));
        list_response(&[item], "")
    });
    let flags = [
        "list",
        "--token",
        "secret",
        "--as",
        "jane",
        "--as-group",
        "friends",
        "--as-user-extra=scopes=view",
        "--as-user-extra",
        "scopes=a=b",
    ];
    let output = execute(plugin(address).args(flags));
    output.prints("   jane friends view a=b");
}

#[test]
fn the_proxy_of_the_environment_respects_no_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    proxy
        .set_nonblocking(true)
        .expect("a socket can be non-blocking");
    let address = proxy
        .local_addr()
        .expect("a listener has an address")
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
                std::io::Read::read_exact(&mut stream, &mut start).expect("a request is longer");
                first.get_or_insert(String::from_utf8_lossy(&start).into_owned());
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
        let found = request_to_proxy(server, no_proxy);
        assert_eq!(found, expected, "{server} {no_proxy}");
    }
}

#[test]
fn owners_and_filters_share_one_discovery() {
    let cluster = Cluster::read(
        "{operations: [{spec: {subject: {ownerReferences: [{apiVersion: kubevirt.io/v1, kind: Pool, \
         name: pool-1, uid: u-1, controller: true}]}}}], kind: [Pool, pools, pl]}",
    );
    let answer = move |request: &Request| cluster.answer(request);
    let path = |request: &Request| request.uri().path().to_owned();
    let (_runtime, address, requests) = serve_logged(answer, path);
    execute(plugin(address).args(["tree", "-k", "VirtualMachine"])).exits(0);
    let requests = requests();
    for (path, expected) in [
        ("/api", 1),
        ("/apis", 1),
        ("/apis/kubevirt.io/v1", 0),
        ("/apis/kubevirt.io/v1/namespaces/shop/pools/pool-1", 1),
    ] {
        let count = requests.iter().filter(|it| *it == path).count();
        assert_eq!(count, expected, "{path}: {requests:?}");
    }
}

#[test]
fn schemas_of_a_cluster_are_read_as_the_impersonated_user() {
    let user = |request: &Request| {
        let user = request.headers().get("impersonate-user");
        format!("{} {:?}", request.uri().path(), user.map(|it| it.to_str()))
    };
    let (_runtime, address, requests) =
        serve_logged(|_| json_response(&json!({"paths": {}})), user);
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/cli/rules"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command.args([
        "rules",
        "check",
        rules,
        "--cluster",
        "--as",
        "jane",
        "--server",
    ]);
    execute(command.arg(format!("http://{address}"))).says("does not serve example.io/v1");
    assert_eq!(requests(), ["/openapi/v3 Some(Ok(\"jane\"))"]);
}

#[test]
fn only_a_single_state_is_in_the_field_selector() {
    let answer = |request: &Request| match request.uri().path() {
        LIVE => list_response(&[operation(1)], ""),
        _ => not_found(),
    };
    let (_runtime, address, selectors) =
        serve_logged(answer, |request| parameter(request, "fieldSelector"));
    for (flags, expected) in [
        (
            &["--failing"][..],
            "status.phase=Active,status.state=Failing",
        ),
        (&["--state", "Succeeded"], "status.state=Succeeded"),
        (&["--state", "Blocked,Failing"], "status.phase=Active"),
    ] {
        execute(plugin(address).arg("list").args(flags)).exits(0);
        assert_eq!(selectors()[0], expected);
    }
}

#[test]
fn evictions_are_requested_only_for_pods_that_a_drain_evicts_and_as_a_dry_run() {
    let cluster = Cluster::read(
        "
pods:
- {metadata: {name: api}}
- {metadata: {name: ended}, status: {phase: Succeeded}}
- {metadata: {name: static, annotations: {kubernetes.io/config.mirror: x}}}
- {metadata: {name: agent, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: u, controller: true}]}}
answers: {'*/eviction': {}}
",
    );
    let answer = move |request: &Request| cluster.answer(request);
    let line = |request: &Request| format!("{} {}", request.method(), request.uri());
    let (_runtime, address, requests) = serve_logged(answer, line);
    execute(plugin(address).args(["impact", "worker-3"]));
    let mut requests = requests();
    requests.retain(|it| it.contains("/pods"));
    assert_eq!(
        requests,
        [
            "GET /api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Dworker-3",
            "POST /api/v1/namespaces/shop/pods/api/eviction?dryRun=All",
        ]
    );
}

/// Only Linux has the device `/dev/full`, to which every write fails.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let (_runtime, address) = Cluster::read("operations: [1]").serve();
    for (args, code) in [
        (&["-O", "json"][..], 1),
        (&["tree"], 1),
        (&["summary"], 1),
        (&["version", "--client"], 1),
        (&["wait", "--for=started", "--timeout=3m"], 2),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = plugin(address);
        let command = command
            .args(args)
            .stdout(full.expect("Linux has this device"));
        let output = command.stderr(Stdio::piped()).spawn();
        let output = output.and_then(std::process::Child::wait_with_output);
        let output = output.expect("the plugin can be started");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        let expected = "error: cannot write to standard output: No space left";
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}
