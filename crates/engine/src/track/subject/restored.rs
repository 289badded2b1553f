//! A subject with restored operations, until it is evaluated and its rule books arrive.

use super::{SubjectStep, Tracked};
use crate::ClockReading;
use crate::rules::{CompiledRule, RuleBook, RuleSetsWithoutBook};
use crate::track::end_reason::End;
use crate::track::operation::{Observed, Operation, SubjectView, UNCLAIMED};
use ifo_api::Gvr;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Precision of the times in managedFields.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// An evaluation of a listed object that last changed at `changed`, according to its managedFields.
pub(super) fn observed_since(changed: Timestamp, now: ClockReading) -> Observed {
    // Kubernetes removes fractions of a second.
    let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
    Observed {
        now: now.steady,
        unchanged: now.back_at(changed).steady,
    }
}

impl Tracked {
    /// A subject from before a restart or a takeover.
    pub(in crate::track) fn remembered(identity: Arc<str>, view: SubjectView) -> Self {
        Self {
            unseen: true,
            unclaimed: true,
            ..Self::new(identity, view, UNCLAIMED.clone())
        }
    }

    /// Restores an operation in flight.
    pub(in crate::track) fn restore(&mut self, operation: Operation) {
        let what = operation.what.clone();
        self.operations.insert(what, Box::new(operation));
    }

    /// Returns true if the rules for this subject are not known yet. Then no feed reports it.
    pub(in crate::track) fn is_unclaimed(&self) -> bool {
        self.target.resource.is_empty()
    }

    /// Returns true if `book`, of `target`, has rules for the subject, and the subject has rule
    /// sets that are known only by name.
    pub(in crate::track) fn may_be_claimed(&self, target: &Arc<Gvr>, book: &RuleBook) -> bool {
        let is_kind = || {
            *self.view.kind == *book.kind && *self.view.api_version == *book.target.api_version()
        };
        self.unclaimed && (self.target == *target || self.is_unclaimed() && is_kind())
    }

    /// Replaces rule sets that are known only by name with those of `book`. The first book also
    /// continues the debounce periods, each for the rest of its time.
    pub(in crate::track) fn claim(
        &mut self,
        target: &Arc<Gvr>,
        book: &RuleBook,
        debounce: Duration,
        now: ClockReading,
    ) {
        let first = self.is_unclaimed();
        self.target = target.clone();
        for (_, operation) in &mut self.operations {
            operation.claim(book, target, self.view.subject.namespace.as_deref());
            if first && operation.detections.is_empty() {
                operation.settle(operation.last_detected, debounce, now);
            }
        }
    }

    /// Called when all books have arrived, except those of undecided rule sets. Operations without
    /// a rule complete, unless an undecided rule set may have a rule for them.
    pub(in crate::track) fn all_booked(
        &mut self,
        bookless: &RuleSetsWithoutBook,
        step: &mut SubjectStep<'_>,
    ) {
        let namespace = self.view.subject.namespace.clone();
        let book = step.books.get(&self.target);
        let mut unclaimed = false;
        let over = |operation: &mut Operation| {
            let is_known = operation.drop_unclaimed(|name| bookless.undecided.contains(name));
            unclaimed |= !is_known;
            let name = &operation.what.operation;
            let ruled = || book.is_some_and(|book| book.has_rule(name, namespace.as_deref()));
            let is_over = is_known && operation.detections.is_empty() && !ruled();
            let rule_set = &*operation.speaker.rule_set.name;
            let is_unserved = bookless.unserved.contains(rule_set);
            is_over.then_some(if is_unserved {
                End::TargetRemoved
            } else {
                End::RuleRemoved
            })
        };
        self.complete_each(over, step.now.wall, step);
        self.unclaimed = unclaimed;
        self.refresh(step);
    }

    /// Called at the first evaluation after a restart or a takeover. The subject last changed at
    /// `changed`. An operation that is not detected has not been detected since then at the latest,
    /// so its debounce period counts from then. This does not apply to rules that read the time.
    pub(super) fn settle_since(&mut self, changed: Timestamp, step: &mut SubjectStep<'_>) {
        let now = step.now;
        // Kubernetes removes fractions of a second.
        let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
        for (_, operation) in &mut self.operations {
            let rule = operation.speaker.rule();
            if operation.detections.is_empty()
                && operation.settling.is_none()
                && !rule.is_none_or(CompiledRule::detection_reads_now)
            {
                let since = changed.clamp(operation.last_detected.min(now.wall), now.wall);
                operation.settle(since, step.ledger.settings.debounce, now);
                operation.undetected(since);
                step.ledger.show(operation, &self.view);
            }
        }
    }
}
