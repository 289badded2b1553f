//! The detector of one feed. Enters: its raw events, each with the time. Leaves: messages for
//! the tracker.

use super::evaluate::{self, Allowances};
use super::metadata::PartialMetadata;
use super::unknown::UnknownObjects;
use super::{Evaluation, FeedEvent, Subject};
use crate::rules::{EvaluationError, RuleBook};
use crate::{ClockReading, Meter};
use ifo_cel::Doc;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Objects of one feed whose rules read `now` and that are therefore kept for evaluating
/// them again. Further objects are evaluated on their changes alone.
pub(super) const MAX_TIMED: usize = 1_000;

/// Bytes of the fields of such an object. An object with more is evaluated on its changes
/// alone. Rules read some hundred bytes.
pub(super) const MAX_TIMED_BYTES: usize = 16 << 10;

/// How long evaluations of an object go to the tracker after the last finding. An operation
/// that is not detected any more settles meanwhile, and a later event may tell how it ended.
const FADING: Duration = Duration::from_mins(5);

/// Detects operations on the objects of one feed, with the rules of one book.
#[derive(Debug)]
pub struct Detector {
    book: Arc<RuleBook>,
    meter: Arc<dyn Meter>,
    asks_for_outcomes: bool,
    /// Between [`Detector::reset`] and [`Detector::synced`], and before the first list.
    listing: bool,
    /// Objects on which something is found, and those on which something was found less than
    /// [`FADING`] ago. If nothing is found on another object, the tracker needs no message.
    interesting: HashMap<Arc<str>, Interest>,
    /// The fields, as JSON, of objects whose evaluation read `now`. In order, so that the same
    /// events give the same messages.
    timed: BTreeMap<Arc<str>, Arc<[u8]>>,
    /// What the rule sets of the book may spend.
    allowances: Allowances,
    /// Objects on which the detection of an operation is unknown.
    unknown: UnknownObjects,
}

/// What was found on an object.
#[derive(Clone, Copy, Debug)]
struct Interest {
    /// Since when nothing is found any more.
    fading: Option<Instant>,
    /// Which runs of which operations are detected or continued, as a hash. Only while it stays
    /// the same, the start of an operation is not read from the object.
    detected: u64,
}

/// What the rules find on one object.
#[derive(Debug)]
pub struct EvaluatedObject {
    /// What they find.
    pub evaluation: Evaluation,
    /// Whether it can change an operation.
    is_news: bool,
    read: Instant,
}

impl EvaluatedObject {
    /// The message for the tracker; None if the evaluation cannot change an operation.
    pub fn into_event(self) -> Option<FeedEvent> {
        self.is_news.then(|| FeedEvent::Evaluated {
            evaluation: Box::new(self.evaluation),
            read: self.read,
        })
    }
}

/// An object that a feed does not show any more.
#[derive(Debug)]
pub struct VanishedObject {
    /// Which.
    pub subject: Subject,
    /// Whether it may still exist: the feed shows a selection of the objects, and cannot tell
    /// an object that left it from a deleted one. The caller finds out whether the object
    /// exists, and calls [`Detector::vanished`].
    pub may_exist: bool,
}

impl Detector {
    /// A detector that has seen no object yet. A list of all objects comes first.
    pub fn new(book: Arc<RuleBook>, meter: Arc<dyn Meter>) -> Self {
        Self {
            asks_for_outcomes: book.asks_for_outcomes(),
            listing: true,
            interesting: HashMap::new(),
            timed: BTreeMap::new(),
            allowances: Allowances::default(),
            unknown: UnknownObjects::new(book.clone()),
            book,
            meter,
        }
    }

    /// The rules.
    pub fn book(&self) -> &Arc<RuleBook> {
        &self.book
    }

    /// Whether a list of all objects is under way, or is still to begin.
    pub fn is_listing(&self) -> bool {
        self.listing
    }

    /// A list of all objects begins.
    pub fn reset(&mut self) -> FeedEvent {
        self.listing = true;
        self.interesting.clear();
        self.timed.clear();
        self.unknown.reset();
        FeedEvent::Reset
    }

    /// The list is complete, or a gap is over in which nothing was missed. If the feed shows a
    /// selection, the tracker answers with the subjects that the list lacks. The caller finds
    /// out whether each of them exists, and calls [`Detector::vanished`].
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

    /// The feed has a gap.
    pub fn lost(&mut self) -> FeedEvent {
        FeedEvent::Lost
    }

    /// An object is listed, was added or has changed: this is its JSON. None if it is not known
    /// which object it is.
    pub fn applied(&mut self, json: &[u8], now: ClockReading) -> Option<EvaluatedObject> {
        let change = (!self.listing).then_some(json);
        self.evaluate(json, change, now)
    }

    /// An object of `length` bytes is listed, was added or has changed, and is too large to be
    /// read. `json` is the JSON of an object with its identity.
    pub fn too_large(
        &mut self,
        json: &[u8],
        length: u64,
        now: ClockReading,
    ) -> Option<EvaluatedObject> {
        self.undecided(json, &EvaluationError::TooLarge(length), now)
    }

    /// An object was deleted, or left the selection. `json` is its last JSON, or only its
    /// identity. None if it is not known which object it is.
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
            // Of all others, the tracker follows no operation.
            may_exist: was_interesting && self.book.selector().is_some(),
        })
    }

    /// An object is not shown any more. If it `exists`, it left the selection.
    pub fn vanished(&self, subject: Subject, exists: bool, now: ClockReading) -> FeedEvent {
        let read = now.steady;
        if exists {
            let evaluation = Box::new(evaluate::unselected(&self.book, subject));
            FeedEvent::Evaluated { evaluation, read }
        } else {
            FeedEvent::Deleted { subject, read }
        }
    }

    /// The objects to evaluate again because time has passed, for [`Detector::again`]. It is
    /// called at a fixed interval, and not during a list.
    pub fn resync(&mut self, now: ClockReading) -> Vec<Arc<[u8]>> {
        let is_recent = |since| now.steady.duration_since(since) < FADING;
        self.interesting
            .retain(|_, interest| interest.fading.is_none_or(is_recent));
        self.timed.values().cloned().collect()
    }

    /// Evaluates an object of [`Detector::resync`]. Nothing has changed but the time.
    pub fn again(&mut self, fields: &[u8], now: ClockReading) -> Option<EvaluatedObject> {
        self.evaluate(fields, None, now)
    }

    /// Whether [`Detector::resync`] and what follows it can have an effect.
    pub fn needs_resync(&self) -> bool {
        let mut interests = self.interesting.values();
        !self.timed.is_empty()
            || !self.unknown.is_empty()
            || interests.any(|interest| interest.fading.is_some())
    }

    /// Whether the feed has to list all objects again, because objects whose detection is
    /// unknown are not stored. It is asked after each [`Detector::resync`].
    pub fn wants_list(&mut self, now: ClockReading) -> bool {
        self.unknown.wants_list(now.steady)
    }

    /// `change` is the object if this is its change.
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

    /// The rules cannot be asked, but the object is there: operations on it stay as they
    /// were, and a list does not take it for gone.
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
        // The object has changed since its fields were read.
        self.timed.remove(&subject.identity(gvr));
        let evaluation = evaluate::undecided(&self.book, subject, error, now.wall, &*self.meter);
        Some(self.evaluated(evaluation, None, now))
    }

    /// Keeps the fields of an object whose evaluation read `now`, and of no other.
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
                // The tracker has to know which objects are listed.
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
                let interest = Interest { fading, detected };
                self.interesting.insert(identity, interest);
            }
            None => {
                self.interesting.remove(&identity);
            }
        }
        if let Some(object) = change.filter(|_| differs) {
            // What starts or ends now does so with this change.
            evaluation.subject.managed = PartialMetadata::read(object).newest_managed;
        }
        EvaluatedObject {
            evaluation,
            is_news: is_found || before.is_some() || self.listing,
            read,
        }
    }

    /// Whether an operation on the object may be in flight, or its detection is unknown.
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

/// Which operations, and which runs of them, are detected or continued; the same for the same
/// ones.
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
