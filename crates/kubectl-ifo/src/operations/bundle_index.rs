//! The index of a support bundle: which parts the bundle contains, and which parts could not be
//! read. A command with `--from` reads the index first.

use crate::cluster::problem::Problem;
use ifo_api::completeness::Incomplete;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of the file with the index.
pub(crate) const INDEX_FILE: &str = "bundle.json";

/// The index of a support bundle.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BundleIndex {
    /// Time at which the collection began.
    pub(crate) created: Timestamp,
    /// True if only allowed fields are in the bundle. False with `--include-text`.
    pub(crate) redacted: bool,
    /// Version of the plugin.
    pub(crate) plugin_version: String,
    /// Version of `ifo-apiserver`. None if the version could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_version: Option<String>,
    /// Namespace of `ifo-apiserver`.
    pub(crate) server_namespace: String,
    /// The namespace of the operations and records in the bundle. None for all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// All parts, also those that could not be read.
    pub(crate) parts: Vec<BundlePart>,
}

/// A part of the bundle.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BundlePart {
    /// Path of the file in the bundle. The file is missing if the part could not be read.
    pub(crate) path: String,
    /// The result of reading the part.
    pub(crate) result: PartResult,
    /// Number of objects. 0 for a file of another form.
    pub(crate) count: usize,
    /// The reason why operations or records may be missing from their list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incomplete: Option<Incomplete>,
    /// The error message. None without `--include-text`, and if the part was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// The result of reading a part of the bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum PartResult {
    /// The part was read completely.
    Read,
    /// A limit was reached. The bundle contains only the beginning of a list.
    Truncated,
    /// RBAC does not allow the request.
    Forbidden,
    /// The cluster has no such object or resource, or the list is empty.
    NotFound,
    /// Any other error, for example no answer in time.
    #[default]
    #[serde(other)]
    Failed,
}

impl BundleIndex {
    /// Returns the part with the operations that commands show. This is the part of the live API.
    /// If that part was not read, it is the part of the custom resources, if that part has objects
    /// or the cluster did not serve the live API. Otherwise, returns the reason as an error.
    pub(crate) fn operations(&self) -> Result<&BundlePart, String> {
        let is_read = |it: &BundlePart| it.result <= PartResult::Truncated;
        let live = self.operation_parts().next();
        let is_missing = live.is_none_or(|it| it.result == PartResult::NotFound);
        // If persistence mode is off, the list of custom resources is always empty.
        let mut others = self.operation_parts().skip(1);
        let other = others.find(|it| is_read(it) && (is_missing || it.count > 0));
        let best = live.filter(|it| is_read(it)).or(other);
        best.ok_or_else(|| live.map_or("they were not requested".into(), BundlePart::problem))
    }

    /// Returns the parts with operations. The part of the live API is the first one.
    pub(crate) fn operation_parts(&self) -> impl Iterator<Item = &BundlePart> {
        let parts = self.parts.iter();
        parts.filter(|it| it.path.ends_with("/inflightoperations.json"))
    }
}

impl BundlePart {
    /// Returns the reason why the part could not be read.
    pub(crate) fn problem(&self) -> String {
        let message = self.message.as_deref();
        let message = message.unwrap_or("the message was left out");
        format!("{}: {:?}: {message}", self.path, self.result)
    }
}

impl From<&Problem> for PartResult {
    fn from(problem: &Problem) -> Self {
        match problem {
            Problem::Forbidden { .. } => Self::Forbidden,
            Problem::NotFound(_) => Self::NotFound,
            _ => Self::Failed,
        }
    }
}
