//! Lists all objects of a source in pages.
//!
//! A feed that reads a page holds the permit for large objects, until its consumer has processed the
//! objects of the page. So there is only one page in memory.

use super::{
    InvalidData, Raw,
    lines::{LARGE_OBJECT_TIMEOUT, MAX_OBJECT},
    requests::{Failure, unreachable},
    watch_task::{Body, WatchTask},
};
use bytes::Bytes;
use futures::AsyncReadExt as _;
use ifo_client::{error_text::chain, list::ListItems};
use kube::api::ListParams;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Number of objects that a feed requests in its first page.
pub(super) const FIRST_PAGE: u32 = 100;

/// Number of objects in a page after a continue token has expired, so that the next list needs fewer
/// requests and less time.
const LARGE_PAGE: u32 = 500;

/// Maximum size of a page in bytes. Some API servers ignore the requested number of objects.
const MAX_PAGE_BYTES: usize = 32 << 20;

/// A feed first requests a page, and then waits for the permit. If it waits for the permit longer
/// than this time, it requests the page again, because the time limit of the first request includes
/// the wait. During the second request, the feed holds the permit, and other feeds wait for it. So
/// the answer to the second request must begin within this time, too.
const MAX_ANSWER_AGE: Duration = Duration::from_secs(10);

impl WatchTask {
    /// Lists all objects in pages. Afterwards, the version of the list is the version from which a
    /// watch can continue.
    pub(super) async fn list(&mut self) -> Result<(), Failure> {
        let mut token: Option<String> = None;
        let mut has_begun = false;
        loop {
            let limit = self.page;
            let (mut body, began) = (self.open_page(token.as_deref()).await?, Instant::now());
            let permit = self.large_objects.clone().acquire_owned();
            let permit = self.wait_for(permit, "no list yet").await;
            if began.elapsed() > MAX_ANSWER_AGE {
                let opened = timeout(MAX_ANSWER_AGE, self.open_page(token.as_deref())).await;
                body = opened.unwrap_or_else(|_| Err(unreachable("no answer yet")))?;
            }
            let sent = self.send_page(body, &mut has_begun).await;
            drop(permit);
            match sent {
                Ok((version, None)) => {
                    self.version = Some(version);
                    self.report_synced().await;
                    return Ok(());
                }
                Ok((_, next)) if next == token => return Err(InvalidData::Endless.into()),
                Ok((_, next)) => token = next,
                // The page was too large. The next request is for a smaller page.
                Err(failure) if self.page < limit && failure == InvalidData::TooLarge.into() => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Requests a page.
    async fn open_page(&mut self, token: Option<&str>) -> Result<Body, Failure> {
        let params = ListParams {
            label_selector: self.selection.clone(),
            limit: Some(self.page),
            continue_token: token.map(str::to_owned),
            ..ListParams::default()
        };
        let opened = self.open(self.request.list(&params)).await;
        if token.is_some() && matches!(opened, Err(Failure::Expired)) {
            self.page = LARGE_PAGE;
        }
        opened
    }

    /// Reads a page, and sends its objects to the consumer. The caller has the permit. Returns the
    /// resourceVersion of the list, and the continue token of the next page. If the page is too
    /// large, or fails after a long time, the next one is smaller.
    async fn send_page(
        &mut self,
        body: Body,
        has_begun: &mut bool,
    ) -> Result<(String, Option<String>), Failure> {
        let began = Instant::now();
        let page = match self.wait_for(read(body), "no list yet").await {
            Ok(page) => page,
            Err(failure) => {
                let is_slow = began.elapsed() > LARGE_OBJECT_TIMEOUT / 2;
                if is_slow || failure == InvalidData::TooLarge.into() {
                    self.page = (self.page / 5).max(1);
                }
                return Err(failure);
            }
        };
        let list = decode(&page)?;
        if !std::mem::replace(has_begun, true) {
            self.reset().await;
        }
        for item in &list.items {
            let object = item.get().as_bytes();
            if object.len() > MAX_OBJECT {
                return Err(InvalidData::TooLarge.into());
            }
            self.send(Raw::Applied(page.slice_ref(object))).await;
        }
        let next = list.next();
        let version = list.metadata.resource_version.filter(|it| !it.is_empty());
        Ok((version.ok_or(InvalidData::Endless)?, next))
    }
}

/// Reads a page as a whole.
async fn read(body: Body) -> Result<Bytes, Failure> {
    let mut page = Vec::new();
    let mut body = body.take(MAX_PAGE_BYTES as u64 + 1);
    match timeout(LARGE_OBJECT_TIMEOUT, body.read_to_end(&mut page)).await {
        Ok(Ok(_)) if page.len() > MAX_PAGE_BYTES => Err(InvalidData::TooLarge.into()),
        Ok(Ok(_)) => Ok(page.into()),
        Ok(Err(error)) => Err(unreachable(chain(&error))),
        Err(_) => Err(unreachable(format!(
            "no complete page within {LARGE_OBJECT_TIMEOUT:?}"
        ))),
    }
}

/// Decodes a page. Returns an error if an item is not a JSON object. The feed must not skip such an
/// item, because its consumer would then regard an object as deleted.
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
            assert_eq!(list.metadata.resource_version.as_deref(), Some("7"));
            assert_eq!(list.next().as_deref(), Some("abc"));
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
