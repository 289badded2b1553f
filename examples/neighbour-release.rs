//! The server of a neighbouring release, for a test in `tests/replicas`. It differs from the normal
//! server in one way: its operations have the additional field `status.neighbourField`. The test
//! runs this program together with the normal server, to check that replicas of two releases can
//! run at the same time.

#[path = "../src/main.rs"]
mod server;

fn main() -> std::process::ExitCode {
    server::main()
}
