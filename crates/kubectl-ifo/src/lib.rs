//! The command line of the kubectl plugin: parses the arguments, runs the command, and returns the
//! exit code. Most commands show operations. An operation is something that happens to an object in
//! a cluster, such as a migration.
//!
//! Most commands send requests to a cluster, by default to the cluster of the current kubeconfig
//! context. The tools for authors of rule sets (`kubectl ifo rules`) read files. Of these tools,
//! only `check --cluster` sends requests. A command that lists operations uses the modules in this
//! order:
//!
//! ```text
//! cluster ─▶ operations ─▶ filters ─▶ list · summary · tree ─▶ output
//! ```

mod clock;
mod cluster;
mod completion;
mod describe;
mod filters;
mod history;
mod impact;
mod list;
mod operations;
mod output;
mod rules;
mod summary;
mod support_bundle;
#[cfg(test)]
mod test_fixtures;
mod top;
mod tree;
mod ui;
mod version;
mod wait;
mod work_groups;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use cluster::problem::Problem;
use filters::arguments::{with_command, with_switches};
use output::print::complain;
use std::ffi::OsString;
use std::process::ExitCode;

/// The command that runs if the arguments name no command.
const DEFAULT_COMMAND: &str = "list";

/// The exit code after the reader of standard output has closed the pipe: 128 + SIGPIPE. Rust
/// programs ignore this signal, so the plugin returns the code itself.
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
    /// Lists completed operations, one line for each piece of work
    History(history::HistoryArgs),
    /// Shows what is in flight on a node, what a drain would interrupt, and what blocks a drain
    Impact(impact::ImpactArgs),
    /// Shows the operations on the whole screen and updates them
    Top(top::TopArgs),
    /// Shows the operations on a page in the browser, as a timeline and a list
    Ui(ui::UiArgs),
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
    /// Collects in one archive what is needed to find the cause of a problem
    ///
    /// The archive contains names of objects, namespaces and nodes. Messages, expressions,
    /// settings, addresses, annotations and logs are left out, unless --include-text is given.
    /// Secrets are never read. A part that you may not read is recorded as missing.
    ///
    /// Limits: 30 s for each request (see --request-timeout) and 3 minutes in total, 20,000
    /// operations, 20,000 records of completed operations, 1,000 objects of any other list, and the
    /// logs of 10 Pods (10,000 lines and 8 MiB each). The index bundle.json records each limit that
    /// was reached, except for further Pods.
    SupportBundle(support_bundle::SupportBundleArgs),
    /// Prints the versions of the plugin and of the server
    Version(version::VersionArgs),
    /// Prints a completion script for a shell
    Completion(completion::CompletionArgs),
    /// Writes the man pages
    #[command(name = "__man", hide = true)]
    Man(completion::ManArgs),
}

/// Returns the definition of all commands and flags. Without a command, the plugin accepts the
/// flags of `list`. If a flag is repeated, its last value applies, as in kubectl. Flags that accept
/// several values keep all values.
fn definitions() -> clap::Command {
    let mut commands = PluginCli::command();
    if let Some(default) = commands.find_subcommand(DEFAULT_COMMAND).cloned() {
        commands = commands.args(default.get_arguments());
        commands = commands.groups(default.get_groups());
    }
    commands
        .subcommand_required(false)
        .arg_required_else_help(false)
        .args_override_self(true)
}

/// Parses the arguments of the process, runs the command, and returns the exit code.
///
/// The exit code is 0 for success, 1 for a failure, 2 for invalid arguments, and 141 if the reader
/// of standard output has closed the pipe. `impact` and `top` have further exit codes. `wait` has
/// its own exit codes.
pub fn run() -> ExitCode {
    completion::complete();
    let cli = match parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(answer) => return output::print::print_clap_answer(&answer),
    };
    let is_wait = matches!(cli.command, PluginCommand::Wait(_));
    let has_verdict = is_wait || matches!(cli.command, PluginCommand::Impact(_));
    match run_command(cli.command) {
        Ok(code) => code,
        // `wait` prints to standard output only after it has reached its goal. A closed pipe does
        // not change this result.
        Err(Problem::Closed) if is_wait => ExitCode::SUCCESS,
        Err(Problem::Closed) => ExitCode::from(PIPE_CLOSED),
        // The exit code 1 of `wait` means a timeout, and that of `impact` means that a drain is not
        // safe. So errors of these commands have the exit code 2.
        Err(problem) => {
            complain("error", &problem);
            let is_usage = matches!(problem, Problem::Usage(_));
            ExitCode::from(if has_verdict || is_usage { 2 } else { 1 })
        }
    }
}

/// Parses a command line.
fn parse(arguments: Vec<OsString>) -> Result<PluginCli, clap::Error> {
    let definitions = with_switches(definitions());
    let parsed = definitions.try_get_matches_from(with_command(arguments))?;
    PluginCli::from_arg_matches(&parsed)
}

fn run_command(command: PluginCommand) -> Result<ExitCode, Problem> {
    match command {
        PluginCommand::List(args) => in_runtime(list::run(&args)),
        PluginCommand::Get(args) => in_runtime(list::get(&args)),
        PluginCommand::Summary(args) => in_runtime(summary::run(&args)),
        PluginCommand::History(args) => in_runtime(history::run(&args)),
        PluginCommand::Impact(args) => in_runtime(impact::run(&args)),
        PluginCommand::Top(args) => in_runtime(top::run(&args)),
        PluginCommand::Ui(args) => in_runtime(ui::run(&args)),
        PluginCommand::Tree(args) => in_runtime(tree::run(&args)),
        PluginCommand::Describe(args) => in_runtime(describe::run(&args)),
        PluginCommand::Wait(args) => in_runtime(wait::run(&args)),
        PluginCommand::SupportBundle(args) => in_runtime(support_bundle::run(&args)),
        PluginCommand::Version(args) => in_runtime(version::run(&args)),
        PluginCommand::Rules(command) => {
            let has_no_errors = rules::run(&command)?;
            Ok(ExitCode::from(u8::from(!has_no_errors)))
        }
        PluginCommand::Completion(args) => completion::run(&args),
        PluginCommand::Man(args) => completion::man(&args, definitions()),
    }
}

/// Runs code that connects to a cluster. A runtime with a single thread starts faster, and one
/// thread is enough.
fn in_runtime<T>(code: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::Other(error.to_string()))?;
    let result = runtime.block_on(code);
    // A DNS lookup that still runs must not delay the end of the command, so this call does not
    // wait for such tasks.
    runtime.shutdown_background();
    result
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
            let cli = parse(arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
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
        let insecure = list("ifo --insecure-skip-tls-verify=true");
        assert!(
            insecure.contains("insecure_skip_tls_verify: true"),
            "{insecure}"
        );
    }

    #[test]
    fn every_command_has_an_example() {
        fn commands_without_example(command: &clap::Command) -> Vec<String> {
            let help = command.clone().render_long_help().to_string();
            let mut names: Vec<String> = command
                .get_subcommands()
                .flat_map(commands_without_example)
                .collect();
            if !command.is_hide_set() && !help.contains("Examples:") {
                names.push(command.get_name().to_owned());
            }
            names
        }
        assert_eq!(commands_without_example(&definitions()), [""; 0]);
    }

    #[test]
    fn a_boolean_flag_accepts_only_boolean_values() {
        for line in ["ifo -w=perhaps", "ifo --watch=", "ifo -- -w=false"] {
            let arguments = line.split(' ').map(OsString::from).collect();
            assert!(parse(arguments).is_err(), "{line}");
        }
    }
}
