//! Completions for shells and for kubectl.
//!
//! Input: the typed words. Output: possible next words, from the definitions of the flags. Names of
//! operations and namespaces come from the cluster, if it answers in time.

use super::arguments::{all_flags, awaiting, with_command, with_switches};
use super::connect::Connect;
use super::filter::Filters;
use super::output::{complain, print};
use super::problem::Problem;
use super::source::{OperationSource, namespaces};
use crate::runtime;
use clap::{Command, FromArgMatches as _};
use clap_complete::Shell;
use clap_complete::engine::complete;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Time limit for the cluster. A user waits for the completion.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(2);

/// Directive for kubectl after the last completion (`ShellCompDirectiveNoFileComp` of cobra).
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
    let mut command = shown(command);
    let mut script = Vec::new();
    // clap_complete's script for bash uses two different names for a command with a hyphen.
    let name = match args.shell {
        Shell::Bash => "kubectl_ifo",
        _ => "kubectl-ifo",
    };
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Bash {
        script = script.replace(" kubectl_ifo\n", " kubectl-ifo\n");
    }
    print(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the public commands, as they are called without kubectl. The scripts would also complete
/// hidden commands.
fn shown(command: &Command) -> Command {
    let commands: Vec<Command> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set())
        .cloned()
        .collect();
    Command::new("kubectl-ifo")
        .bin_name("kubectl-ifo")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
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
        .and_then(|()| clap_mangen::generate_to(explained(command), &args.folder))
        .and_then(|()| lay_out(&args.folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("error", format!("{}: {error}", args.folder.display()));
            ExitCode::FAILURE
        }
    }
}

/// Returns the commands with a description of each flag, also of flags that the short help hides.
fn explained(command: Command) -> Command {
    let command = command.mut_args(|it| it.hide_short_help(false));
    command.mut_subcommands(explained)
}

/// Keeps the lines of the examples, because a man page would fill and justify them.
fn lay_out(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !(name.starts_with("kubectl-ifo") && name.ends_with(".1")) {
            continue;
        }
        std::fs::write(&path, unfilled(&std::fs::read_to_string(&path)?))?;
    }
    Ok(())
}

/// Returns a page with a separate section for the examples.
fn unfilled(page: &str) -> String {
    let Some((before, rest)) = page.split_once(".SH EXTRA\n") else {
        return page.to_owned();
    };
    let (examples, after) = match rest.find("\n.SH") {
        Some(at) => rest.split_at(at + 1),
        None => (rest, ""),
    };
    format!(
        "{before}.SH EXAMPLES\n.nf\n{}\n.fi\n{after}",
        examples.trim_end()
    )
}

/// The words for the hidden command behind `kubectl_complete-ifo`.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionWords {
    /// The words after `kubectl ifo`; the last one is incomplete
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// Prints possible next words for kubectl, one per line with a description.
pub(super) fn next(words: &CompletionWords, command: &Command) -> Result<ExitCode, Problem> {
    let mut typed = words.words.clone();
    let current = typed.pop().unwrap_or_default();
    let text = current.to_string_lossy().into_owned();
    let mut lines = from_cluster(command, &typed, &text);
    let mut command = shown(command);
    if lines.is_empty() {
        let mut arguments = vec![OsString::from("kubectl-ifo")];
        arguments.extend(typed);
        // The command can follow flags.
        let arranged = with_command(arguments.clone());
        if arranged.len() == arguments.len() {
            arguments = arranged;
        }
        arguments.push(current);
        let at = arguments.len() - 1;
        let here = std::env::current_dir().ok();
        let candidates = complete(&mut command, arguments, at, here.as_deref());
        lines = candidates
            .unwrap_or_default()
            .into_iter()
            .filter(|candidate| !candidate.is_hide_set())
            .map(|candidate| {
                let whole = candidate.get_value().to_string_lossy();
                let value: &str = match value_behind_sign(&text) {
                    Some(_) => value_behind_sign(&whole).unwrap_or(&whole),
                    None => &whole,
                };
                let help = candidate.get_help().map(ToString::to_string);
                match help.as_deref().and_then(|help| help.lines().next()) {
                    Some(help) => format!("{value}\t{help}"),
                    None => value.to_owned(),
                }
            })
            .collect();
    }
    lines.push(NO_FILE_COMPLETION.to_owned());
    print(&(lines.join("\n") + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns names that only the cluster has. Empty if it does not answer in time.
fn from_cluster(command: &Command, typed: &[OsString], current: &str) -> Vec<String> {
    let flags = all_flags();
    let last = typed.last().map(|it| it.to_string_lossy());
    let awaited = last.and_then(|it| awaiting(&flags, &it));
    // The part of the word before the value of -n, and the typed part of the value.
    let mut namespace = None;
    let mut before = typed;
    if let Some(flag) = awaited {
        before = &typed[..typed.len() - 1];
        if flag.get_long() != Some("namespace") {
            return Vec::new();
        }
        namespace = Some(("", current));
    } else if let Some(value) = value_behind_sign(current) {
        if !matches!(current.split_once('='), Some(("-n" | "--namespace", _))) {
            return Vec::new();
        }
        namespace = Some(("", value));
    } else if let Some(value) = current.strip_prefix("-n").filter(|it| !it.is_empty()) {
        namespace = Some(("-n", value));
    } else if current.starts_with('-') {
        return Vec::new();
    }
    let Some(connect) = connection(command, before, namespace.is_some()) else {
        return Vec::new();
    };
    let Ok(runtime) = runtime() else {
        return Vec::new();
    };
    let names = async {
        let server = connect.open().await?;
        if namespace.is_some() {
            return Ok(namespaces(&server).await);
        }
        let filters = Filters::all_in(connect.namespace());
        let (_, operations) = OperationSource::open(server, filters, false).await?;
        Ok::<_, Problem>(operations.into_iter().map(|it| it.name).collect())
    };
    let names = runtime.block_on(async { tokio::time::timeout(CLUSTER_TIMEOUT, names).await });
    let names = names.ok().and_then(Result::ok).unwrap_or_default();
    let (prefix, begin) = namespace.unwrap_or(("", current));
    let fit = names.into_iter().filter(|name| name.starts_with(begin));
    fit.map(|name| format!("{prefix}{name}")).collect()
}

/// Returns the text after the `=` of a flag. kubectl's scripts complete only this part of such a
/// word.
fn value_behind_sign(word: &str) -> Option<&str> {
    let (_, value) = word.split_once('=').filter(|_| word.starts_with('-'))?;
    Some(value)
}

/// Returns the connection for an incomplete command line. None if the command has no connection, or
/// needs neither names of operations nor a namespace.
fn connection(command: &Command, typed: &[OsString], is_flag: bool) -> Option<Connect> {
    let line = std::iter::once(OsString::from("kubectl-ifo")).chain(typed.iter().cloned());
    let line = with_command(line.collect());
    let parsed = with_switches(command.clone()).ignore_errors(true);
    let parsed = parsed.try_get_matches_from(line).ok()?;
    let (name, matches) = parsed.subcommand()?;
    if !is_flag && !matches!(name, "get" | "describe") {
        return None;
    }
    // `rules` has none of these flags.
    let has_them = matches.try_contains_id("request_timeout").ok()?;
    has_them
        .then(|| Connect::from_arg_matches(matches).ok())
        .flatten()
}
