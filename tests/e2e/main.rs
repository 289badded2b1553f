//! End-to-end tests. The server under test runs behind a real kube-apiserver, with the settings in
//! `deploy/`. The tests send their requests with kubectl and with the kube crate.
//!
//! Most tests share one control plane and one server, which the first test starts. Each test has
//! its own namespace and rule sets. If a test restarts the shared server or its kube-apiserver, no
//! other test uses the shared server at this time. The tests of persistence mode share another control
//! plane. Some tests, such as the tests of the installation, start their own control plane.
//!
//! If this machine cannot run a control plane, the tests are skipped with a message. With
//! `IFO_REQUIRE_E2E=1` or `CI=true` in the environment, the tests fail instead. If `IFO_E2E_DIR` is
//! set, all files of the run are kept in this folder.

// The tests have many steps, so some functions are long. Comments contain names that look like
// code.
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
mod activities;
mod admission;
#[path = "../binaries/mod.rs"]
mod binaries;
mod compare_with_custom_resource;
mod deploy_manifests;
mod gate_webhook;
mod helm;
mod installation;
mod kubectl;
mod label_selectors;
mod library;
mod operation_records;
mod persistence;
mod plugin;
mod restarts;
mod rule_sets;
mod shipped_roles;
mod visibility;

/// Returns the path of the binary of the kubectl plugin.
fn plugin() -> std::path::PathBuf {
    binaries::other_binary(env!("CARGO_BIN_EXE_ifo-apiserver"), "kubectl-ifo")
}
