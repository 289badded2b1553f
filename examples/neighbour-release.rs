//! The server of a neighbouring release, for a test in `tests/replicas`. The Cargo feature
//! `neighbour-release` adds the field `status.neighbourField` to the operations of this server.
//! Otherwise this server is the normal server. The test runs this program together with the normal
//! server, to check that replicas of two releases can run at the same time.

#[path = "../src/main.rs"]
mod server;

fn main() -> std::process::ExitCode {
    server::main()
}
