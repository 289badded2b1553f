//! `--from DIR|FILE`: lets commands read operations from files instead of a cluster.
//!
//! The files are one of these:
//!
//! - a support bundle of `kubectl ifo support-bundle`
//! - a folder of `oc adm must-gather`
//! - the output of `kubectl get ifos -o yaml`
//!
//! [`open`] returns an [`ApiClient`] that answers requests from these files, so a command runs the
//! same code as with a cluster. If the files do not contain the requested data, the request fails.
//!
//! ```text
//! read_files (folder, gzip, text) · archive (tar) ─▶ file_contents (objects, time) ─▶ http_answers
//! ```

mod archive;
mod file_contents;
mod http_answers;
mod read_files;
mod selectors;

pub(crate) use read_files::MAX_FILE_BYTES;
pub(super) use selectors::ParsedLabelSelector;

use super::api_client::ApiClient;
use super::output::complain;
use super::problem::Problem;
use crate::clock;
use file_contents::FileContents;
use http_answers::answer;
use kube::Client;
use kube::client::Body;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

/// The contents of the files, which take the place of a cluster.
pub(super) struct ClusterFromFiles {
    contents: FileContents,
}

impl ClusterFromFiles {
    /// Returns the namespaces whose operations the support bundle contains. None if it contains the
    /// operations of all namespaces, or if the files are no support bundle.
    pub(super) fn namespaces(&self) -> Option<&[String]> {
        self.contents.namespaces.as_deref()
    }

    /// Returns the path that the user has given.
    pub(super) fn path(&self) -> &str {
        &self.contents.path
    }
}

/// Reads the files at `path`, and returns a client that answers requests from these files. Prints a
/// note about the files. After this call, `clock::now` returns the time at which the files were
/// recorded.
pub(super) fn open(path: &Path) -> Result<ApiClient, Problem> {
    let contents = FileContents::read(path)?;
    complain("note", contents.introduction());
    clock::set_time_of_files(contents.time);
    let name = contents.path.clone();
    let cluster = Arc::new(ClusterFromFiles { contents });
    let served = Arc::clone(&cluster);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let response = answer(&served.contents, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    Ok(ApiClient {
        client: Client::new(service, "default"),
        address: name,
        default_namespace: "default".to_owned(),
        timeout: None,
        from_files: Some(cluster),
        ignored_rule_sets: Vec::new(),
        relevant_operations: String::new(),
    })
}

/// Returns the error for a command or a flag that needs a cluster, such as `wait` and `--watch`.
/// `what` is the name of the command or the flag.
pub(super) fn needs_cluster(what: &str) -> Problem {
    Problem::Usage(format!(
        "{what} cannot be used with --from: the operations in files do not change, and files \
         do not show the present state of the cluster"
    ))
}
