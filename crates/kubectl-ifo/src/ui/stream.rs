//! The stream of events for one tab: all objects, and then their changes. The stream reads the
//! cluster only while the tab receives events. Changes wait in memory only until all feeds have been
//! listed, and their number is bounded.

use super::feeds::{FeedChange, Feeds};
use super::state::State;
use crate::clock;
use crate::operation_source::ObjectChange;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout};

/// Interval of the comments that keep a connection without changes open.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// Pause before all feeds are listed again. After each interruption, the pause is doubled.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Time without an interruption after which the next pause is [`FIRST_PAUSE`] again.
const STABLE_TIME: Duration = Duration::from_mins(1);

/// Number of events that wait until the connection can send them.
const WAITING_EVENTS: usize = 2;

/// Number of changes that wait for the first lists of all feeds. If there are more, all feeds are
/// listed again.
const MAX_WAITING_CHANGES: usize = 10_000;

/// Largest number of objects in one event of the stream.
const OBJECTS_PER_EVENT: usize = 500;

/// Returns the events for one tab. `begin` is the data of the first event, without the time.
pub(super) fn events(feeds: Arc<Feeds>, begin: Value) -> impl Stream<Item = Bytes> {
    let (sender, mut receiver) = mpsc::channel(WAITING_EVENTS);
    let tab = Tab { feeds, sender };
    tokio::spawn(tab.send_all(begin));
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

struct Tab {
    feeds: Arc<Feeds>,
    sender: mpsc::Sender<Bytes>,
}

impl Tab {
    /// Sends events until the connection is closed.
    async fn send_all(self, mut begin: Value) -> Option<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            let start = Instant::now();
            begin["time"] = json!(clock::now());
            self.send(event("begin", &begin.to_string())).await?;
            self.send_objects().await?;
            if start.elapsed() >= STABLE_TIME {
                pause = FIRST_PAUSE;
            }
            // If a watch cannot start, its feed is listed again and again. The pause limits how often all
            // objects are sent.
            if timeout(pause, self.sender.closed()).await.is_ok() {
                return None;
            }
            pause = MAX_PAUSE.min(pause * 2);
        }
    }

    /// Sends all objects and then their changes, until a feed is listed again. This happens after an
    /// interruption. All objects must be sent again then, because changes are missing.
    ///
    /// The tab shows its earlier objects until each feed has been listed or has failed. A feed of
    /// operations must be listed, unless the user may not read it.
    async fn send_objects(&self) -> Option<()> {
        let feeds = &self.feeds;
        let mut changes = feeds.changes();
        let mut unread: BTreeSet<usize> = (0..feeds.all().len()).collect();
        let mut problems = BTreeMap::new();
        let mut waiting = Vec::new();
        let (mut shown, mut is_synced) = (None::<State>, false);
        let mut comments = interval(COMMENT_INTERVAL);
        loop {
            if unread.iter().all(|it| problems.contains_key(it)) {
                let state = feeds.state(&problems);
                if shown.as_ref() != Some(&state) {
                    self.send(event("state", &json!(state).to_string())).await?;
                    shown = Some(state);
                }
                if !is_synced && !feeds.lacks_operations(&unread, &problems) {
                    self.send(event("synced", "{}")).await?;
                    is_synced = true;
                }
            }
            if is_synced {
                for change in waiting.drain(..) {
                    self.send(change).await?;
                }
            }
            if waiting.len() > MAX_WAITING_CHANGES {
                return Some(());
            }
            let change = tokio::select! {
                change = changes.next() => change?,
                _ = comments.tick() => {
                    self.send(Bytes::from_static(b":\n\n")).await?;
                    continue;
                }
                () = self.sender.closed() => return None,
            };
            let FeedChange::Objects(number, change) = change else {
                continue;
            };
            let feed = &feeds.all()[number];
            match *change {
                ObjectChange::Listed(objects) => {
                    problems.remove(&number);
                    if !unread.remove(&number) || is_synced {
                        return Some(());
                    }
                    let texts = objects.into_iter().filter_map(|it| feed.selected(it));
                    for part in texts.collect::<Vec<_>>().chunks(OBJECTS_PER_EVENT) {
                        let items = format!("{{\"items\":[{}]}}", part.join(","));
                        self.send(event("objects", &items)).await?;
                    }
                }
                ObjectChange::Lost(problem) => {
                    problems.insert(number, feed.problem(&problem));
                }
                ObjectChange::Applied(object) => {
                    // Before the change, the filters may have selected the object.
                    let selected = feed.selected(object.clone()).map(|it| ("MODIFIED", it));
                    let deleted = || Some(("DELETED", feed.json(object)?));
                    waiting.extend(selected.or_else(deleted).map(change_event));
                }
                ObjectChange::Deleted(object) => {
                    let deleted = feed.json(object).map(|it| ("DELETED", it));
                    waiting.extend(deleted.map(change_event));
                }
            }
        }
    }

    /// Waits until the connection has room for the event. None if the connection is closed.
    async fn send(&self, event: Bytes) -> Option<()> {
        self.sender.send(event).await.ok()
    }
}

/// Formats an event of the stream.
fn event(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

fn change_event((kind, json): (&str, String)) -> Bytes {
    event(
        "change",
        &format!("{{\"type\":\"{kind}\",\"object\":{json}}}"),
    )
}

#[cfg(test)]
mod tests;
