//! Reads a page of a list object by object, so that the whole page is never in memory.
//!
//! To find the end of an object, the reader only counts brackets and skips strings. Then a JSON
//! parser checks the syntax of the object. The fields of the list may have any order. The
//! kube-apiserver writes `metadata` before the items for built-in resources, and after the items
//! for custom resources.

use super::{
    InvalidData,
    body_parts::{self, BodyEnd, BodyPart, BodyReader},
    read_budget::ReadBudget,
};
use bytes::Bytes;
use futures::Stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::Instant;

/// A part of a page. The reader returns the parts in their order in the page. [`PagePart::End`] is
/// always the last part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PagePart {
    /// The JSON of an object.
    Object(Bytes),
    /// An object that is too long to be read.
    TooLong {
        /// Length of the object in bytes.
        length: u64,
        /// The beginning of the object.
        head: Bytes,
    },
    /// An item that is not an object.
    NotAnObject,
    /// The end of the page.
    End {
        /// The resourceVersion of the whole list. It is the same on all pages.
        version: String,
        /// The token for the next page. `None` on the last page.
        next: Option<String>,
    },
}

/// The reason why the page cannot be read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageFault {
    /// The body is not the JSON of a list.
    Garbled(InvalidData),
    /// The connection broke, or no part was completed within the time limit. The value is the text
    /// of the error.
    Broken(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

/// The position of the reader in the page. A name such as `Colon` or `Value` means: before the
/// colon, before the value. `InOther` means: in the value of a field other than `metadata` and
/// `items`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PagePosition {
    Start,
    /// Before a key, or before the `}` at the end of the list.
    Key,
    InKey,
    Colon,
    Value,
    InMetadata,
    InOther,
    AfterValue,
    /// Before an item, or before the `]` at the end of the items.
    Item,
    InItem,
    AfterItem,
    Done,
}

/// The field whose value the reader reads now or next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageField {
    Metadata,
    Items,
    Other,
}

/// Reads the parts of a page. An object that is too long becomes [`PagePart::TooLong`].
#[derive(Debug)]
pub(super) struct PageReader<S> {
    input: BodyReader<S>,
    at: PagePosition,
    field: PageField,
    scanner: ValueScanner,
    meta: Option<PageMeta>,
}

impl<S, E> PageReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error,
{
    /// Creates a reader of `frames`, the chunks of the body as they arrive. `max` is the maximum
    /// size of an object in bytes.
    pub(super) fn new(frames: S, max: usize, budget: ReadBudget) -> Self {
        Self {
            input: BodyReader::new(frames, max, budget),
            at: PagePosition::Start,
            field: PageField::Other,
            scanner: ValueScanner::default(),
            meta: None,
        }
    }

    /// Returns the next part. Fails with [`PageFault::Broken`] if no part is completed within
    /// `idle`. The text of this error says "object", because most parts are objects.
    pub(super) async fn next(&mut self, idle: Duration) -> Result<PagePart, PageFault> {
        let mut until = Instant::now() + idle;
        loop {
            while !self.input.frame().is_empty() {
                if let Some(item) = self.step()? {
                    return Ok(item);
                }
            }
            match self.input.read(&mut until).await {
                Ok(()) => {}
                Err(BodyEnd::Closed) => return self.end(),
                Err(BodyEnd::Idle) => {
                    return Err(PageFault::Broken(format!(
                        "no complete object within {idle:?}"
                    )));
                }
                Err(BodyEnd::Broken(why)) => return Err(PageFault::Broken(why)),
            }
        }
    }

    fn end(&mut self) -> Result<PagePart, PageFault> {
        match (self.at, self.meta.take()) {
            (PagePosition::Done, Some(meta)) => Ok(PagePart::End {
                version: meta.resource_version,
                next: Some(meta.r#continue).filter(|token| !token.is_empty()),
            }),
            (PagePosition::Done, None) => Err(garbled("the list has no metadata")),
            _ => Err(garbled("the list ends too early")),
        }
    }

    /// Reads one token or one value. If the value does not end in the current frame, reads the rest
    /// of the frame. Returns `None` if no part ends in this step.
    fn step(&mut self) -> Result<Option<PagePart>, PageFault> {
        match self.at {
            PagePosition::InKey | PagePosition::InMetadata | PagePosition::InItem => self.gather(),
            PagePosition::InOther => {
                let length = self.scanner.end(self.input.frame());
                if length.is_some() {
                    self.at = PagePosition::AfterValue;
                }
                let rest = self.input.frame().len();
                self.input.skip(length.unwrap_or(rest));
                Ok(None)
            }
            _ => self.token(),
        }
    }

    /// Processes the next byte outside of keys and values.
    fn token(&mut self) -> Result<Option<PagePart>, PageFault> {
        let Some(&byte) = self.input.frame().first() else {
            return Ok(None);
        };
        if byte.is_ascii_whitespace() {
            self.input.skip(1);
            return Ok(None);
        }
        // `consume` is false for the first byte of a key, of an item, or of the value of any field
        // but `items`: the scanner needs this byte. The `[` of `items` is consumed here, because
        // the scanner reads the items one by one.
        let (at, consume) = match (self.at, byte) {
            (PagePosition::Start, b'{') | (PagePosition::AfterValue, b',') => {
                (PagePosition::Key, true)
            }
            (PagePosition::Key, b'"') => (PagePosition::InKey, false),
            (PagePosition::Key | PagePosition::AfterValue, b'}') => (PagePosition::Done, true),
            (PagePosition::Colon, b':') => (PagePosition::Value, true),
            (PagePosition::Value, b'[') if self.field == PageField::Items => {
                (PagePosition::Item, true)
            }
            // Go writes a nil slice as null, so `null` is an empty list of items.
            (PagePosition::Value, b'n') if self.field == PageField::Items => {
                (PagePosition::InOther, false)
            }
            (PagePosition::Value, _) if self.field == PageField::Metadata => {
                (PagePosition::InMetadata, false)
            }
            (PagePosition::Value, _) if self.field == PageField::Other => {
                (PagePosition::InOther, false)
            }
            (PagePosition::Item | PagePosition::AfterItem, b']') => {
                (PagePosition::AfterValue, true)
            }
            (PagePosition::AfterItem, b',') => (PagePosition::Item, true),
            (PagePosition::Item, _) => (PagePosition::InItem, false),
            _ => return Err(garbled("an unexpected character between the fields")),
        };
        self.at = at;
        if consume {
            self.input.skip(1);
        } else {
            self.scanner = ValueScanner::default();
        }
        Ok(None)
    }

    /// Reads a key, the metadata or an item to its end. If the end is not in the current frame,
    /// keeps the rest of the frame. Returns a part only if an item has ended.
    fn gather(&mut self) -> Result<Option<PagePart>, PageFault> {
        let Some(length) = self.scanner.end(self.input.frame()) else {
            self.input.keep();
            return Ok(None);
        };
        let part = self.input.finish(length);
        match self.at {
            PagePosition::InItem => {
                self.at = PagePosition::AfterItem;
                item(part).map(Some)
            }
            PagePosition::InKey => {
                self.field = match &part {
                    BodyPart::Whole(key) if key == &br#""metadata""#[..] => PageField::Metadata,
                    BodyPart::Whole(key) if key == &br#""items""#[..] => PageField::Items,
                    _ => PageField::Other,
                };
                self.at = PagePosition::Colon;
                Ok(None)
            }
            _ => {
                let BodyPart::Whole(text) = part else {
                    return Err(garbled("the metadata is too long"));
                };
                let meta = serde_json::from_slice(&text);
                self.meta =
                    Some(meta.map_err(|error| PageFault::Garbled(InvalidData::json(&error)))?);
                self.at = PagePosition::AfterValue;
                Ok(None)
            }
        }
    }
}

fn item(part: body_parts::BodyPart) -> Result<PagePart, PageFault> {
    match part {
        BodyPart::TooLong { length, head } => Ok(PagePart::TooLong { length, head }),
        BodyPart::Whole(object) if object.starts_with(b"{") => {
            // A malformed object makes the whole page fail. If the reader skipped the object, the
            // object would count as deleted.
            serde_json::from_slice::<&RawValue>(&object)
                .map_err(|error| PageFault::Garbled(InvalidData::json(&error)))?;
            Ok(PagePart::Object(object))
        }
        BodyPart::Whole(_) => Ok(PagePart::NotAnObject),
    }
}

fn garbled(why: &'static str) -> PageFault {
    PageFault::Garbled(InvalidData::List(why))
}

/// Finds the end of one JSON value.
#[derive(Debug, Default)]
struct ValueScanner {
    /// Number of open brackets.
    depth: u32,
    /// True inside a string.
    quoted: bool,
    /// True after a backslash.
    escaped: bool,
}

impl ValueScanner {
    /// Returns how many bytes at the beginning of `bytes` belong to the value. Returns `None` if
    /// the end of the value is not in `bytes`. Then the next call must pass the following bytes.
    ///
    /// A string ends with its closing quote. An array or an object ends with its closing bracket. A
    /// number, `true`, `false` or `null` ends before the comma, bracket or white space that
    /// follows.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.escaped {
                self.escaped = false;
            } else if self.quoted {
                // Most bytes of an object are inside strings, so strings are searched with memchr.
                at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
                self.escaped = bytes.get(at) == Some(&b'\\');
                self.quoted = self.escaped;
                if !self.quoted && self.depth == 0 {
                    return Some(at + 1);
                }
            } else {
                match byte {
                    b'"' => self.quoted = true,
                    b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                    b'}' | b']' if self.depth == 1 => return Some(at + 1),
                    b'}' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                        return Some(at);
                    }
                    b'}' | b']' => self.depth -= 1,
                    _ => {}
                }
            }
            at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use std::io;

    const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

    fn page(
        text: &str,
        frame: usize,
        max: usize,
    ) -> PageReader<impl Stream<Item = Result<Bytes, io::Error>> + Unpin> {
        let text = Bytes::from(text.to_owned());
        let ends: Vec<_> = (0..text.len()).step_by(frame.max(1)).collect();
        let frames = ends
            .into_iter()
            .map(move |at| Ok(text.slice(at..text.len().min(at + frame))));
        PageReader::new(stream::iter(frames), max, ReadBudget::default())
    }

    async fn read_all(text: &str, frame: usize, max: usize) -> Result<Vec<PagePart>, PageFault> {
        let mut page = page(text, frame, max);
        let mut items = Vec::new();
        loop {
            let item = page.next(IDLE_TIMEOUT).await?;
            let is_end = matches!(item, PagePart::End { .. });
            items.push(item);
            if is_end {
                return Ok(items);
            }
        }
    }

    fn object(text: &'static str) -> PagePart {
        PagePart::Object(Bytes::from_static(text.as_bytes()))
    }

    fn end(version: &str, next: Option<&str>) -> PagePart {
        PagePart::End {
            version: version.into(),
            next: next.map(Into::into),
        }
    }

    #[tokio::test]
    async fn objects_and_the_continue_token_are_reassembled_from_any_framing() {
        let items = r#"[ {"a":"}]\\\"{"}, null, 7,"x" , {"b":{"c":[{}]}}]"#;
        let meta = r#"{"resourceVersion":"7","continue":"abc"}"#;
        // The first text has the field order of a built-in resource. The second text has the order
        // of a custom resource, and further fields whose values have different types.
        for text in [
            format!(r#"{{"kind":"XList","metadata":{meta},"items":{items}}}"#),
            format!(
                " {{ \"more\":[{{\"items\":[1]}}] ,\"n\":1,\"items\" : {items},\"metadata\":{meta}\n}}\n"
            ),
        ] {
            for frame in 1..=text.len() {
                assert_eq!(
                    read_all(&text, frame, 100).await.unwrap(),
                    [
                        object(r#"{"a":"}]\\\"{"}"#),
                        PagePart::NotAnObject,
                        PagePart::NotAnObject,
                        PagePart::NotAnObject,
                        object(r#"{"b":{"c":[{}]}}"#),
                        end("7", Some("abc")),
                    ],
                    "{frame}: {text}"
                );
            }
        }
    }

    #[tokio::test]
    async fn an_empty_list_may_be_null_and_the_last_page_has_no_token() {
        for items in ["null", "[]", "[ ]"] {
            let text = format!(
                r#"{{"items":{items},"metadata":{{"resourceVersion":"7","continue":""}}}}"#
            );
            assert_eq!(read_all(&text, 3, 100).await.unwrap(), [end("7", None)]);
        }
    }

    #[tokio::test]
    async fn an_overlong_object_is_truncated_and_the_next_one_is_read() {
        let text = r#"{"items":[{"a":"0123456789"},{}],"metadata":{}}"#;
        for frame in 1..=text.len() {
            assert_eq!(
                read_all(text, frame, 12).await.unwrap(),
                [
                    PagePart::TooLong {
                        length: 18,
                        head: Bytes::from_static(br#"{"a":"012345"#),
                    },
                    object("{}"),
                    end("", None),
                ]
            );
        }
    }

    #[tokio::test]
    async fn an_object_is_returned_before_the_rest_of_the_page() {
        let frames = stream::iter([Ok::<_, io::Error>(Bytes::from_static(
            br#"{"items":[{"a":1},{"b":2"#,
        ))])
        .chain(stream::pending());
        let mut page = PageReader::new(Box::pin(frames), 100, ReadBudget::default());
        assert_eq!(page.next(IDLE_TIMEOUT).await.unwrap(), object(r#"{"a":1}"#));
    }

    #[tokio::test]
    async fn a_response_that_is_not_a_list_is_an_error() {
        for text in [
            "",
            "{",
            "[]",
            "null",
            "<html>",
            "{}",
            "{} {}",
            r#"{"items":[]}"#,
            r#"{"items":{}}"#,
            r#"{"items":"#,
            r#"{"items":[{}"#,
            r#"{"items":[{}],"metadata":{}"#,
            r#"{"metadata":{},"items":{"a":1}}"#,
            r#"{"metadata":{},"items":[{"a":nope}]}"#,
            r#"{"metadata":{},"items":[{"a":[1}]]}"#,
            r#"{"metadata":{},"items":[{}{}]}"#,
            r#"{"metadata":7,"items":[]}"#,
            r#"{"metadata":{},"items":[]]"#,
            r#"{metadata:{},"items":[]}"#,
        ] {
            for frame in [1, 100] {
                let read = read_all(text, frame, 100).await;
                assert!(
                    matches!(read, Err(PageFault::Garbled(_))),
                    "{text}: {read:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn errors_of_a_malformed_list_do_not_quote_it() {
        for text in [
            r#"{"metadata":{},"items":"zqx"}"#,
            r#"{"metadata":{"resourceVersion":7},"items":[{"a":"zqx"#,
            r#"{"metadata":"zqx","items":[]}"#,
        ] {
            let Err(PageFault::Garbled(garbled)) = read_all(text, 7, 100).await else {
                panic!("{text} must be an error");
            };
            let shown = format!("{garbled} {garbled:?}");
            assert!(!shown.contains("zqx"), "{shown}");
        }
    }
}
