//! `kubectl ifo version`: prints the versions of the plugin and of `ifo-apiserver`.

use super::api_client::ApiClient;
use super::connect::Connect;
use super::operation_source::Served;
use super::output::{Format, complain, print, print_value};
use super::plain_text::one_line;
use super::problem::Problem;
use ifo_api::{LIVE_GROUP, VERSION, live};
use serde::{Deserialize, Serialize};
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
    #[derive(Deserialize)]
    struct OpenApiDocument {
        info: Info,
    }
    #[derive(Deserialize)]
    struct Info {
        version: String,
    }
    if let Some(files) = &server.from_files {
        return files.server_version();
    }
    let uri = format!("/openapi/v3/apis/{LIVE_GROUP}/{VERSION}");
    match server
        .get::<OpenApiDocument>(&uri, "/openapi/v3", None)
        .await
    {
        Ok(document) => Ok(document.info.version),
        Err(Problem::NotFound(_)) => Err(missing_document_reason(server).await),
        Err(problem) => Err(problem),
    }
}

/// Returns the reason why the OpenAPI document is missing. For example, the API is not registered,
/// or `ifo-apiserver` does not answer.
async fn missing_document_reason(server: &ApiClient) -> Problem {
    for served in [Served::Live, Served::Crs] {
        let group = served.group();
        let uri = format!("/apis/{group}/{VERSION}/{}?limit=1", live::PLURAL);
        match (served, server.answer(&uri, served.resource(), None).await) {
            (_, Err(Problem::NotFound(_))) => {}
            (_, Err(Problem::Forbidden { .. })) if !served.is_served_by(server).await => {}
            // `Forbidden` can also mean that the API is missing. The arm above handles this case.
            // But if the plugin cannot read discovery, `is_served_by` returns true, and the API may
            // be missing in this and the next arm.
            (Served::Live, Ok(_) | Err(Problem::Forbidden { .. })) => {
                return Problem::Other("the server does not report its version".to_owned());
            }
            (Served::Crs, Ok(_) | Err(Problem::Forbidden { .. })) => {
                return Problem::Other(format!(
                    "{LIVE_GROUP} is not served, so ifo-apiserver cannot report its version; the cluster serves only the objects of {}",
                    served.resource()
                ));
            }
            (_, Err(problem)) => return problem,
        }
    }
    Problem::NotInstalled
}
