//! Prints completion scripts for shells, and possible next words of a command line for kubectl.
//! Also writes the man pages.
//!
//! Commands and flags come from the definitions for clap. Names of operations and namespaces come
//! from the cluster, if the cluster answers in time.

use super::arguments::{all_flags, flag_awaiting_value, with_command, with_switches};
use super::connect::Connect;
use super::filter::Filters;
use super::operation_source::{OperationSource, namespaces};
use super::output::{complain, print};
use super::problem::Problem;
use crate::runtime;
use clap::{Command, FromArgMatches as _};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use ifo_api::is_unprintable;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for all requests of one completion, because the user waits for the result. If the
/// cluster does not answer in time, no names are completed.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(2);

/// The last line of the output for kubectl, which stops the shell from completing file names
/// (`ShellCompDirectiveNoFileComp` of cobra).
const NO_FILE_COMPLETION: &str = ":4";

/// The argument of `completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Now, in this shell
  source <(kubectl-ifo completion bash)

  # For `kubectl ifo` put kubectl_complete-ifo beside kubectl-ifo (make install-plugin does)")]
pub(super) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Prints the completion script for `kubectl-ifo`.
pub(super) fn run(args: &CompletionArgs, command: &Command) -> Result<ExitCode, Problem> {
    let mut command = without_hidden_commands(command);
    let mut script = Vec::new();
    // clap_complete's script for bash does not work for a command with a hyphen in its name. So the
    // script is generated with an underscore, and the hyphen is inserted afterwards.
    let name = match args.shell {
        Shell::Bash => "kubectl_ifo",
        _ => "kubectl-ifo",
    };
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Bash {
        script = script.replace(" kubectl_ifo\n", " kubectl-ifo\n");
    }
    print(script)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the definition of `kubectl-ifo` without the hidden commands. Completion scripts must not
/// offer hidden commands.
fn without_hidden_commands(command: &Command) -> Command {
    let commands: Vec<Command> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set())
        .cloned()
        .collect();
    Command::new("kubectl-ifo")
        .bin_name("kubectl-ifo")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments())
        .groups(command.get_groups())
        .subcommands(commands)
}

/// The argument of the hidden command that writes man pages.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Folder for the pages
    folder: PathBuf,
}

/// Writes a man page for each command.
pub(super) fn man(args: &ManArgs, command: Command) -> ExitCode {
    let written = std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(with_hidden_flags_shown(command), &args.folder))
        .and_then(|()| keep_lines_of_examples(&args.folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("error", format!("{}: {error}", args.folder.display()));
            ExitCode::FAILURE
        }
    }
}

/// Makes the flags visible that the short help hides, so that the man pages describe all flags.
fn with_hidden_flags_shown(command: Command) -> Command {
    let command = command.mut_args(|it| it.hide_short_help(false));
    command.mut_subcommands(with_hidden_flags_shown)
}

/// Gives the examples of each page a section of their own, whose line breaks `man` keeps. The next
/// section ends this mode.
fn keep_lines_of_examples(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("kubectl-ifo") && name.ends_with(".1") {
            let page = std::fs::read_to_string(&path)?;
            let page = page.replace(".SH EXTRA\n", ".SH EXAMPLES\n.nf\n");
            std::fs::write(&path, page)?;
        }
    }
    Ok(())
}

/// The arguments of the hidden command that `kubectl_complete-ifo` runs.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionWords {
    /// The words after `kubectl ifo`; the last one is incomplete
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// Prints possible next words for kubectl, one per line with a description.
pub(super) fn print_candidates(
    words: &CompletionWords,
    command: &Command,
) -> Result<ExitCode, Problem> {
    let mut typed = words.words.clone();
    let current = typed.pop().unwrap_or_default();
    let text = current.to_string_lossy().into_owned();
    let connect = Arc::new(connection_flags(command, &typed));
    let mut command = with_names_of_cluster(without_hidden_commands(command), &connect);
    let mut arguments = vec![OsString::from("kubectl-ifo")];
    arguments.extend(typed);
    // Flags can precede the command, so `with_command` moves the command to the front. If
    // `with_command` has inserted the default command `list`, its result is not used, because the
    // user may be typing another command.
    let arranged = with_command(arguments.clone());
    if arranged.len() == arguments.len() {
        arguments = arranged;
    }
    arguments.push(current);
    let at = arguments.len() - 1;
    let here = std::env::current_dir().ok();
    let candidates = complete(&mut command, arguments, at, here.as_deref());
    let mut lines = String::new();
    for candidate in candidates.unwrap_or_default() {
        let whole = candidate.get_value().to_string_lossy();
        if candidate.is_hide_set() || (whole.starts_with('-') && !text.starts_with('-')) {
            continue;
        }
        // The completion scripts of kubectl complete only the part of a word after `=`.
        let after_equals = whole.split_once('=');
        let value = match after_equals.filter(|_| text.starts_with('-') && text.contains('=')) {
            Some((_, value)) => value,
            None => &whole,
        };
        let help = candidate.get_help().map(ToString::to_string);
        let help = help.as_deref().and_then(|it| it.lines().next());
        lines += value;
        lines.extend(help.into_iter().flat_map(|it| ["\t", it]));
        lines += "\n";
    }
    print(lines + NO_FILE_COMPLETION + "\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Adds completers for namespaces and for the names of operations, which come from the cluster.
fn with_names_of_cluster(command: Command, connect: &Arc<Option<Connect>>) -> Command {
    let has_names = matches!(command.get_name(), "get" | "describe");
    let command = command.mut_args(|it| {
        let is_namespace = it.get_id() == "namespace";
        let is_name = has_names && it.is_positional();
        if !is_namespace && !is_name {
            return it;
        }
        let connect = Arc::clone(connect);
        it.add(ArgValueCompleter::new(move |current: &OsStr| {
            let names = connect.as_ref().as_ref().map(|it| names(it, is_namespace));
            let current = current.to_string_lossy();
            let names = names.into_iter().flatten();
            let matching = names.filter(|name| name.starts_with(&*current));
            matching.map(CompletionCandidate::new).collect()
        }))
    });
    command.mut_subcommands(|it| with_names_of_cluster(it, connect))
}

/// Returns the names of the namespaces or of the operations. The result is empty if the cluster
/// does not answer in time.
fn names(connect: &Connect, of_namespaces: bool) -> Vec<String> {
    let Ok(runtime) = runtime() else {
        return Vec::new();
    };
    let names = async {
        let server = connect.open().await?;
        if of_namespaces {
            return Ok(namespaces(&server).await);
        }
        let filters = Filters::all_in(connect.namespace());
        let (_, operations) = OperationSource::open(server, filters).await?;
        Ok::<_, Problem>(
            operations
                .into_iter()
                .map(|it| it.metadata.name.to_string())
                .collect(),
        )
    };
    let names = runtime.block_on(async { tokio::time::timeout(CLUSTER_TIMEOUT, names).await });
    let mut names = names.ok().and_then(Result::ok).unwrap_or_default();
    // The shell reads one word from each line, so a name with other characters is no candidate.
    names.retain(|name| !name.contains(|c: char| c.is_whitespace() || is_unprintable(c)));
    names
}

/// Returns the connection flags of an incomplete command line. None if the command has none.
fn connection_flags(command: &Command, typed: &[OsString]) -> Option<Connect> {
    let flags = all_flags();
    let mut line = vec![OsString::from("kubectl-ifo")];
    line.extend_from_slice(typed);
    // The value of such a flag is still missing.
    line.pop_if(|it| flag_awaiting_value(&flags, &it.to_string_lossy()).is_some());
    let parsed = with_switches(command.clone()).ignore_errors(true);
    let parsed = parsed.try_get_matches_from(with_command(line)).ok()?;
    let (_, matches) = parsed.subcommand()?;
    // The tools for rule authors have no connection flags.
    let has_connection_flags = matches.try_contains_id("request_timeout").ok()?;
    has_connection_flags
        .then(|| Connect::from_arg_matches(matches).ok())
        .flatten()
}
