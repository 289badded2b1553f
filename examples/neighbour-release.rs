//! The server as a neighbouring release, whose operations have the field
//! `status.neighbourField`. A test of `tests/replicas` builds it and runs it beside the server
//! under test.

#[path = "../src/main.rs"]
mod server;

fn main() -> std::process::ExitCode {
    server::main()
}
