//! `kubectl ifo support-bundle`: collects in one archive the data that a developer needs to find
//! the cause of a problem.
//!
//! Input: the cluster. Output: an archive or a folder, and a summary on standard error. If a part
//! of the data cannot be read, the index of the bundle records the reason, and the collection
//! continues. The command reads no Secret. Without `--include-text`, only the fields in `fields`
//! leave the cluster.
//!
//! ```text
//! parts ─▶ collect ─▶ fields ─▶ output
//! ```

mod collect;
mod fields;
mod output;
mod parts;

use super::api_client::ApiClient;
use super::bundle_index::{BundleIndex, BundlePart, PartResult};
use super::connect::{Connect, needs_cluster};
use super::output::{complain, print};
use super::problem::Problem;
use crate::clock;
use collect::{BundleCollection, PREVIOUS_LOG};
use jiff::Timestamp;
use output::BundleOutput;
use parts::{CUSTOM_RESOURCES, ListPart};
use serde_json::Value;
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
    let mut bundle = collect_all(args, client, metrics, now).await;
    bundle.add_index();
    output.write(&bundle.files, now)?;
    print(format!("{}\n", output.path.display()))?;
    report(&bundle.index, bundle.files.len());
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
    let service = bundle.collect(&ListPart::api_service()).await;
    let service = service
        .first()
        .map(|it| &it["spec"]["service"]["namespace"]);
    let service = service.and_then(Value::as_str).map(str::to_owned);
    if let Some(namespace) = args.server_namespace.clone().or(service) {
        bundle.index.server_namespace = namespace;
    }
    bundle.collect_operations(args.connect.namespace()).await;
    let mut pods = Vec::new();
    for part in ListPart::of_server(&bundle.index.server_namespace) {
        pods = bundle.collect(&part).await;
    }
    // The last part has the Pods.
    bundle.collect_logs(&pods).await;
    match metrics {
        Some(metrics) => bundle.add_metrics(&metrics),
        None => bundle.skip("metrics"),
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
    for result in PartResult::NOT_READ {
        let named = index
            .parts
            .iter()
            .filter(|it| it.result == result && is_named(it));
        let parts: Vec<&str> = named.map(|it| it.what.as_str()).collect();
        if !parts.is_empty() {
            complain("note", format!("{result}: {}", parts.join(", ")));
        }
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
