//! The commands of the kubectl plugin.
//!
//! Input: arguments. Output: printed text, and an exit code. The tools for rule authors (`rules`)
//! need no server, and only `rules check --cluster` needs a cluster. The other commands ask the
//! server of the current kubeconfig.
//!
//! ```text
//! connect ─▶ server ─▶ source ─▶ operation ─▶ filter ─▶ sort ─▶ columns · list · summary
//! ```

mod address;
mod api_client;
mod arguments;
mod clock;
mod colors;
mod columns;
mod completion;
mod connect;
mod describe;
mod filter;
mod filter_check;
mod kinds;
mod list;
mod lookup;
mod operation;
mod output;
mod ownership;
mod plain_text;
mod problem;
mod redraw;
mod rules;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod snapshots;
mod sort;
mod source;
mod suggestion;
mod summary;
mod target;
mod top;
mod tree;
mod version;
mod wait;

use arguments::{with_command, with_switches};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use output::complain;
use problem::Problem;
use std::ffi::OsString;
use std::process::ExitCode;

/// The default command.
const DEFAULT_COMMAND: &str = "list";

/// The exit code if the reader of standard output has closed the pipe: 128 + SIGPIPE. Rust ignores
/// the signal itself.
const PIPE_CLOSED: u8 = 128 + 13;

/// Shows which operations are in flight in a cluster.
#[derive(Debug, Parser)]
#[command(name = "kubectl-ifo", bin_name = "kubectl ifo", version)]
#[command(after_help = "\
Examples:
  # All operations in flight
  kubectl ifo

  # The same as a tree, updated when it changes
  kubectl ifo tree -w

  # Wait until no operation has been in flight for half a minute
  kubectl ifo wait --quiet-period=30s --timeout=30m")]
struct PluginCli {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Lists the operations in flight (the default)
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Shows operations by name
    Get(list::GetArgs),
    /// Counts the operations, and names those that need attention
    Summary(summary::SummaryArgs),
    /// Shows the operations on the whole screen and updates them
    Top(top::TopArgs),
    /// Shows the operations as trees: component, namespace, owners and their resources
    Tree(tree::TreeArgs),
    /// Shows all facts about an operation, or about all operations of a resource
    Describe(describe::DescribeArgs),
    /// Waits until no operation is in flight, or until an operation has started or completed
    Wait(wait::WaitArgs),
    /// Tools for authors of OperationRuleSets; no server needed
    #[command(after_help = "\
Examples:
  kubectl ifo rules check my-rules.yaml
  kubectl ifo rules test my-rules.yaml --objects machines.yaml")]
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// Prints the versions of the plugin and of the server
    Version(version::VersionArgs),
    /// Prints a completion script for a shell
    Completion(completion::CompletionArgs),
    /// Prints possible next words of a command line, for kubectl_complete-ifo
    #[command(name = "__complete", hide = true)]
    Complete(completion::CompletionWords),
    /// Writes the man pages
    #[command(name = "__man", hide = true)]
    Man(completion::ManArgs),
}

/// Returns the commands with their flags. Without a command, the flags of `list` apply. If a flag
/// is repeated, its last value counts, as in kubectl.
fn definitions() -> clap::Command {
    let commands = PluginCli::command();
    let default = commands.find_subcommand(DEFAULT_COMMAND);
    let flags: Vec<clap::Arg> = default
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .cloned()
        .collect();
    commands
        .args(flags)
        .subcommand_required(false)
        .arg_required_else_help(false)
        .args_override_self(true)
}

/// Runs the command line of the process and returns the exit code.
///
/// It is 0 for success, 1 for a failure, 2 for invalid arguments, and 141 if the reader has closed
/// standard output. `wait` has further exit codes.
pub fn run() -> ExitCode {
    let cli = parsed(std::env::args_os().collect()).unwrap_or_else(|error| error.exit());
    match cli.command {
        PluginCommand::Rules(command) => ended(rules::run(&command).map(|well| {
            if well {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        })),
        PluginCommand::Completion(args) => ended(completion::run(&args, &definitions())),
        PluginCommand::Complete(words) => ended(completion::next(&words, &definitions())),
        PluginCommand::Man(args) => completion::man(&args, definitions()),
        command => asked(command),
    }
}

/// Parses a command line.
fn parsed(arguments: Vec<OsString>) -> Result<PluginCli, clap::Error> {
    let arguments = with_command(arguments);
    let parsed = with_switches(definitions()).try_get_matches_from(&arguments);
    match parsed {
        // The help shows `--watch`, not `--watch[=<WATCH>]`.
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            match definitions().try_get_matches_from(&arguments) {
                Err(help) if help.kind() == ErrorKind::DisplayHelp => Err(help),
                _ => Err(error),
            }
        }
        parsed => PluginCli::from_arg_matches(&parsed?),
    }
}

/// Runs a command that connects to a cluster.
fn asked(command: PluginCommand) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain("error", error);
            return ExitCode::FAILURE;
        }
    };
    let is_wait = matches!(command, PluginCommand::Wait(_));
    let result = runtime.block_on(async {
        match command {
            PluginCommand::List(args) => list::run(&args).await,
            PluginCommand::Get(args) => list::get(&args).await,
            PluginCommand::Summary(args) => summary::run(&args).await,
            PluginCommand::Top(args) => top::run(&args).await,
            PluginCommand::Tree(args) => tree::run(&args).await,
            PluginCommand::Describe(args) => describe::run(&args).await,
            PluginCommand::Wait(args) => wait::run(&args).await,
            PluginCommand::Version(args) => version::run(&args).await,
            PluginCommand::Rules(_)
            | PluginCommand::Completion(_)
            | PluginCommand::Complete(_)
            | PluginCommand::Man(_) => Ok(ExitCode::SUCCESS),
        }
    });
    // A running DNS lookup must not delay the end.
    runtime.shutdown_background();
    match result {
        // The exit code of `wait` reports the result.
        Err(Problem::Closed) if is_wait => ExitCode::SUCCESS,
        // `wait` uses 1 for a timeout.
        Err(problem) if is_wait => {
            complain("error", problem);
            ExitCode::from(2)
        }
        result => ended(result),
    }
}

/// Creates the runtime for requests. One thread is enough for one user, and starts faster.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Returns the exit code of a command, after printing its error.
fn ended(result: Result<ExitCode, Problem>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(Problem::Closed) => ExitCode::from(PIPE_CLOSED),
        Err(problem) => {
            complain("error", &problem);
            match problem {
                Problem::Usage(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_definitions_are_consistent() {
        definitions().debug_assert();
    }

    #[test]
    fn the_last_of_repeated_flags_wins_and_list_flags_accumulate() {
        let list = |line: &str| {
            let arguments = line.split(' ').map(OsString::from).collect();
            let cli = parsed(arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
            match cli.command {
                PluginCommand::List(args) => format!("{args:?}"),
                command => panic!("{command:?}"),
            }
        };
        assert_eq!(list("ifo -n a -n b"), list("ifo -n b"));
        assert_eq!(list("ifo -O json -O yaml"), list("ifo -O yaml"));
        assert_eq!(list("ifo -w --watch=true"), list("ifo -w"));
        assert_eq!(list("ifo --watch=false"), list("ifo"));
        assert_eq!(list("ifo --watch --watch=false"), list("ifo"));
        assert_eq!(list("ifo -wn a"), list("ifo -w -n a"));
        assert_eq!(list("ifo -Awn a --watch=false"), list("ifo -A -n a"));
        assert_eq!(list("ifo -Aw=1"), list("ifo -A -w"));
        assert_eq!(list("ifo -w=T"), list("ifo -w"));
        assert_eq!(list("ifo --watch -w=false"), list("ifo"));
        assert_eq!(list("ifo -w=false -w"), list("ifo -w"));
        assert_eq!(list("ifo -nw --watch=false"), list("ifo -n w"));
        assert_eq!(list("ifo -n=true"), list("ifo -n true"));
        assert_eq!(list("ifo --no-color=false --color"), list("ifo --color"));
        assert_eq!(list("ifo -c a -c b"), list("ifo -c a,b"));
        assert_ne!(list("ifo -c a -c b"), list("ifo -c b"));
        let secure = list("ifo --insecure-skip-tls-verify=true");
        assert!(
            secure.contains("insecure_skip_tls_verify: true"),
            "{secure}"
        );
    }

    #[test]
    fn every_command_has_an_example() {
        fn without(command: &clap::Command) -> Vec<String> {
            let help = command.clone().render_long_help().to_string();
            let mut names: Vec<String> = command.get_subcommands().flat_map(without).collect();
            if !command.is_hide_set() && !help.contains("Examples:") {
                names.push(command.get_name().to_owned());
            }
            names
        }
        assert_eq!(without(&definitions()), [""; 0]);
    }

    #[test]
    fn the_help_without_a_command_has_the_flags_of_the_default_one() {
        let help = definitions().render_long_help().to_string();
        assert!(help.contains("--sort-by"), "{help}");
        assert!(help.contains("[COMMAND]"), "{help}");
    }

    #[test]
    fn a_boolean_flag_accepts_only_boolean_values() {
        for line in ["ifo -w=perhaps", "ifo --watch=", "ifo -- -w=false"] {
            let arguments = line.split(' ').map(OsString::from).collect();
            assert!(parsed(arguments).is_err(), "{line}");
        }
    }

    #[test]
    fn an_unknown_command_is_an_error() {
        let error = definitions()
            .try_get_matches_from(["ifo", "nonsense"])
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSubcommand);
    }
}
