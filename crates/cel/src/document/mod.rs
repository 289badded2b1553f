//! A decoded JSON object ([`Doc`]), whose fields the CEL expressions read. The decoder reads only
//! the fields that a projection (a set of field paths) selects, and skips all other fields.

mod decode;
pub(crate) mod fault;
pub(crate) mod item;
pub(crate) mod projection;

use std::fmt;

use self::decode::decode;
use self::fault::{DocError, MAX_BYTES};
use self::item::{DocItem, Node};
use self::projection::Projection;

/// The decoded fields of one object, borrowed from its JSON where possible.
pub struct Doc<'a>(DocItem<'a>);

impl<'a> Doc<'a> {
    /// Decodes the fields that `projection` selects, and skips all other fields.
    ///
    /// # Errors
    /// `json` is not the JSON of an object, or exceeds one of these limits: 127 nested levels,
    /// 32 MiB, and 100,000 selected values.
    pub fn parse(json: &'a [u8], projection: &Projection) -> Result<Doc<'a>, DocError> {
        let doc = Self::parse_value(json, projection)?;
        match doc.0 {
            DocItem::Map(_) => Ok(doc),
            _ => Err(DocError::NotAnObject),
        }
    }

    /// Decodes a JSON value of any type.
    pub(crate) fn parse_value(
        json: &'a [u8],
        projection: &Projection,
    ) -> Result<Doc<'a>, DocError> {
        if json.len() > MAX_BYTES {
            return Err(DocError::TooLong);
        }
        // This check of the whole text saves serde_json the check of each string. A kube-apiserver
        // replaces invalid UTF-8 and lone surrogates by U+FFFD, so no object has them.
        let text = std::str::from_utf8(json).map_err(|_| DocError::NotUtf8)?;
        decode(text, &projection.root).map(Doc)
    }

    /// Returns the object, for reading its fields.
    pub fn root(&self) -> Node<'_> {
        Node(&self.0)
    }

    /// Encodes the decoded fields as JSON. Decoding this JSON returns the same fields.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.root()).expect("maps with string keys always encode")
    }
}

impl fmt::Debug for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doc")
    }
}
