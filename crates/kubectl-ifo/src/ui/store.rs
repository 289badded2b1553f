//! The objects that the page shows, in memory. One store serves all open tabs: each tab gets a
//! [`Snapshot`], and then the changes since this snapshot.
//!
//! Objects come from feeds. A feed is the watch of one kind in one namespace, or in all namespaces.
//! An object is kept as JSON text, with all fields that the server sent.

use crate::clock;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, watch};

/// Largest number of objects in the store. `ifo-apiserver` serves at most 50,000 operations and, by
/// default, 10,000 records. Further objects are not shown, and the page has a warning.
const MAX_OBJECTS: usize = 100_000;

/// Largest size of the JSON of all objects in the store. Further objects are not shown.
const MAX_BYTES: usize = 256 << 20;

/// Largest number of objects in one event of the stream.
const OBJECTS_PER_EVENT: usize = 500;

/// Number of changes that a slow tab can be behind the store. All tabs share the memory of these
/// changes. A tab that is further behind gets a new snapshot.
const MAX_CHANGES_BEHIND: usize = 4096;

/// Number of gaps that the store remembers. It forgets the oldest ones.
const MAX_GAPS: usize = 200;

/// An object of a feed.
#[derive(Clone, Debug)]
pub(super) struct FeedObject {
    /// Namespace and name.
    pub(super) key: (String, String),
    /// The JSON of the object, in one line.
    pub(super) json: Arc<str>,
}

/// The state of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FeedState {
    /// The first list is being read.
    Starting,
    /// The objects are current.
    Current,
    /// The objects cannot be read at all, for this reason. An example is a missing right.
    Refused(String),
    /// The objects are those of the last successful answer, because of this problem.
    Lost(String),
}

/// What the page shows besides the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct State {
    /// What could not be read, and why operations may be missing.
    pub(super) warnings: Vec<String>,
    /// The times for which operations may be missing, since the start of the command.
    pub(super) gaps: Vec<Gap>,
}

/// A time for which operations may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Gap {
    kind: GapKind,
    from: Timestamp,
    /// The end. None while the gap lasts.
    to: Option<Timestamp>,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum GapKind {
    /// The cluster does not answer.
    Connection,
    /// The server does not detect all operations.
    Detection,
}

/// All objects of the store at one moment, and the later updates.
pub(super) struct Snapshot {
    pub(super) objects: Vec<Arc<str>>,
    pub(super) state: State,
    /// Events of the stream.
    pub(super) updates: broadcast::Receiver<Bytes>,
}

impl Snapshot {
    /// Returns the events of the stream for this snapshot. Their texts are created one by one, when
    /// the client can receive them.
    pub(super) fn events(&self) -> impl Iterator<Item = Bytes> {
        let objects = self.objects.chunks(OBJECTS_PER_EVENT);
        let objects = objects.map(|it| event_of_text("objects", &items(it)));
        let state = std::iter::once(state_event(&self.state));
        let synced = std::iter::once(event("synced", &json!({})));
        objects.chain(state).chain(synced)
    }
}

/// Formats the JSON of objects as `{"items":[…]}`.
fn items(objects: &[Arc<str>]) -> String {
    format!("{{\"items\":[{}]}}", objects.join(","))
}

/// Formats an event of the stream.
pub(super) fn event(name: &str, data: &Value) -> Bytes {
    event_of_text(name, &data.to_string())
}

fn event_of_text(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

fn state_event(state: &State) -> Bytes {
    event("state", &json!(state))
}

impl State {
    /// Returns the problem of the connection to the cluster. None if all feeds work.
    pub(super) fn problem(&self) -> Option<&str> {
        let mut open = self.gaps.iter().filter(|it| it.to.is_none());
        let lost = open.find(|it| it.kind == GapKind::Connection);
        lost.map(|it| it.message.as_str())
    }

    /// Begins, continues or ends the gap of a kind. `reason` is None if there is no gap.
    fn set_gap(&mut self, kind: GapKind, reason: Option<String>) {
        let mut open = self.gaps.iter_mut().filter(|it| it.to.is_none());
        match (open.find(|it| it.kind == kind), reason) {
            (Some(gap), Some(reason)) => gap.message = reason,
            (Some(gap), None) => gap.to = Some(clock::now()),
            (None, Some(message)) => {
                let (from, to) = (clock::now(), None);
                self.gaps.push(Gap {
                    kind,
                    from,
                    to,
                    message,
                });
            }
            (None, None) => {}
        }
        let forgotten = self.gaps.len().saturating_sub(MAX_GAPS);
        self.gaps.drain(..forgotten);
    }
}

/// The objects of all feeds, and what could not be read.
pub(super) struct Store {
    contents: Mutex<Contents>,
    updates: broadcast::Sender<Bytes>,
    /// True when each feed has been listed or has failed for the first time.
    has_started: watch::Sender<bool>,
    /// Changes when a watched object is deleted.
    ends: watch::Sender<()>,
}

struct Contents {
    /// Objects by the number of their feed, namespace and name.
    objects: BTreeMap<(usize, (String, String)), FeedObject>,
    bytes: usize,
    feeds: Vec<FeedState>,
    /// Warnings that belong to no feed.
    notes: Vec<String>,
    /// The reason why the server does not detect all operations.
    incomplete: Option<String>,
    state: State,
    /// True if an object was left out because of [`MAX_OBJECTS`] or [`MAX_BYTES`].
    is_full: bool,
}

impl Store {
    /// Creates an empty store for this number of feeds.
    pub(super) fn new(feeds: usize) -> Self {
        let contents = Contents {
            objects: BTreeMap::new(),
            bytes: 0,
            feeds: vec![FeedState::Starting; feeds],
            notes: Vec::new(),
            incomplete: None,
            state: State::default(),
            is_full: false,
        };
        Self {
            contents: Mutex::new(contents),
            updates: broadcast::channel(MAX_CHANGES_BEHIND).0,
            has_started: watch::channel(feeds == 0).0,
            ends: watch::Sender::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until each feed has been listed, or has failed for the first time.
    pub(super) async fn started(&self) {
        // The sender is in this store, so it cannot be gone.
        let _ = self.has_started.subscribe().wait_for(|it| *it).await;
    }

    /// Returns all objects, and a receiver for all later updates.
    pub(super) fn snapshot(&self) -> Snapshot {
        let contents = self.lock();
        Snapshot {
            objects: contents
                .objects
                .values()
                .map(|it| it.json.clone())
                .collect(),
            state: contents.state.clone(),
            updates: self.updates.subscribe(),
        }
    }

    /// Replaces the objects of a feed with those of a new list.
    pub(super) fn relist(&self, feed: usize, listed: Vec<FeedObject>) {
        self.change(|contents| {
            contents.feeds[feed] = FeedState::Current;
            let keys: BTreeSet<&(String, String)> = listed.iter().map(|it| &it.key).collect();
            let own = contents.objects.range((feed, Default::default())..);
            let own = own.map(|(key, _)| key).take_while(|it| it.0 == feed);
            let gone: Vec<_> = own.filter(|it| !keys.contains(&it.1)).cloned().collect();
            let mut events: Vec<Bytes> = gone.iter().filter_map(|it| contents.remove(it)).collect();
            events.extend(listed.into_iter().filter_map(|it| contents.put(feed, it)));
            events
        });
    }

    /// Adds or changes an object.
    pub(super) fn put(&self, feed: usize, object: FeedObject) {
        self.change(|contents| contents.put(feed, object).into_iter().collect());
    }

    /// Removes an object, if the store has it.
    pub(super) fn remove(&self, feed: usize, key: (String, String)) {
        self.change(|contents| contents.remove(&(feed, key)).into_iter().collect());
        self.ends.send_replace(());
    }

    /// Returns a receiver that notices when a watched object is deleted, such as an operation that
    /// has ended.
    pub(super) fn ends(&self) -> watch::Receiver<()> {
        self.ends.subscribe()
    }

    /// Sets the state of a feed that does not work. A refused feed loses its objects, because the
    /// user may not see them any more.
    pub(super) fn fail(&self, feed: usize, state: FeedState) {
        if matches!(state, FeedState::Refused(_)) {
            self.relist(feed, Vec::new());
        }
        self.change(|contents| {
            contents.feeds[feed] = state;
            Vec::new()
        });
    }

    /// Replaces the warnings that belong to no feed, and the reason why the server does not detect
    /// all operations.
    pub(super) fn set_notes(&self, notes: Vec<String>, incomplete: Option<String>) {
        self.change(|contents| {
            contents.notes = notes;
            contents.incomplete = incomplete;
            Vec::new()
        });
    }

    /// Changes the contents, and sends the updates to all tabs.
    fn change(&self, change: impl FnOnce(&mut Contents) -> Vec<Bytes>) {
        let mut contents = self.lock();
        let before = contents.state.clone();
        let mut events = change(&mut contents);
        contents.update_state();
        if contents.state != before {
            events.push(state_event(&contents.state));
        }
        for event in events {
            // The only error is that no tab is open.
            let _ = self.updates.send(event);
        }
        let has_started = !contents.feeds.contains(&FeedState::Starting);
        self.has_started
            .send_if_modified(|it| std::mem::replace(it, has_started) != has_started);
    }
}

impl Contents {
    fn update_state(&mut self) {
        let refused = self.feeds.iter().filter_map(|it| match it {
            FeedState::Refused(why) => Some(why.clone()),
            _ => None,
        });
        let full = format!(
            "only {MAX_OBJECTS} objects ({} MiB) are shown",
            MAX_BYTES >> 20
        );
        let full = self.is_full.then_some(full);
        let notes = self.notes.iter().chain(&self.incomplete).cloned();
        let mut warnings: Vec<String> = notes.chain(refused).chain(full).collect();
        warnings.dedup();
        let lost = self.feeds.iter().find_map(|it| match it {
            FeedState::Lost(why) => Some(why.clone()),
            _ => None,
        });
        self.state.warnings = warnings;
        self.state.set_gap(GapKind::Connection, lost);
        self.state
            .set_gap(GapKind::Detection, self.incomplete.clone());
    }

    /// Adds or replaces an object. Returns the event for the tabs, if the object has changed.
    fn put(&mut self, feed: usize, object: FeedObject) -> Option<Bytes> {
        let key = (feed, object.key.clone());
        let before = self.objects.get(&key);
        if before.is_some_and(|it| it.json == object.json) {
            return None;
        }
        let freed = before.map_or(0, |it| it.json.len());
        let is_new = before.is_none();
        let bytes = self.bytes - freed + object.json.len();
        if (is_new && self.objects.len() >= MAX_OBJECTS) || bytes > MAX_BYTES {
            self.is_full = true;
            return self.remove(&key);
        }
        self.bytes = bytes;
        let event = change_event(if is_new { "ADDED" } else { "MODIFIED" }, &object.json);
        self.objects.insert(key, object);
        Some(event)
    }

    fn remove(&mut self, key: &(usize, (String, String))) -> Option<Bytes> {
        let object = self.objects.remove(key)?;
        self.bytes -= object.json.len();
        Some(change_event("DELETED", &object.json))
    }
}

fn change_event(kind: &str, json: &str) -> Bytes {
    let text = format!("{{\"type\":\"{kind}\",\"object\":{json}}}");
    event_of_text("change", &text)
}
