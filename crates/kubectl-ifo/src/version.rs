//! `kubectl ifo version`: prints the versions of the plugin and of `ifo-apiserver`.

use super::api_client::ApiClient;
use super::connect::Connect;
use super::operation_source::Served;
use super::output::{Format, complain, print, print_value};
use super::plain_text::one_line;
use super::problem::Problem;
use ifo_api::{LIVE_GROUP, VERSION, live};
use serde::Serialize;
use serde_json::Value;
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
    #[arg(short = 'O', long, short_alias = 'o', value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<String>,
}

/// Prints the versions. If the version of the server cannot be read, the error is printed after the
/// version of the plugin.
pub(super) async fn run(args: &VersionArgs) -> Result<ExitCode, Problem> {
    let server_version = if args.client {
        Ok(None)
    } else {
        async {
            read_server_version(&args.connect.open().await?)
                .await
                .map(Some)
        }
        .await
    };
    let versions = Versions {
        client_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        server_version: server_version.as_ref().ok().cloned().flatten(),
    };
    match args.output {
        Format::Table => {
            print(format!("Client Version: {}\n", versions.client_version))?;
            if let Some(version) = &versions.server_version {
                print(format!("Server Version: {}\n", one_line(version)))?;
            }
        }
        format => print_value(&versions, format)?,
    }
    match server_version {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(problem) => {
            complain("error", problem);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Reads the version of `ifo-apiserver` from its OpenAPI document. The kube-apiserver passes this
/// document on, but answers a request for `/version` itself.
pub(super) async fn read_server_version(server: &ApiClient) -> Result<String, Problem> {
    if let Some(files) = &server.from_files {
        return files.server_version();
    }
    let uri = format!("/openapi/v3/apis/{LIVE_GROUP}/{VERSION}");
    match server.get::<Value>(&uri, "/openapi/v3", None).await {
        Ok(document) => {
            let version = document["info"]["version"].as_str();
            let missing = || Problem::Other(format!("{uri}: the answer has no version"));
            version.map(str::to_owned).ok_or_else(missing)
        }
        Err(Problem::NotFound(_)) => Err(missing_document_reason(server).await),
        Err(problem) => Err(problem),
    }
}

/// Returns the reason why the OpenAPI document is missing: the error of `ifo-apiserver`, if it is
/// registered and does not answer.
async fn missing_document_reason(server: &ApiClient) -> Problem {
    let uri = format!("/apis/{LIVE_GROUP}/{VERSION}/{}?limit=1", live::PLURAL);
    let resource = Served::Live.resource();
    match server.answer(&uri, resource, None).await {
        Ok(_) | Err(Problem::NotFound(_) | Problem::Forbidden { .. }) => Problem::Other(format!(
            "the cluster does not report the version of ifo-apiserver; see: kubectl get apiservice \
             {VERSION}.{LIVE_GROUP}"
        )),
        Err(problem) => problem,
    }
}
