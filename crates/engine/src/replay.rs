//! Plays recorded events through the engine in virtual time. Input: rule books, and objects in the
//! order in which they changed. Output, through a [`ReplayObserver`]: each evaluation, and each
//! change of an operation.
//!
//! The replay takes the place of the server's feed tasks and of the task of its tracker. It gives
//! the same events to the same [`Detector`] and [`Tracker`], and lets timers expire in between. A
//! test of the server plays recordings through both and compares every change.

use crate::ClockReading;
use crate::detect::{Detector, EvaluatedObject, Evaluation, FeedEvent, Subject, labels_of_json};
use crate::rules::RuleBook;
use crate::track::{Message, Tracker, TrackerSettings, Write};
use ifo_api::{Gvr, Source};
use jiff::{SignedDuration, Timestamp};
use kube::core::SelectorExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receives the events of a [`Replay`].
pub trait ReplayObserver {
    /// An object was evaluated, because of an event or because time has passed.
    fn evaluated(&mut self, evaluation: &Evaluation);

    /// An operation changed.
    fn changed(&mut self, change: Write, at: ClockReading);
}

/// An object of a recording.
#[derive(Clone, Copy, Debug)]
pub struct ReplayedObject<'a> {
    /// The resource.
    pub target: &'a Gvr,
    /// Its namespace. None for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// The object.
    pub json: &'a [u8],
}

/// The engine at one time of a recording.
#[derive(Debug)]
pub struct Replay<O> {
    /// Receives evaluations and changes.
    pub observer: O,
    begin: ClockReading,
    now: ClockReading,
    tracker: Tracker,
    feeds: Vec<ReplayedFeed>,
    resync: Duration,
    next_resync: Instant,
}

/// One feed of the server.
#[derive(Debug)]
struct ReplayedFeed {
    source: Source,
    detector: Detector,
    /// The objects that exist, by namespace and name.
    objects: BTreeMap<(Option<Arc<str>>, Arc<str>), ExistingObject>,
}

#[derive(Debug)]
struct ExistingObject {
    json: Vec<u8>,
    /// True if the watch shows the object: its labels match the selector that all rule sets share.
    is_shown: bool,
}

impl<O: ReplayObserver> Replay<O> {
    /// Creates a replay without rules. Its clocks start at `begin`. Objects whose rules read `now`
    /// are evaluated again at the interval `resync`.
    pub fn new(
        settings: TrackerSettings,
        resync: Duration,
        begin: ClockReading,
        observer: O,
    ) -> Self {
        Self {
            observer,
            begin,
            now: begin,
            tracker: Tracker::new(settings, Arc::new(())),
            feeds: Vec::new(),
            resync,
            next_resync: begin.steady + resync,
        }
    }

    /// Publishes the rules of a target. Its feeds have listed all objects, and there was none.
    pub fn add_book(&mut self, book: &Arc<RuleBook>) {
        let target = Arc::new(book.target.clone());
        let rules = Message::Rules {
            target: target.clone(),
            book: Some(book.clone()),
            removed: false,
        };
        self.tracker.advance(rules, self.now);
        for source in book.sources(&target) {
            self.feeds.push(ReplayedFeed {
                source,
                detector: Detector::new(book.clone(), Arc::new(())),
                objects: BTreeMap::new(),
            });
            self.list(self.feeds.len() - 1);
        }
    }

    /// Advances the time to `now`. Timers that expire until then take effect in their order.
    pub fn advance_to(&mut self, now: ClockReading) {
        loop {
            let can_change = self.feeds.iter().any(|it| it.detector.needs_resync());
            let resync = can_change.then_some(self.next_resync);
            let due = self.tracker.next_deadline().into_iter().chain(resync).min();
            let Some(due) = due.filter(|due| *due <= now.steady) else {
                break;
            };
            self.now = self.reading(due);
            if resync == Some(due) {
                self.evaluate_again();
                self.next_resync += self.resync;
            }
            self.commit();
        }
        while self.next_resync <= now.steady {
            self.next_resync += self.resync;
        }
        self.now = now;
    }

    /// Advances the time to the next timer of an operation, without evaluations. Returns false if
    /// no operation has a timer.
    pub fn expire_next(&mut self) -> bool {
        let Some(due) = self.tracker.next_deadline() else {
            return false;
        };
        self.now = self.reading(due.max(self.now.steady));
        self.commit();
        true
    }

    /// Adds or changes an object. An object that no rule set covers has no effect.
    pub fn applied(&mut self, object: ReplayedObject<'_>) {
        let Some(at) = self.feed_of(object) else {
            return;
        };
        let feed = &mut self.feeds[at];
        let is_shown = feed.selects(object.json);
        let json = object.json.to_vec();
        let existing = ExistingObject { json, is_shown };
        let before = feed.objects.insert(key(object), existing);
        if is_shown {
            let found = feed.detector.applied(object.json, self.now);
            self.found(at, found);
        } else if let Some(before) = before.filter(|before| before.is_shown) {
            self.vanished(at, &before.json, true);
        }
    }

    /// Applies a `DELETED` event. If `exists` is true, the object still exists, and no longer
    /// matches the label selector of the recording.
    pub fn deleted(&mut self, object: ReplayedObject<'_>, exists: bool) {
        let Some(at) = self.feed_of(object) else {
            return;
        };
        let before = self.feeds[at].objects.remove(&key(object));
        if before.is_none_or(|before| before.is_shown) {
            self.vanished(at, object.json, exists);
        }
    }

    /// Removes an object from the watch.
    fn vanished(&mut self, at: usize, json: &[u8], exists: bool) {
        let detector = &mut self.feeds[at].detector;
        if let Some(vanished) = detector.deleted(json) {
            let exists = exists && vanished.may_exist;
            let event = detector.vanished(vanished.subject, exists, self.now);
            self.tell(at, event);
        }
    }

    fn feed_of(&self, object: ReplayedObject<'_>) -> Option<usize> {
        let mut feeds = self.feeds.iter();
        feeds.position(|feed| feed.source.covers(object.target, object.namespace))
    }

    /// Lists all objects of a feed.
    fn list(&mut self, at: usize) {
        let reset = self.feeds[at].detector.reset();
        self.tell(at, reset);
        let objects = self.feeds[at].objects.values();
        let shown = objects.filter(|object| object.is_shown);
        let shown: Vec<Vec<u8>> = shown.map(|object| object.json.clone()).collect();
        for json in shown {
            let found = self.feeds[at].detector.applied(&json, self.now);
            self.found(at, found);
        }
        let (synced, missing) = self.feeds[at].detector.synced();
        self.tell(at, synced);
        // The tracker has answered, unless nothing was listed.
        let missing = missing.and_then(|mut missing| missing.try_recv().ok());
        for subject in missing.unwrap_or_default() {
            let exists = self.feeds[at].has(&subject);
            let event = self.feeds[at].detector.vanished(subject, exists, self.now);
            self.tell(at, event);
        }
    }

    fn evaluate_again(&mut self) {
        for at in 0..self.feeds.len() {
            for fields in self.feeds[at].detector.resync(self.now) {
                let found = self.feeds[at].detector.reevaluate(&fields, self.now);
                self.found(at, found);
            }
            if self.feeds[at].detector.wants_list(self.now) {
                self.list(at);
            }
        }
    }

    fn found(&mut self, at: usize, found: Option<EvaluatedObject>) {
        let Some(found) = found else { return };
        self.observer.evaluated(&found.evaluation);
        if let Some(event) = found.into_event() {
            self.tell(at, event);
        }
    }

    fn tell(&mut self, at: usize, event: FeedEvent) {
        let feed = &self.feeds[at];
        let message = Message::Feed {
            source: feed.source.clone(),
            generation: feed.detector.book().generation,
            event,
        };
        self.tracker.advance(message, self.now);
        self.commit();
    }

    fn commit(&mut self) {
        self.tracker.expire(self.now);
        for change in self.tracker.take_changes() {
            self.observer.changed(change, self.now);
        }
    }

    /// The time of both clocks when the steady clock shows `steady`.
    fn reading(&self, steady: Instant) -> ClockReading {
        let passed = steady.saturating_duration_since(self.begin.steady);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        let wall = self.begin.wall.checked_add(passed);
        ClockReading {
            wall: wall.unwrap_or(Timestamp::MAX),
            steady,
        }
    }
}

impl ReplayedFeed {
    /// Returns true if the object exists.
    fn has(&self, subject: &Subject) -> bool {
        let key = (subject.namespace.clone(), subject.name.clone());
        let object = self.objects.get(&key);
        let there = object.and_then(|object| Subject::identify(&object.json));
        there.is_some_and(|there| there.uid == subject.uid)
    }

    /// Returns true if a watch with the selector that all rule sets share shows the object.
    fn selects(&self, json: &[u8]) -> bool {
        let selector = self.detector.book().selector();
        selector.is_none_or(|selector| selector.matches(&labels_of_json(json)))
    }
}

fn key(object: ReplayedObject<'_>) -> (Option<Arc<str>>, Arc<str>) {
    (object.namespace.map(Into::into), object.name.into())
}
