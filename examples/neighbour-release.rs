//! The server with one difference, as if it were another release: its operations have the
//! additional field `status.neighbourField`. A test in `tests/replicas` runs this program together
//! with the normal server, to check that replicas of two releases can run at the same time.

#[path = "../src/main.rs"]
mod server;

fn main() -> std::process::ExitCode {
    server::main()
}
