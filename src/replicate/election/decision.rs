//! Decides the next step of a replica in the election. No request is sent here.
//!
//! Input: the Lease as it was last read or written, the version up to which this replica has
//! mirrored, and the time. Output: an [`ElectionDecision`].

use super::super::record::LeaseRecord;
use super::super::{LeaseStore, Term};
use super::{Election, OwnLeadership};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use std::time::Duration;

/// Additional wait of a replica that would lose changes in a takeover. During this time, a replica
/// that has all changes can take over.
const PRECEDENCE: Duration = Duration::from_secs(10);

/// The same wait in retry periods, if no replica mirrored the last leader. A replica that mirrored
/// the leader earlier still comes first, because it reads the Lease once per period.
const PRECEDENCE_PERIODS: u32 = 3;

/// The next step of a replica.
pub(super) enum ElectionDecision {
    Renew,
    Create,
    Acquire,
    Release(Rv),
    /// The leadership has ended for this reason.
    Lose(&'static str),
    /// The replica waits until this time, or until an event.
    Wait(Option<BootTime>, &'static str),
}

impl<S: LeaseStore> Election<S> {
    /// Returns the reason for which the leadership has ended, as far as this process knows.
    fn loss(&self, leading: &OwnLeadership) -> Option<&'static str> {
        if clock::boot() >= leading.grant.borrow().until {
            return Some("the Lease could not be renewed in time");
        }
        // Without a holder, the leader acquires the Lease again. Either a user deleted the Lease
        // and another replica created it, or a user removed the holder.
        let holder = self.seen.as_ref()?.record.holder()?;
        (*holder != leading.leader.term).then_some("the Lease has another holder")
    }

    /// Returns the next step, given the Lease as it was last read or written.
    pub(super) fn decide(&mut self, now: BootTime) -> ElectionDecision {
        if let Some(leading) = &self.leading {
            return self
                .loss(leading)
                .map_or(ElectionDecision::Renew, ElectionDecision::Lose);
        }
        // A later change of the Lease ends the wait.
        self.replica.in_sync.mark_unchanged();
        self.replica.may_begin.mark_unchanged();
        let Some(seen) = &self.seen else {
            return match self.retired {
                None => ElectionDecision::Create,
                Some(_) => ElectionDecision::Wait(None, "this replica stops, and creates no Lease"),
            };
        };
        let record = &seen.record;
        if let Some(version) = self.retired {
            return if record.is_held && record.holder() == self.led.as_ref() {
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
        // A restarted container has no changes. If another replica has the changes of the last
        // leader, they must not be lost.
        let would_lose = record.is_mirrored && (self.replica.head)() == Rv(0);
        // A Lease without a holder and a final version was created after a deletion. Its last
        // holder is the one that the creator remembers, and another leader may be valid.
        let is_recreated = !record.is_held && record.final_version.is_none();
        let is_own = !is_recreated && record.last.as_ref().is_some_and(|it| self.is_own(&it.term));
        // An older Lease can be restored from a backup. Its time comes from the clock of this node,
        // because a Pod never moves to another node.
        let is_recent = record.renewed.is_some_and(|renewed| {
            let age = clock::now().duration_since(renewed);
            age.unsigned_abs() < self.validity(record)
        });
        if self.may_be_ours && is_own && is_recent && !would_lose {
            return ElectionDecision::Acquire;
        }
        let precedence = if record.is_mirrored {
            PRECEDENCE
        } else {
            PRECEDENCE_PERIODS * self.timing.retry_period
        };
        let (patience, why) = match (record.final_version, last) {
            (Some(version), _) if (self.replica.head)() == version => {
                return ElectionDecision::Acquire;
            }
            (Some(_), _) => (
                precedence,
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
            (None, Some(last)) if self.has_all_of(last) => (
                self.validity(record),
                "this replica takes over when the Lease expires",
            ),
            (None, Some(_)) => (
                self.validity(record) + precedence,
                "this replica takes over some time after the Lease expires, because it is not in sync with the leader",
            ),
        };
        if now.since(seen.since) >= patience {
            ElectionDecision::Acquire
        } else {
            ElectionDecision::Wait(Some(seen.since + patience), why)
        }
    }

    /// Returns the time for which a leader can be valid after its last renewal. If the replicas
    /// have different settings, the longer duration applies.
    pub(super) fn validity(&self, record: &LeaseRecord) -> Duration {
        record.duration.max(self.timing.lease_duration)
    }

    pub(super) fn is_own(&self, term: &Term) -> bool {
        term.as_str().starts_with(&self.prefix)
    }

    /// Returns true if this replica has all changes of a leader that did not release the Lease, as
    /// far as any replica can have them.
    fn has_all_of(&self, term: &Term) -> bool {
        self.led.as_ref() == Some(term) || self.replica.in_sync.borrow().as_ref() == Some(term)
    }
}
