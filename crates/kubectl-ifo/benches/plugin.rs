//! Measures the plugin as a command: its start, and the time and memory for a list of 10,000
//! operations from a very fast server. Prints medians.

use axum::http::header;
use serde_json::json;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of operations in the list, and in a page of it.
const OPERATIONS: usize = 10_000;
const PAGE: usize = 500;

/// Number of runs of each command.
const RUNS: usize = 15;

fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let address = serve(&runtime);
    for (what, args) in [
        ("start (version --client)", &["version", "--client"][..]),
        ("list of 10,000, table", &["list"]),
        ("list of 10,000, json", &["list", "-o", "json"]),
        ("summary of 10,000", &["summary"]),
        ("tree of 10,000", &["tree"]),
    ] {
        let mut took: Vec<Duration> = (0..RUNS).map(|_| run(address, args)).collect();
        took.sort_unstable();
        let peak = peak(address, args) >> 10;
        println!("{what:<28} {:>9.1?} {peak:>5} MiB", took[RUNS / 2]);
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

fn run(address: SocketAddr, args: &[&str]) -> Duration {
    let begun = Instant::now();
    let status = command(address, args).status();
    assert!(status.expect("the plugin starts").success(), "{args:?}");
    begun.elapsed()
}

/// Returns the largest resident set during the run, in KiB.
fn peak(address: SocketAddr, args: &[&str]) -> u64 {
    let mut child = command(address, args).spawn().expect("the plugin starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().expect("it can be waited for").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let seen = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak = peak.max(seen.unwrap_or_default());
        std::thread::sleep(Duration::from_micros(200));
    }
    peak
}

/// Serves the pages of the list, which are encoded in advance.
fn serve(runtime: &tokio::runtime::Runtime) -> SocketAddr {
    let pages: Arc<Vec<String>> = Arc::new((0..OPERATIONS / PAGE).map(page).collect());
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    let address = listener.local_addr().expect("an address");
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

fn page(number: usize) -> String {
    let next = number + 1;
    let resume = if next * PAGE < OPERATIONS {
        next.to_string()
    } else {
        String::new()
    };
    let items: Vec<_> = (number * PAGE..next * PAGE).map(operation).collect();
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperationList",
        "metadata": {"resourceVersion": "7", "continue": resume}, "items": items,
    })
    .to_string()
}

/// An operation of the usual size, 1.7 KB.
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
            "name": format!("{name}-migrating-3f9c2a1b"), "namespace": namespace, "generation": 1,
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
