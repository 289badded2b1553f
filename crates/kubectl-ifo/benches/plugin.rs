//! Measures how long the plugin takes to start, and the time and memory that its commands need for
//! 10,000 operations. An HTTP server in the process of the benchmark takes the place of the
//! cluster. The server encodes all pages before the measurement, so it adds little to the measured
//! times. Each printed time is the median of several runs.

use axum::http::header;
use serde_json::json;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of operations in the list.
const OPERATIONS: usize = 10_000;
/// Number of operations in a page of the list.
const PAGE: usize = 500;

/// Number of timed runs of each command.
const RUNS: usize = 15;

fn main() {
    // `cargo test --benches` runs this program only to check that it starts, so nothing is
    // measured.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be created");
    let address = serve(&runtime);
    for (what, args) in [
        ("start (version --client)", &["version", "--client"][..]),
        ("list of 10,000, table", &["list"]),
        ("list of 10,000, json", &["list", "-o", "json"]),
        ("summary of 10,000", &["summary"]),
        ("tree of 10,000", &["tree"]),
    ] {
        let mut times: Vec<Duration> = (0..RUNS).map(|_| time(address, args)).collect();
        times.sort_unstable();
        let peak = peak_memory(address, args) >> 10;
        println!("{what:<28} {:>9.1?} {peak:>5} MiB", times[RUNS / 2]);
    }
}

fn command(address: SocketAddr, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command
        .args(args)
        .args(["--server", &format!("http://{address}")])
        .env("KUBECONFIG", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Runs a command and returns its duration.
fn time(address: SocketAddr, args: &[&str]) -> Duration {
    let start = Instant::now();
    let status = command(address, args).status();
    let status = status.expect("the plugin can be started");
    assert!(status.success(), "{args:?} must succeed");
    start.elapsed()
}

/// Runs a command and returns its largest resident memory in KiB.
fn peak_memory(address: SocketAddr, args: &[&str]) -> u64 {
    let child = command(address, args).spawn();
    let mut child = child.expect("the plugin can be started");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child
        .try_wait()
        .expect("the plugin can be waited for")
        .is_none()
    {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let current = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak = peak.max(current.unwrap_or_default());
        std::thread::sleep(Duration::from_micros(200));
    }
    peak
}

/// Starts a server that answers each request with a page of the list. Returns its address.
fn serve(runtime: &tokio::runtime::Runtime) -> SocketAddr {
    let pages: Arc<Vec<String>> = Arc::new((0..OPERATIONS / PAGE).map(page).collect());
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .expect("loopback has a free port");
    let address = listener
        .local_addr()
        .expect("a bound listener has an address");
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let query = request.uri().query().unwrap_or_default();
        let number: usize = query
            .split('&')
            .find_map(|option| option.strip_prefix("continue="))
            .and_then(|token| token.parse().ok())
            .unwrap_or_default();
        let body = pages.get(number).cloned().unwrap_or_default();
        async move { ([(header::CONTENT_TYPE, "application/json")], body) }
    });
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(hyper_util::rt::TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

/// Encodes one page of the list.
fn page(number: usize) -> String {
    let next = number + 1;
    let continue_token = if next * PAGE < OPERATIONS {
        next.to_string()
    } else {
        String::new()
    };
    let items: Vec<_> = (number * PAGE..next * PAGE).map(operation).collect();
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperationList",
        "metadata": {"resourceVersion": "7", "continue": continue_token}, "items": items,
    })
    .to_string()
}

/// Returns an operation of 1.7 KB, which is the usual size.
fn operation(number: usize) -> serde_json::Value {
    let (namespace, name) = (format!("team-{}", number % 100), format!("vm-{number}"));
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Migrating", "message": "worker-5 to worker-4",
               "lastTransitionTime": time, "observedGeneration": 7})
    };
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {
            "name": format!("{name}-migrating-3f9c2a1b5e6d7f80"), "namespace": namespace, "generation": 1,
            "uid": "9027ebfc-9662-43a2-8742-686fcccde1b7", "resourceVersion": "1795288845028817",
            "creationTimestamp": time,
            "labels": {
                "ifo.kubevirt.io/component": "kubevirt", "ifo.kubevirt.io/operation": "Migrating",
                "ifo.kubevirt.io/subject-kind": "VirtualMachine", "ifo.kubevirt.io/subject-name": name,
                "ifo.kubevirt.io/subject-namespace": namespace,
                "ifo.kubevirt.io/ruleset": "vm-lifecycle-rules",
            },
        },
        "spec": {
            "operation": "Migrating", "ruleSet": "vm-lifecycle-rules", "component": "kubevirt",
            "subject": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name,
                        "namespace": namespace, "uid": format!("{number:08}-9662-43a2-8742-686fcccde1b7")},
        },
        "status": {
            "phase": "Active", "state": "Progressing", "reason": "Migrating", "progress": number % 100,
            "message": "worker-5 to worker-4, PreCopy", "startTimeSource": "Expression",
            "lastDetected": time, "detectedBy": ["vm-lifecycle-rules"], "subjectGeneration": 7,
            "conditions": [condition("Progressing"), condition("Detected"), condition("Completed")],
        },
    })
}
