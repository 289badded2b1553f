//! The tools for rule authors: `kubectl ifo rules …`.
//!
//! Input: files with rule sets, objects and recorded watches. Output: errors in the rule sets, and
//! the detected operations. The differences to the server are listed in each file. No server is
//! needed. Only `check --cluster` needs a cluster, for its schemas. A command that prints a failure
//! exits with 1.
//!
//! ```text
//! files ─▶ input ─▶ rule_sets ─┬─▶ test: objects       schema ─▶ check
//!                              ├─▶ replay: stream
//!                              └─▶ roles
//! ```

mod check;
mod eval;
mod expect;
mod input;
mod replay;
mod roles;
mod rule_sets;
mod schema;
mod test;

use super::problem::Problem;

/// The subcommands.
#[derive(Debug, clap::Subcommand)]
pub(super) enum RulesCommand {
    /// Compiles rule sets, and checks the fields they read against a schema
    Check(Box<check::RulesCheckArgs>),
    /// Shows the operations that the rules detect on objects
    Test(test::RulesTestArgs),
    /// Runs a recorded watch stream through the rules, in virtual time
    Replay(replay::Args),
    /// Evaluates one expression on one object
    Eval(eval::RulesEvalArgs),
    /// Prints the smallest ClusterRole with which the server can watch the targets of the rules
    Roles(roles::RulesRolesArgs),
}

/// Runs a subcommand. Returns true if it found no failure.
pub(super) fn run(command: &RulesCommand) -> Result<bool, Problem> {
    match command {
        RulesCommand::Check(args) => check::run(args),
        RulesCommand::Test(args) => test::run(args),
        RulesCommand::Replay(args) => replay::run(args),
        RulesCommand::Eval(args) => eval::run(args),
        RulesCommand::Roles(args) => roles::run(args),
    }
}
