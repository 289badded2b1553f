//! Prints completion scripts for shells, completes command lines, and writes the man pages.
//!
//! For each command line that the shell completes, a completion script runs the plugin with the
//! environment variable [`COMPLETE`]. The script `kubectl_complete-ifo` does the same for `kubectl
//! ifo`. Commands and flags come from the definitions for clap. Names of operations and namespaces
//! come from the cluster, if the cluster answers in time.

use crate::cluster::connect::Connect;
use crate::cluster::problem::Problem;
use crate::filters::arguments::{with_command, with_switches};
use crate::filters::filter::Filters;
use crate::operations::operation_source::OperationSource;
use crate::output::print::print;
use crate::{cluster::api_client, definitions, in_runtime};
use clap::{Command, FromArgMatches as _};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use ifo_api::is_unprintable;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;

/// Environment variable that a completion script sets to the name of its shell. If this variable is
/// set, the plugin prints completions instead of running a command.
const COMPLETE: &str = "IFO_COMPLETE";

/// Time limit for all requests of one completion, because the user waits for the result. If the
/// cluster does not answer in time, no names are completed.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(2);

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
pub(super) fn run(args: &CompletionArgs) -> Result<ExitCode, Problem> {
    let (shells, mut script) = (Shells::builtins(), Vec::new());
    let shell = shells.completer(&args.shell.to_string());
    let shell = shell.expect("there is a script for each shell");
    let name = "kubectl-ifo";
    let written = shell.write_registration(COMPLETE, name, name, name, &mut script);
    written.map_err(|error| Problem::Other(error.to_string()))?;
    print(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// If a completion script runs the plugin, prints the possible next words, and ends the process.
pub(super) fn complete() {
    CompleteEnv::with_factory(|| with_names(definitions()))
        .var(COMPLETE)
        .complete();
}

/// Makes `command` and its subcommands complete namespaces and names of operations from the
/// cluster.
fn with_names(command: Command) -> Command {
    let command = command.mut_args(|it| match it.get_id().as_str() {
        "namespace" => it.add(ArgValueCandidates::new(namespaces)),
        "names" => it.add(ArgValueCandidates::new(operations)),
        _ => it,
    });
    command.mut_subcommands(with_names)
}

/// Returns the namespaces of the cluster.
fn namespaces() -> Vec<CompletionCandidate> {
    candidates(async |connect| Ok(api_client::namespaces(&connect.open().await?).await))
}

/// Returns the names of the operations in the namespace of the flags.
fn operations() -> Vec<CompletionCandidate> {
    candidates(async |connect| {
        let filters = Filters::default().in_any_phase(connect.namespace());
        let (_, operations) = OperationSource::open(connect.open().await?, filters).await?;
        let names = operations.iter().map(|it| it.metadata.name.to_string());
        Ok(names.collect())
    })
}

/// Reads names from the cluster that the connection flags choose. Returns no names if the cluster
/// does not answer in time.
fn candidates(
    read: impl AsyncFnOnce(Connect) -> Result<Vec<String>, Problem>,
) -> Vec<CompletionCandidate> {
    let names = connection_flags().map(|connect| {
        in_runtime(async {
            let names = timeout(CLUSTER_TIMEOUT, read(connect)).await;
            names.unwrap_or(Ok(Vec::new()))
        })
    });
    let mut names = names.and_then(Result::ok).unwrap_or_default();
    // The shell reads one word from each line, so names with blanks or unprintable characters are
    // left out.
    let is_word = |name: &str| !name.contains(|c: char| c.is_whitespace() || is_unprintable(c));
    names.retain(|name| is_word(name));
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Returns the connection flags of the command line that the shell completes. In the arguments of
/// the plugin, this command line follows `--`. Returns None if the command line is invalid.
fn connection_flags() -> Option<Connect> {
    let words = std::env::args_os().skip_while(|it| it != "--").skip(1);
    let parsed = with_switches(definitions()).ignore_errors(true);
    let words: Vec<OsString> = words.collect();
    let parsed = parsed.try_get_matches_from(with_command(words)).ok()?;
    Connect::from_arg_matches(parsed.subcommand()?.1).ok()
}

/// The argument of the hidden command that writes man pages.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Folder for the pages
    folder: PathBuf,
}

/// Writes a man page for each command.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<ExitCode, Problem> {
    let written = std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(with_hidden_flags_shown(command), &args.folder));
    let folder = args.folder.display();
    written.map_err(|error| Problem::Other(format!("{folder}: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the flags visible that the short help hides, so that the man pages describe all flags.
fn with_hidden_flags_shown(command: Command) -> Command {
    let command = command.mut_args(|it| it.hide_short_help(false));
    command.mut_subcommands(with_hidden_flags_shown)
}
