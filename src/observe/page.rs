//! A page of a list in, its objects out: slices of the page, which is not decoded further.

use super::Garbled;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The objects' JSON, in the server's order.
    pub(super) items: Vec<Bytes>,
    /// The resourceVersion that the whole list is at; all pages have the same.
    pub(super) version: String,
    /// The token for the next page, if there is one.
    pub(super) next: Option<String>,
    /// How many items were not objects, and are left out.
    pub(super) garbage: u64,
}

#[derive(Deserialize)]
struct List<'a> {
    metadata: Meta,
    // Go writes an empty list as null when it was never made.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

/// Reads a page. `Err` says what is wrong with it.
pub(super) fn read(page: &Bytes) -> Result<Page, Garbled> {
    let list: List<'_> = serde_json::from_slice(page).map_err(|e| Garbled::json(&e))?;
    let (items, other): (Vec<_>, Vec<_>) = list
        .items
        .unwrap_or_default()
        .into_iter()
        .map(|item| item.get().as_bytes())
        .partition(|item| item.starts_with(b"{"));
    Ok(Page {
        items: items.into_iter().map(|item| page.slice_ref(item)).collect(),
        version: list.metadata.resource_version,
        next: Some(list.metadata.r#continue).filter(|token| !token.is_empty()),
        garbage: other.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_its_objects_as_slices_and_the_token_of_the_next() {
        let page = Bytes::from_static(
            br#"{"kind":"XList","metadata":{"resourceVersion":"7","continue":"abc"},"items":[ {"a":1}, null, {"b":{}} ]}"#,
        );
        let read = read(&page).unwrap();
        assert_eq!(read.items, [&br#"{"a":1}"#[..], br#"{"b":{}}"#]);
        assert!(
            page.as_ptr_range().contains(&read.items[0].as_ptr()),
            "copied"
        );
        assert_eq!(
            (read.version.as_str(), read.next.as_deref(), read.garbage),
            ("7", Some("abc"), 1)
        );
    }

    #[test]
    fn an_empty_list_may_be_null_and_the_last_page_has_no_token() {
        for items in ["null", "[]"] {
            let page = Bytes::from(format!(
                r#"{{"items":{items},"metadata":{{"resourceVersion":"7","continue":""}}}}"#
            ));
            let read = read(&page).unwrap();
            assert_eq!((read.items.len(), read.next), (0, None));
        }
    }

    #[test]
    fn what_is_not_a_list_is_an_error() {
        for text in [
            "",
            "{",
            "[]",
            "null",
            r#"{"items":{}}"#,
            r#"{"metadata":{},"items":{"a":1}}"#,
        ] {
            assert!(
                read(&Bytes::from_static(text.as_bytes())).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn nothing_of_a_broken_list_is_repeated() {
        for text in [
            r#"{"metadata":{},"items":"zqx"}"#,
            r#"{"metadata":{"resourceVersion":7},"items":[{"a":"zqx"#,
            r#"{"metadata":"zqx","items":[]}"#,
        ] {
            let garbled = read(&Bytes::from_static(text.as_bytes())).unwrap_err();
            let told = format!("{garbled} {garbled:?}");
            assert!(!told.contains("zqx"), "{told}");
        }
    }
}
