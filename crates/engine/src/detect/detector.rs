//! The detector of one feed. Input: the feed's raw events with their times. Output: messages for
//! the tracker.

use super::evaluate::{self, RuleSetBudgets};
use super::metadata::PartialMetadata;
use super::unknown_objects::UnknownObjects;
use super::{Evaluation, FeedEvent, Subject};
use crate::rules::{EvaluationError, RuleBook};
use crate::{ClockReading, Meter};
use ifo_cel::Doc;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Largest number of objects of one feed that are kept because their rules read `now`. Further
/// objects are evaluated only when they change.
pub(super) const MAX_TIMED: usize = 1_000;

/// Largest size of the kept fields of one object in bytes. A larger object is evaluated only when
/// it changes. Rules read some hundred bytes.
pub(super) const MAX_TIMED_BYTES: usize = 16 << 10;

/// Time after the last detection for which evaluations of an object are sent to the tracker. An
/// operation may settle in this time, and a later event may contain its outcome.
const SETTLING_PERIOD: Duration = Duration::from_mins(5);

/// Detects operations on the objects of one feed, with the rules of one rule book.
#[derive(Debug)]
pub struct Detector {
    book: Arc<RuleBook>,
    meter: Arc<dyn Meter>,
    asks_for_outcomes: bool,
    /// True between [`Detector::reset`] and [`Detector::synced`], and before the first list.
    listing: bool,
    /// Objects with a detection now or within [`SETTLING_PERIOD`]. Evaluations of other objects
    /// without a detection are not sent to the tracker.
    interesting: HashMap<Arc<str>, ObjectDetections>,
    /// The fields, as JSON, of objects whose evaluation read `now`. Sorted, so that the same events
    /// give the same messages.
    timed: BTreeMap<Arc<str>, Arc<[u8]>>,
    /// The evaluation budgets of the rule sets.
    allowances: RuleSetBudgets,
    /// Objects on which the detection of an operation is unknown.
    unknown: UnknownObjects,
}

/// The detections of one object.
#[derive(Clone, Copy, Debug)]
struct ObjectDetections {
    /// The time since which there is no detection.
    fading: Option<Instant>,
    /// A hash of the detected and continued runs. While it stays the same, no operation starts, and
    /// the start is not read from the object.
    detected: u64,
}

/// The result of the rules for one object.
#[derive(Debug)]
pub struct EvaluatedObject {
    /// The evaluation.
    pub evaluation: Evaluation,
    /// True if the evaluation can change an operation.
    is_news: bool,
    read: Instant,
}

impl EvaluatedObject {
    /// The message for the tracker. None if the evaluation cannot change an operation.
    pub fn into_event(self) -> Option<FeedEvent> {
        self.is_news.then(|| FeedEvent::Evaluated {
            evaluation: Box::new(self.evaluation),
            read: self.read,
        })
    }
}

/// An object that a feed no longer shows.
#[derive(Debug)]
pub struct VanishedObject {
    /// The object.
    pub subject: Subject,
    /// True if the object may still exist: the feed has a label selector, and cannot distinguish an
    /// object that no longer matches from a deleted object. The caller reads the object and calls
    /// [`Detector::vanished`].
    pub may_exist: bool,
}

impl Detector {
    /// Creates a detector. A list of all objects must come first.
    pub fn new(book: Arc<RuleBook>, meter: Arc<dyn Meter>) -> Self {
        Self {
            asks_for_outcomes: book.asks_for_outcomes(),
            listing: true,
            interesting: HashMap::new(),
            timed: BTreeMap::new(),
            allowances: RuleSetBudgets::default(),
            unknown: UnknownObjects::new(book.clone()),
            book,
            meter,
        }
    }

    /// The rule book.
    pub fn book(&self) -> &Arc<RuleBook> {
        &self.book
    }

    /// Returns true while a list of all objects is running or has not begun.
    pub fn is_listing(&self) -> bool {
        self.listing
    }

    /// Called when a list of all objects begins.
    pub fn reset(&mut self) -> FeedEvent {
        self.listing = true;
        self.interesting.clear();
        self.timed.clear();
        self.unknown.reset();
        FeedEvent::Reset
    }

    /// Called when the list is complete, or when a gap without missed changes is over. If the feed
    /// has a label selector, the tracker answers with the subjects that are not in the list. The
    /// caller reads each of them and calls [`Detector::vanished`].
    pub fn synced(&mut self) -> (FeedEvent, Option<oneshot::Receiver<Vec<Subject>>>) {
        self.listing = false;
        self.unknown.synced();
        let (missing, asked) = match self.book.selector() {
            Some(_) => {
                let (missing, asked) = oneshot::channel();
                (Some(missing), Some(asked))
            }
            None => (None, None),
        };
        (FeedEvent::Synced { missing }, asked)
    }

    /// Called when the feed has a gap.
    pub fn lost(&mut self) -> FeedEvent {
        FeedEvent::Lost
    }

    /// Called with the JSON of an object that was listed, added or modified. None if its identity
    /// is unknown.
    pub fn applied(&mut self, json: &[u8], now: ClockReading) -> Option<EvaluatedObject> {
        let change = (!self.listing).then_some(json);
        self.evaluate(json, change, now)
    }

    /// Called for an object of `length` bytes that was listed, added or modified and is too large
    /// to be read. `json` contains its identity.
    pub fn too_large(
        &mut self,
        json: &[u8],
        length: u64,
        now: ClockReading,
    ) -> Option<EvaluatedObject> {
        self.undecided(json, &EvaluationError::TooLarge(length), now)
    }

    /// Called for an object that was deleted or no longer matches the selector. `json` is its last
    /// JSON, or only its identity. None if the identity is unknown.
    pub fn deleted(&mut self, json: &[u8]) -> Option<VanishedObject> {
        let Some(subject) = Subject::identify(json) else {
            tracing::warn!(gvr = %self.book.target, "a deleted object could not be decoded");
            return None;
        };
        let identity = subject.identity(&self.book.target);
        let was_interesting = self.interesting.remove(&identity).is_some();
        self.timed.remove(&identity);
        self.unknown.removed(&identity);
        Some(VanishedObject {
            subject,
            // The tracker has no operations on other objects.
            may_exist: was_interesting && self.book.selector().is_some(),
        })
    }

    /// Called for an object that is no longer shown. If `exists` is true, it no longer matches the
    /// selector.
    pub fn vanished(&self, subject: Subject, exists: bool, now: ClockReading) -> FeedEvent {
        let read = now.steady;
        if exists {
            let evaluation = Box::new(evaluate::unselected(&self.book, subject));
            FeedEvent::Evaluated { evaluation, read }
        } else {
            FeedEvent::Deleted { subject, read }
        }
    }

    /// The objects to evaluate again because time has passed. Pass each to
    /// [`Detector::reevaluate`]. Call this at a fixed interval, but not during a list.
    pub fn resync(&mut self, now: ClockReading) -> Vec<Arc<[u8]>> {
        let is_recent = |since| now.steady.duration_since(since) < SETTLING_PERIOD;
        self.interesting
            .retain(|_, interest| interest.fading.is_none_or(is_recent));
        self.timed.values().cloned().collect()
    }

    /// Evaluates an object of [`Detector::resync`]. Only the time has changed.
    pub fn reevaluate(&mut self, fields: &[u8], now: ClockReading) -> Option<EvaluatedObject> {
        self.evaluate(fields, None, now)
    }

    /// Returns true if [`Detector::resync`] can have an effect.
    pub fn needs_resync(&self) -> bool {
        let mut interests = self.interesting.values();
        !self.timed.is_empty()
            || !self.unknown.is_empty()
            || interests.any(|interest| interest.fading.is_some())
    }

    /// Returns true if the feed has to list all objects again, because objects with an unknown
    /// detection are not stored. Call this after each [`Detector::resync`].
    pub fn wants_list(&mut self, now: ClockReading) -> bool {
        self.unknown.wants_list(now.steady)
    }

    /// Evaluates an object. `change` is its JSON if the object has changed.
    fn evaluate(
        &mut self,
        json: &[u8],
        change: Option<&[u8]>,
        now: ClockReading,
    ) -> Option<EvaluatedObject> {
        let projection = if self.listing {
            &self.book.initial_projection
        } else {
            &self.book.projection
        };
        let doc = match Doc::parse(json, projection) {
            Ok(doc) => doc,
            Err(error) => return self.undecided(json, &error.into(), now),
        };
        let (meter, allowances) = (&*self.meter, &mut self.allowances);
        let evaluation = evaluate::evaluate_within(&self.book, &doc, now.wall, meter, allowances);
        self.unknown.throttling(&self.allowances);
        match evaluation {
            Ok(evaluation) => {
                self.keep(&evaluation, &doc);
                Some(self.evaluated(evaluation, change, now))
            }
            Err(error) => {
                tracing::warn!(gvr = %self.book.target, %error, "an object was left out");
                None
            }
        }
    }

    /// The object exists, but cannot be evaluated. Its operations stay as they were, and a list
    /// does not count it as deleted.
    fn undecided(
        &mut self,
        json: &[u8],
        error: &EvaluationError,
        now: ClockReading,
    ) -> Option<EvaluatedObject> {
        let gvr = &self.book.target;
        let Some(subject) = Subject::identify(json) else {
            tracing::warn!(%gvr, %error, "an object could not be decoded");
            return None;
        };
        let namespace = subject.namespace.as_deref().unwrap_or_default();
        tracing::warn!(%gvr, namespace, name = &*subject.name, %error,
            "an object could not be decoded");
        // The object has changed since its fields were stored.
        self.timed.remove(&subject.identity(gvr));
        let evaluation = evaluate::undecided(&self.book, subject, error, now.wall, &*self.meter);
        Some(self.evaluated(evaluation, None, now))
    }

    /// Stores the fields of an object whose evaluation read `now`. Removes those of other objects.
    fn keep(&mut self, evaluation: &Evaluation, doc: &Doc<'_>) {
        if !evaluation.read_now && self.timed.is_empty() {
            return;
        }
        let identity = evaluation.subject.identity(&self.book.target);
        self.timed.remove(&identity);
        if evaluation.read_now && self.timed.len() < MAX_TIMED {
            let fields = doc.to_json();
            if fields.len() <= MAX_TIMED_BYTES {
                self.timed.insert(identity, fields.into());
            }
        }
    }

    fn evaluated(
        &mut self,
        mut evaluation: Evaluation,
        change: Option<&[u8]>,
        now: ClockReading,
    ) -> EvaluatedObject {
        let read = now.steady;
        let shows_nothing = evaluation.findings.is_empty() && evaluation.unknown.is_empty();
        if shows_nothing && !self.remembers(&evaluation.subject) {
            return EvaluatedObject {
                evaluation,
                // The tracker must know which objects were listed.
                is_news: self.listing,
                read,
            };
        }
        let identity = evaluation.subject.identity(&self.book.target);
        self.unknown.evaluated(&identity, &evaluation);
        let detected = hash_of_detected(&evaluation);
        let before = self.interesting.get(&identity).copied();
        let differs = before.map_or(evaluation.detects(), |it| it.detected != detected);
        let is_found = !evaluation.findings.is_empty();
        let interest = match before {
            _ if is_found => Some(None),
            Some(before) if self.asks_for_outcomes => Some(before.fading.or(Some(read))),
            _ => None,
        };
        match interest {
            Some(fading) => {
                let interest = ObjectDetections { fading, detected };
                self.interesting.insert(identity, interest);
            }
            None => {
                self.interesting.remove(&identity);
            }
        }
        if let Some(object) = change.filter(|_| differs) {
            // Operations that start or end now do so with this change.
            evaluation.subject.managed = PartialMetadata::read(object).newest_managed;
        }
        EvaluatedObject {
            evaluation,
            is_news: is_found || before.is_some() || self.listing,
            read,
        }
    }

    /// Returns true if an operation on the object may be in flight, or if a detection is unknown.
    fn remembers(&self, subject: &Subject) -> bool {
        if self.interesting.is_empty() && self.unknown.is_empty() {
            return false;
        }
        let is_in = |identity: &str| {
            self.interesting.contains_key(identity) || self.unknown.contains(identity)
        };
        match &subject.uid {
            Some(uid) => is_in(uid),
            None => is_in(&subject.identity(&self.book.target)),
        }
    }
}

/// A hash of the detected and continued operations and their runs.
fn hash_of_detected(evaluation: &Evaluation) -> u64 {
    let mut hasher = DefaultHasher::new();
    for finding in &evaluation.findings {
        if let Some(says) = &finding.says {
            let run = (&finding.operation, &finding.item, &says.instance);
            (run, says.continues).hash(&mut hasher);
        }
    }
    hasher.finish()
}
