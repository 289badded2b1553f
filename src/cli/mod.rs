//! The commands of the kubectl plugin. Enters: arguments. Leaves: what they print, and
//! an exit code.

mod check;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Sees which operations are in flight in a cluster.
#[derive(Debug, Parser)]
#[command(name = "kubectl-ifo", bin_name = "kubectl ifo", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compiles the rule sets in files, without a cluster
    Check {
        /// YAML or JSON files with OperationRuleSets; other kinds are left out
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Runs what the command line of the process asks for. The exit code is 0 when all is
/// well, 1 when something that was checked is not, 2 when the arguments are not.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Check { files } => check::run(&files),
    }
}
