//! A subject whose operations are from before a restart or a takeover, until it is read
//! again and the rules arrive that detected them.

use super::{InFlight, Ledger, Now, Settling, Tracked, What};
use crate::rules::{Bookless, Rule, RuleBook};
use crate::track::end::End;
use crate::track::operation::{Observed, Operation, SubjectView, UNCLAIMED};
use ifo_api::Gvr;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// What times of managedFields are exact to.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The moment `then` on both clocks, at the latest now.
pub(in crate::track) fn back_at(then: Timestamp, now: Now) -> Now {
    let then = then.min(now.wall);
    let ago = now.wall.duration_since(then).unsigned_abs();
    Now {
        wall: then,
        steady: now.steady.checked_sub(ago).unwrap_or(now.steady),
    }
}

/// An evaluation of a listed object whose managedFields say that it last changed at
/// `changed`.
pub(super) fn observed_since(changed: Timestamp, now: Now) -> Observed {
    // Kubernetes cuts off what is less than a second.
    let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
    Observed {
        now: now.steady,
        unchanged: back_at(changed, now).steady,
    }
}

impl Tracked {
    /// A subject from before a restart or a takeover.
    pub(in crate::track) fn remembered(identity: Arc<str>, view: SubjectView) -> Self {
        let mut tracked = Self::new(identity, view, UNCLAIMED.clone());
        tracked.memory.unseen = true;
        tracked.memory.unclaimed = true;
        tracked
    }

    /// Takes over an operation in flight.
    pub(in crate::track) fn restore(&mut self, operation: Operation) {
        let what = operation.what.clone();
        let in_flight = InFlight {
            operation,
            settling: None,
            left: false,
        };
        self.operations.insert(what, Box::new(in_flight));
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
        self.memory.unclaimed && (self.target == *target || self.is_unclaimed() && is_kind())
    }

    /// Puts the rule sets of `book` in the place of those that are known by name only. The
    /// first claim also continues debounces, each for the rest of its time.
    pub(in crate::track) fn claim(
        &mut self,
        target: &Arc<Gvr>,
        book: &RuleBook,
        ledger: &mut Ledger,
        now: Now,
    ) {
        let first = self.is_unclaimed();
        self.target = target.clone();
        let namespace = self.view.subject.namespace.as_deref();
        for (what, in_flight) in &mut self.operations {
            let operation = &mut in_flight.operation;
            operation.claim(book, target, namespace);
            if first && operation.detections.is_empty() {
                let debounce = operation.rule().and_then(|rule| rule.debounce);
                let debounce = debounce.unwrap_or(ledger.settings.debounce);
                let settled = now.wall.duration_since(operation.last_detected());
                let settled = Duration::try_from(settled).unwrap_or_default();
                let until = now.steady + debounce.saturating_sub(settled);
                ledger.due(until, (self.identity.clone(), what.clone()));
                in_flight.settling = Some(Settling::Until(until));
            }
        }
    }

    /// All books have arrived, except those of undecided rule sets. Operations complete that
    /// no rule is about any more, unless an undecided rule set may be about them.
    pub(in crate::track) fn all_booked(
        &mut self,
        bookless: &Bookless,
        ruled: impl Fn(&What) -> bool,
        gap: bool,
        ledger: &mut Ledger,
        now: Now,
    ) {
        if !self.memory.unclaimed {
            return;
        }
        let mut over = Vec::new();
        self.memory.unclaimed = false;
        for (what, in_flight) in &mut self.operations {
            let operation = &mut in_flight.operation;
            let open = operation.drop_unclaimed(|name| bookless.undecided.contains(name));
            self.memory.unclaimed |= open;
            if !open && operation.detections.is_empty() && !ruled(what) {
                let end = if bookless.unserved.contains(operation.rule_set()) {
                    End::TargetRemoved
                } else {
                    End::RuleRemoved
                };
                over.push((what.clone(), end));
            }
        }
        for (what, end) in over {
            self.complete(&what, Some(end), ledger, now);
        }
        // No feed reports this subject, so its state is as unknown as in a gap of a watch.
        let gap = gap || self.is_unclaimed();
        self.refresh(gap, ledger, now);
    }

    /// The subject is read for the first time since a restart or a takeover, and last changed
    /// at `changed`. Operations that are not detected any more have not been detected since
    /// then at the latest, so their debounce counts from then. That does not hold for rules
    /// that read the time.
    pub(super) fn settle_since(&mut self, changed: Timestamp, ledger: &mut Ledger, now: Now) {
        // Kubernetes cuts off what is less than a second.
        let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
        for (what, in_flight) in &mut self.operations {
            let operation = &mut in_flight.operation;
            let rule = operation.rule();
            if !operation.detections.is_empty()
                || in_flight.settling.is_some()
                || rule.is_none_or(Rule::detection_reads_now)
            {
                continue;
            }
            let debounce = rule.and_then(|rule| rule.debounce);
            let debounce = debounce.unwrap_or(ledger.settings.debounce);
            let since = changed.clamp(operation.last_detected().min(now.wall), now.wall);
            let settled = now.wall.duration_since(since).unsigned_abs();
            let until = now.steady + debounce.saturating_sub(settled);
            ledger.due(until, (self.identity.clone(), what.clone()));
            in_flight.settling = Some(Settling::Until(until));
            operation.undetected(since);
            ledger.show(operation, &self.view);
        }
    }

    /// Shows `Detected=Unknown`, if that is new, and changes nothing else.
    pub(super) fn show_gap(&mut self, gap: bool, ledger: &mut Ledger, now: Now) {
        if !gap {
            return; // It stays as it was before, until its subject is read.
        }
        for (_, in_flight) in &mut self.operations {
            let observed = Observed::now(now.steady);
            if in_flight.operation.redetected(now.wall, gap, observed) {
                ledger.show(&in_flight.operation, &self.view);
            }
        }
    }
}
