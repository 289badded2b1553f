//! The explanation of a request that failed. Enters: an answer of the kube-apiserver. Leaves:
//! an [`Explanation`] without the values and names that the answer quotes.

use http::StatusCode;
use ifo_cel::JsonFault;
use std::collections::BTreeSet;

/// Fields that a refusal names; there are some twenty.
const MAX_FIELDS: usize = 5;

/// A text about a failure that quotes nothing of a custom resource. The message of an answer
/// quotes names and values, but this text is shown in a cluster-scoped condition, and logged.
/// So only the functions of this file make such texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Explanation(String);

impl Explanation {
    /// An answer, and the fields that it complains about.
    pub(super) fn of_answer<'a>(code: StatusCode, fields: impl Iterator<Item = &'a str>) -> Self {
        let fields: BTreeSet<&str> = fields.filter_map(own_path).collect();
        let fields: Vec<&str> = fields.into_iter().take(MAX_FIELDS).collect();
        let about = if fields.is_empty() { "" } else { ", about " };
        let fields = fields.join(", ");
        Self(format!("the kube-apiserver answers {code}{about}{fields}"))
    }

    /// An answer that cannot be decoded.
    pub(super) fn of_garbled(error: &serde_json::Error) -> Self {
        let fault = JsonFault::from(error);
        Self(format!("the answer cannot be decoded: {fault}"))
    }

    /// An error of the connection, and not of the kube-apiserver.
    pub(super) fn of_connection(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// A text of this program.
impl From<&'static str> for Explanation {
    fn from(text: &'static str) -> Self {
        Self(text.to_owned())
    }
}

/// The path of a field of our custom resource in the `field` of a cause. The path ends before
/// a bracket, because the key of a map can come from a subject. The result is None for other
/// texts, for example those of a webhook.
fn own_path(field: &str) -> Option<&str> {
    let path = field.split('[').next().unwrap_or_default();
    let root = path.split('.').next().unwrap_or_default();
    let is_path = path.chars().all(|c| c.is_ascii_alphabetic() || c == '.');
    (is_path && matches!(root, "metadata" | "spec" | "status")).then_some(path)
}
