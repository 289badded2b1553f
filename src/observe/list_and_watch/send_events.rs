//! Sends the events of a feed to its consumer. Also updates the metrics of the feed, and logs
//! interruptions of the watch and their ends.

use super::WatchTask;
use crate::observe::{GapReason, Raw};
use bytes::Bytes;
use futures::SinkExt as _;
use tracing::{info, warn};

impl WatchTask {
    pub(super) async fn applied(&mut self, object: Bytes) {
        self.send(Raw::Applied(object)).await;
    }

    pub(super) async fn too_large(&mut self, object: Bytes, length: u64) {
        self.send(Raw::TooLarge { object, length }).await;
    }

    pub(super) async fn reset(&mut self) {
        self.synced = false;
        self.metrics.feed_relist(&self.target);
        self.send(Raw::Reset).await;
    }

    pub(super) async fn synced(&mut self) {
        self.synced = true;
        self.metrics.feed_state(&self.target, "watching");
        info!(source = %self.source, "up to date");
        self.send(Raw::Synced).await;
    }

    pub(super) async fn lost(&mut self, lost: GapReason) {
        self.synced = false;
        self.metrics.feed_state(&self.target, "lost");
        warn!(source = %self.source, reason = %lost, "the watch is interrupted");
        self.send(Raw::Lost(lost)).await;
    }

    pub(super) async fn send(&mut self, raw: Raw) {
        // `send` fails if the consumer of the feed has stopped. Then this future is dropped, too.
        let _ = self.out.send(raw).await;
    }
}
