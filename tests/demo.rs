//! Tests of `ifo-apiserver demo` with the real binary: its output, and its reaction to invalid
//! input.

// Some tests check all cases of a table in one function.
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
#[path = "demo/stop.rs"]
mod stop;

/// The kubectl plugin.
fn plugin() -> std::path::PathBuf {
    binaries::other_binary(env!("CARGO_BIN_EXE_ifo-apiserver"), "kubectl-ifo")
}
