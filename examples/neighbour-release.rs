//! A server that stands for the next release, for the test `tests/replicas/adjacent_releases.rs`.
//! The Cargo feature `neighbour-release` adds the field `status.neighbourField` to operations.
//! Apart from this field, the program is the normal server. The test runs both servers at the same
//! time, to check that replicas of two releases work together.

#[path = "../src/main.rs"]
mod server;

fn main() -> std::process::ExitCode {
    server::main()
}
