//! The real binary, without a cluster: what a person sees who starts `ifo-apiserver
//! demo`, and what hostile input does to it.

// A folder and its files are spoken of as one thing, and cases stand in a table.
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
