//! The [`Detector`] evaluates rules on the objects of one feed, which is the watch of one resource.
//! It receives the raw events of the watch. It returns messages for the tracker, the state machine
//! that turns the results of rules into operations.

use super::evaluate::{self, RuleSetBudgets};
use super::stored_objects::{StoredBytes, StoredObjects};
use super::unknown::UnknownObjects;
use super::{Evaluation, FeedEvent, MissingSubjects, Subject};
use crate::rules::{EvaluationError, EvaluationTime, RuleBook};
use crate::{ClockReading, Meter};
use ifo_api::Text;
use ifo_cel::Doc;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Minimum time for which the detector remembers an object after the last detection on the object. In
/// this time, an operation on the object can still be in flight, because its debounce period is not
/// over. If a rule of the rule book has a longer debounce period, the time is this period. The detector
/// does not know the default debounce period of the server. If the default debounce period is longer
/// than this time, outcomes that a rule yields after this time are lost.
pub(super) const MIN_SETTLING_PERIOD: Duration = Duration::from_mins(5);

/// Evaluates the rules of one rule book on the objects of one feed.
#[derive(Debug)]
pub struct Detector {
    book: Arc<RuleBook>,
    meter: Arc<dyn Meter>,
    /// True before the first list, and between [`Detector::reset`] and [`Detector::synced`].
    listing: bool,
    /// Objects, by identity, whose last or earlier evaluation had findings. A finding means that a
    /// rule detected an operation, failed or was skipped. The value is None if the last evaluation had
    /// findings. [`Detector::begin_resync`] removes objects that have been undetected for
    /// `settling_period`.
    ///
    /// Outside of a list, the detector sends an evaluation without findings to the tracker only if its
    /// object is in this map. In addition, one of these conditions must be true:
    ///
    /// - The previous evaluation of the object had findings.
    /// - The evaluation has an outcome.
    /// - The labels of the object have changed, and other rule sets select the object than before.
    ///
    /// Without this restriction, many objects without operations would cause messages. For example, a
    /// rule can yield an `outcome` in each evaluation of a finished object.
    ///
    /// A new list forgets all objects. Suppose that the rules no longer detect an operation before
    /// the list begins. Then the detector sends the evaluation of its object in the list, but no
    /// later one. So an outcome after the list is lost, and the operation ends with the reason
    /// `NotDetected`.
    detected: HashMap<Text, Option<Undetected>>,
    /// Time for which objects stay in `detected` after the first evaluation without a detection.
    settling_period: Duration,
    /// The objects that must be evaluated again as time passes.
    stored: StoredObjects,
    /// The position in `stored` after which the current resync continues. None while no resync
    /// runs.
    resync_position: Option<Bound<Text>>,
    /// Evaluation budgets of the rule sets.
    budgets: RuleSetBudgets,
    /// Objects for which it is unknown whether an operation is in flight.
    unknown: UnknownObjects,
}

/// An object whose last evaluation detected no operation.
#[derive(Debug)]
struct Undetected {
    /// Time of the first evaluation without a detection.
    since: Instant,
    /// Names of the rule sets that did not select the object in the last evaluation.
    unselected: Vec<Text>,
}

/// A message for the tracker about objects that the watch no longer reports. If the feed has a
/// label selector, the tracker sends the missing subjects to the receiver. A missing subject is
/// an object with operations that the watch no longer reports. The caller must check whether each
/// missing subject still exists, and then send the message of [`Detector::vanished`] to the tracker.
pub type CheckedEvent = (FeedEvent, Option<oneshot::Receiver<Vec<Subject>>>);

/// The result of an evaluation, and whether the tracker needs the result.
#[derive(Debug)]
pub struct EvaluatedObject {
    /// Result of the rules.
    pub evaluation: Evaluation,
    /// True if the tracker needs the evaluation.
    is_relevant: bool,
    read: Instant,
}

impl EvaluatedObject {
    /// Returns the message for the tracker, or None if the evaluation cannot change an operation.
    pub fn into_event(self) -> Option<FeedEvent> {
        self.is_relevant.then(|| FeedEvent::Evaluated {
            evaluation: Box::new(self.evaluation),
            read: self.read,
        })
    }
}

impl Detector {
    /// Creates a detector. The caller must first pass a list of all objects: call
    /// [`Detector::reset`], then [`Detector::applied`] for each object, then [`Detector::synced`].
    pub fn new(book: Arc<RuleBook>, meter: Arc<dyn Meter>) -> Self {
        let rules = book.rule_sets.iter().flat_map(|it| &it.rules);
        let debounces = rules.filter_map(|rule| rule.debounce);
        Self {
            listing: true,
            detected: HashMap::new(),
            settling_period: debounces.fold(MIN_SETTLING_PERIOD, Duration::max),
            stored: StoredObjects::default(),
            resync_position: None,
            budgets: RuleSetBudgets::default(),
            unknown: UnknownObjects::default(),
            book,
            meter,
        }
    }

    /// Measures the time that evaluations take, and limits it. Without a call of this method, the
    /// time is not limited.
    #[must_use]
    pub fn with_time(mut self, time: Arc<EvaluationTime>) -> Self {
        self.budgets = RuleSetBudgets::new(time);
        self
    }

    /// Shares the bound on the bytes of stored objects with the other detectors that have the same
    /// `bytes`. Without a call of this method, the detector has a bound of its own.
    #[must_use]
    pub fn with_stored_bytes(mut self, bytes: Arc<StoredBytes>) -> Self {
        self.stored.bytes = bytes;
        self
    }

    /// Returns the time that evaluations have taken. The caller resets this time to zero whenever
    /// the caller lets other feeds run. Without a call of [`Detector::with_time`], the time is
    /// always zero.
    pub fn spent(&mut self) -> &mut Duration {
        &mut self.budgets.spent
    }

    /// Returns the rule book.
    pub fn book(&self) -> &Arc<RuleBook> {
        &self.book
    }

    /// Returns true until the first list is complete, and during each later list.
    pub fn is_listing(&self) -> bool {
        self.listing
    }

    /// Handles the beginning of a list of all objects. Returns the message for the tracker.
    pub fn reset(&mut self) -> FeedEvent {
        self.listing = true;
        self.detected.clear();
        self.stored.begin_list();
        self.resync_position = None;
        self.unknown.begin_list();
        FeedEvent::Reset
    }

    /// Handles the end of a list. The caller also calls this method when an interrupted watch
    /// continues without a new list. Returns the message for the tracker.
    pub fn synced(&mut self) -> CheckedEvent {
        self.listing = false;
        self.unknown.synced();
        let (missing, receiver) = self.missing_subjects();
        (FeedEvent::Synced { missing }, receiver)
    }

    fn missing_subjects(&self) -> (MissingSubjects, Option<oneshot::Receiver<Vec<Subject>>>) {
        let channel = self.book.selector().map(|_| oneshot::channel());
        channel.unzip()
    }

    /// Withdraws the reports about objects for which it is known again whether an operation is in
    /// flight. Before this call, lists of operations count as incomplete because of these reports.
    /// The caller must first send the results of all earlier calls to the tracker. Otherwise,
    /// clients could get a list of operations that counts as complete, but lacks the operations of
    /// these results.
    pub fn settle(&mut self) {
        self.unknown.settle();
    }

    /// Evaluates the rules on an object that was listed, added or modified. Returns None if `json`
    /// does not contain the identity of the object.
    pub fn applied(&mut self, json: &[u8], now: ClockReading) -> Option<EvaluatedObject> {
        let doc = match Doc::parse(json, &self.book.projection) {
            Ok(doc) => doc,
            Err(error) => return self.evaluate_undecodable(json, &error.into(), now),
        };
        let (meter, budgets) = (&*self.meter, &mut self.budgets);
        let evaluation = evaluate::evaluate_within(&self.book, &doc, now.wall, meter, budgets);
        if let Ok(evaluation) = &evaluation {
            let identity = || evaluation.subject.identity(&self.book.target);
            self.stored
                .evaluated(identity, evaluation, || doc.to_json());
        }
        match evaluation {
            Ok(evaluation) => Some(self.record_evaluation(evaluation, now)),
            Err(error) => {
                tracing::warn!(gvr = %self.book.target, %error, "an object without a name was not evaluated");
                None
            }
        }
    }

    /// Handles a `DELETED` event. `json` is the last state of the object. Returns the message for
    /// the tracker, or None if `json` does not contain the identity.
    pub fn deleted(&mut self, json: &[u8], now: ClockReading) -> Option<CheckedEvent> {
        let Some(subject) = Subject::identify(json, &self.book) else {
            tracing::warn!(gvr = %self.book.target, "a deleted object could not be decoded");
            return None;
        };
        let identity = subject.identity(&self.book.target);
        self.detected.remove(&identity);
        self.stored.remove(&identity);
        self.unknown.remove(&identity);
        let (missing, receiver) = self.missing_subjects();
        let read = now.steady;
        let event = FeedEvent::Deleted {
            subject,
            read,
            missing,
        };
        Some((event, receiver))
    }

    /// Returns the message for a missing subject. If `exists` is true, the labels of the object no
    /// longer match the label selector. Otherwise the object was deleted.
    pub fn vanished(&mut self, subject: Subject, exists: bool, now: ClockReading) -> FeedEvent {
        if !exists {
            return FeedEvent::Deleted {
                subject,
                read: now.steady,
                missing: None,
            };
        }
        // If the labels match again within the debounce period, the tracker must receive the next
        // evaluation. So the object must be in the map.
        let identity = subject.identity(&self.book.target);
        self.detected.insert(identity, None);
        let evaluation = evaluate::unselected(&self.book, subject);
        let recorded = self.record_evaluation(evaluation, now);
        FeedEvent::Evaluated {
            evaluation: Box::new(recorded.evaluation),
            read: recorded.read,
        }
    }

    /// Begins to evaluate the stored objects again, because time has passed. The caller must then
    /// call [`Detector::reevaluate_next`] until the result is None. Between these calls, the caller
    /// may pass events. The caller must call this method at a fixed interval, but not during a
    /// list.
    pub fn begin_resync(&mut self, now: ClockReading) {
        let is_recent =
            |it: &Undetected| now.steady.duration_since(it.since) < self.settling_period;
        self.detected
            .retain(|_, undetected| undetected.as_ref().is_none_or(is_recent));
        for rule_set in &self.book.rule_sets {
            self.budgets.fill_account(rule_set);
        }
        self.stored.begin_resync();
        self.resync_position = Some(Bound::Unbounded);
    }

    /// Evaluates the rules on the stored fields of the next object. Returns None if the resync is
    /// complete, or if a list has begun.
    pub fn reevaluate_next(&mut self, now: ClockReading) -> Option<EvaluatedObject> {
        let position = self.resync_position.take()?;
        let after = position.as_ref().map(|identity| &**identity);
        let (identity, fields) = self.stored.next(after)?;
        let fields = fields.clone();
        self.resync_position = Some(Bound::Excluded(identity.clone()));
        let mut found = self.applied(&fields, now)?;
        found.evaluation.changed = None;
        Some(found)
    }

    /// Returns true if a call of [`Detector::begin_resync`] or [`Detector::wants_list`] can have an
    /// effect.
    pub fn needs_resync(&self) -> bool {
        !self.stored.is_empty() || !self.unknown.is_empty() || self.has_room_for_refused()
    }

    /// Returns true if the feed must list all objects again. The reason: for some objects, it is
    /// unknown whether operations are in flight, and the detector has not stored these objects.
    /// While the objects do not change, the detector can evaluate them again only in a new list.
    ///
    /// The caller must call this method after each resync.
    pub fn wants_list(&mut self, now: ClockReading) -> bool {
        let has_room = self.stored.has_room() || self.has_room_for_refused();
        !self.listing && self.unknown.wants_list(now.steady, has_room)
    }

    /// Returns true if operations of a rule set were refused at a bound, and there is room for some
    /// of them now.
    fn has_room_for_refused(&self) -> bool {
        let mut rule_sets = self.book.rule_sets.iter();
        rule_sets.any(|it| it.activity.has_room())
    }

    /// Handles an object that exists, but cannot be decoded. Its operations do not change, and a
    /// list does not treat the object as deleted.
    fn evaluate_undecodable(
        &mut self,
        json: &[u8],
        error: &EvaluationError,
        now: ClockReading,
    ) -> Option<EvaluatedObject> {
        let gvr = &self.book.target;
        let Some(subject) = Subject::identify(json, &self.book) else {
            tracing::warn!(%gvr, %error, "an object could not be decoded");
            return None;
        };
        let own = &subject.reference;
        let namespace = own.namespace.as_deref().unwrap_or_default();
        tracing::warn!(%gvr, namespace, name = &*own.name, %error,
            "an object could not be decoded");
        // The stored fields are outdated, because the object has changed.
        self.stored.remove(&subject.identity(gvr));
        let evaluation = evaluate::undecodable(&self.book, subject, error, now.wall, &*self.meter);
        Some(self.record_evaluation(evaluation, now))
    }

    /// Records whether operations are detected on the object, and decides whether the tracker needs
    /// the evaluation.
    fn record_evaluation(&mut self, evaluation: Evaluation, now: ClockReading) -> EvaluatedObject {
        let read = now.steady;
        let identity = evaluation.subject.identity(&self.book.target);
        self.unknown.evaluated(&identity, &evaluation);
        let has_findings = !evaluation.findings.is_empty();
        let unselected = evaluation.unselected.iter();
        let unselected: Vec<Text> = unselected.map(|it| it.name.clone()).collect();
        let can_end_operation = match self.detected.get(&identity) {
            None => false,
            Some(None) => true,
            Some(Some(before)) => {
                unselected != before.unselected || !evaluation.outcomes.is_empty()
            }
        };
        if has_findings {
            self.detected.insert(identity, None);
        } else if let Some(undetected) = self.detected.get_mut(&identity) {
            let since = undetected.as_ref().map_or(read, |it| it.since);
            *undetected = Some(Undetected { since, unselected });
        }
        EvaluatedObject {
            evaluation,
            // After a list, the tracker must know which objects were listed.
            is_relevant: self.listing || has_findings || can_end_operation,
            read,
        }
    }
}
