//! End-to-end tests: the server under test behind a real kube-apiserver, started with
//! what `deploy/` says, seen through kubectl and the kube crate.
//!
//! All tests share one control plane and one server, which the first test starts; each
//! works in a namespace and with rule sets of its own. A test that restarts something
//! runs alone, and those of the installation have a control plane each. Where no control plane can be had, tests are skipped with a loud line,
//! or fail if `IFO_REQUIRE_E2E=1` or `CI=true`. With `IFO_E2E_DIR` set, that folder
//! holds all files of the run, and they stay there.
//!
//! With `IFO_E2E_GAPS=20`, the connections of the shared server to kube-apiserver break every
//! 20 seconds for 3 seconds, as they do on an overloaded machine. Each break is a watch gap,
//! which sets `Detected=Unknown` on all operations for a while.

// Tests read better with the words that they are about, and as one story each; the world
// is made once.
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
#[path = "../binaries/mod.rs"]
mod binaries;
mod clients;
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
