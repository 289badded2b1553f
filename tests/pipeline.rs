//! Tests of the whole pipeline of the real binary, from watched objects to clients, with invalid
//! and hostile input. The input comes from rule sets, objects, clients, or a fake kube-apiserver.
//! The server must report invalid input and process valid input as usual. It must limit its memory
//! and never panic.

#[path = "demo/harness.rs"]
#[expect(
    dead_code,
    clippy::unused_self,
    reason = "it belongs to tests/demo.rs, which uses the rest of it"
)]
mod demo;
#[path = "pipeline/fake_apiserver.rs"]
mod fake_apiserver;
#[path = "pipeline/hostile_connections.rs"]
mod hostile_connections;
#[path = "pipeline/hostile_rule_sets.rs"]
mod hostile_rule_sets;
#[path = "pipeline/listing_memory.rs"]
mod listing_memory;
#[path = "pipeline/many_operations.rs"]
mod many_operations;
#[path = "pipeline/running_server.rs"]
mod running_server;
#[path = "pipeline/signals.rs"]
mod signals;
#[path = "pipeline/unusual_objects.rs"]
mod unusual_objects;

/// Returns the peak resident memory of a process in bytes. Returns 0 if `/proc` does not report it.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes =
        peak.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

fn assert_no_panics(log: &[String]) {
    let panics: Vec<_> = log
        .iter()
        .filter(|line| line.contains("panicked"))
        .collect();
    assert!(panics.is_empty(), "{panics:#?}");
}
