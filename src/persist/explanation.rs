//! What is said of a write that fails. Enters: an answer of the kube-apiserver. Leaves: an
//! [`Explanation`] without the values and names that the answer quotes.

use http::StatusCode;
use ifo_cel::JsonFault;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;

/// Fields that a refusal names; there are some twenty.
const MAX_FIELDS: usize = 5;

/// What is known of a failure: nothing of the custom resource, of which an answer's message
/// quotes names and values. It is shown in a cluster-scoped condition, and logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// A text of this program.
    Fixed(&'static str),
    /// An answer, and the fields that it complains about.
    Answer(StatusCode, Vec<String>),
    /// An answer that cannot be decoded.
    Garbled(JsonFault),
    /// What the connection, and not the kube-apiserver, says.
    Connection(String),
}

impl Explanation {
    pub(super) fn garbled(error: &serde_json::Error) -> Self {
        Self::Garbled(error.into())
    }
}

impl From<&'static str> for Explanation {
    fn from(text: &'static str) -> Self {
        Self::Fixed(text)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(text) => f.write_str(text),
            Self::Answer(code, fields) if fields.is_empty() => {
                write!(f, "the kube-apiserver answers {code}")
            }
            Self::Answer(code, fields) => {
                let fields = fields.join(", ");
                write!(f, "the kube-apiserver answers {code}, about {fields}")
            }
            Self::Garbled(fault) => write!(f, "the answer cannot be decoded: {fault}"),
            Self::Connection(error) => f.write_str(error),
        }
    }
}

/// Returns the code and the fields that a Status is about, and whether it says that the
/// object of the request does not exist or has another uid. The message of a Status quotes
/// the object, so it is logged at the debug level only.
pub(super) fn status(code: StatusCode, body: &[u8]) -> (Explanation, bool) {
    #[derive(Deserialize)]
    struct Status {
        message: String,
        #[serde(default)]
        details: Option<Details>,
    }
    #[derive(Deserialize)]
    struct Details {
        #[serde(default)]
        name: String,
        #[serde(default)]
        causes: Vec<Cause>,
    }
    #[derive(Deserialize)]
    struct Cause {
        #[serde(default)]
        field: String,
    }
    let Ok(status) = serde_json::from_slice::<Status>(body) else {
        return (Explanation::Answer(code, Vec::new()), false);
    };
    let message: String = status.message.chars().take(500).collect();
    tracing::debug!(%code, message, "an answer to persistence");
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    // If the CRD is missing, the answer 404 names no object.
    let names_object = status
        .details
        .as_ref()
        .is_some_and(|it| !it.name.is_empty());
    let is_gone = match code {
        StatusCode::NOT_FOUND => names_object,
        StatusCode::UNPROCESSABLE_ENTITY => causes().any(|cause| cause.field == "metadata.uid"),
        _ => false,
    };
    let fields = causes().map(|cause| path(&cause.field));
    let fields: BTreeSet<String> = fields.filter(|field| !field.is_empty()).collect();
    let fields = fields.into_iter().take(MAX_FIELDS).collect();
    (Explanation::Answer(code, fields), is_gone)
}

/// The part of a cause's field that names a field of ours: a key of a map, which stands in
/// brackets, may be of a subject. What else a webhook writes there is left out.
fn path(field: &str) -> String {
    let names = |c: char| c.is_ascii_alphabetic() || c == '.';
    let end = field.find(|c| !names(c)).unwrap_or(field.len());
    let (path, rest) = field.split_at(end);
    let root = path.split('.').next().unwrap_or_default();
    let is_ours = matches!(root, "metadata" | "spec" | "status");
    let is_path = rest.is_empty() || rest.starts_with('[');
    if is_ours && is_path {
        path.to_owned()
    } else {
        String::new()
    }
}
