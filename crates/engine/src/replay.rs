//! Plays recorded events of objects through the engine in virtual time. A [`ReplayObserver`]
//! receives each evaluation of the rules and each change of an operation.
//!
//! In `ifo-apiserver`, each watch of objects has a task with its own [`Detector`]. All these tasks
//! send messages to one [`Tracker`]. The replay calls the same types with the same events, and lets
//! timers expire between the events. A test of `ifo-apiserver` plays recordings through the tasks
//! and through the replay, and compares every change.

use crate::ClockReading;
use crate::detect::{Detector, EvaluatedObject, Evaluation, FeedEvent, labels_of_json};
use crate::rules::RuleBook;
use crate::track::{Message, Publication, Tracker, TrackerSettings, Write};
use ifo_api::{Gvr, Source};
use jiff::{SignedDuration, Timestamp};
use kube::core::SelectorExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receives the events of a [`Replay`].
pub trait ReplayObserver {
    /// Reports that rules were evaluated on an object, because of an event or because time has
    /// passed.
    fn evaluated(&mut self, evaluation: &Evaluation);

    /// Reports that an operation changed.
    fn changed(&mut self, change: Write, at: ClockReading);
}

/// An object of a recording.
#[derive(Clone, Copy, Debug)]
pub struct ReplayedObject<'a> {
    /// Resource that the object belongs to.
    pub target: &'a Gvr,
    /// Namespace of the object. None for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The whole object as JSON.
    pub json: &'a [u8],
}

/// The state of the engine at one time of a recording.
#[derive(Debug)]
pub struct Replay<O> {
    /// Receives the evaluations and the changes.
    pub observer: O,
    begin: ClockReading,
    now: ClockReading,
    tracker: Tracker,
    feeds: Vec<ReplayedFeed>,
    resync: Duration,
    next_resync: Instant,
}

/// The replay of one feed. A feed is the watch of one target in one namespace, or in all
/// namespaces. A target is a resource that rule sets name.
#[derive(Debug)]
struct ReplayedFeed {
    source: Source,
    detector: Detector,
}

impl<O: ReplayObserver> Replay<O> {
    /// Creates a replay without rules, with its clocks at `begin`. The interval `resync` is the
    /// time between two evaluations of the objects whose rules read `now`.
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

    /// Adds the rules of a target, and completes the first list of each of its feeds. The list is
    /// empty, because objects are added later.
    pub fn add_book(&mut self, book: &Arc<RuleBook>) {
        let target = Arc::new(book.target.clone());
        let rules = Message::Rules(Publication {
            target: target.clone(),
            book: Some(book.clone()),
            removed: false,
        });
        self.tracker.advance(rules, self.now);
        for source in book.sources(&target) {
            let mut detector = Detector::new(book.clone(), Arc::new(()));
            let (reset, (synced, _)) = (detector.reset(), detector.synced());
            self.feeds.push(ReplayedFeed { source, detector });
            for event in [reset, synced] {
                self.send_to_tracker(self.feeds.len() - 1, event);
            }
        }
    }

    /// Advances the time to `now`. Timers that expire until then take effect in the order of their
    /// times, and so do evaluations that become due.
    pub fn advance_to(&mut self, now: ClockReading) {
        loop {
            let can_change = self.feeds.iter().any(|it| it.detector.needs_resync());
            let resync = can_change.then_some(self.next_resync);
            let due = self.tracker.next_deadline().into_iter().chain(resync).min();
            let Some(due) = due.filter(|due| *due <= now.steady) else {
                break;
            };
            self.now = self.reading_at(due);
            if resync == Some(due) {
                self.reevaluate_due_objects();
                self.next_resync += self.resync;
            }
            self.publish_changes();
        }
        while self.next_resync <= now.steady {
            self.next_resync += self.resync;
        }
        self.now = now;
    }

    /// Advances the time to the expiry of the tracker's next timer, and evaluates no rules. Returns
    /// false if the tracker has no timer.
    pub fn expire_next(&mut self) -> bool {
        let Some(due) = self.tracker.next_deadline() else {
            return false;
        };
        self.now = self.reading_at(due.max(self.now.steady));
        self.publish_changes();
        true
    }

    /// Adds or changes an object. Ignores objects that no feed covers. Unlike the watch of a
    /// server, the replay also passes on objects whose labels do not match the label selector. For
    /// such an object, the detector reports that no rule set selects the object.
    pub fn applied(&mut self, object: ReplayedObject<'_>) {
        if let Some(feed_index) = self.find_feed(object) {
            let detector = &mut self.feeds[feed_index].detector;
            let found = detector.applied(object.json, self.now);
            self.handle_evaluation(feed_index, found);
        }
    }

    /// Applies a `DELETED` event. If `exists` is true, the object itself still exists. The recorded
    /// watch had a label selector, and reported the event because the labels of the object no
    /// longer matched.
    ///
    /// Ignores an object whose labels do not match the label selector of the rules. For the watch
    /// of a server, such an object does not exist.
    pub fn deleted(&mut self, object: ReplayedObject<'_>, exists: bool) {
        let Some(feed_index) = self.find_feed(object) else {
            return;
        };
        let feed = &mut self.feeds[feed_index];
        if feed.selects(object.json)
            && let Some((event, missing)) = feed.detector.deleted(object.json, self.now)
        {
            self.send_to_tracker(feed_index, event);
            let missing = missing.and_then(|mut missing| missing.try_recv().ok());
            for subject in missing.unwrap_or_default() {
                let detector = &mut self.feeds[feed_index].detector;
                let event = detector.vanished(subject, exists, self.now);
                self.send_to_tracker(feed_index, event);
            }
        }
    }

    fn find_feed(&self, object: ReplayedObject<'_>) -> Option<usize> {
        let mut feeds = self.feeds.iter();
        feeds.position(|feed| feed.source.covers(object.target, object.namespace))
    }

    fn reevaluate_due_objects(&mut self) {
        for feed_index in 0..self.feeds.len() {
            self.feeds[feed_index].detector.begin_resync(self.now);
            while let Some(found) = self.feeds[feed_index].detector.reevaluate_next(self.now) {
                self.handle_evaluation(feed_index, Some(found));
            }
        }
    }

    fn handle_evaluation(&mut self, feed_index: usize, found: Option<EvaluatedObject>) {
        let Some(found) = found else { return };
        self.observer.evaluated(&found.evaluation);
        if let Some(event) = found.into_event() {
            self.send_to_tracker(feed_index, event);
        }
        self.feeds[feed_index].detector.settle();
    }

    fn send_to_tracker(&mut self, feed_index: usize, event: FeedEvent) {
        let feed = &self.feeds[feed_index];
        let message = Message::Feed {
            source: feed.source.clone(),
            generation: feed.detector.book().generation,
            event,
        };
        self.tracker.advance(message, self.now);
        self.publish_changes();
    }

    fn publish_changes(&mut self) {
        self.tracker.expire(self.now);
        for change in self.tracker.take_changes() {
            self.observer.changed(change, self.now);
        }
        self.tracker.committed();
    }

    /// Returns the reading of both clocks at the time `steady` of the monotonic clock.
    fn reading_at(&self, steady: Instant) -> ClockReading {
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
    /// Returns true if the labels of the object match the label selector of the watch, or if the
    /// watch has no label selector.
    fn selects(&self, json: &[u8]) -> bool {
        let selector = self.detector.book().selector();
        selector.is_none_or(|selector| selector.matches(&labels_of_json(json)))
    }
}
