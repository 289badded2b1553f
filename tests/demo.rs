//! Tests of the command `ifo-apiserver demo`, which serves example objects without a cluster. The
//! tests start the real binary. They check its answers, its output, and its reaction to invalid
//! input.

// Some tests contain a table of test cases. The type of this table is long.
#![allow(clippy::unused_self, clippy::type_complexity)]

mod binaries;
#[path = "demo/folder.rs"]
mod folder;
#[path = "demo/harness.rs"]
mod harness;
#[path = "demo/scenes.rs"]
mod scenes;
#[path = "demo/startup.rs"]
mod startup;

/// Runs the kubectl plugin with the demo's kubeconfig. Returns its exit code and its standard error.
async fn run_plugin(demo: &harness::Demo, args: &[&str]) -> (Option<i32>, String) {
    let plugin = binaries::other_binary(env!("CARGO_BIN_EXE_ifo-apiserver"), "kubectl-ifo");
    let mut plugin = tokio::process::Command::new(plugin);
    plugin.args(args).env("KUBECONFIG", &demo.kubeconfig);
    let output = plugin.output().await.unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), err)
}
