//! The waiting operations of an object: rules detect these operations, but clients cannot see them
//! yet. This module decides when a waiting operation starts, and which operations it supersedes.

use super::TrackedSubject;
use super::context::SubjectEventContext;
use crate::track::books::Books;
use crate::track::end_reason::End;
use crate::track::operation::{Detections, Operation, OperationStart, Yielded};
use crate::track::superseded_operations::{self, OperationCandidate, OperationName};
use ifo_api::live::StartTimeSource;
use jiff::Timestamp;
use litemap::LiteMap;
use std::time::Instant;

/// An operation that rules detect, but that clients cannot see yet. The operation waits for one of
/// these events:
///
/// - the end of `appearAfter`, the time for which a rule must detect an operation before clients
///   see the operation
/// - the end of another operation that supersedes (replaces) it
#[derive(Debug)]
pub(super) struct WaitingOperation {
    pub detections: Detections,
    /// State that the rule yields. `stateAfter` is the time for which the rule must yield `Blocked`
    /// or `Failing` before clients see this state. This time already counts while the operation
    /// waits.
    pub yielded: Yielded,
    /// Start of the operation, unless its rule yields another start.
    pub start: OperationStart,
    /// The operation that superseded this one last, and the earliest start of this one. None if no
    /// operation has superseded this one. The earliest start is the latest end of the operations
    /// that superseded this one, or [`Timestamp::MIN`] while none of them has ended.
    pub superseded: Option<(OperationName, Timestamp)>,
    /// End of `appearAfter`. None if the rule has no `appearAfter`, or if the operation was already
    /// in flight and was superseded.
    pub ready: Option<Instant>,
}

impl TrackedSubject {
    /// Adds a waiting operation. Does nothing if `detections` is empty.
    pub(super) fn add_waiting(
        &mut self,
        what: OperationName,
        detections: Detections,
        start: OperationStart,
        step: &SubjectEventContext<'_>,
    ) {
        let Some((rule_set, values)) = detections.iter().next() else {
            return;
        };
        let rule = step.books.rule(rule_set, &what.operation);
        let rule = rule.map(|(_, rule)| rule);
        let delayed = rule.filter(|rule| !rule.appear_after.is_zero());
        let waiting = WaitingOperation {
            yielded: Yielded::first(values, rule, step.observed),
            // `appearAfter` usually counts from this evaluation. If the object comes from the first
            // list of the watch, `appearAfter` counts from the last change of the object. But if
            // the rule reads `now`, `appearAfter` always counts from this evaluation, because the
            // detection can be newer than the last change.
            ready: delayed.map(|rule| {
                let reads_now = rule.detection_reads_now();
                step.observed.since(reads_now) + rule.appear_after
            }),
            detections,
            start,
            superseded: None,
        };
        self.waiting.insert(what, waiting);
    }

    /// Removes the waiting operations that are no longer detected.
    pub(super) fn drop_undetected(&mut self) {
        self.waiting
            .retain(|_, waiting| !waiting.detections.is_empty());
    }

    /// Completes the operations in flight that other operations supersede. Starts each waiting
    /// operation whose `appearAfter` is over, if no other operation supersedes it.
    pub(super) fn apply_supersession(&mut self, step: &mut SubjectEventContext<'_>) {
        if self.operations.len() < 2 && self.waiting.is_empty() {
            return;
        }
        let (now, gap) = (step.now.steady, step.gap);
        let active = self.operations.iter().map(|(what, operation)| {
            let detected = !operation.detections.is_empty();
            candidate(what, detected, operation.next_values().0, step.books)
        });
        // A waiting operation starts only if it was detected for `appearAfter` without a break.
        // While the watch is interrupted, the tracker does not know whether the operation is still
        // detected. So an operation with `appearAfter` does not start during an interruption.
        let ready = self.waiting.iter();
        let ready = ready.filter(|(_, it)| it.ready.is_none_or(|at| at <= now && !gap));
        let ready = ready.filter_map(|(what, waiting)| {
            let rule_set = waiting.detections.keys().next()?;
            Some(candidate(what, true, rule_set, step.books))
        });
        let candidates: Vec<OperationCandidate<'_>> = active.chain(ready).collect();
        let lost = superseded_operations::find_superseded(&candidates);
        let results: Vec<(OperationName, Option<OperationName>)> = candidates
            .iter()
            .zip(lost)
            .map(|(candidate, winner)| {
                let by = winner.map(|winner| candidates[winner].what.clone());
                (candidate.what.clone(), by)
            })
            .collect();
        for (what, by) in results {
            match by {
                Some(by) => self.supersede(what, by, step),
                None => self.start(what, step),
            }
        }
    }

    /// Handles that the operation `by` supersedes the operation `what`. If `what` is in flight,
    /// completes it. If rules still detect it, it then becomes a waiting operation. If `what`
    /// already waits, it continues to wait.
    fn supersede(
        &mut self,
        what: OperationName,
        by: OperationName,
        step: &mut SubjectEventContext<'_>,
    ) {
        if let Some(waiting) = self.waiting.get_mut(&what) {
            let before = waiting.superseded.take();
            let earliest = before.map_or(Timestamp::MIN, |(_, earliest)| earliest);
            waiting.superseded = Some((by.clone(), earliest));
        }
        let end = End::Superseded(by.operation.clone());
        let ended = self.complete(&what, end, step.transition.at, step);
        if let Some(ended) = ended.filter(|ended| !ended.detections.is_empty()) {
            let waiting = WaitingOperation {
                yielded: ended.yielded,
                detections: ended.detections,
                start: step.transition,
                superseded: Some((by, Timestamp::MIN)),
                ready: None,
            };
            self.waiting.insert(what, waiting);
        }
    }

    /// Starts the waiting operation `what`. Does nothing if no such operation waits, for example
    /// because it is already in flight.
    fn start(&mut self, what: OperationName, step: &mut SubjectEventContext<'_>) {
        let Some(waiting) = self.waiting.remove(&what) else {
            return;
        };
        if self.waiting.is_empty() {
            // Frees the memory, because most operations never wait again.
            self.waiting = LiteMap::new();
        }
        let Some(first) = waiting.detections.values().next() else {
            return;
        };
        let said = first.started.filter(|said| *said <= step.now.wall);
        let start = said.map_or(waiting.start, |at| OperationStart {
            at,
            source: StartTimeSource::Expression,
        });
        let earliest = waiting.superseded.map(|(_, earliest)| earliest);
        let earliest = earliest.filter(|earliest| *earliest > start.at);
        let start = earliest.map_or(start, OperationStart::detected);
        let id = (self.identity.clone(), what.clone());
        let operation = Operation::start(
            &self.identity,
            &step.shared.settings.cluster_namespace,
            (waiting.detections, waiting.yielded),
            what.clone(),
            step.shared.last_runs.next_start(&id, start),
            step.change(&self.subject),
        );
        if let Some(operation) = operation {
            step.shared.start(&operation);
            self.operations.insert(what, operation);
        }
    }
}

fn candidate<'a>(
    what: &'a OperationName,
    detected: bool,
    rule_set: &'a str,
    books: &'a Books,
) -> OperationCandidate<'a> {
    let rule = books.rule(rule_set, &what.operation);
    OperationCandidate {
        what,
        detected,
        order: (rule_set, rule.map_or(0, |(index, _)| index)),
        supersedes: rule.map_or(&[], |(_, rule)| &rule.supersedes),
    }
}
