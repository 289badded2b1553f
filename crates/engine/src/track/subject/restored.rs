//! A subject whose operations are from before a restart or a takeover, until it is read
//! again and the rules arrive that detected them.

use super::{SubjectStep, Tracked};
use crate::ClockReading;
use crate::rules::{Bookless, CompiledRule, RuleBook};
use crate::track::end::End;
use crate::track::operation::{Observed, Operation, SubjectView, UNCLAIMED};
use ifo_api::Gvr;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// What times of managedFields are exact to.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// An evaluation of a listed object whose managedFields say that it last changed at
/// `changed`.
pub(super) fn observed_since(changed: Timestamp, now: ClockReading) -> Observed {
    // Kubernetes cuts off what is less than a second.
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

    /// Takes over an operation in flight.
    pub(in crate::track) fn restore(&mut self, operation: Operation) {
        let what = operation.what.clone();
        self.operations.insert(what, Box::new(operation));
    }

    /// Whether the rules for this subject are not known yet. Then no feed reports it.
    pub(in crate::track) fn is_unclaimed(&self) -> bool {
        self.target.resource.is_empty()
    }

    /// Whether `book`, of `target`, is about it, and it has rule sets that are known by name
    /// only.
    pub(in crate::track) fn may_be_claimed(&self, target: &Arc<Gvr>, book: &RuleBook) -> bool {
        let is_kind = || {
            *self.view.kind == *book.kind && *self.view.api_version == *book.target.api_version()
        };
        self.unclaimed && (self.target == *target || self.is_unclaimed() && is_kind())
    }

    /// Puts the rule sets of `book` in the place of those that are known by name only. The
    /// first claim also continues debounces, each for the rest of its time.
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

    /// All books have arrived, except those of undecided rule sets. Operations complete that
    /// no rule is about any more, unless an undecided rule set may be about them.
    pub(in crate::track) fn all_booked(&mut self, bookless: &Bookless, step: &mut SubjectStep<'_>) {
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

    /// The subject is read for the first time since a restart or a takeover, and last changed
    /// at `changed`. Operations that are not detected any more have not been detected since
    /// then at the latest, so their debounce counts from then. That does not hold for rules
    /// that read the time.
    pub(super) fn settle_since(&mut self, changed: Timestamp, step: &mut SubjectStep<'_>) {
        let now = step.now;
        // Kubernetes cuts off what is less than a second.
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
