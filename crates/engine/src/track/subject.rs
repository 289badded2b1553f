//! Tracks the operations on one object. The object is called the subject of its operations.
//!
//! The tracker calls [`TrackedSubject`] for each event that can start, change or complete these
//! operations. Examples are an evaluation of the object, its deletion, an expired timer, new rules,
//! and an interruption of the watch.

mod admit_operations;
mod context;
mod restored_operations;
mod update_detections;
mod waiting;

use super::end_reason::End;
use super::last_runs::Identity;
use super::operation::Operation;
use super::operation_limits::ObjectUsage;
use super::superseded_operations::OperationName;
use crate::ClockReading;
use crate::detect::{DetectedOutcome, Evaluation, Subject};
use crate::rules::RuleBook;
pub(super) use context::SubjectEventContext;
use context::{first_start, observed_since};
use ifo_api::{Gvr, Text};
use jiff::Timestamp;
use litemap::LiteMap;
use std::sync::Arc;
use std::time::Instant;
use update_detections::DetectionsByRuleSet;
use waiting::WaitingOperation;

/// An object with operations in flight, or with operations that clients cannot see yet.
#[derive(Debug)]
pub(super) struct TrackedSubject {
    pub(super) identity: Identity,
    pub(super) subject: Subject,
    pub(super) target: Arc<Gvr>,
    /// Operations in flight. Most subjects have one.
    operations: LiteMap<OperationName, Operation>,
    /// Operations that rules detect, but that clients cannot see yet.
    waiting: LiteMap<OperationName, WaitingOperation>,
    /// Time at which the next timer of the subject expires. None if no timer runs. The set of
    /// timers of all subjects contains the same time
    /// ([`SharedState::timers`](super::shared_state::SharedState::timers)).
    pub(super) timer: Option<Instant>,
    /// How much of the bounds on operations the operations of the subject use, by rule set. The
    /// tracker updates this value after each event.
    pub(super) usage: ObjectUsage,
    /// True if the subject was restored by a new leader, and has not been evaluated yet. Until the
    /// first evaluation, the tracker does not know whether the operations are still in flight.
    is_unevaluated: bool,
}

impl TrackedSubject {
    pub(super) fn new(identity: Identity, subject: Subject, target: Arc<Gvr>) -> Self {
        Self {
            identity,
            subject,
            target,
            // The first insertion into an empty map would allocate memory for four operations.
            operations: LiteMap::with_capacity(1),
            waiting: LiteMap::with_capacity(1),
            timer: None,
            usage: ObjectUsage::default(),
            is_unevaluated: false,
        }
    }

    /// Returns true if the subject has neither operations in flight nor waiting operations.
    pub(super) fn is_over(&self) -> bool {
        self.operations.is_empty() && self.waiting.is_empty()
    }

    /// Returns the time at which the next timer of the subject expires. None if no timer runs.
    pub(super) fn deadline(&self, step: &SubjectEventContext<'_>) -> Option<Instant> {
        let settles = !step.gap && !self.is_unevaluated;
        let operations = self.operations.values();
        let settled = operations.filter_map(|it| it.debounce_end.filter(|_| settles));
        let states = self.operations.values();
        let states = states.flat_map(|it| {
            it.state_due(step.books)
                .into_iter()
                .chain(it.timing.deadline)
        });
        let ready = self.waiting.values().filter_map(|waiting| waiting.ready);
        // Past times in `states` and `ready` need no timer. For example, another operation can
        // supersede a waiting operation after the end of its `appearAfter` (the time before clients
        // see the operation). A timer cannot end this wait.
        let later = states.chain(ready).filter(|at| *at > step.now.steady);
        settled.chain(later).min()
    }

    /// Applies an evaluation of the subject. `initial` is true if the evaluated object comes from
    /// the first list of the watch.
    pub(super) fn evaluated(
        &mut self,
        book: &RuleBook,
        evaluation: Evaluation,
        initial: bool,
        step: &mut SubjectEventContext<'_>,
    ) {
        let first_seen = std::mem::take(&mut self.is_unevaluated);
        let changed = evaluation.changed;
        let start = first_start(changed, initial, step.now.wall);
        if !initial {
            // Operations start and end at the time that `first_start` returns. This is usually the
            // time of the object's last change, so that a new leader computes the same time.
            step.transition = start;
        } else if let Some(changed) = changed {
            step.observed = observed_since(changed, step.now);
        }
        self.subject = evaluation.subject;
        let mut detections_by_rule_set = DetectionsByRuleSet::new(evaluation.findings);
        self.admit(&mut detections_by_rule_set, &mut step.shared.limits);
        for (what, waiting) in &mut self.waiting {
            detections_by_rule_set.apply(book, what, &mut waiting.detections);
            if let Some((rule_set, values)) = waiting.detections.iter().next() {
                let rule = step.books.rule(rule_set, &what.operation);
                let rule = rule.map(|(_, rule)| rule);
                waiting.yielded.update(values, rule, step.observed);
            }
        }
        for (what, operation) in &mut self.operations {
            detections_by_rule_set.apply(book, what, &mut operation.detections);
        }
        self.drop_undetected();
        // If the rule's `instance` has changed, another run has started. The watch can report this
        // change late, so the start of the new run is also recorded as the end of the previous run.
        let another = |it: &mut Operation| it.is_another_run().then_some(End::Replaced);
        for ended in self.complete_each(another, start.at, step) {
            self.add_waiting(ended.what, ended.detections, start, step);
        }
        self.end_with_outcome(&evaluation.outcomes, step);
        for (_, operation) in &mut self.operations {
            let mut unselected = evaluation.unselected.iter();
            operation.left_selection = operation.detections.is_empty()
                && unselected.any(|it| it.name == *operation.rule_set());
        }
        self.complete_settled(step);
        if let Some(changed) = changed.filter(|_| first_seen && initial && !step.gap) {
            self.settle_since(changed, step);
        }
        for (what, found) in detections_by_rule_set.found {
            // `continueWhile` alone does not start an operation.
            let detections = found.into_iter().filter_map(|(name, detection)| {
                let detection = detection.filter(|values| !values.only_continues)?;
                Some((name, detection))
            });
            self.add_waiting(what, detections.collect(), start, step);
        }
        self.update(step);
    }

    /// Completes the operations whose debounce period is over, and updates the other operations.
    /// The debounce period of an operation starts when no rule detects the operation any more.
    pub(super) fn refresh(&mut self, step: &mut SubjectEventContext<'_>) {
        self.complete_settled(step);
        self.update(step);
    }

    /// Completes the operations whose debounce period is over. Does nothing while the watch is
    /// interrupted, or before a restored subject has been evaluated.
    fn complete_settled(&mut self, step: &mut SubjectEventContext<'_>) {
        let now = step.now;
        let settled = |it: &mut Operation| {
            let is_over = it.debounce_end.is_some_and(|at| at <= now.steady);
            (is_over && it.detections.is_empty()).then(|| it.end_reason())
        };
        if !self.is_unevaluated && !step.gap {
            self.complete_each(settled, now.wall, step);
        }
    }

    /// Updates all operations of the subject, and writes the operations that have changed:
    ///
    /// - The debounce period of an operation starts when the operation is no longer detected. If a
    ///   new leader has restored the operation, but has not received its rule yet, the debounce
    ///   period does not start.
    /// - The debounce period is cancelled when the operation is detected again.
    /// - An operation completes when another operation supersedes it.
    /// - A waiting operation starts when its `appearAfter` is over and no operation supersedes it.
    ///
    /// Before a restored subject has been evaluated, nothing starts or completes here. If the watch
    /// is interrupted, the condition `Detected` becomes `Unknown`.
    fn update(&mut self, step: &mut SubjectEventContext<'_>) {
        if !self.is_unevaluated {
            for (_, operation) in &mut self.operations {
                if !operation.detections.is_empty() {
                    operation.debounce_end = None;
                } else if operation.debounce_end.is_none() && !operation.may_get_rule(step.books) {
                    operation.start_debounce(
                        step.now.wall,
                        step.shared.settings.debounce,
                        step.books,
                        step.now,
                    );
                }
            }
            // Superseded operations complete before the writes below. Otherwise, clients would
            // first see the state `Settling` of a superseded operation.
            self.apply_supersession(step);
        } else if !step.gap {
            return;
        }
        for (_, operation) in &mut self.operations {
            if operation.apply_detections(step.change(&self.subject), step.observed) {
                step.shared.show(operation);
            }
        }
    }

    /// Applies new rules. `changed` is the target (the resource that rules watch) whose rules have
    /// changed. `changed` is None for the message `AllRuleBooksSent`: no rules have changed, but
    /// the tracker now knows which rules do not exist.
    ///
    /// Removes the detections of removed rules. Completes the operations that no rule can detect
    /// any more, with the reason `end`. If the rules of a restored operation can still arrive, the
    /// operation stays in flight.
    pub(super) fn rules_changed(
        &mut self,
        changed: Option<&Arc<Gvr>>,
        end: &End,
        step: &mut SubjectEventContext<'_>,
    ) {
        let is_own = changed.is_none_or(|target| self.target == *target);
        if is_own {
            // After a change of the rules, the feed lists all objects again. Until this list has
            // evaluated the subject, no debounce period of a restored operation ends.
            self.continue_debounce(changed.is_some(), step);
        }
        let (books, subject) = (step.books, &self.subject.reference);
        // The target of a restored subject can still be unknown. No feed watches such a subject, so
        // no rule can detect its operations.
        let has_target = !self.has_no_target();
        let keeps = |what: &OperationName, rule_set: &Text| {
            let may_arrive = books.may_arrive(rule_set, &what.operation);
            may_arrive || has_target && books.can_detect(rule_set, what, subject)
        };
        for (what, waiting) in &mut self.waiting {
            waiting.detections.retain(|name, _| keeps(what, name));
        }
        self.waiting
            .retain(|_, waiting| !waiting.detections.is_empty());
        let mut over = Vec::new();
        for (what, operation) in &mut self.operations {
            operation.detections.retain(|name, _| keeps(what, name));
            let is_detectable = || {
                let rule_sets = books.of(&self.target).into_iter();
                let mut names = rule_sets.flat_map(|book| &book.rule_sets);
                names.any(|it| books.can_detect(&it.name, what, subject))
            };
            if operation.detections.is_empty() && !operation.may_get_rule(books) && !is_detectable()
            {
                let end = if books.is_unserved(operation.rule_set()) {
                    &End::TargetRemoved
                } else {
                    end
                };
                over.push((what.clone(), end.clone()));
            }
        }
        for (what, end) in over {
            self.complete(&what, end, step.now.wall, step);
        }
        if is_own {
            self.refresh(step);
        }
    }

    /// Completes all operations, and removes all waiting operations, because the subject was
    /// deleted.
    pub(super) fn deleted(&mut self, step: &mut SubjectEventContext<'_>) {
        self.waiting.clear();
        let end = |_: &mut Operation| Some(End::SubjectDeleted { is_success: false });
        self.complete_each(end, step.now.wall, step);
    }

    /// Completes each operation for which `over` returns a reason. The operations end at the time
    /// `at`. Returns the completed operations.
    fn complete_each(
        &mut self,
        mut over: impl FnMut(&mut Operation) -> Option<End>,
        at: Timestamp,
        step: &mut SubjectEventContext<'_>,
    ) -> Vec<Operation> {
        let ends = self.operations.iter_mut();
        let ends = ends.filter_map(|(what, operation)| Some((what.clone(), over(operation)?)));
        let ends: Vec<(OperationName, End)> = ends.collect();
        ends.into_iter()
            .filter_map(|(what, end)| self.complete(&what, end, at, step))
            .collect()
    }

    /// Completes one operation, which ends at the time `at`. Returns the completed operation, or
    /// None if the subject has no such operation in flight.
    fn complete(
        &mut self,
        what: &OperationName,
        end: End,
        at: Timestamp,
        step: &mut SubjectEventContext<'_>,
    ) -> Option<Operation> {
        let mut operation = self.operations.remove(what)?;
        let end = operation.own_end(end, step.books);
        let then = ClockReading {
            wall: at,
            ..step.now
        };
        let end = (&end, step.books);
        step.shared
            .complete(&self.identity, &mut operation, &self.subject, end, then);
        // An operation that this one superseded starts no earlier than the end that clients see.
        for (_, waiting) in &mut self.waiting {
            if let Some((winner, earliest)) = &mut waiting.superseded
                && winner == what
            {
                *earliest = operation.detected_until(at).max(*earliest);
            }
        }
        Some(operation)
    }

    /// Completes the operations that are no longer detected and whose rule yields an outcome.
    fn end_with_outcome(
        &mut self,
        outcomes: &[DetectedOutcome],
        step: &mut SubjectEventContext<'_>,
    ) {
        let outcome_of = |it: &mut Operation| {
            let outcome = outcomes.iter().find(|outcome| {
                (&outcome.operation, &outcome.item) == (&it.what.operation, &it.what.item)
                    && outcome.rule_set.name == *it.rule_set()
            });
            let outcome = outcome.filter(|_| it.detections.is_empty())?;
            Some(End::Outcome(outcome.state, outcome.message.clone()))
        };
        self.complete_each(outcome_of, step.transition.at, step);
    }
}
