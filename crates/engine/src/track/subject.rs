//! One subject with its operations in flight, and its operations that wait to appear.

mod detections;
mod first_start;
mod restored;
mod step;

use super::arbitrate::{self, OperationCandidate, OperationName};
use super::end_reason::End;
use super::operation::{Detection, Detections, Operation, OperationStart, SubjectView, Yielded};
use super::shared_state::Identity;
use crate::ClockReading;
use crate::detect::{DetectedOutcome, Evaluation, Subject};
use crate::rules::{RuleBook, Supersedes};
use detections::DetectionsByRuleSet;
use first_start::first_start;
use ifo_api::Gvr;
use ifo_api::live::StartTimeSource;
use jiff::Timestamp;
use litemap::LiteMap;
use std::sync::Arc;
use std::time::Instant;
pub(super) use step::SubjectStep;

/// A subject with a current or recent detection.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) identity: Identity,
    pub(super) view: SubjectView,
    pub(super) target: Arc<Gvr>,
    // Most subjects have one operation. The map is a vector that grows by four, so values are
    // boxed.
    operations: LiteMap<OperationName, Box<Operation>>,
    waiting: LiteMap<OperationName, WaitingOperation>,
    /// True until the first evaluation of the subject after a restart or a takeover. Until then, an
    /// operation without a known rule may still be in flight.
    unseen: bool,
    /// True if its rule sets are known only by name, and their book may still arrive.
    pub(super) unclaimed: bool,
}

/// An operation that is detected and not shown yet, because of `appearAfter` or another operation.
#[derive(Debug)]
struct WaitingOperation {
    detections: Detections,
    /// The state that its rule yields. Its time counts from before the operation appears.
    yielded: Yielded,
    start: OperationStart,
    /// The time at which it has been detected for `appearAfter`, if the rule has one.
    ready: Option<Instant>,
}

impl Tracked {
    pub(super) fn new(identity: Identity, view: SubjectView, target: Arc<Gvr>) -> Self {
        Self {
            identity,
            view,
            target,
            operations: LiteMap::with_capacity(1),
            waiting: LiteMap::new(),
            unseen: false,
            unclaimed: false,
        }
    }

    /// Returns true if there is no operation in flight and none that waits.
    pub(super) fn is_over(&self) -> bool {
        self.operations.is_empty() && self.waiting.is_empty()
    }

    /// The next time at which a timer of the subject expires after this step.
    pub(super) fn deadline(&self, step: &SubjectStep<'_>) -> Option<Instant> {
        let settles = !step.gap && !self.unseen;
        let operations = self.operations.values();
        let settled = operations.filter_map(|it| it.settling.filter(|_| settles));
        let states = self.operations.values().filter_map(|it| it.state_due());
        let ready = self.waiting.values().filter_map(|waiting| waiting.ready);
        // An operation whose time is over and that is still not shown waits for another operation.
        let later = states.chain(ready).filter(|at| *at > step.now.steady);
        settled.chain(later).min()
    }

    /// Compares the detections with the operations in flight. `initial` is true for an object of
    /// the feed's first list.
    pub(super) fn evaluated(
        &mut self,
        book: &RuleBook,
        evaluation: Evaluation,
        initial: bool,
        step: &mut SubjectStep<'_>,
    ) {
        let first_seen = std::mem::take(&mut self.unseen);
        let changed = evaluation.subject.managed;
        let start = first_start(&evaluation.subject, initial, step.now.wall);
        if !initial {
            // New starts and ends get the time of the change, so that all replicas derive the same
            // time.
            step.again = start;
        } else if let Some(changed) = changed {
            step.observed = restored::observed_since(changed, step.now);
        }
        // managedFields are only read for the start.
        self.view.subject = Subject {
            managed: None,
            ..evaluation.subject
        };
        let mut answers = DetectionsByRuleSet::new(&self.target, evaluation.findings);
        for (what, waiting) in &mut self.waiting {
            answers.apply(book, what, &mut waiting.detections);
            if let Some(first) = waiting.detections.values().next() {
                waiting.yielded.update(first, step.observed);
            }
        }
        for (what, operation) in &mut self.operations {
            answers.apply(book, what, &mut operation.detections);
        }
        self.drop_undetected();
        // A run ends when the next run starts, even if this is noticed later.
        let another = |it: &mut Operation| it.is_another_run().then_some(End::Replaced);
        for ended in self.complete_each(another, start.at, step) {
            self.wait(ended.what, ended.detections, start, step);
        }
        self.end_with_outcome(&evaluation.outcomes, step);
        for (_, operation) in &mut self.operations {
            let mut unselected = evaluation.unselected.iter();
            operation.left = operation.detections.is_empty()
                && unselected.any(|rule_set| operation.is_spoken_for_by(&rule_set.name));
        }
        self.complete_settled(step);
        if let Some(changed) = changed.filter(|_| first_seen && initial && !step.gap) {
            self.settle_since(changed, step);
        }
        for (what, found) in answers.found {
            // Collecting would allocate room for four.
            let mut detections = Detections::with_capacity(found.len());
            let detecting = found.into_iter();
            // `continueWhile` does not start an operation.
            detections.extend(detecting.filter_map(|(name, detection)| {
                let detection = detection.filter(|detection| !detection.says.continues)?;
                Some((name, detection))
            }));
            self.wait(what, detections, start, step);
        }
        self.update(step);
    }

    /// Completes operations whose debounce period is over, and updates the others.
    pub(super) fn refresh(&mut self, step: &mut SubjectStep<'_>) {
        self.complete_settled(step);
        self.update(step);
    }

    /// Completes operations whose debounce period is over. None completes during a gap, or before
    /// the subject has been evaluated.
    fn complete_settled(&mut self, step: &mut SubjectStep<'_>) {
        let now = step.now;
        let settled = |it: &mut Operation| {
            let is_over = it.settling.is_some_and(|at| at <= now.steady);
            (is_over && it.detections.is_empty()).then(|| it.end())
        };
        if !self.unseen && !step.gap {
            self.complete_each(settled, now.wall, step);
        }
    }

    /// Updates all operations of the subject. An operation that is no longer detected begins to
    /// settle. An operation that is detected again stops settling. A waiting operation starts if it
    /// may. Visible changes are written. Until the subject has been evaluated, only a gap is shown.
    fn update(&mut self, step: &mut SubjectStep<'_>) {
        if !self.unseen {
            for (_, operation) in &mut self.operations {
                if !operation.detections.is_empty() {
                    operation.settling = None;
                } else if operation.settling.is_none() {
                    operation.settle(step.now.wall, step.ledger.settings.debounce, step.now);
                }
            }
            // This comes first, so that a superseded operation is not shown as settling.
            self.arbitrate(step);
        } else if !step.gap {
            return;
        }
        for (_, operation) in &mut self.operations {
            if operation.redetected(step.again.at, step.gap, step.observed) {
                step.ledger.show(operation, &self.view);
            }
        }
    }

    /// Applies new rules of `target`. Detections by removed rules are dropped, and operations
    /// without a rule complete. Another rule set may then describe an operation.
    pub(super) fn rules_changed(
        &mut self,
        target: &Arc<Gvr>,
        end: &End,
        step: &mut SubjectStep<'_>,
    ) {
        let namespace = self.view.subject.namespace.clone();
        let book = step.books.get(target);
        let keeps = |what: &OperationName, detection: &Detection| {
            let name = &detection.rule_set.name;
            detection.target != *target
                || book.is_some_and(|book| {
                    let mut rules_of = book.rules_of(&what.operation, namespace.as_deref());
                    rules_of.any(|(rule_set, _)| rule_set.name == *name)
                })
        };
        for (what, waiting) in &mut self.waiting {
            waiting.detections.retain(|_, it| keeps(what, it));
        }
        self.drop_undetected();
        let own = step.books.get(&self.target);
        let over = |operation: &mut Operation| {
            let what = &operation.what;
            operation.detections.retain(|_, it| keeps(what, it));
            let ruled = || own.is_some_and(|it| it.has_rule(&what.operation, namespace.as_deref()));
            (operation.detections.is_empty() && !ruled()).then(|| end.clone())
        };
        self.complete_each(over, step.now.wall, step);
        if self.target == *target {
            self.refresh(step);
        }
    }

    /// Completes all operations.
    pub(super) fn complete_all(&mut self, end: &End, step: &mut SubjectStep<'_>) {
        self.waiting.clear();
        self.complete_each(|_| Some(end.clone()), step.now.wall, step);
    }

    /// Completes the operations for which `over` returns a reason, at the time `at`.
    fn complete_each(
        &mut self,
        mut over: impl FnMut(&mut Operation) -> Option<End>,
        at: Timestamp,
        step: &mut SubjectStep<'_>,
    ) -> Vec<Operation> {
        let ends = self.operations.iter_mut();
        let ends = ends.filter_map(|(what, operation)| Some((what.clone(), over(operation)?)));
        let ends: Vec<(OperationName, End)> = ends.collect();
        ends.into_iter()
            .filter_map(|(what, end)| self.complete(&what, &end, at, step))
            .collect()
    }

    /// Completes one operation at the time `at`.
    fn complete(
        &mut self,
        what: &OperationName,
        end: &End,
        at: Timestamp,
        step: &mut SubjectStep<'_>,
    ) -> Option<Operation> {
        let operation = *self.operations.remove(what)?;
        let then = ClockReading {
            wall: at,
            ..step.now
        };
        step.ledger
            .complete(&self.identity, &operation, &self.view, end, then);
        Some(operation)
    }

    /// Completes operations that are no longer detected and whose rule yields an outcome.
    fn end_with_outcome(&mut self, outcomes: &[DetectedOutcome], step: &mut SubjectStep<'_>) {
        let told = |it: &mut Operation| {
            let outcome = outcomes.iter().find(|outcome| {
                (&outcome.operation, &outcome.item) == (&it.what.operation, &it.what.item)
                    && it.is_spoken_for_by(&outcome.rule_set.name)
            });
            let outcome = outcome.filter(|_| it.detections.is_empty())?;
            Some(End::Outcome(outcome.state, outcome.message.clone()))
        };
        self.complete_each(told, step.again.at, step);
    }

    /// Adds an operation that is detected and not in flight.
    fn wait(
        &mut self,
        what: OperationName,
        detections: Detections,
        start: OperationStart,
        step: &SubjectStep<'_>,
    ) {
        let Some(first) = detections.values().next() else {
            return;
        };
        let delayed = first.rule().filter(|rule| !rule.appear_after.is_zero());
        let waiting = WaitingOperation {
            yielded: Yielded::first(first, step.observed),
            // A listed object has been in this state since its last change.
            ready: delayed.map(|rule| {
                let reads_now = rule.detection_reads_now();
                step.observed.since(reads_now) + rule.appear_after
            }),
            detections,
            start,
        };
        self.waiting.insert(what, waiting);
    }

    /// Removes waiting operations that are no longer detected.
    fn drop_undetected(&mut self) {
        self.waiting
            .retain(|_, waiting| !waiting.detections.is_empty());
    }

    /// Completes superseded operations, and starts waiting operations that may start.
    fn arbitrate(&mut self, step: &mut SubjectStep<'_>) {
        if self.operations.len() < 2 && self.waiting.is_empty() {
            return;
        }
        let (now, gap) = (step.now.steady, step.gap);
        let active = self.operations.iter().map(|(what, operation)| {
            let detected = !operation.detections.is_empty();
            contender(what, detected, operation.next_speaker())
        });
        // A waiting operation must have been detected without a break. During a gap, this is not
        // known.
        let ready = self.waiting.iter();
        let ready = ready.filter(|(_, it)| it.ready.is_none_or(|at| at <= now && !gap));
        let ready = ready.filter_map(|(what, waiting)| {
            let first = waiting.detections.values().next()?;
            Some(contender(what, true, first))
        });
        let contenders: Vec<OperationCandidate<'_>> = active.chain(ready).collect();
        let lost = arbitrate::losers(&contenders);
        let verdict: Vec<(OperationName, Option<Arc<str>>)> = contenders
            .iter()
            .zip(lost)
            .map(|(contender, winner)| {
                let by = winner.map(|winner| contenders[winner].what.operation.clone());
                (contender.what.clone(), by)
            })
            .collect();
        for (what, by) in verdict {
            match by {
                Some(by) => self.supersede(what, by, step),
                None => self.start(what, step),
            }
        }
    }

    /// Completes an operation because another one supersedes it. If it is still detected, it waits.
    fn supersede(&mut self, what: OperationName, by: Arc<str>, step: &mut SubjectStep<'_>) {
        let ended = self.complete(&what, &End::Superseded(by), step.again.at, step);
        if let Some(ended) = ended.filter(|ended| !ended.detections.is_empty()) {
            let waiting = WaitingOperation {
                yielded: ended.yielded,
                detections: ended.detections,
                start: step.again,
                ready: None,
            };
            self.waiting.insert(what, waiting);
        }
    }

    /// Starts a waiting operation.
    fn start(&mut self, what: OperationName, step: &mut SubjectStep<'_>) {
        let Some(waiting) = self.waiting.remove(&what) else {
            return;
        };
        if self.waiting.is_empty() {
            self.waiting = LiteMap::new(); // Nothing waits for long, and most never again.
        }
        let Some(first) = waiting.detections.values().next() else {
            return;
        };
        let said = first.says.started.filter(|said| *said <= step.now.wall);
        let start = said.map_or(waiting.start, |at| OperationStart {
            at,
            source: StartTimeSource::Expression,
        });
        let id = (self.identity.clone(), what.clone());
        let operation = Operation::start(
            &self.identity,
            &self.view,
            &step.ledger.settings.cluster_namespace,
            (waiting.detections, waiting.yielded),
            what.clone(),
            step.ledger.after_predecessor(&id, start),
            step.now.wall,
        );
        if let Some(mut operation) = operation {
            operation.update_state(step.now.steady, step.gap);
            step.ledger.start(&operation, &self.view);
            self.operations.insert(what, Box::new(operation));
        }
    }
}

fn contender<'a>(
    what: &'a OperationName,
    detected: bool,
    speaker: &'a Detection,
) -> OperationCandidate<'a> {
    let rule = speaker.rule();
    OperationCandidate {
        what,
        detected,
        order: (&speaker.rule_set.name, speaker.says.order),
        supersedes: rule.map_or(&Supersedes::Nothing, |rule| &rule.supersedes),
    }
}
