//! A subject whose operations were there before a restart, until it is seen again and
//! the rules that detected them are.

use super::{InFlight, Ledger, Now, Settling, Tracked, What};
use crate::rules::{Bookless, RuleBook};
use crate::track::end::End;
use crate::track::operation::{Observed, Operation, SubjectView, UNCLAIMED};
use ifo_api::Gvr;
use ifo_cel::Program;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// What times of managedFields are exact to.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// As it was at `then`: what was over by then stays as long as what was seen to end.
fn back_at(then: Timestamp, now: Now) -> Now {
    let then = then.min(now.wall);
    let ago = now.wall.duration_since(then).unsigned_abs();
    Now {
        wall: then,
        steady: now.steady.checked_sub(ago).unwrap_or(now.steady),
    }
}

/// An object that was listed, and last changed at `changed` as far as its managedFields
/// tell.
pub(super) fn observed_since(changed: Timestamp, now: Now) -> Observed {
    // Kubernetes cuts off what is less than a second.
    let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
    Observed {
        now: now.steady,
        unchanged: back_at(changed, now).steady,
    }
}

impl Tracked {
    /// A subject that was there before a restart.
    pub(in crate::track) fn remembered(identity: Arc<str>, view: SubjectView) -> Self {
        let mut tracked = Self::new(identity, view, UNCLAIMED.clone());
        tracked.memory.unseen = true;
        tracked.memory.unclaimed = true;
        tracked
    }

    /// Takes up an operation that was in flight before a restart, and shows it as it was.
    /// Of two runs of the same, the earlier one was over when the later one started. Of two
    /// starts of one run that have been written down, the earlier one counts, unless a server
    /// shows the other (`is_shown`): no end is made up for the one that is left out.
    pub(in crate::track) fn restore(
        &mut self,
        operation: Operation,
        is_shown: bool,
        ledger: &mut Ledger,
        now: Now,
    ) {
        let what = operation.what.clone();
        let mut stays = InFlight {
            operation,
            settling: None,
            left: false,
            is_shown,
        };
        if let Some(mut earlier) = self.operations.remove(&what) {
            if earlier.operation.start_second() > stays.operation.start_second() {
                std::mem::swap(&mut *earlier, &mut stays);
            }
            if earlier.operation.is_run_before(&stays.operation) {
                let ended = &earlier.operation;
                let then = back_at(stays.operation.started(), now);
                ledger.complete(&self.identity, ended, &self.view, &End::Replaced, then);
            } else {
                if !stays.is_shown {
                    std::mem::swap(&mut *earlier, &mut stays);
                }
                ledger.take_back(&earlier.operation);
            }
        }
        ledger.show(&stays.operation, &self.view);
        self.operations.insert(what, Box::new(stays));
    }

    /// Drops an operation that was taken up and is over, unless the subject has been looked
    /// at since: then what was seen of it counts. Whether it was there.
    pub(in crate::track) fn withdraw(&mut self, over: &Operation, ledger: &mut Ledger) -> bool {
        let known = self.operations.get(&over.what);
        if !self.memory.unseen || known.is_none_or(|it| it.operation.uid() != over.uid()) {
            return false;
        }
        let in_flight = self.operations.remove(&over.what);
        for at in in_flight.iter().flat_map(|it| it.deadlines()) {
            ledger.not_due(at, (self.identity.clone(), over.what.clone()));
        }
        true
    }

    /// Ends what was taken up and started before `later`, when another run of it did that is
    /// over. Its UID, if there was one: what has been looked at since counts for more.
    pub(in crate::track) fn conclude(
        &mut self,
        what: &What,
        later: Timestamp,
        ledger: &mut Ledger,
        now: Now,
    ) -> Option<Uuid> {
        let operation = &self.operations.get(what)?.operation;
        if !self.memory.unseen || operation.start_second() >= later.as_second() {
            return None;
        }
        let then = back_at(later, now);
        let over = self.complete(what, Some(End::Replaced), ledger, then)?;
        Some(over.uid())
    }

    /// Whether nobody watches it yet.
    pub(in crate::track) fn is_unclaimed(&self) -> bool {
        self.target.resource.is_empty()
    }

    /// Whether `book`, of `target`, is about it, and there is something that it may claim.
    pub(in crate::track) fn may_be_claimed(&self, target: &Arc<Gvr>, book: &RuleBook) -> bool {
        let is_kind = || {
            *self.view.kind == *book.kind && *self.view.api_version == *book.target.api_version()
        };
        self.memory.unclaimed && (self.target == *target || self.is_unclaimed() && is_kind())
    }

    /// The rules that detected its operations are known again. Those that were settling go
    /// on, for the rest of their debounce.
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

    /// All rule sets that have a book have brought it. What none of them is about any more
    /// ends; what the rest may be about stays.
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
        // What nobody watches has a gap.
        let gap = gap || self.is_unclaimed();
        self.refresh(gap, ledger, now);
    }

    /// It is seen for the first time since a restart, and last changed at `changed`. What is
    /// not detected any more has not been since then, at the latest: its debounce was running
    /// all the while. Rules that read the time are none the wiser.
    pub(super) fn settle_since(&mut self, changed: Timestamp, ledger: &mut Ledger, now: Now) {
        // Kubernetes cuts off what is less than a second.
        let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
        for (what, in_flight) in &mut self.operations {
            let operation = &mut in_flight.operation;
            let rule = operation.rule();
            if !operation.detections.is_empty()
                || in_flight.settling.is_some()
                || rule.is_none_or(|rule| rule.predicates().any(Program::reads_now))
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
            return; // As it was before the restart, until more is known.
        }
        for (_, in_flight) in &mut self.operations {
            let observed = Observed::now(now.steady);
            if in_flight.operation.redetected(now.wall, gap, observed) {
                ledger.show(&in_flight.operation, &self.view);
            }
        }
    }
}
