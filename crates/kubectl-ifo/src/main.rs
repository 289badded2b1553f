//! `kubectl-ifo`: the kubectl plugin.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_ifo::run()
}
