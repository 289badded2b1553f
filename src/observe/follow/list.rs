//! The state in pages, where the server knows no `WatchList`.

use super::{End, Follower};
use crate::observe::{
    Garbled, Lost, envelope,
    lines::MAX_LINE,
    page,
    request::{self, Ask, ReadError, Refusal},
};
use tracing::warn;

/// Objects in a page of a list.
pub(super) const PAGE: u32 = 100;

/// Objects in a page after pages have expired: fewer requests, so less time for it.
const MAX_PAGE: u32 = 2_500;

/// Bytes of a page: forty objects of the size that etcd allows at most. If a hundred
/// objects are larger, smaller pages are asked for.
const PAGE_BYTES: usize = 64 << 20;

impl Follower {
    /// The state in pages.
    pub(super) async fn list(&mut self, client: &kube::Client) -> Result<(), End> {
        let mut token: Option<String> = None;
        let mut begun = false;
        loop {
            let ask = Ask::Page {
                limit: self.page,
                token: token.as_deref(),
            };
            let body = match self.open(client, ask).await {
                Ok(body) => body,
                Err(refusal) => {
                    if refusal == Refusal::Expired && token.is_some() {
                        self.page = (self.page * 5).min(MAX_PAGE);
                    }
                    return Err(refusal.into());
                }
            };
            let body = match request::read(body, PAGE_BYTES).await {
                Ok(body) => body,
                Err(ReadError::TooLarge) if self.page > 1 => {
                    self.page /= 10;
                    self.page = self.page.max(1);
                    continue;
                }
                Err(ReadError::TooLarge) => {
                    let why = Garbled::ObjectTooLarge(PAGE_BYTES);
                    return Err(End::Failed(Lost::Garbled(why), None));
                }
                Err(ReadError::Broken(why)) => {
                    return Err(End::Failed(Lost::Unreachable(why), None));
                }
            };
            let page = page::read(&body).map_err(|why| End::Failed(Lost::Garbled(why), None))?;
            if !std::mem::replace(&mut begun, true) {
                self.reset().await;
            }
            if page.garbage > 0 {
                warn!(source = %self.source, items = page.garbage, "list holds items that are not objects");
            }
            for item in page.items {
                // What would be too long for a line of a watch, so that both say the same.
                if item.len() <= MAX_LINE {
                    self.applied(item).await;
                } else if let Some(object) = envelope::identity(&item) {
                    self.too_large(object, item.len() as u64).await;
                } else {
                    let why = Garbled::Nameless(item.len());
                    return Err(End::Failed(Lost::Garbled(why), None));
                }
            }
            if page.next.is_some() && page.next != token {
                token = page.next;
            } else if page.next.is_some() || page.version.is_empty() {
                let why = Garbled::Endless;
                return Err(End::Failed(Lost::Garbled(why), None));
            } else {
                self.version = Some(page.version);
                self.synced().await;
                return Ok(());
            }
        }
    }
}
