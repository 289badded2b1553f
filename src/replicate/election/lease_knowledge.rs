//! The election's knowledge of the Lease, and of the versions that other terms can have issued.
//!
//! Input: answers of the kube-apiserver. Output: the Lease as it was last read or written, and
//! reservations above those of all known terms.

use super::super::record::LeaseRecord;
use super::super::view::ClusterContact;
use super::super::{LeaseError, LeaseStore};
use super::{Acquired, Election};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Each renewal reserves the versions for this time in advance. The time is longer than the renew
/// deadline, so a valid leader never waits for a reservation.
pub(super) const RESERVED_AHEAD: Duration = Duration::from_secs(15);

/// Smallest number of versions that are reserved above the head, in microseconds of versions: one
/// million.
///
/// After a takeover, the head can be ahead of the clock. If the whole time above were reserved in
/// this case, each of several consecutive takeovers would move the versions further ahead.
const RESERVED_ABOVE_HEAD: Duration = Duration::from_secs(1);

/// A reservation that is further ahead of the wall clock than this is ignored. It was caused by a
/// wrong clock or an edit. Otherwise, versions would stay ahead of the time forever.
const MAX_AHEAD_OF_CLOCK: Duration = Duration::from_hours(24);

/// The Lease as this process has seen it.
pub(super) struct SeenLease {
    pub(super) lease: Lease,
    pub(super) record: LeaseRecord,
    /// The time at which this process first saw this record.
    pub(super) since: BootTime,
    /// True if a read has shown that the record did not change for its duration.
    pub(super) has_expired: bool,
}

impl<S: LeaseStore> Election<S> {
    /// Returns the highest version that a renewal reserves now.
    pub(super) fn reservation(&self, acquired: &Acquired) -> Rv {
        let wall = version(acquired.at);
        let clock = wall.0 + micros(clock::boot().since(acquired.boot));
        let head = (self.replica.head)().max(acquired.start);
        let ahead = clock.saturating_add(micros(RESERVED_AHEAD));
        Rv(ahead.max(head.0.saturating_add(micros(RESERVED_ABOVE_HEAD))))
    }

    /// Returns the highest version that any leader can have reserved, as far as this process knows.
    ///
    /// The leader may have renewed since its Lease was read. So the reservation grows with the time
    /// since then.
    pub(super) fn floor(&self) -> Option<Rv> {
        let (rv, seen) = self.floor?;
        Some(Rv(rv.0.saturating_add(micros(clock::boot().since(seen)))))
    }

    /// Returns the time limit of one request. It leaves time for a second request before the
    /// deadline, as in Kubernetes' own components.
    pub(super) fn limit(&self) -> Duration {
        self.timing.renew_deadline / 2
    }

    /// Reads the Lease.
    pub(super) async fn read(&mut self) -> Result<(), LeaseError> {
        let sent = clock::boot();
        match self.limited(self.store.get(), self.limit()).await {
            Ok(lease) => self.observe(lease, sent),
            Err(LeaseError::NotFound) => self.seen = None,
            Err(error) => return Err(error),
        }
        self.has_read = true;
        Ok(())
    }

    /// Returns the answer, if it arrives within the limit.
    pub(super) async fn limited(
        &self,
        request: BoxFuture<'_, Result<Lease, LeaseError>>,
        within: Duration,
    ) -> Result<Lease, LeaseError> {
        let answers = &self.replica.answers;
        answers.send_modify(|answers| {
            answers.unanswered_since.get_or_insert_with(Instant::now);
        });
        let answer = timeout(within, request).await;
        let late = || LeaseError::Unanswered("no answer in time".to_owned());
        let answer = answer.unwrap_or_else(|_| Err(late()));
        if !matches!(answer, Err(LeaseError::Unanswered(_))) {
            answers.send_replace(ClusterContact {
                last: Some(Instant::now()),
                unanswered_since: None,
            });
        }
        answer
    }

    /// Creates the Lease, or replaces it as it was last read.
    pub(super) async fn write(
        &mut self,
        record: &LeaseRecord,
        within: Duration,
    ) -> Result<(), LeaseError> {
        let sent = clock::boot();
        let before = self.seen.as_ref().map(|seen| seen.lease.clone());
        let is_new = before.is_none();
        let lease = record.write(before.unwrap_or_default());
        let request = if is_new {
            self.store.create(&lease)
        } else {
            self.store.update(&lease)
        };
        let written = self.limited(request, within).await?;
        self.observe(written, sent);
        Ok(())
    }

    /// Records the Lease, as it was at some time after `sent`.
    pub(super) fn observe(&mut self, lease: Lease, sent: BootTime) {
        let record = LeaseRecord::read(&lease);
        let before = self.seen.take();
        let complaints = before.as_ref().map(|seen| &seen.record.unusable);
        if !record.unusable.is_empty() && complaints != Some(&record.unusable) {
            let annotations = record.unusable.join(", ");
            tracing::warn!("the Lease has unusable values, which are ignored: {annotations}");
        }
        if let Some(reserved) = record.reserved {
            let is_new = before.as_ref().and_then(|seen| seen.record.reserved) != Some(reserved);
            self.reserve_above(reserved, sent, is_new);
        }
        let now = clock::boot();
        let since = match before {
            Some(before) if before.record == record => before.since,
            _ => {
                if let Some(last) = &record.last {
                    self.may_be_ours &= self.is_own(&last.term);
                    self.last = Some(last.clone());
                }
                now
            }
        };
        let has_expired = now.since(since) >= self.validity(&record);
        self.seen = Some(SeenLease {
            lease,
            record,
            since,
            has_expired,
        });
    }

    /// Records a reservation.
    pub(super) fn reserve_above(&mut self, reserved: Rv, sent: BootTime, is_new: bool) {
        if reserved.0 > wall().0.saturating_add(micros(MAX_AHEAD_OF_CLOCK)) {
            if is_new {
                tracing::warn!(
                    %reserved,
                    "the version that the Lease reserves is more than a day ahead of the clock, and is ignored"
                );
            }
        } else if self.floor().is_none_or(|floor| {
            reserved.0.saturating_add(micros(clock::boot().since(sent))) > floor.0
        }) {
            self.floor = Some((reserved, sent));
        }
    }
}

/// Returns the version that corresponds to the wall clock.
pub(super) fn wall() -> Rv {
    version(clock::now())
}

/// Returns the version that corresponds to a time: microseconds since 1970.
fn version(time: Timestamp) -> Rv {
    Rv(u64::try_from(time.as_microsecond()).unwrap_or(0))
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
