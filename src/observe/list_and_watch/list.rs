//! Lists all objects of a source in pages. A feed does this if the kube-apiserver does not support
//! `WatchList`, or if a `WatchList` has not yielded all objects.

use super::{AttemptEnd, IDLE_TIMEOUT, INTERRUPTION_REPORT_DELAY, WatchTask};
use crate::observe::{
    GapReason, InvalidData,
    apiserver_requests::{Refusal, WatchOrPage},
    body_parts::MAX_OBJECT,
    list_page::{PageFault, PagePart, PageReader},
    read_budget::ListPermit,
    watch_event,
};
use http_body_util::BodyExt as _;
use kube::client::Body;
use std::pin::pin;
use tokio::time::timeout;
use tracing::warn;

/// Number of objects that a feed requests in its first page.
pub(super) const FIRST_PAGE: u32 = 100;

/// Maximum number of objects in a page. After a continue token has expired, the feed requests
/// larger pages, so that the next list needs fewer requests and less time.
const MAX_PAGE: u32 = 2_500;

/// Minimum number of objects in a page. After an incomplete page, the feed requests smaller pages.
/// In etcd, an object has at most 1.5 MiB, so 20 objects have at most about 30 MB. Most connections
/// transfer 30 MB within the time limit of a request.
const MIN_PAGE: u32 = 20;

/// Factor by which the number of objects in a page grows or shrinks.
const GROWTH_FACTOR: u32 = 5;

/// The metadata of a page: the resourceVersion, and the continue token for the next page.
struct PageMetadata {
    version: String,
    next: Option<String>,
}

impl WatchTask {
    /// Lists all objects in pages. Sends each object as soon as it has arrived.
    pub(super) async fn list(&mut self, client: &kube::Client) -> Result<(), AttemptEnd> {
        let permit = self.wait_for_permit().await;
        let mut token: Option<String> = None;
        let mut begun = false;
        loop {
            let ask = WatchOrPage::Page {
                limit: self.page,
                token: token.as_deref(),
            };
            let body = match self.open(client, ask).await {
                Ok(body) => body,
                Err(refusal) => {
                    if refusal == Refusal::Expired && token.is_some() {
                        self.page = (self.page * GROWTH_FACTOR).min(MAX_PAGE);
                    }
                    return Err(refusal.into());
                }
            };
            let page = self.read_page(body, &mut begun).await.map_err(|fault| {
                let lost = match fault {
                    PageFault::Garbled(why) => GapReason::Garbled(why),
                    PageFault::Broken(why) => {
                        self.page = (self.page / GROWTH_FACTOR).max(MIN_PAGE);
                        GapReason::Unreachable(why)
                    }
                };
                AttemptEnd::Failed(lost, None)
            })?;
            if page.next.is_some() && page.next != token {
                token = page.next;
            } else if page.next.is_some() || page.version.is_empty() {
                return Err(AttemptEnd::Failed(
                    GapReason::Garbled(InvalidData::Endless),
                    None,
                ));
            } else {
                self.version = Some(page.version);
                drop(permit);
                self.synced().await;
                return Ok(());
            }
        }
    }

    /// Waits for a permit to list. If the feed is synced, and the wait takes longer than
    /// [`INTERRUPTION_REPORT_DELAY`], reports an interruption and continues to wait.
    async fn wait_for_permit(&mut self) -> ListPermit {
        let budget = self.budget.clone();
        let mut permit = pin!(budget.list_permit());
        if self.synced {
            if let Ok(permit) = timeout(INTERRUPTION_REPORT_DELAY, &mut permit).await {
                return permit;
            }
            self.lost(GapReason::Queued).await;
        }
        permit.await
    }

    /// Sends the objects of a page to the consumer of the feed, and returns the metadata of the
    /// page. If `begun` is false, first sends the `Reset` that begins the list, and sets `begun` to
    /// true.
    async fn read_page(&mut self, body: Body, begun: &mut bool) -> Result<PageMetadata, PageFault> {
        let mut page = PageReader::new(body.into_data_stream(), MAX_OBJECT, self.budget.clone());
        let mut garbage = 0_u64;
        loop {
            let item = page.next(IDLE_TIMEOUT).await?;
            if !std::mem::replace(begun, true) {
                self.reset().await;
            }
            match item {
                PagePart::Object(object) => self.applied(object).await,
                PagePart::TooLong { length, head } => {
                    let Some(object) = watch_event::identity(&head) else {
                        return Err(PageFault::Garbled(InvalidData::UnidentifiedItem(length)));
                    };
                    drop(head);
                    self.too_large(object, length).await;
                }
                PagePart::NotAnObject => garbage += 1,
                PagePart::End { version, next } => {
                    if garbage > 0 {
                        warn!(source = %self.source, items = garbage, "the list contains items that are not objects");
                    }
                    return Ok(PageMetadata { version, next });
                }
            }
        }
    }
}
