//! `kubectl ifo version`: prints the versions of the plugin and of `ifo-apiserver`.

use crate::cluster::api_client::ApiClient;
use crate::cluster::connect::Connect;
use crate::cluster::problem::Problem;
use crate::output::plain_text::one_line;
use crate::output::print::{Format, formats, print, print_value};
use ifo_api::{LIVE_GROUP, VERSION};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The flags of `version`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl ifo version
  kubectl ifo version --client -O json")]
pub(super) struct VersionArgs {
    /// Print only the version of the plugin; no request is sent
    #[arg(long)]
    client: bool,
    /// Output format
    #[arg(short = 'O', long, short_alias = 'o', value_parser = formats(["table", "json", "yaml"]), default_value = "table")]
    output: Format,
    #[command(flatten)]
    connect: Connect,
}

/// Prints the versions. If the version of the server cannot be read, the error is printed after the
/// version of the plugin.
pub(super) async fn run(args: &VersionArgs) -> Result<ExitCode, Problem> {
    let read = async || read_server_version(&args.connect.open().await?).await;
    let server_version = if args.client {
        Ok(None)
    } else {
        read().await.map(Some)
    };
    let client_version = concat!("v", env!("CARGO_PKG_VERSION"));
    let known = server_version.as_ref().ok().and_then(Option::as_ref);
    if args.output == Format::Table {
        print(format!("Client Version: {client_version}\n"))?;
        if let Some(version) = known {
            print(format!("Server Version: {}\n", one_line(version)))?;
        }
    } else {
        let mut versions = BTreeMap::from([("clientVersion", client_version)]);
        versions.extend(known.map(|it| ("serverVersion", it.as_str())));
        print_value(&versions, args.output)?;
    }
    server_version.map(|_| ExitCode::SUCCESS)
}

/// Reads the version of `ifo-apiserver` from its OpenAPI document. The kube-apiserver forwards a
/// request for this document to `ifo-apiserver`, but answers a request for `/version` itself.
pub(super) async fn read_server_version(server: &ApiClient) -> Result<String, Problem> {
    if let Some(files) = &server.from_files {
        return files.server_version();
    }
    let uri = format!("/openapi/v3/apis/{LIVE_GROUP}/{VERSION}");
    let document = server.get::<Value>(&uri).await.map_err(|problem| match problem {
        Problem::NotFound(_) => Problem::Other(format!(
            "the cluster does not report the version of ifo-apiserver; see: kubectl get apiservice \
             {VERSION}.{LIVE_GROUP}"
        )),
        problem => problem,
    })?;
    let version = document["info"]["version"].as_str().map(str::to_owned);
    version.ok_or_else(|| Problem::Other(format!("{uri}: the answer has no version")))
}
