//! `kubectl ifo support-bundle`: collects in one archive the data that a developer needs to find
//! the cause of a problem.
//!
//! Input: the cluster. Output: an archive or a folder, and a summary on standard error. If a part
//! of the data cannot be read, the index of the bundle records the reason, and the collection
//! continues. The command reads no Secret.
//!
//! ```text
//! send_requests ─▶ collect ─▶ redact ─▶ output
//! ```

mod access;
mod collect;
mod index;
mod limits;
mod output;
mod redact;
mod send_requests;

pub(super) use index::{BundleIndex, INDEX_FILE, PartResult};

use super::connect::Connect;
use super::from_files;
use super::output::{complain, print};
use super::problem::Problem;
use crate::clock;
use collect::{BundleCollection, BundleScope};
use output::BundleOutput;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// The namespace in which `deploy/` installs the server (`ifo-apiserver`).
const DEFAULT_NAMESPACE: &str = "ifo-system";

/// The name of the server's objects, such as its Deployment, its Lease and its ServiceAccount.
const SERVER_NAME: &str = "ifo-apiserver";

/// The flags of `support-bundle`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("namespace", |it| it.help(
    "Only operations and records of completed operations on subjects in this namespace; all other \
     parts are of the whole cluster"
)))]
#[command(mut_arg("from", |it| it.hide(true)))]
#[command(after_help = "\
Examples:
  # Write ifo-support-bundle-TIME.tar.gz to the current folder
  kubectl ifo support-bundle

  # Look at it before you send it, and list its operations
  kubectl ifo support-bundle -o bundle/
  kubectl ifo list --from bundle/")]
pub(super) struct SupportBundleArgs {
    /// New archive (tar.gz); or a folder, which must be empty or end with a slash
    #[arg(short = 'O', short_alias = 'o', long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// Keep names and messages as they are
    #[arg(long)]
    include_text: bool,
    /// Namespace of the server, if it cannot be read from the APIService
    #[arg(long, value_name = "NAME", value_parser = super::connect::checked_namespace)]
    server_namespace: Option<String>,
    /// Metrics of the server that you have read, instead of those through the proxy of the
    /// kube-apiserver
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

/// Collects the bundle and writes it. Prints its path.
pub(super) async fn run(args: &SupportBundleArgs) -> Result<ExitCode, Problem> {
    if args.connect.reads_files() {
        return Err(from_files::needs_cluster("support-bundle"));
    }
    let now = clock::now();
    let output = BundleOutput::choose(args.output.as_deref(), now)?;
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| Problem::Other(format!("{}: {error}", path.display())))
    };
    let metrics = args.metrics.as_ref().map(read).transpose()?;
    let client = args.connect.open().await?;
    let scope = BundleScope {
        metrics,
        namespace: args.connect.namespace().cloned(),
        server_namespace: args.server_namespace.clone(),
        includes_text: args.include_text,
    };
    let collection = BundleCollection::collect(client, scope, now).await;
    let (index, files) = collection.finish()?;
    output.write(&files, now)?;
    print(format!("{}\n", output.path().display()))?;
    report(&index, files.len());
    Ok(ExitCode::SUCCESS)
}

/// Prints a summary to standard error: the number of files and operations, and the missing or
/// incomplete parts.
fn report(index: &BundleIndex, files: usize) {
    let names = if index.redacted {
        "names and messages are hidden"
    } else {
        "it contains names and messages; check it before you send it"
    };
    let count = index.operations.count;
    complain(
        "note",
        format!("{files} files, {count} operations; {names}"),
    );
    let mut missing: BTreeMap<(PartResult, Option<u16>, &str), Vec<&str>> = BTreeMap::new();
    for part in index.parts.iter().filter(|it| it.is_named_in_summary()) {
        // Hidden messages differ only in their lengths, so they are not compared and not printed.
        let message = if index.redacted { "" } else { &part.message };
        let key = (part.result, part.code, message);
        missing.entry(key).or_default().push(&part.what);
    }
    for ((result, code, message), parts) in missing {
        let code = code.map(|it| format!(", {it}")).unwrap_or_default();
        let message = Some(message).filter(|it| !it.is_empty());
        let message = message.map(|it| format!(": {it}")).unwrap_or_default();
        let why = format!("{}{code}{message}", result.reason());
        let how = if result == PartResult::Truncated {
            "incomplete"
        } else {
            "missing"
        };
        complain("note", format!("{how}: {} ({why})", parts.join(", ")));
    }
}
