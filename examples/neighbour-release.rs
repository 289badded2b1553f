//! A server that stands for a neighbouring release of the server. It differs from the normal server
//! in one way: its operations have the additional field `status.neighbourField`. A test in
//! `tests/replicas` runs this program together with the normal server. It checks that replicas of
//! two releases can run at the same time.

#[path = "../src/main.rs"]
mod server;

fn main() -> std::process::ExitCode {
    server::main()
}
