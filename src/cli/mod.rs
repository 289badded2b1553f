//! The commands of the kubectl plugin. Enters: arguments. Leaves: what they print, and
//! an exit code. The tools for rule authors need no server, and no cluster unless they
//! are told to ask one; the others ask the server of the current kubeconfig.
//!
//! ```text
//! connect ─▶ source ─▶ operation ─▶ filter ─▶ sort ─▶ columns · list · summary
//! ```

mod check;
mod columns;
mod completion;
mod connect;
mod describe;
mod eval;
mod expect;
mod filter;
mod input;
mod kin;
mod kinds;
mod list;
mod lookup;
mod names;
mod operation;
mod output;
mod paint;
mod problem;
mod redraw;
mod replay;
pub mod roles;
mod rule_sets;
#[cfg(test)]
mod sample;
mod schema;
#[cfg(test)]
mod snapshots;
mod sort;
mod source;
mod stream;
mod summary;
mod target;
mod test;
mod top;
mod tree;
mod version;
mod wait;

use clap::{CommandFactory as _, Parser, Subcommand};
use output::complain;
use problem::Problem;
use std::ffi::OsString;
use std::process::ExitCode;

/// What runs where no command is named.
const DEFAULT_COMMAND: &str = "list";

/// Sees which operations are in flight in a cluster.
#[derive(Debug, Parser)]
#[command(name = "kubectl-ifo", bin_name = "kubectl ifo", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the operations in flight (the default)
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Shows operations by name
    Get(list::GetArgs),
    /// Counts the operations, and names those that need somebody
    Summary(summary::Args),
    /// Shows the operations on the whole screen, as they change
    Top(top::Args),
    /// Shows the operations as trees: component, namespace, what belongs to what
    Tree(tree::Args),
    /// Tells all about an operation, or about all of a resource's
    Describe(describe::Args),
    /// Waits until nothing is in flight, or until something has begun or ended
    Wait(wait::Args),
    /// Tools for those who write OperationRuleSets; no server needed
    #[command(subcommand)]
    Rules(Rules),
    /// Prints the versions of the plugin and of the server
    Version(version::Args),
    /// Prints a script that makes a shell complete kubectl-ifo
    Completion(completion::Args),
    /// Prints what may come next on a command line, for kubectl_complete-ifo
    #[command(name = "__complete", hide = true)]
    Complete(completion::Words),
    /// Writes the man pages
    #[command(name = "__man", hide = true)]
    Man(completion::ManArgs),
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
/// well, 1 when something that was asked for is not, 2 when the arguments are not; `wait`
/// has its own.
pub fn run() -> ExitCode {
    let arguments = with_command(std::env::args_os().collect());
    match Cli::parse_from(arguments).command {
        Command::Rules(command) => rules(command),
        Command::Completion(args) => completion::run(&args, Cli::command()),
        Command::Complete(words) => completion::next(&words, Cli::command()),
        Command::Man(args) => completion::man(&args, Cli::command()),
        command => asked(command),
    }
}

fn rules(command: Rules) -> ExitCode {
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

/// Runs a command that asks a cluster.
fn asked(command: Command) -> ExitCode {
    // One thread is enough for one user, and starts sooner.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain("error", error);
            return ExitCode::FAILURE;
        }
    };
    // `wait` keeps 1 for a time-out.
    let failure = match command {
        Command::Wait(_) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    };
    let result = runtime.block_on(async {
        match command {
            Command::List(args) => list::run(&args).await,
            Command::Get(args) => list::get(&args).await,
            Command::Summary(args) => summary::run(&args).await,
            Command::Top(args) => top::run(&args).await,
            Command::Tree(args) => tree::run(&args).await,
            Command::Describe(args) => describe::run(&args).await,
            Command::Wait(args) => wait::run(&args).await,
            Command::Version(args) => version::run(&args).await,
            Command::Rules(_) | Command::Completion(_) | Command::Complete(_) | Command::Man(_) => {
                Ok(ExitCode::SUCCESS)
            }
        }
    });
    // A name that is just being looked up must not hold back the end.
    runtime.shutdown_background();
    result.unwrap_or_else(|problem| {
        complain("error", &problem);
        match problem {
            Problem::Usage(_) => ExitCode::from(2),
            _ => failure,
        }
    })
}

/// The arguments with the command in front: `kubectl ifo -n a tree` is what people type,
/// and `kubectl ifo -n a` lists.
fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let root = Cli::command();
    let takes_value = |flag: &str| {
        let flags = root
            .get_subcommands()
            .flat_map(clap::Command::get_arguments);
        flags.into_iter().any(|it| {
            it.get_action().takes_values()
                && match flag.strip_prefix("--") {
                    Some(long) => it.get_long() == Some(long),
                    None => it
                        .get_short()
                        .is_some_and(|short| flag == format!("-{short}")),
                }
        })
    };
    let mut at = 1;
    while let Some(argument) = arguments
        .get(at)
        .map(|it| it.to_string_lossy().into_owned())
    {
        match argument.as_str() {
            "-h" | "--help" | "-V" | "--version" if at == 1 => return arguments,
            flag if flag.len() > 1 && flag.starts_with('-') => {
                at += 1 + usize::from(takes_value(flag));
            }
            _ => {
                let command = arguments.remove(at);
                arguments.insert(1, command);
                return arguments;
            }
        }
    }
    let place = arguments.len().min(1);
    arguments.insert(place, DEFAULT_COMMAND.into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn arranged(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let arranged: Vec<String> = with_command(arguments)
            .into_iter()
            .map(|it| it.into_string().unwrap())
            .collect();
        arranged.join(" ")
    }

    #[test]
    fn the_flags_are_right() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_is_found_wherever_it_stands() {
        for (typed, read) in [
            ("ifo", "ifo list"),
            ("ifo -A", "ifo list -A"),
            ("ifo -n a", "ifo list -n a"),
            ("ifo -n a -o json", "ifo list -n a -o json"),
            ("ifo --context=x summary -A", "ifo summary --context=x -A"),
            ("ifo -n list summary", "ifo summary -n list"),
            ("ifo --for vm/a tree", "ifo tree --for vm/a"),
            ("ifo rules check x", "ifo rules check x"),
            ("ifo --help", "ifo --help"),
            ("ifo -V", "ifo -V"),
            ("ifo nonsense", "ifo nonsense"),
        ] {
            assert_eq!(arranged(typed), read);
        }
    }

    #[test]
    fn an_unknown_command_is_an_error() {
        let error = Cli::try_parse_from(["ifo", "nonsense"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSubcommand);
    }
}
