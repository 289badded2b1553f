//! `kubectl ifo support-bundle`: collects in one archive the data that a developer needs to find
//! the cause of a problem.
//!
//! Input: the cluster. Output: an archive, and a summary on standard error. If a part of the data
//! cannot be read, the index of the bundle records the reason, and the collection continues. The
//! command reads no Secret. Without `--include-text`, only the fields in `fields` leave the
//! cluster.
//!
//! ```text
//! collect ─▶ fields ─▶ archive
//! ```

mod collect;
mod fields;

use crate::clock;
use crate::cluster::connect::{Connect, needs_cluster};
use crate::cluster::problem::Problem;
use crate::filters::filter_check::find_object;
use crate::operations::bundle_index::{BundleIndex, BundlePart, PartResult};
use crate::output::print::{check_new, complain, create_private, print};
use collect::{BundleCollection, REQUEST_TIME};
use flate2::Compression;
use flate2::write::GzEncoder;
use ifo_api::{LIVE_GROUP, live};
use jiff::Timestamp;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The flags of `support-bundle`.
#[derive(Debug, Default, clap::Args)]
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
  kubectl ifo support-bundle -o bundle.tar.gz
  tar tzf bundle.tar.gz
  kubectl ifo list --from bundle.tar.gz")]
pub(super) struct SupportBundleArgs {
    /// New archive (tar.gz)
    #[arg(short = 'O', short_alias = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also messages, expressions, settings and all other fields, and the logs
    #[arg(long)]
    include_text: bool,
    /// Namespace of the server, if it cannot be read from the APIService
    #[arg(long, value_name = "NAME", value_parser = crate::cluster::connect::checked_namespace)]
    server_namespace: Option<String>,
    /// Metrics of the server that you have read; the file is added as it is
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

/// Collects the bundle, writes the archive, and prints the path of the archive.
pub(super) async fn run(args: &SupportBundleArgs) -> Result<ExitCode, Problem> {
    if args.connect.reads_files() {
        return Err(needs_cluster("support-bundle"));
    }
    let now = clock::now();
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| Problem::Other(format!("{}: {error}", path.display())))
    };
    let metrics = args.metrics.as_ref().map(read).transpose()?;
    let mut client = args.connect.open().await?;
    client.timeout.get_or_insert(REQUEST_TIME);
    // All users who have logged in may read the version. If a cluster cannot be used at all, the
    // bundle would be empty.
    match client.answer("/version").await {
        Err(problem) if PartResult::from(&problem) == PartResult::Failed => return Err(problem),
        _ => {}
    }
    let namespace = args.connect.namespace();
    if let Some(name) = namespace
        && find_object(&client, "namespaces", name).await == Ok(false)
    {
        return Err(Problem::Usage(format!("there is no namespace {name:?}")));
    }
    let folder = format!("ifo-support-bundle-{}", now.strftime("%Y%m%d-%H%M%S"));
    let default = || PathBuf::from(format!("{folder}.tar.gz"));
    let path = args.output.clone().unwrap_or_else(default);
    let failed =
        |error: io::Error| Problem::Other(format!("cannot write {}: {error}", path.display()));
    check_new(&path)?;
    let bundle = BundleCollection::collect(client, args, metrics, now).await;
    let file = create_private(&path).map_err(failed)?;
    write(file, &folder, &bundle.files, now).map_err(failed)?;
    print(format!("{}\n", path.display()))?;
    report(&bundle.index, bundle.files.len());
    let live = bundle.index.operation_parts().next();
    if namespace.is_none() && live.is_some_and(|it| it.result == PartResult::Forbidden) {
        let hint = "the operations of all namespaces cannot be read; try -n NAMESPACE";
        complain("note", hint);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes an archive. All files are in one folder, so that unpacking does not fill the current
/// folder.
fn write(
    archive: File,
    folder: &str,
    files: &[(String, Vec<u8>)],
    now: Timestamp,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(archive, Compression::default()));
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        archive.append_data(&mut header, format!("{folder}/{path}"), bytes.as_slice())?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// Prints a summary to standard error: the number of files and operations, and the missing or
/// incomplete parts.
fn report(index: &BundleIndex, files: usize) {
    let texts = if index.redacted {
        "names are included, and texts such as messages are left out"
    } else {
        "it contains all texts; check it before you send it"
    };
    let count = index.operations().map_or(0, |it| it.count);
    let summary = format!("{files} files, {count} operations; {texts}");
    complain("note", summary);
    for BundlePart { path, result, .. } in &index.parts {
        // Usually, there are no custom resources of operations, so their absence is not reported.
        let is_custom = path.contains(live::PLURAL) && !path.contains(LIVE_GROUP);
        let is_usual = is_custom && *result == PartResult::NotFound;
        if *result != PartResult::Read && !is_usual {
            complain("note", format!("{path}: {result:?}"));
        }
    }
}
