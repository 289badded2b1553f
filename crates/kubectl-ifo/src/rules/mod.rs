//! `kubectl ifo rules …`: the tools for authors of rule sets.
//!
//! The tools read rule sets, objects and recorded watches from files. Only `check --cluster` needs
//! a cluster, from which it reads schemas. `test` and `replay` evaluate rules, and `eval` evaluates
//! one expression. These three tools use the same code as the server. Their modules list the
//! remaining differences from the server. If a tool finds an error in its input, its exit code is
//! 1.
//!
//! ```text
//! files ─▶ input ─▶ rule_sets ─┬─▶ check   (also reads schemas)
//!                              ├─▶ test    (also reads objects)
//!                              ├─▶ replay  (also reads a recorded watch)
//!                              ├─▶ eval    (also reads one object)
//!                              └─▶ roles
//! ```

mod check;
mod eval;
mod explain;
mod input;
mod replay;
mod roles;
mod rule_sets;
mod schemas;
mod test_command;

use crate::cluster::problem::Problem;

/// The subcommands of `kubectl ifo rules`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum RulesCommand {
    /// Compiles rule sets, and checks the fields they read against a schema
    Check(Box<check::RulesCheckArgs>),
    /// Shows the operations that the rules detect on objects
    Test(test_command::RulesTestArgs),
    /// Runs a recorded watch stream through the rules, in virtual time
    Replay(replay::Args),
    /// Evaluates one expression on one object
    Eval(eval::RulesEvalArgs),
    /// Prints the smallest ClusterRole with which the server can watch the targets of the rules
    Roles(roles::RulesRolesArgs),
}

/// Runs a subcommand. Returns true if the subcommand has found no error.
pub(super) fn run(command: &RulesCommand) -> Result<bool, Problem> {
    match command {
        RulesCommand::Check(args) => check::run(args),
        RulesCommand::Test(args) => test_command::run(args),
        RulesCommand::Replay(args) => replay::run(args),
        RulesCommand::Eval(args) => eval::run(args),
        RulesCommand::Roles(args) => roles::run(args),
    }
}
