//! End-to-end tests: the server under test behind a real kube-apiserver, started with the settings
//! in `deploy/`, and used through kubectl and the kube crate.
//!
//! All tests share one control plane and one server, which the first test starts. Each test has its
//! own namespace and rule sets. A test that restarts a shared part runs alone. Tests of the
//! installation have their own control plane. If no control plane can be started, tests are skipped
//! with a message, or fail if `IFO_REQUIRE_E2E=1` or `CI=true`. If `IFO_E2E_DIR` is set, that
//! folder gets all files of the run, and they are kept.
//!
//! With `IFO_E2E_GAPS=20`, the connections of the shared server to kube-apiserver break every 20
//! seconds for 3 seconds, as on an overloaded machine. Each break is a watch gap, which sets
//! `Detected=Unknown` on all operations for some time.

// Each test tells one story, so some tests are long and have unusual words.
#![allow(
    clippy::doc_markdown,
    clippy::format_push_string,
    clippy::large_enum_variant,
    clippy::match_wild_err_arm,
    clippy::struct_field_names,
    clippy::too_many_lines
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "tests/replicas uses it too, and each target needs a part of it"
)]
mod harness;

mod access;
mod admission;
#[path = "../binaries/mod.rs"]
mod binaries;
mod clients;
mod deploy;
mod differential;
mod hostile;
mod incomplete;
mod informers;
mod installation;
mod kubectl;
mod language;
mod leaks;
mod many_targets;
mod operations;
mod persistence;
mod plugin;
mod plugin_tree;
mod restarts;
mod restore;
mod rule_sets;
mod targets;
mod tools;
mod workloads;
mod writes;

/// The kubectl plugin.
fn plugin() -> std::path::PathBuf {
    binaries::other_binary(env!("CARGO_BIN_EXE_ifo-apiserver"), "kubectl-ifo")
}
