//! The errors of decoding JSON. They contain no part of the JSON text: errors of `serde_json` can
//! quote the text, and the text can contain values that a user must not see.

use std::fmt;

use serde_json::error::Category;

/// Maximum size of the JSON text in bytes: 32 MiB, which is about twenty times etcd's default limit
/// for an object. For a longer text, [`Doc::parse`](crate::Doc::parse) returns [`DocError::TooLong`].
pub(super) const MAX_BYTES: usize = 32 << 20;

/// Maximum number of decoded values of one object. For an object with more selected values,
/// [`Doc::parse`](crate::Doc::parse) returns [`DocError::TooManyValues`].
///
/// The limit equals [`crate::STEPS_PER_OBJECT`], the recommended number of evaluation steps for one
/// object. A comprehension takes at least one step for each value that it visits. So with this
/// number of steps, no comprehension could visit more values.
pub(super) const MAX_VALUES: usize = 100_000;

/// The reason why a text cannot be decoded as an object. The error contains no part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocError {
    /// The text is valid JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// The text is longer than 32 MiB.
    #[error("larger than {MAX_BYTES} bytes")]
    TooLong,
    /// The text is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The projection selects more than 100,000 values.
    #[error("more than {MAX_VALUES} values")]
    TooManyValues,
    /// The text is not JSON, or is nested deeper than 127 levels.
    #[error(transparent)]
    NoJson(JsonFault),
}

/// The kind and position of a JSON error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonFault {
    what: &'static str,
    line: usize,
    column: usize,
}

impl From<&serde_json::Error> for JsonFault {
    fn from(error: &serde_json::Error) -> Self {
        Self {
            what: match error.classify() {
                Category::Syntax => "not valid JSON, or nested too deeply",
                Category::Eof => "JSON that ends too early",
                Category::Data => "JSON of another form than expected",
                Category::Io => "JSON that cannot be read",
            },
            line: error.line(),
            column: error.column(),
        }
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, line, column } = self;
        write!(f, "{what}: line {line}, column {column}")
    }
}

impl std::error::Error for JsonFault {}
