//! The tools for rule authors: `kubectl ifo rules …`. Enters: rule sets, objects and
//! recorded watches, as files. Leaves: what is wrong with the rule sets, and what they
//! find; each file says where it differs from the server. No server is needed, and no
//! cluster unless `check` is told to ask one for its schemas. A command that prints a
//! failure exits with 1.
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

/// See above.
#[derive(Debug, clap::Subcommand)]
pub(super) enum RulesCommand {
    /// Compiles rule sets, and checks the fields they read against a schema
    Check(Box<check::RulesCheckArgs>),
    /// Says which operations the rules find on objects
    Test(test::RulesTestArgs),
    /// Runs a recorded watch stream through the rules, in virtual time
    Replay(replay::Args),
    /// Evaluates one expression against one object
    Eval(eval::RulesEvalArgs),
    /// Prints the least ClusterRole that lets the server watch the rules' targets
    Roles(roles::RulesRolesArgs),
}

/// Runs one; true if all is well.
pub(super) fn run(command: &RulesCommand) -> Result<bool, Problem> {
    match command {
        RulesCommand::Check(args) => check::run(args),
        RulesCommand::Test(args) => test::run(args),
        RulesCommand::Replay(args) => replay::run(args),
        RulesCommand::Eval(args) => eval::run(args),
        RulesCommand::Roles(args) => roles::run(args),
    }
}
