//! Lists all objects of a source in pages. A feed does this if the kube-apiserver does not support
//! `WatchList`, or if a `WatchList` has not yielded all objects.
//!
//! A page of more than 64 KiB holds the permit for large objects, until the consumer of the feed has
//! processed its objects. So there is only one such page in memory.

use super::{
    GapReason, InvalidData, Raw,
    parts::{BodyEnd, MAX_PART, PartReader},
    requests::{Refusal, escaped},
    watch_task::{AttemptEnd, IDLE_TIMEOUT, WatchTask},
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use ifo_client::list::ListItems;
use kube::client::Body;
use serde_json::value::RawValue;

/// Maximum number of objects in a page. After a continue token has expired, the feed requests
/// larger pages, so that the next list needs fewer requests and less time.
const MAX_PAGE: u32 = 2_500;

/// Maximum size of a page in bytes. A page that is larger than an object may be makes the next pages
/// smaller. Some API servers ignore the requested number of objects.
const MAX_PAGE_BYTES: usize = 32 << 20;

/// Factor by which the number of objects in a page grows or shrinks. After an incomplete or too
/// large page, the feed requests smaller pages.
const GROWTH_FACTOR: u32 = 5;

impl WatchTask {
    /// Lists all objects in pages.
    pub(super) async fn list(&mut self, client: &kube::Client) -> Result<(), AttemptEnd> {
        let garbled = |why| AttemptEnd::Failed(GapReason::Garbled(why), None);
        let mut token = String::new();
        let mut has_begun = false;
        loop {
            let limit = self.state.page;
            let query = if token.is_empty() {
                format!("limit={limit}")
            } else {
                format!("limit={limit}&continue={}", escaped(&token))
            };
            let body = match self.open(client, &query).await {
                Ok(body) => body,
                Err(refusal) => {
                    if refusal == Refusal::Expired && !token.is_empty() {
                        self.state.page = (self.state.page * GROWTH_FACTOR).min(MAX_PAGE);
                    }
                    return Err(refusal.into());
                }
            };
            let Some(page) = self.read_page(body).await? else {
                continue; // The page was too large.
            };
            let ListItems {
                version,
                next,
                items,
            } = decode(&page).map_err(garbled)?;
            if !std::mem::replace(&mut has_begun, true) {
                self.reset().await;
            }
            for item in items {
                let object = item.get().as_bytes();
                if object.len() > MAX_PART {
                    return Err(garbled(InvalidData::TooLarge));
                }
                self.send(Raw::Applied(page.slice_ref(object))).await;
            }
            let version = version.filter(|it| !it.is_empty());
            if version.is_none() || next.as_ref() == Some(&token) {
                return Err(garbled(InvalidData::Endless));
            }
            let Some(next) = next else {
                self.state.version = version;
                self.synced().await;
                return Ok(());
            };
            token = next;
        }
    }

    /// Reads a page. If the page is too large or does not arrive, the next page is smaller. Returns
    /// `None` if the page is too large.
    async fn read_page(&mut self, body: Body) -> Result<Option<Bytes>, AttemptEnd> {
        let body = body.into_data_stream();
        let mut page = PartReader::new(body, MAX_PAGE_BYTES, self.budget.clone());
        let why = match page.page(IDLE_TIMEOUT).await {
            Ok(page) => {
                if page.len() > MAX_PART {
                    self.shrink_pages();
                }
                return Ok(Some(page));
            }
            Err(BodyEnd::TooLong) if self.state.page == 1 => {
                let why = GapReason::Garbled(InvalidData::TooLarge);
                return Err(AttemptEnd::Failed(why, None));
            }
            Err(BodyEnd::TooLong) => None,
            Err(BodyEnd::Broken(why)) => Some(why),
            Err(BodyEnd::Idle | BodyEnd::Closed) => {
                Some(format!("no complete page within {IDLE_TIMEOUT:?}"))
            }
        };
        self.shrink_pages();
        match why {
            Some(why) => Err(AttemptEnd::Failed(GapReason::Unreachable(why), None)),
            None => Ok(None),
        }
    }

    fn shrink_pages(&mut self) {
        self.state.page = (self.state.page / GROWTH_FACTOR).max(1);
    }
}

/// Decodes a page. If an item is not an object, the whole page is an error. If the feed skipped the
/// item, an object would count as deleted.
fn decode(page: &[u8]) -> Result<ListItems<&RawValue>, InvalidData> {
    let list = ListItems::<&RawValue>::read(page);
    let list = list.map_err(|error| InvalidData::Json((&error).into()))?;
    let mut items = list.items.iter();
    match items.find(|item| !item.get().starts_with('{')) {
        Some(_) => Err(InvalidData::NoObject),
        None => Ok(list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_decoded_in_any_order_of_its_fields() {
        let meta = r#""metadata":{"resourceVersion":"7","continue":"abc"}"#;
        let items = r#""items":[ {"a":"}]\\\"{"}, {"b":{"c":[{}]}}]"#;
        for text in [
            format!(r#"{{"kind":"XList",{meta},{items}}}"#),
            format!(" {{ \"more\":[{{\"items\":[1]}}] ,{items},\n{meta}\n}}\n"),
        ] {
            let page = Bytes::from(text);
            let list = decode(&page).unwrap();
            assert_eq!(list.version.as_deref(), Some("7"));
            assert_eq!(list.next.as_deref(), Some("abc"));
            let items = list.items.iter().map(|item| item.get());
            assert!(items.eq([r#"{"a":"}]\\\"{"}"#, r#"{"b":{"c":[{}]}}"#]));
        }
        for items in ["null", "[]"] {
            let text = format!(r#"{{"metadata":{{}},"items":{items}}}"#);
            assert!(decode(&Bytes::from(text)).unwrap().items.is_empty());
        }
    }

    #[test]
    fn an_answer_that_is_not_a_list_is_an_error_that_does_not_quote_it() {
        for text in [
            "",
            "<html>zqx",
            r#"{"metadata":{},"items":{"zqx":1}}"#,
            r#"{"metadata":{},"items":[{},null]}"#,
            r#"{"metadata":{},"items":[{"a":zqx}]}"#,
            r#"{"metadata":{},"items":"zqx"}"#,
            r#"{"metadata":"zqx","items":[]}"#,
            r#"{"metadata":{"resourceVersion":7},"items":[{"a":"zqx"#,
        ] {
            let Err(error) = decode(&Bytes::from(text)) else {
                panic!("{text} must be an error");
            };
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("zqx"), "{shown}");
        }
    }
}
