//! Decides the next step of this replica in the leader election: for example, to renew, acquire or
//! release the Lease.
//!
//! The decision depends on the time and on the last known state of the Lease. It also depends on
//! how much of the last leader's index (the operations in memory) this replica has copied. This
//! module sends no request.

use super::super::Term;
use super::super::lease::LeaseRecord;
use super::{Election, OwnLeadership};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use std::time::Duration;

/// The additional wait of a replica that may lack changes of the last leader, before it acquires
/// the Lease. Meanwhile, a replica that has all changes can acquire the Lease. This wait applies if
/// another replica was copying the leader's index when the leader last renewed the Lease.
const ADDITIONAL_WAIT: Duration = Duration::from_secs(10);

/// This wait, in retry periods, replaces [`ADDITIONAL_WAIT`] if no other replica was copying the
/// leader's index when the leader last renewed the Lease.
///
/// A replica that stopped copying before this renewal can still have all changes, if the index has
/// not changed since then. Such a replica can acquire the Lease during this wait, because each
/// replica reads the Lease once per retry period.
const SHORT_ADDITIONAL_WAIT_PERIODS: u32 = 3;

/// The next step of this replica in the election.
pub(super) enum ElectionDecision {
    /// Renew the Lease for this leadership.
    Renew(OwnLeadership),
    Acquire,
    /// Release the Lease, with this final version.
    Release(Rv),
    /// Stop leading, for this reason.
    StopLeading(&'static str),
    /// Do not acquire the Lease before this time. If the time is unknown, it is [`BootTime::MAX`].
    Wait(BootTime),
}

impl Election {
    /// Returns the next step of this replica.
    pub(super) fn decide(&self, now: BootTime) -> ElectionDecision {
        let seen = &self.seen;
        let holder = seen.record.holder();
        match (self.final_version_at_stop(), &self.leading) {
            (Some(version), _) if holder.is_some() && holder == self.last_own_term => {
                return ElectionDecision::Release(version);
            }
            (Some(_), None) => return ElectionDecision::Wait(BootTime::MAX),
            (Some(_), Some(_)) => {
                let reason = "it stops, and no longer holds the Lease";
                return ElectionDecision::StopLeading(reason);
            }
            (None, Some(leading)) => return renewal(leading, holder.as_ref()),
            (None, None) => {}
        }
        let at = seen.since + self.acquisition_delay(&seen.record);
        if now >= at {
            ElectionDecision::Acquire
        } else {
            ElectionDecision::Wait(at)
        }
    }

    /// Returns how long this replica waits before it acquires the Lease. The wait begins at the
    /// last change of the Lease.
    fn acquisition_delay(&self, record: &LeaseRecord) -> Duration {
        let last = record.last().map(|leader| leader.term);
        // A restarted container has an empty index. If another replica has a copy of the last
        // leader's index, that replica should lead, so that no change is lost.
        let could_lose_changes = record.note.mirrored && self.head() == Rv(0);
        let is_own = last.as_ref().is_some_and(|it| self.is_own_term(it));
        // If the last renewal is older than the lease duration, the Lease may come from a backup,
        // so this replica does not acquire it at once. The age matters only if a container of this
        // Pod wrote the renewal time. A Pod never moves to another node, so the renewal time and
        // the current time come from the same clock.
        let is_recent = record.spec.renew_time.as_ref().is_some_and(|renewed| {
            let age = clock::now().duration_since(renewed.0);
            age.unsigned_abs() < self.expiry_period(record)
        });
        let additional_wait = if record.note.mirrored {
            ADDITIONAL_WAIT
        } else {
            SHORT_ADDITIONAL_WAIT_PERIODS * self.inputs.timing.retry_period
        };
        match record.final_version() {
            _ if is_own && is_recent && !could_lose_changes => Duration::ZERO,
            Some(version) if self.head() == version => Duration::ZERO,
            // The leader has released the Lease, and this replica lacks changes.
            Some(_) => additional_wait,
            None if self.has_all_changes_of(last.as_ref()) => self.expiry_period(record),
            None => self.expiry_period(record) + additional_wait,
        }
    }

    /// Returns the newest resourceVersion of this replica's index. Returns zero if the index was
    /// never filled.
    pub(super) fn head(&self) -> Rv {
        self.inputs.status.reader().head()
    }

    /// Returns the last resourceVersion that this replica issued. Returns None until another task
    /// of this replica requests the release of the Lease. After this request, this replica never
    /// leads again.
    pub(super) fn final_version_at_stop(&self) -> Option<Rv> {
        *self.inputs.status.final_version().borrow()
    }

    /// Returns the time after which a Lease without a renewal expires. If the leader and this
    /// replica have different lease durations, the longer one applies.
    pub(super) fn expiry_period(&self, record: &LeaseRecord) -> Duration {
        record.duration().max(self.inputs.timing.lease_duration)
    }

    /// Returns true if a process of this Pod acquired the Lease for `term`.
    pub(super) fn is_own_term(&self, term: &Term) -> bool {
        term.starts_with(&self.prefix)
    }

    /// Returns true if this replica led in the term `last`, or has copied the index of its leader
    /// completely. If `last` is None, because the Lease was deleted, any term counts.
    ///
    /// If that leader crashed, it may have had changes that it did not send to any replica. These
    /// changes do not count, because no replica has them.
    fn has_all_changes_of(&self, last: Option<&Term>) -> bool {
        let in_sync = self.inputs.status.in_sync().borrow();
        let mut known = in_sync.iter().chain(&self.last_own_term);
        known.any(|term| last.is_none_or(|last| last == term))
    }
}

/// Returns the next step of a replica that leads. `holder` is the holder in the Lease.
fn renewal(leading: &OwnLeadership, holder: Option<&Term>) -> ElectionDecision {
    if !leading.leadership.is_valid() {
        return ElectionDecision::StopLeading("the Lease could not be renewed in time");
    }
    // If the Lease has no holder, the leadership continues, and the next renewal writes the holder
    // again. The Lease loses its holder if a user removes the holder, or deletes the Lease.
    if holder.is_some_and(|holder| *holder != leading.leadership.term) {
        return ElectionDecision::StopLeading("the Lease has another holder");
    }
    ElectionDecision::Renew(leading.clone())
}
