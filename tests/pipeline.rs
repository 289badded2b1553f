//! Tests of the real binary with invalid and hostile input: rule sets, objects, a kube-apiserver
//! and clients. Valid input is processed as usual, invalid input is reported, memory is limited,
//! and nothing panics.

#[path = "demo/harness.rs"]
#[expect(
    dead_code,
    clippy::unused_self,
    reason = "it belongs to tests/demo.rs, which uses the rest of it"
)]
mod demo;
#[path = "pipeline/feeds.rs"]
mod feeds;
#[path = "pipeline/impostor.rs"]
mod impostor;
#[path = "pipeline/lifecycle.rs"]
mod lifecycle;
#[path = "pipeline/listener.rs"]
mod listener;
#[path = "pipeline/memory.rs"]
mod memory;
#[path = "pipeline/requests.rs"]
mod requests;
#[path = "pipeline/rule_sets.rs"]
mod rule_sets;
#[path = "pipeline/server.rs"]
mod server;
#[path = "pipeline/slow.rs"]
mod slow;
#[path = "pipeline/subjects.rs"]
mod subjects;

/// The peak resident memory of a process, in bytes. 0 if the system does not report it.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes =
        peak.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Asserts that nothing panicked.
fn calm(log: &[String]) {
    let panics: Vec<_> = log
        .iter()
        .filter(|line| line.contains("panicked"))
        .collect();
    assert!(panics.is_empty(), "{panics:#?}");
}
