//! Describes failed requests for custom resources without confidential texts. An answer of the
//! kube-apiserver can quote such texts: names and values of objects.

use http::StatusCode;
use ifo_cel::JsonFault;
use std::collections::BTreeSet;

/// The largest number of fields that one description names. Further fields are left out, so that
/// the description stays short.
const MAX_FIELDS: usize = 5;

/// A description of a failed request. The description can contain a status code, names of fields
/// and an error of the connection. It never contains names or values of objects.
///
/// The kube-apiserver's own message quotes names and values of the custom resource. The description
/// appears in the log and in a condition of the `APIService`. A user who can read the condition may
/// have no right to read the custom resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedactedFailure(String);

impl RedactedFailure {
    /// Describes an answer with its status code and the paths of the refused fields. `fields`
    /// contains the values of `details.causes[].field` in the answer.
    pub(super) fn of_answer<'a>(code: StatusCode, fields: impl Iterator<Item = &'a str>) -> Self {
        let fields: BTreeSet<&str> = fields.filter_map(crd_field_path).collect();
        let fields: Vec<&str> = fields.into_iter().take(MAX_FIELDS).collect();
        let about = if fields.is_empty() { "" } else { ", about " };
        let fields = fields.join(", ");
        Self(format!("the kube-apiserver answers {code}{about}{fields}"))
    }

    /// Describes an answer that cannot be decoded.
    pub(super) fn of_undecodable(error: &serde_json::Error) -> Self {
        let fault = JsonFault::from(error);
        Self(format!("the answer cannot be decoded: {fault}"))
    }

    /// Describes an error of the connection. The kube-apiserver has not sent a complete answer, so
    /// the error quotes no object.
    pub(super) fn of_connection(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// Accepts only texts that are fixed in this program. They contain no values of a custom resource.
impl From<&'static str> for RedactedFailure {
    fn from(text: &'static str) -> Self {
        Self(text.to_owned())
    }
}

/// Returns the path of a field of our custom resource. `field` is the value of
/// `details.causes[].field` in a `Status` object that the kube-apiserver has sent.
///
/// The path is cut at the first bracket: `metadata.labels[some.key]` gives `metadata.labels`.
/// Brackets can contain the key of a map. The key can be a confidential text of the subject (the
/// object that the operation is about).
///
/// Returns None if the text before the bracket is not the path of `metadata`, `spec` or `status`,
/// or of a field in one of them. For example, a webhook can write a sentence into `field`.
fn crd_field_path(field: &str) -> Option<&str> {
    let path = field.split('[').next().unwrap_or_default();
    let root = path.split('.').next().unwrap_or_default();
    let is_path = path.chars().all(|c| c.is_ascii_alphabetic() || c == '.');
    (is_path && matches!(root, "metadata" | "spec" | "status")).then_some(path)
}
