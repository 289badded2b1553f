//! The contents of the page: the objects of all feeds, the warnings, and the gaps. A gap is a time
//! for which operations may be missing. All browser tabs share the contents. A tab first gets all
//! objects, and then each change.

use super::feeds::{Feed, FeedChanges, all_changes};
use crate::clock;
use crate::cluster::problem::Problem;
use crate::operations::operation_source::{ObjectChange, OperationSource};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, Stream};
use ifo_api::completeness::Incomplete;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout, timeout_at};

/// Time limit for the first lists of all objects.
const LIST_TIMEOUT: Duration = Duration::from_mins(2);

/// Interval of the comments in the event stream of a tab. They keep a connection without changes
/// open.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// Number of events that wait for a slow tab. If more events wait, the tab gets all objects again.
const MAX_WAITING_EVENTS: usize = 10_000;

/// Number of gaps that the command remembers. If there are more, the command forgets the oldest
/// ones.
const MAX_GAPS: usize = 200;

/// The contents of the page.
pub(super) struct PageContents {
    /// The information about the command on the page. `document` adds the time.
    begin: Value,
    feeds: Vec<Feed>,
    pub(super) source: Arc<OperationSource>,
    /// The newest answer to the question why the server does not detect all operations.
    probed: Result<Option<Incomplete>, Problem>,
    /// The last time at which the cluster was known to answer.
    answered: Timestamp,
    pub(super) state: PageState,
    /// Sends the changes to all tabs.
    tabs: broadcast::Sender<Bytes>,
    /// Makes the feeds list records again.
    reload: watch::Sender<()>,
}

/// The warnings and the gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PageState {
    /// What could not be read, and why operations may be missing.
    pub(super) warnings: Vec<String>,
    gaps: Vec<Gap>,
}

/// A time for which operations may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Gap {
    /// `connection` if the cluster does not answer, or `detection` if the server does not detect
    /// all operations.
    kind: &'static str,
    from: Timestamp,
    /// The end. None while the gap lasts.
    to: Option<Timestamp>,
    message: String,
}

impl PageContents {
    /// Reads the objects of all feeds. Also returns the stream of their later changes. `begin` is
    /// the information about the command on the page. Returns an error if a feed is not ready
    /// within [`LIST_TIMEOUT`].
    pub(super) async fn read(
        source: Arc<OperationSource>,
        feeds: Vec<Feed>,
        begin: Value,
    ) -> Result<(Self, FeedChanges), Problem> {
        let deadline = Instant::now() + LIST_TIMEOUT;
        let reload = watch::Sender::default();
        let mut changes = all_changes(&feeds, &reload);
        let mut contents = Self {
            begin,
            feeds,
            probed: Ok(source.incomplete()),
            answered: clock::now(),
            source,
            state: PageState::default(),
            tabs: broadcast::channel(MAX_WAITING_EVENTS).0,
            reload,
        };
        while let Some(unread) = contents.feeds.iter().find(|it| !it.is_ready()) {
            let change = timeout_at(deadline, changes.next()).await;
            let Ok(Some((number, change))) = change else {
                let why = unread.problem.as_ref().map(|it| it.why.clone());
                return Err(why.map_or(Problem::TimedOut(LIST_TIMEOUT), Problem::Other));
            };
            contents.apply(number, change);
        }
        Ok((contents, changes))
    }

    /// Returns the JSON that the page shows at its start, and the number of objects in it.
    pub(super) fn document(&self) -> (String, usize) {
        let objects = self.feeds.iter().flat_map(|it| it.objects.values());
        let objects: Vec<&str> = objects.map(|it| &**it).collect();
        let mut begin = self.begin.clone();
        begin["time"] = json!(clock::now());
        let (items, state) = (objects.join(","), json!(self.state));
        let document = format!("{{\"begin\":{begin},\"items\":[{items}],\"state\":{state}}}");
        (document, objects.len())
    }

    /// Applies a change of the feed with this number, and sends the result to all tabs.
    fn apply(&mut self, number: usize, change: ObjectChange) {
        for (kind, json) in self.feeds[number].apply(change) {
            let change = format!("{{\"type\":\"{kind}\",\"object\":{json}}}");
            self.send("change", &change);
        }
        self.update_state();
    }

    fn update_state(&mut self) {
        let mut state = self.state.clone();
        let incomplete = self.probed.iter().flatten().map(ToString::to_string).next();
        let no_answer = self.probed.as_ref().err().map(ToString::to_string);
        let problems = self.feeds.iter().filter_map(|it| it.problem.as_ref());
        let (outages, refusals): (Vec<_>, Vec<_>) = problems.partition(|it| it.is_outage);
        let notes = self.source.note.iter().chain(&incomplete);
        let warnings = notes.chain(refusals.into_iter().map(|it| &it.why));
        state.warnings = warnings.cloned().collect();
        state.warnings.dedup();
        let outage = outages.first().map(|it| &it.why).or(no_answer.as_ref());
        if outage.is_none() {
            self.answered = clock::now();
        }
        state.set_gap("connection", outage, self.answered);
        state.set_gap("detection", incomplete.as_ref(), clock::now());
        if state != self.state {
            self.send("state", &json!(state).to_string());
            self.state = state;
        }
    }

    fn send(&self, name: &str, json: &str) {
        // An error means that there is no tab.
        let _ = self.tabs.send(event(name, json));
    }

    /// Returns the first event of a tab, and the channel of all later events. Also makes the feeds
    /// list records again, because records are not watched.
    fn begin_tab(&self) -> (Bytes, broadcast::Receiver<Bytes>) {
        self.reload.send_replace(());
        (event("all", &self.document().0), self.tabs.subscribe())
    }
}

impl PageState {
    /// Begins, continues or ends the gap of a kind. `reason` is None if there is no gap. `from` is
    /// the begin of a new gap.
    fn set_gap(&mut self, kind: &'static str, reason: Option<&String>, from: Timestamp) {
        let mut open = self.gaps.iter_mut().filter(|it| it.to.is_none());
        match (open.find(|it| it.kind == kind), reason) {
            (Some(gap), Some(reason)) => gap.message.clone_from(reason),
            (Some(gap), None) => gap.to = Some(clock::now()),
            (None, Some(reason)) => self.gaps.push(Gap {
                kind,
                from,
                to: None,
                message: reason.clone(),
            }),
            (None, None) => {}
        }
        let forgotten = self.gaps.len().saturating_sub(MAX_GAPS);
        self.gaps.drain(..forgotten);
    }
}

/// Applies the changes of all feeds. Also asks the server whether it detects all operations. Does
/// not return.
pub(super) async fn follow(contents: &Mutex<PageContents>, changes: FeedChanges) {
    let source = lock(contents).source.clone();
    let objects = changes.for_each(async |(number, change)| {
        lock(contents).apply(number, change);
    });
    let probes = source.probes().for_each(async |answer| {
        let mut contents = lock(contents);
        contents.probed = answer;
        contents.update_state();
    });
    tokio::join!(objects, probes);
}

/// Returns the events for one tab.
pub(super) fn events(contents: Arc<Mutex<PageContents>>) -> impl Stream<Item = Bytes> {
    stream::unfold((contents, None), async |(contents, changes)| {
        let next = async |changes: Option<broadcast::Receiver<Bytes>>| {
            let mut changes = changes?;
            match timeout(COMMENT_INTERVAL, changes.recv()).await {
                Ok(event) => Some((event.ok()?, changes)),
                Err(_) => Some((Bytes::from_static(b":\n\n"), changes)),
            }
        };
        // `next` returns None for a new tab, and for a tab that is too slow and has missed events.
        // Both get all objects.
        let next = next(changes).await;
        let (event, changes) = next.unwrap_or_else(|| lock(&contents).begin_tab());
        Some((event, (contents, Some(changes))))
    })
}

fn lock(contents: &Mutex<PageContents>) -> MutexGuard<'_, PageContents> {
    contents.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Formats a server-sent event.
fn event(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::feeds::tests::cluster;

    #[tokio::test(start_paused = true)]
    async fn a_slow_tab_gets_all_objects_again() {
        let empty = json!({"metadata": {"resourceVersion": "7"}, "items": []});
        let (source, feeds) = cluster(move |_| Some(empty.clone()));
        let read = PageContents::read(source, feeds, json!({})).await;
        let (contents, _) = read.expect("the cluster answers");
        let contents = Arc::new(Mutex::new(contents));
        let mut events = Box::pin(events(contents.clone()));
        let mut next = async || {
            let event = events.next().await.expect("the stream has no end");
            let event = String::from_utf8(event.to_vec()).expect("events are UTF-8");
            event.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(next().await, "event: all");
        let start = Instant::now();
        assert_eq!(next().await, ":");
        assert_eq!(start.elapsed(), COMMENT_INTERVAL);
        for _ in 0..2 * MAX_WAITING_EVENTS {
            lock(&contents).send("change", "{}");
        }
        assert_eq!(next().await, "event: all");
        lock(&contents).send("change", "{}");
        assert_eq!(next().await, "event: change");
    }

    #[tokio::test]
    async fn a_failed_probe_is_a_gap_since_the_last_answer() {
        let empty = json!({"metadata": {"resourceVersion": "7"}, "items": []});
        let (source, feeds) = cluster(move |_| Some(empty.clone()));
        let read = PageContents::read(source, feeds, json!({})).await;
        let (mut contents, _) = read.expect("the cluster answers");
        contents.feeds.clear();
        contents.update_state();
        let last_answer = Timestamp::from_second(1).expect("the time is in range");
        contents.answered = last_answer;
        contents.probed = Err(Problem::TimedOut(COMMENT_INTERVAL));
        contents.update_state();
        let gap = contents.state.gaps.last().expect("there is a gap").clone();
        assert_eq!(
            (gap.kind, gap.from, gap.to),
            ("connection", last_answer, None)
        );
        contents.probed = Ok(None);
        contents.update_state();
        assert!(contents.state.gaps.iter().all(|it| it.to.is_some()));
    }
}
