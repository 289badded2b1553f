//! The task that owns the tracker and the index's writer. Enters: messages of the feeds, of
//! the controller of rule sets, of the restore at the start, and about namespaces. Leaves:
//! changes of the index.

use crate::clock;
use crate::index::{Stamp, Writer};
use crate::telemetry::Metrics;
use ifo_engine::track::{Event, Message, Now, Tracker};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Messages that may wait for the tracker. When it is full, feeds wait, and so does
/// the connection they read from: nothing is dropped, memory stays bounded.
pub const QUEUE: usize = 1024;

/// Messages taken, and committed to the index, at once. Bounds how long a reader
/// waits for the first of them.
const BATCH: usize = 256;

/// Runs until all senders are gone, and then leaves the index as it is.
pub async fn run(
    mut tracker: Tracker,
    mut writer: Writer,
    mut messages: mpsc::Receiver<Message>,
    metrics: Arc<Metrics>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let deadline = tracker.next_deadline();
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            received = messages.recv_many(&mut batch, BATCH) => if received == 0 { return },
            () = expired => {}
        }
        let now = now();
        let mut reads = Vec::with_capacity(batch.len());
        let mut flushed = Vec::new();
        for message in batch.drain(..) {
            if let Message::Flush(done) = message {
                flushed.push(done);
                continue;
            }
            if let Message::Feed {
                event: Event::Evaluated { read, .. } | Event::Deleted { read, .. },
                ..
            } = &message
            {
                reads.push(*read);
            }
            tracker.advance(message, now);
        }
        tracker.expire(now);
        let changes = tracker.take_changes();
        if !changes.is_empty() {
            match writer.commit(changes, Stamp::Mint) {
                Ok(_) => reads
                    .iter()
                    .for_each(|read| metrics.event_visible(clock::since(*read))),
                Err(error) => {
                    tracing::error!(%error, "operations could not be written to the index");
                }
            }
        }
        for done in flushed {
            // The sender of the message may have dropped its receiver.
            let _ = done.send(());
        }
    }
}

/// The time now, on the clocks of this machine.
pub fn now() -> Now {
    Now {
        wall: clock::now(),
        steady: clock::steady(),
    }
}
