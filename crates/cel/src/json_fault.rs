//! The kind and position of a JSON error, without any part of the JSON text. Errors of `serde_json`
//! can quote the text, and the text can contain values that a user must not see.

use std::fmt;

use serde_json::error::Category;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Numbered {
        #[serde(rename = "number")]
        _number: u8,
    }

    #[test]
    fn json_errors_do_not_quote_the_text() {
        for (text, want) in [
            (r#"{"number": "marker"}"#, "of another form"),
            (r#"{"number": marker}"#, "not valid JSON"),
            (r#"{"number": "marker"#, "ends too early"),
            (r#""marker""#, "of another form"),
            (r#"{"marker": 1}"#, "of another form"),
        ] {
            let error = serde_json::from_str::<Numbered>(text).unwrap_err();
            let fault = JsonFault::from(&error).to_string();
            assert!(fault.contains(want), "{text}: {fault}");
            assert!(!fault.contains("marker"), "{fault}");
        }
    }
}
