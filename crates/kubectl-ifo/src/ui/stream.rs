//! The stream of events for one tab: the whole content of the store, and then its changes.

use super::store::{Store, event};
use crate::clock;
use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// Interval of the comments that keep a connection without changes open.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// If the client has not received an event for this time, its connection is closed. The client gets
/// at least one comment in each [`COMMENT_INTERVAL`].
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_mins(1);

/// Number of events that wait until the connection can send them.
const WAITING_EVENTS: usize = 2;

/// The time at which a connection is closed. The stream moves it while the client reads.
pub(super) type Deadline = watch::Sender<Instant>;

/// Returns the events for one tab. `begin` is the data of the first event, without the time.
pub(super) fn events(
    store: Arc<Store>,
    begin: Value,
    deadline: Deadline,
) -> impl Stream<Item = Bytes> {
    let (sender, mut receiver) = mpsc::channel(WAITING_EVENTS);
    let tab = Tab { sender, deadline };
    tokio::spawn(async move { tab.send_all(&store, begin).await });
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

struct Tab {
    sender: mpsc::Sender<Bytes>,
    deadline: Deadline,
}

impl Tab {
    /// Sends events until the connection is closed.
    async fn send_all(&self, store: &Store, mut begin: Value) -> Option<()> {
        loop {
            begin["time"] = json!(clock::now());
            self.send(event("begin", &begin)).await?;
            while timeout(COMMENT_INTERVAL, store.started()).await.is_err() {
                self.send_comment().await?;
            }
            let mut snapshot = store.snapshot();
            for event in snapshot.events() {
                self.send(event).await?;
            }
            // The changes since the snapshot do not need its objects.
            snapshot.objects = Vec::new();
            loop {
                match timeout(COMMENT_INTERVAL, snapshot.updates.recv()).await {
                    Ok(Ok(event)) => self.send(event).await?,
                    Ok(Err(RecvError::Lagged(_))) => break,
                    Ok(Err(RecvError::Closed)) => return None,
                    Err(_) => self.send_comment().await?,
                }
            }
        }
    }

    async fn send_comment(&self) -> Option<()> {
        self.send(Bytes::from_static(b":\n\n")).await
    }

    /// Waits until the connection has room for the event. None if the connection is closed.
    async fn send(&self, event: Bytes) -> Option<()> {
        self.sender.send(event).await.ok()?;
        self.deadline.send_replace(Instant::now() + CLIENT_TIMEOUT);
        Some(())
    }
}
