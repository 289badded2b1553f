//! `kubectl ifo ui`: shows the operations on a page in the browser, or writes the page to a file.
//!
//! ```text
//! cluster or files ─▶ feeds ─▶ contents ─▶ server ─▶ the page in the browser
//!                                 └──────▶ export ─▶ a file
//! ```
//!
//! The plugin serves the page on 127.0.0.1. It reads the cluster with the rights of the user, and
//! the page gets only the answers, not the credentials. `page` has the files of the page, and
//! `guard` decides which requests are answered.

mod contents;
mod feeds;
mod guard;
mod page;
mod server;

use crate::cluster::connect::Connect;
use crate::cluster::problem::Problem;
use crate::filters::filter::{Filters, StateArgs};
use crate::filters::filter_check;
use crate::operations::operation_source::OperationSource;
use crate::output::print::{check_new, complain, create_private, print};
use contents::PageContents;
use guard::Guard;
use serde_json::json;
use server::Site;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// Default time limit of the requests that the page causes when a user opens an operation.
/// `--request-timeout` overrides this limit.
const DETAILS_TIMEOUT: Duration = Duration::from_secs(30);

/// The flags of `ui`.
#[derive(Debug, Clone, clap::Args)]
// The page shows operations in all phases. As in kubectl, `-A` selects all namespaces.
#[command(mut_arg("all_phases", |it| it.hide(true)))]
#[command(after_help = "\
The page is served only on this machine (127.0.0.1), with your own rights, until you press Ctrl-C.
The printed address works once. After its use, an address for another browser is printed.

Examples:
  # A timeline of all operations in the browser
  kubectl ifo ui

  # One namespace; print the address instead of opening the browser
  kubectl ifo ui -n shop --no-open

  # A file that shows the same page without a cluster
  kubectl ifo ui --export operations.html

  # The operations in a support bundle
  kubectl ifo ui --from ifo-support-bundle.tar.gz")]
pub(super) struct UiArgs {
    /// Print the address, but do not open the browser
    #[arg(long)]
    no_open: bool,
    /// Port on 127.0.0.1; 0 for a free port
    #[arg(long, value_name = "PORT")]
    #[arg(default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Write the page with its data to a new file instead of serving it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_open", "port"])]
    export: Option<PathBuf>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    states: StateArgs,
    #[command(flatten)]
    connect: Connect,
}

/// Serves the page until the user ends the command, or writes it to a file.
pub(super) async fn run(args: &UiArgs) -> Result<ExitCode, Problem> {
    let mut filters = args.filters.in_any_phase(args.connect.namespace());
    args.states.add_to(&mut filters);
    filters.refuse_format("ui has no output format; for one use: kubectl ifo list -o json")?;
    args.export.as_deref().map_or(Ok(()), check_new)?;
    let mut server = args.connect.open().await?;
    filters.resolve(&server).await;
    let (source, listed) = OperationSource::open(server.clone(), filters.clone()).await?;
    filter_check::check_and_warn(&filters, &source, &listed).await?;
    drop(listed);
    let files = server.from_files.as_ref();
    let context = args.connect.context_name().filter(|_| files.is_none());
    let context = context.unwrap_or_else(|| server.address.clone());
    let begin = json!({
        "context": context,
        "mode": if files.is_some() { "files" } else { "live" },
        "namespace": filters.namespace.as_deref().or(files.and_then(|it| it.recorded_namespace())),
        "filter": filters.with_namespace(None).flags().join(" "),
        // How the files were recorded. Empty for a cluster.
        "note": files.map(|it| it.introduction()).unwrap_or_default(),
    });
    let source = Arc::new(source);
    let feeds = feeds::feeds(&source, &filters)?;
    let (contents, changes) = PageContents::read(source, feeds, begin).await?;
    if let Some(path) = &args.export {
        return export(path, &contents);
    }
    let failed =
        |error| Problem::Other(format!("cannot listen on 127.0.0.1:{}: {error}", args.port));
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await;
    let listener = listener.map_err(failed)?;
    let guard = Guard::new(listener.local_addr().map_err(failed)?.port());
    let address = guard.new_address();
    let shown = format!("showing the operations of {context}; Ctrl-C ends it");
    print(format!("kubectl ifo ui: {address}\n{shown}\n"))?;
    if !args.no_open && !open_browser(&address) {
        let note = "the browser cannot be opened; open the address yourself";
        complain("note", note);
    }
    server.timeout.get_or_insert(DETAILS_TIMEOUT);
    let contents = Arc::new(Mutex::new(contents));
    let site = Site {
        guard,
        contents: contents.clone(),
        server,
    };
    tokio::select! {
        () = server::serve(listener, &site) => {}
        () = contents::follow(&contents, changes) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page with its data to a new file that only the user may read.
fn export(path: &Path, contents: &PageContents) -> Result<ExitCode, Problem> {
    let (data, count) = contents.document();
    let page = page::with_data(&data);
    // If the write fails, the file is removed.
    let written = create_private(path).and_then(|mut file| {
        let written = file.write_all(page.as_bytes());
        written.inspect_err(|_| drop(std::fs::remove_file(path)))
    });
    written.map_err(|error| Problem::Other(format!("cannot write {}: {error}", path.display())))?;
    // The note of the source is already printed.
    let note = contents.source.note.as_ref();
    let warnings = contents.state.warnings.iter();
    let others = warnings.filter(|it| Some(*it) != note);
    others.for_each(|it| complain("note", it));
    print(format!("{}: {count} objects\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Opens an address in the browser of the user. Returns false if no program could be started.
fn open_browser(address: &str) -> bool {
    let is_mac = cfg!(target_os = "macos");
    let default = if is_mac { "open" } else { "xdg-open" };
    let chosen = std::env::var("BROWSER").unwrap_or_default();
    let chosen = chosen.split(':').filter(|it| !it.is_empty());
    let mut programs = chosen.chain([default]);
    programs.any(|program| {
        let mut command = Command::new(program);
        command.arg(address).stdin(Stdio::null());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    })
}
