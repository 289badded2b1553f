//! The program `kubectl-ifo`, which kubectl runs for `kubectl ifo`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_ifo::run()
}
