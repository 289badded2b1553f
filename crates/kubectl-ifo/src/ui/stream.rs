//! The stream of events for one tab: all objects, and then their changes. The stream reads the
//! cluster only while the tab receives events. So a slow tab needs no memory for changes.

use super::feeds::{FeedChange, FeedProblem, Feeds};
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
use tokio::time::timeout;

/// Interval of the comments that keep a connection without changes open.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

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
    let tab = Tab {
        incomplete: feeds.incomplete(),
        feeds,
        problems: BTreeMap::new(),
        sender,
    };
    tokio::spawn(tab.send_all(begin));
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

struct Tab {
    feeds: Arc<Feeds>,
    /// The feeds that cannot be read, by their numbers.
    problems: BTreeMap<usize, FeedProblem>,
    /// The reason why the server does not detect all operations.
    incomplete: Option<String>,
    sender: mpsc::Sender<Bytes>,
}

impl Tab {
    /// Sends events until the connection is closed.
    async fn send_all(mut self, mut begin: Value) -> Option<()> {
        loop {
            begin["time"] = json!(clock::now());
            self.send(event("begin", &begin.to_string())).await?;
            self.send_objects().await?;
        }
    }

    /// Sends all objects and then their changes, until a feed is listed again. This happens after an
    /// interruption. All objects must be sent again then, because changes are missing.
    ///
    /// The tab shows its earlier objects until each feed has been listed, or has failed.
    async fn send_objects(&mut self) -> Option<()> {
        let feeds = self.feeds.clone();
        let mut changes = feeds.changes();
        let mut unread: BTreeSet<usize> = (0..feeds.all().len()).collect();
        let mut waiting = Vec::new();
        let mut shown: Option<State> = None;
        loop {
            if unread.is_empty() {
                let state = feeds.state(&self.problems, self.incomplete.as_deref());
                if shown.as_ref() != Some(&state) {
                    self.send(event("state", &json!(state).to_string())).await?;
                }
                if shown.replace(state).is_none() {
                    self.send(event("synced", "{}")).await?;
                }
                for change in waiting.drain(..) {
                    self.send(change).await?;
                }
            }
            if waiting.len() > MAX_WAITING_CHANGES {
                return Some(());
            }
            let Ok(change) = timeout(COMMENT_INTERVAL, changes.next()).await else {
                self.send(Bytes::from_static(b":\n\n")).await?;
                continue;
            };
            let (number, change) = match change? {
                FeedChange::Incomplete(reason) => {
                    self.incomplete = reason;
                    continue;
                }
                FeedChange::Objects(number, change) => (number, *change),
            };
            let feed = &feeds.all()[number];
            match change {
                ObjectChange::Listed(objects) => {
                    self.problems.remove(&number);
                    if !unread.remove(&number) {
                        return Some(());
                    }
                    let texts = objects.into_iter().filter_map(|it| feed.selected(it));
                    for part in texts.collect::<Vec<_>>().chunks(OBJECTS_PER_EVENT) {
                        let items = format!("{{\"items\":[{}]}}", part.join(","));
                        self.send(event("objects", &items)).await?;
                    }
                }
                ObjectChange::Lost(problem) => {
                    unread.remove(&number);
                    self.problems.insert(number, feed.problem(&problem));
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
