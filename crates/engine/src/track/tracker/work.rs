//! Does work on many subjects in batches. One message can change all operations of a rule set, for
//! example if the rule set is deleted. All its writes at once would need much memory. So the
//! tracker does such work until it has made a batch of writes. The tracker continues after the
//! caller has taken the batch.

use super::Tracker;
use crate::ClockReading;
use crate::rules::RuleSet;
use crate::track::Write;
use crate::track::end_reason::End;
use crate::track::last_runs::Identity;
use crate::track::subject::TrackedSubject;
use ifo_api::Gvr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Number of writes after which a batch is full. The writes for one subject are never split, so a
/// batch can exceed this number.
pub const FULL_BATCH: usize = 1_000;

/// Unfinished work: an action that must be done on each of these subjects.
#[derive(Debug)]
pub(in crate::track) struct PendingWork {
    identities: std::vec::IntoIter<Identity>,
    action: SubjectAction,
    now: ClockReading,
}

/// An action on a subject.
#[derive(Debug)]
pub(in crate::track) enum SubjectAction {
    /// See [`TrackedSubject::refresh`].
    Refresh,
    /// See [`TrackedSubject::deleted`].
    Delete,
    /// See [`TrackedSubject::rules_changed`].
    RulesChanged(Option<Arc<Gvr>>, End),
}

impl Tracker {
    /// Returns true if a batch of writes is full, or if there is unfinished work. The caller should
    /// then take batches with [`Tracker::take_batch`] before it sends the next message.
    pub fn has_full_batch(&self) -> bool {
        !self.pending.is_empty() || self.shared.writes.len() >= FULL_BATCH
    }

    /// Continues unfinished work, and stops when a batch of writes is full. Returns the writes
    /// since the last call, in the order in which they must be applied.
    pub fn take_batch(&mut self) -> Vec<Write> {
        self.continue_work(FULL_BATCH);
        std::mem::take(&mut self.shared.writes)
    }

    /// Finishes all work. Returns the writes since the last call, in the order in which they must
    /// be applied.
    pub fn take_changes(&mut self) -> Vec<Write> {
        self.continue_work(usize::MAX);
        std::mem::take(&mut self.shared.writes)
    }

    /// Handles all expired timers and ended retentions. As a result, operations complete or appear,
    /// states change, and retained operations are deleted.
    pub fn expire(&mut self, now: ClockReading) {
        loop {
            let due = self.take_due(now.steady);
            let is_last = due.is_empty();
            self.step_these(now, due, SubjectAction::Refresh);
            self.continue_work(FULL_BATCH);
            // The loop repeats, because a refresh can set a timer that has already expired.
            if is_last || !self.pending.is_empty() {
                break;
            }
        }
        self.update_room();
    }

    /// Removes the timers that have expired, and returns their subjects.
    fn take_due(&mut self, now: Instant) -> Vec<Identity> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.shared.timers.first()
            && *at <= now
            && let Some((_, identity)) = self.shared.timers.pop_first()
        {
            if let Some(tracked) = self.subjects.get_mut(&identity) {
                tracked.timer = None;
            }
            due.push(identity);
        }
        due
    }

    /// Adds work: the action on each subject for which `of` returns true.
    pub(in crate::track) fn step_each(
        &mut self,
        now: ClockReading,
        of: impl Fn(&TrackedSubject) -> bool,
        action: SubjectAction,
    ) {
        let identities = self.identities(of);
        self.step_these(now, identities, action);
    }

    /// Adds work: the action on these subjects. The work is done after all earlier work.
    pub(in crate::track) fn step_these(
        &mut self,
        now: ClockReading,
        identities: Vec<Identity>,
        action: SubjectAction,
    ) {
        self.pending.push_back(PendingWork {
            identities: identities.into_iter(),
            action,
            now,
        });
    }

    /// Continues work until there are `most` writes, or until all work is finished.
    pub(in crate::track) fn continue_work(&mut self, most: usize) {
        while let Some(mut work) = self.pending.pop_front() {
            while self.shared.writes.len() < most
                && let Some(identity) = work.identities.next()
            {
                self.step(&identity, work.now, |it, step| match &work.action {
                    SubjectAction::Refresh => it.refresh(step),
                    SubjectAction::Delete => it.deleted(step),
                    SubjectAction::RulesChanged(target, end) => {
                        it.rules_changed(target.as_ref(), end, step);
                    }
                });
            }
            // Each batch deletes the records beyond the maximum. Otherwise, the number of records
            // would grow until all work is finished.
            self.shared.expire(work.now.steady);
            if work.identities.len() > 0 {
                self.pending.push_front(work);
                return;
            }
        }
    }

    /// Drops the reports of bounds that no longer refuse operations, unless some work is
    /// unfinished. The caller must call this method only when the index contains all writes that
    /// the tracker has returned.
    pub fn committed(&mut self) {
        if self.pending.is_empty() {
            self.ended_refusals.clear();
        }
    }

    /// Reports to each rule set with refused operations whether there is room for some of them now.
    pub(in crate::track) fn update_room(&mut self) {
        let limits = &self.shared.limits;
        let feeds = self.feeds.values();
        let mut rooms: BTreeMap<&str, (&RuleSet, bool)> = BTreeMap::new();
        for (rule_set, has_room) in feeds.flat_map(|feed| feed.refused.rooms(limits)) {
            rooms.entry(&rule_set.name).or_insert((rule_set, false)).1 |= has_room;
        }
        for (rule_set, has_room) in rooms.into_values() {
            rule_set.activity.set_room(has_room);
        }
    }
}
