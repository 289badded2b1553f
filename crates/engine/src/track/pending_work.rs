//! Work on many subjects that the tracker does in parts. One message can change all operations of a
//! rule set, for example if the rule set is deleted. If all writes were made at once, they would
//! need much memory. So the tracker does such work until it has made a batch of writes. It continues
//! after the caller has taken the batch.

use super::Write;
use super::end_reason::End;
use super::shared_state::Identity;
use super::subject::{SubjectEventContext, TrackedSubject};
use super::tracker::Tracker;
use crate::ClockReading;
use crate::rules::RuleSetsWithoutBook;
use ifo_api::Gvr;
use std::sync::Arc;

/// Number of writes after which a batch is full. The changes of one subject are never split. So a
/// batch can have more writes, by the writes for one subject.
pub const FULL_BATCH: usize = 1_000;

/// Work that is not finished.
#[derive(Debug)]
pub(super) enum PendingWork {
    /// The action must be done on these subjects.
    Subjects {
        identities: std::vec::IntoIter<Identity>,
        action: SubjectAction,
        now: ClockReading,
    },
    /// The timers that have expired must be handled.
    Timers(ClockReading),
}

/// An action on a subject.
#[derive(Clone, Debug)]
pub(super) enum SubjectAction {
    /// See [`TrackedSubject::refresh`].
    Refresh,
    /// See [`TrackedSubject::show_usual_durations`].
    ShowUsualDurations,
    /// See [`TrackedSubject::complete_all`].
    CompleteAll(End),
    /// See [`TrackedSubject::rules_changed`].
    RulesChanged(Arc<Gvr>, End),
    /// See [`TrackedSubject::all_rule_books_sent`].
    AllRuleBooksSent(Arc<RuleSetsWithoutBook>),
}

impl SubjectAction {
    fn apply(&self, tracked: &mut TrackedSubject, step: &mut SubjectEventContext<'_>) {
        match self {
            Self::Refresh => tracked.refresh(step),
            Self::ShowUsualDurations => tracked.show_usual_durations(step),
            Self::CompleteAll(end) => tracked.complete_all(end, step),
            Self::RulesChanged(target, end) => tracked.rules_changed(target, end, step),
            Self::AllRuleBooksSent(without_book) => tracked.all_rule_books_sent(without_book, step),
        }
    }
}

impl Tracker {
    /// Returns true if a batch of writes is full, or if work is not finished. The caller should then
    /// take batches with [`Tracker::take_batch`] before it sends the next message.
    pub fn has_full_batch(&self) -> bool {
        !self.pending.is_empty() || self.shared.write_count() >= FULL_BATCH
    }

    /// Continues work that is not finished until a batch of writes is full. Returns the writes since
    /// the last call, in the order in which they must be applied. Without unfinished work, returns
    /// all writes.
    pub fn take_batch(&mut self) -> Vec<Write> {
        self.continue_work(FULL_BATCH);
        self.shared.take_writes()
    }

    /// Finishes all work. Returns the writes since the last call, in the order in which they must be
    /// applied.
    pub fn take_changes(&mut self) -> Vec<Write> {
        self.continue_work(usize::MAX);
        self.shared.take_writes()
    }

    /// Does the action on each subject for which `of` returns true.
    pub(super) fn step_each(
        &mut self,
        now: ClockReading,
        of: impl Fn(&TrackedSubject) -> bool,
        action: SubjectAction,
    ) {
        let identities = self.identities(of);
        self.step_these(now, identities, action);
    }

    /// Does the action on these subjects, after all work that is not finished.
    pub(super) fn step_these(
        &mut self,
        now: ClockReading,
        identities: Vec<Identity>,
        action: SubjectAction,
    ) {
        self.pending.push_back(PendingWork::Subjects {
            identities: identities.into_iter(),
            action,
            now,
        });
    }

    /// Continues work until there are `most` writes, or until all work is finished.
    pub(super) fn continue_work(&mut self, most: usize) {
        while let Some(work) = self.pending.pop_front() {
            let (PendingWork::Subjects { now, .. } | PendingWork::Timers(now)) = &work;
            let now = now.steady;
            let rest = self.do_work(work, most);
            // Records beyond their maximum are deleted with each batch. Otherwise, their number
            // would grow until all work is finished.
            self.shared.expire(now);
            if let Some(rest) = rest {
                self.pending.push_front(rest);
                return;
            }
        }
    }

    /// Does work until there are `most` writes. Returns the rest of the work.
    fn do_work(&mut self, mut work: PendingWork, most: usize) -> Option<PendingWork> {
        match &mut work {
            PendingWork::Subjects {
                identities,
                action,
                now,
            } => {
                while self.shared.write_count() < most {
                    let identity = identities.next()?;
                    self.step(&identity, *now, |tracked, step| action.apply(tracked, step));
                }
            }
            PendingWork::Timers(now) => {
                while self.shared.write_count() < most {
                    let Some(identity) = self.shared.pop_timer(now.steady) else {
                        self.timers_expired(*now);
                        return None;
                    };
                    if let Some(tracked) = self.subjects.get_mut(&identity) {
                        tracked.timer = None;
                    }
                    self.step(&identity, *now, TrackedSubject::refresh);
                }
            }
        }
        Some(work)
    }

    /// Handles the end of [`PendingWork::Timers`].
    fn timers_expired(&mut self, now: ClockReading) {
        // A baseline is the durations of earlier runs of an operation. When a baseline becomes
        // usable, operations in flight can be overdue at once, so all subjects are refreshed. This
        // is slow, but rare: each baseline becomes usable only once.
        if std::mem::take(&mut self.shared.must_refresh_all) {
            self.step_each(now, |it| !it.has_no_target(), SubjectAction::Refresh);
        }
        self.forget_deleted_namespaces(now.steady);
        self.update_room();
    }
}
