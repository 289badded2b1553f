//! The index of a support bundle: which parts the bundle contains, and which parts could not be
//! read. A command with `--from` reads the index first.

use super::problem::Problem;
use ifo_api::completeness::Incomplete;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of the file with the index.
pub(crate) const INDEX_FILE: &str = "bundle.json";

/// The index of a support bundle.
#[derive(Debug, Serialize, Deserialize)]
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
    /// The operations in the bundle.
    pub(crate) operations: OperationsPart,
    /// All parts, also those that could not be read.
    #[serde(skip_deserializing)]
    pub(crate) parts: Vec<BundlePart>,
}

/// The number, the namespaces and the completeness of the operations in the bundle.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationsPart {
    /// The result of reading the operations.
    pub(crate) result: PartResult,
    /// Number of operations in the bundle.
    pub(crate) count: usize,
    /// The namespaces whose operations were listed. None for all namespaces, or if the operations
    /// could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespaces: Option<Vec<String>>,
    /// True if `ifo-apiserver` has stated that its list is complete, and the bundle contains the
    /// whole list.
    pub(crate) is_complete: bool,
    /// The reason why operations may be missing, from `ifo-apiserver`. None if `ifo-apiserver` has
    /// stated no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incomplete: Option<Incomplete>,
}

/// A part of the bundle.
#[derive(Debug, Serialize)]
pub(crate) struct BundlePart {
    /// Path of the file in the bundle. The file is missing if the part could not be read.
    pub(crate) path: String,
    /// The result of reading the part.
    pub(crate) result: PartResult,
    /// The error message. Empty without `--include-text`, and if the part was read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

/// The result of reading a part of the bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum PartResult {
    /// The part was read completely.
    Read,
    /// A limit was reached. The bundle contains only the beginning of a list.
    Truncated,
    /// RBAC does not allow the request, or the credentials are not accepted.
    Forbidden,
    /// The cluster has no such object or resource, or the list is empty.
    NotFound,
    /// Any other error, for example no answer in time.
    #[default]
    #[serde(other)]
    Failed,
}

impl PartResult {
    /// Returns the result of a part that was read.
    pub(crate) fn of_read(is_truncated: bool) -> Self {
        if is_truncated {
            Self::Truncated
        } else {
            Self::Read
        }
    }

    /// Classifies the problem of a request.
    pub(crate) fn of(problem: &Problem) -> Self {
        match problem {
            Problem::Forbidden { .. } | Problem::Unauthorized => Self::Forbidden,
            Problem::NotFound(_) | Problem::NotInstalled => Self::NotFound,
            _ => Self::Failed,
        }
    }
}
