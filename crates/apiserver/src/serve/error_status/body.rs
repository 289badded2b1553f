//! The body of an error answer: the types that are serialized to a `Status` (`metav1.Status`). The
//! keys have the same order as in the kube-apiserver's answers.

use serde::Serialize;

/// `metav1.StatusDetails`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusDetails {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) retry_after_seconds: u32,
}

impl StatusDetails {
    /// Creates the details of an error about an object. If `name` is empty, the error is about the
    /// whole resource. As in the kube-apiserver, the field `kind` contains the plural.
    pub(super) fn of(group: &str, plural: &str, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: plural.to_owned(),
            ..Self::default()
        }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// `metav1.StatusCause`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StatusCause {
    pub(super) reason: &'static str,
    pub(super) message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) field: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusBody<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) metadata: StatusMeta<'a>,
    #[serde(rename = "status")]
    pub(super) outcome: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<&'a StatusDetails>,
    pub(super) code: u16,
}

#[derive(Serialize)]
pub(super) struct StatusMeta<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub(super) continue_token: Option<&'a str>,
}

/// Encodes a string as JSON, with the same escapes as Go's `json.Marshal`.
pub(super) fn go_json(text: &str) -> String {
    let json = serde_json::to_vec(text).expect("a string can always be encoded as JSON");
    String::from_utf8_lossy(&escape_html(&json)).into_owned()
}

/// Escapes `<`, `>`, `&`, U+2028 and U+2029 in JSON, as Go's encoder does. In JSON, these
/// characters occur only in strings.
pub(super) fn escape_html(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some((first, after_first)) = rest.split_first() {
        let (escape, after): (&[u8], &[u8]) = match rest {
            [b'<', after @ ..] => (b"\\u003c", after),
            [b'>', after @ ..] => (b"\\u003e", after),
            [b'&', after @ ..] => (b"\\u0026", after),
            [0xe2, 0x80, 0xa8, after @ ..] => (b"\\u2028", after),
            [0xe2, 0x80, 0xa9, after @ ..] => (b"\\u2029", after),
            _ => (std::slice::from_ref(first), after_first),
        };
        out.extend_from_slice(escape);
        rest = after;
    }
    out
}
