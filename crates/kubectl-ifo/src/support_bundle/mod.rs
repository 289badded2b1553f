//! `kubectl ifo support-bundle`: collects in one archive the data that a developer needs to find
//! the cause of a problem.
//!
//! Input: the cluster. Output: an archive or a folder, and a summary on standard error. If a part
//! of the data cannot be read, the index of the bundle records the reason, and the collection
//! continues. The command reads no Secret. Without `--include-text`, only the fields in `fields`
//! leave the cluster.
//!
//! ```text
//! collect (operations, server) ─▶ fields ─▶ output
//! ```

mod collect;
mod fields;
mod operations;
mod output;
mod server;

use super::api_client::ApiClient;
use super::bundle_index::{BundleIndex, BundlePart, PartResult};
use super::connect::{Connect, needs_cluster};
use super::output::{complain, print};
use super::problem::Problem;
use crate::clock;
use collect::{BundleCollection, CUSTOM_RESOURCES};
use jiff::Timestamp;
use output::BundleOutput;
use server::{PREVIOUS_LOG, ServerPart};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// Also messages, expressions, settings and all other fields, and the logs
    #[arg(long)]
    include_text: bool,
    /// Namespace of the server, if it cannot be read from the APIService
    #[arg(long, value_name = "NAME", value_parser = super::connect::checked_namespace)]
    server_namespace: Option<String>,
    /// Metrics of the server that you have read
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

/// Collects the bundle and writes it. Prints its path.
pub(super) async fn run(args: &SupportBundleArgs) -> Result<ExitCode, Problem> {
    if args.connect.reads_files() {
        return Err(needs_cluster("support-bundle"));
    }
    let now = clock::now();
    let output = BundleOutput::choose(args.output.as_deref(), now)?;
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| Problem::Other(format!("{}: {error}", path.display())))
    };
    let metrics = args.metrics.as_ref().map(read).transpose()?;
    let client = args.connect.open().await?;
    let collection = collect_all(args, client, metrics, now).await;
    let (index, files) = collection.finish()?;
    output.write(&files, now)?;
    print(format!("{}\n", output.path().display()))?;
    report(&index, files.len());
    Ok(ExitCode::SUCCESS)
}

/// Collects all parts. If a part cannot be read, records the reason and continues. `metrics` is the
/// text of the file of `--metrics`.
async fn collect_all(
    args: &SupportBundleArgs,
    client: ApiClient,
    metrics: Option<String>,
    now: Timestamp,
) -> BundleCollection {
    let mut bundle = BundleCollection::new(client, args.include_text, now);
    bundle.collect_versions().await;
    let service = bundle.collect_api_service().await;
    if let Some(namespace) = args.server_namespace.clone().or(service) {
        bundle.server_namespace = namespace;
    }
    bundle.collect_rule_sets().await;
    bundle.collect_operations(args.connect.namespace()).await;
    bundle.collect_custom_resources().await;
    let mut pods = Vec::new();
    for part in ServerPart::all() {
        let found = bundle.collect_server_part(&part).await;
        pods = if part.kind == "Pod" { found } else { pods };
    }
    bundle.collect_logs(&pods).await;
    bundle.collect_crds().await;
    match metrics {
        Some(metrics) => bundle.add_metrics(&metrics),
        None => bundle.record("metrics", PartResult::Skipped, ""),
    }
    bundle
}

/// Prints a summary to standard error: the number of files and operations, and the missing or
/// incomplete parts.
fn report(index: &BundleIndex, files: usize) {
    let texts = if index.redacted {
        "names are included, and texts such as messages are left out"
    } else {
        "it contains all texts; check it before you send it"
    };
    let count = index.operations.count;
    complain(
        "note",
        format!("{files} files, {count} operations; {texts}"),
    );
    let mut missing: BTreeMap<(PartResult, &str), Vec<&str>> = BTreeMap::new();
    for part in index.parts.iter().filter(|it| is_named(it)) {
        let key = (part.result, part.message.as_str());
        missing.entry(key).or_default().push(&part.what);
    }
    for ((result, message), parts) in missing {
        let how = if result == PartResult::Truncated {
            "incomplete"
        } else {
            "missing"
        };
        let why = match message {
            "" => result.reason().to_owned(),
            message => format!("{}: {message}", result.reason()),
        };
        complain("note", format!("{how}: {} ({why})", parts.join(", ")));
    }
}

/// Returns true if the summary must name the part as missing or incomplete.
///
/// The summary does not report missing custom resources and missing logs of previous containers,
/// because they usually do not exist. If a log does not exist, the kube-apiserver answers 400, so
/// the result of the part is `Failed`.
fn is_named(part: &BundlePart) -> bool {
    let is_optional = part.what == CUSTOM_RESOURCES || part.what.starts_with(PREVIOUS_LOG);
    match part.result {
        PartResult::Read => false,
        PartResult::NotFound | PartResult::Failed => !is_optional,
        _ => true,
    }
}
