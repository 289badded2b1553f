//! The commands of the kubectl plugin. Enters: arguments. Leaves: what they print, and
//! an exit code. The tools for rule authors need no server, and no cluster unless they
//! are told to ask one.

mod check;
mod eval;
mod expect;
mod input;
mod names;
mod output;
mod replay;
pub mod roles;
mod rule_sets;
mod schema;
mod stream;
mod test;

use clap::{Parser, Subcommand};
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
    /// Tools for those who write OperationRuleSets; no server needed
    #[command(subcommand)]
    Rules(Rules),
}

#[derive(Debug, Subcommand)]
enum Rules {
    /// Compiles rule sets, and checks the fields they read against a schema
    Check(check::Args),
    /// Says which operations the rules find on objects
    Test(test::Args),
    /// Runs a recorded watch stream through the rules, in virtual time
    Replay(replay::Args),
    /// Evaluates one expression against one object
    Eval(eval::Args),
    /// Prints the least ClusterRole that lets the server watch the rules' targets
    Roles(roles::Args),
}

/// Runs what the command line of the process asks for. The exit code is 0 when all is
/// well, 1 when something that was asked for is not, 2 when the arguments are not.
pub fn run() -> ExitCode {
    let Command::Rules(command) = Cli::parse().command;
    let well = match command {
        Rules::Check(args) => check::run(&args),
        Rules::Test(args) => test::run(&args),
        Rules::Replay(args) => replay::run(&args),
        Rules::Eval(args) => eval::run(&args),
        Rules::Roles(args) => roles::run(&args),
    };
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
