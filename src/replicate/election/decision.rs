//! Decides the next step of this replica in the election, such as to renew, acquire or release the
//! Lease.
//!
//! The decision depends on the Lease as it was last read or written, on the newest resourceVersion
//! of this replica's index, and on the time. This module sends no request.

use super::super::lease_contents::LeaseRecord;
use super::super::{LeaseStore, Term};
use super::{Election, OwnLeadership};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use std::time::Duration;

/// The additional wait of a replica that lacks changes of the last leader. During this time, a
/// replica that has all changes can take the Lease.
const ADDITIONAL_WAIT: Duration = Duration::from_secs(10);

/// The additional wait if no replica copied the last leader's index, in retry periods. If a replica
/// copied the index earlier, it still takes the Lease first, because it reads the Lease once per
/// retry period.
const SHORT_ADDITIONAL_WAIT_PERIODS: u32 = 3;

/// The next step of this replica in the election.
pub(super) enum ElectionDecision {
    Renew,
    Create,
    Acquire,
    /// Release the Lease, with this final version.
    Release(Rv),
    /// Stop leading, for this reason.
    Lose(&'static str),
    /// Wait until this time or until an event, for this reason.
    Wait(Option<BootTime>, &'static str),
}

impl<S: LeaseStore> Election<S> {
    /// Returns the reason why the leadership has ended, as far as this process knows. Returns None
    /// if it has not ended.
    fn loss_reason(&self, leading: &OwnLeadership) -> Option<&'static str> {
        if clock::boot() >= leading.grant.borrow().until {
            return Some("the Lease could not be renewed in time");
        }
        // If the Lease has no holder, the leadership continues, and the next renewal writes the
        // holder again. Either a user has removed the holder, or a user has deleted the Lease and
        // another replica has created it again.
        let holder = self.seen.as_ref()?.record.holder()?;
        (*holder != leading.leader.term).then_some("the Lease has another holder")
    }

    /// Returns the next step, given the Lease as it was last read or written.
    pub(super) fn decide(&mut self, now: BootTime) -> ElectionDecision {
        if let Some(leading) = &self.leading {
            return self
                .loss_reason(leading)
                .map_or(ElectionDecision::Renew, ElectionDecision::Lose);
        }
        // From here on, only a change that comes after this decision ends the wait.
        self.replica.in_sync.mark_unchanged();
        self.replica.may_begin.mark_unchanged();
        let Some(seen) = &self.seen else {
            return match self.own_final_version {
                None => ElectionDecision::Create,
                Some(_) => ElectionDecision::Wait(None, "this replica stops, and creates no Lease"),
            };
        };
        let record = &seen.record;
        if let Some(version) = self.own_final_version {
            return if record.is_held && record.holder() == self.last_own_term.as_ref() {
                ElectionDecision::Release(version)
            } else {
                ElectionDecision::Wait(
                    None,
                    "this replica stops, and leaves the Lease to the others",
                )
            };
        }
        let last = record.last.as_ref().or(self.last.as_ref());
        let last = last.map(|leader| &leader.term);
        // A restarted container has an empty index. If another replica has a copy of the last
        // leader's index, that replica should lead, so that no change is lost.
        let would_lose = record.is_mirrored && (self.replica.head)() == Rv(0);
        // A Lease without a holder and without a final version was created after a deletion. Its
        // last holder is the leader that the creator remembers. Another leader may still be valid.
        let is_recreated = !record.is_held && record.final_version.is_none();
        let is_own = !is_recreated
            && record
                .last
                .as_ref()
                .is_some_and(|it| self.is_own_term(&it.term));
        // A Lease that was not renewed recently may have been restored from a backup. This node's
        // clock wrote the renewal time, because a Pod never moves to another node. So the renewal
        // time can be compared with this clock.
        let is_recent = record.renewed.is_some_and(|renewed| {
            let age = clock::now().duration_since(renewed);
            age.unsigned_abs() < self.validity(record)
        });
        if self.may_be_ours && is_own && is_recent && !would_lose {
            return ElectionDecision::Acquire;
        }
        let additional_wait = if record.is_mirrored {
            ADDITIONAL_WAIT
        } else {
            SHORT_ADDITIONAL_WAIT_PERIODS * self.timing.retry_period
        };
        let (delay, why) = match (record.final_version, last) {
            (Some(version), _) if (self.replica.head)() == version => {
                return ElectionDecision::Acquire;
            }
            (Some(_), _) => (
                additional_wait,
                "the leader has released the Lease; this replica waits for the changes that it lacks",
            ),
            (None, None) if !*self.replica.may_begin.borrow() => {
                return ElectionDecision::Wait(
                    None,
                    "there was no leader yet; this replica waits for the server of the previous release to stop",
                );
            }
            (None, None) => (
                self.validity(record),
                "there was no leader yet; this replica waits for one lease duration",
            ),
            (None, Some(last)) if self.has_all_changes_of(last) => (
                self.validity(record),
                "this replica takes over when the Lease expires",
            ),
            (None, Some(_)) => (
                self.validity(record) + additional_wait,
                "this replica takes over some time after the Lease expires, because it is not in sync with the leader",
            ),
        };
        if now.since(seen.since) >= delay {
            ElectionDecision::Acquire
        } else {
            ElectionDecision::Wait(Some(seen.since + delay), why)
        }
    }

    /// Returns the time for which a leader can be valid after its last renewal. If the leader and
    /// this replica have different lease durations, the longer one applies.
    pub(super) fn validity(&self, record: &LeaseRecord) -> Duration {
        record.duration.max(self.timing.lease_duration)
    }

    /// Returns true if a process of this Pod acquired the Lease for `term`.
    pub(super) fn is_own_term(&self, term: &Term) -> bool {
        term.as_str().starts_with(&self.prefix)
    }

    /// Returns true if this replica has all changes of the leader of `term` that any replica can
    /// have.
    ///
    /// A leader that did not release the Lease may have had changes that it did not send.
    fn has_all_changes_of(&self, term: &Term) -> bool {
        self.last_own_term.as_ref() == Some(term)
            || self.replica.in_sync.borrow().as_ref() == Some(term)
    }
}
