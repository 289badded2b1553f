//! The state in pages, where the server knows no `WatchList`.

use super::{IDLE_TIMEOUT, OPEN_TIMEOUT, WatchEnd, WatchTask};
use crate::observe::{
    GapReason, InvalidData,
    budget::ListPermit,
    envelope,
    input::MAX_OBJECT,
    page_reader::{PageFault, PagePart, PageReader},
    request::{Refusal, WatchOrPage},
};
use http_body_util::BodyExt as _;
use kube::client::Body;
use std::pin::pin;
use tokio::time::timeout;
use tracing::warn;

/// Objects in a page of a list.
pub(super) const FIRST_PAGE: u32 = 100;

/// Objects in a page after pages have expired: fewer requests, so less time for it.
const MAX_PAGE: u32 = 2_500;

/// Objects in a page after pages have broken off: one of the largest objects that etcd
/// takes has 30 MB then, which most connections carry within the time limit of a call.
const MIN_PAGE: u32 = 20;

/// How the next page may be larger or smaller than the last.
const GROWTH_FACTOR: u32 = 5;

/// The end of a page.
struct Last {
    version: String,
    next: Option<String>,
}

impl WatchTask {
    /// The state in pages, each read object by object.
    pub(super) async fn list(&mut self, client: &kube::Client) -> Result<(), WatchEnd> {
        let turn = self.turn().await;
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
            let last = self.read_page(body, &mut begun).await.map_err(|fault| {
                let lost = match fault {
                    PageFault::Garbled(why) => GapReason::Garbled(why),
                    PageFault::Broken(why) => {
                        self.page = (self.page / GROWTH_FACTOR).max(MIN_PAGE);
                        GapReason::Unreachable(why)
                    }
                };
                WatchEnd::Failed(lost, None)
            })?;
            if last.next.is_some() && last.next != token {
                token = last.next;
            } else if last.next.is_some() || last.version.is_empty() {
                return Err(WatchEnd::Failed(
                    GapReason::Garbled(InvalidData::Endless),
                    None,
                ));
            } else {
                self.version = Some(last.version);
                drop(turn);
                self.synced().await;
                return Ok(());
            }
        }
    }

    /// Waits until this list may run; says that there is a gap if that takes its time.
    async fn turn(&mut self) -> ListPermit {
        let budget = self.budget.clone();
        let mut turn = pin!(budget.turn());
        if self.synced {
            if let Ok(turn) = timeout(OPEN_TIMEOUT, &mut turn).await {
                return turn;
            }
            self.lost(GapReason::Queued).await;
        }
        turn.await
    }

    /// Passes on the objects of a page. `begun`: whether one before it did.
    async fn read_page(&mut self, body: Body, begun: &mut bool) -> Result<Last, PageFault> {
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
                    let Some(object) = envelope::identity(&head) else {
                        return Err(PageFault::Garbled(InvalidData::Nameless(length)));
                    };
                    drop(head);
                    self.too_large(object, length).await;
                }
                PagePart::NotAnObject => garbage += 1,
                PagePart::End { version, next } => {
                    if garbage > 0 {
                        warn!(source = %self.source, items = garbage, "the list contains items that are not objects");
                    }
                    return Ok(Last { version, next });
                }
            }
        }
    }
}
