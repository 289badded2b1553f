//! Sends the requests for the Lease with which the replicas elect their leader, and remembers the
//! answers.
//!
//! A leader reserves resourceVersions in the Lease before it issues them. This module computes from
//! the answers the highest resourceVersion that any leader may have reserved. A new leader starts
//! above this resourceVersion.

use super::super::lease_contents::LeaseRecord;
use super::super::replica_status::ClusterContact;
use super::super::{LeaseError, LeaseRequest, LeaseStore};
use super::{Election, OwnLeadership};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Each renewal of the Lease reserves the resourceVersions up to this time ahead of the leader's
/// clock. A resourceVersion is a time in microseconds.
///
/// If the leader cannot renew the Lease, it stops leading after the renew deadline. The default
/// deadline is 5 s, so the leader stops before it uses up the reservation. With a deadline above
/// 15 s, a leader that has used up the reservation waits for the next renewal.
pub(super) const RESERVED_AHEAD: Duration = Duration::from_secs(15);

/// Each renewal reserves at least this time above the newest resourceVersion of the index: one
/// million resourceVersions. This minimum matters if the newest resourceVersion is ahead of the
/// clock, for example after a takeover.
///
/// A new leader starts above the reservation of the last leader. If this time were as long as
/// [`RESERVED_AHEAD`], several consecutive takeovers would move the resourceVersions further and
/// further ahead of the clock.
const RESERVED_ABOVE_HEAD: Duration = Duration::from_secs(1);

/// If a reserved resourceVersion is ahead of the clock by more than this time, the election ignores
/// the reservation and logs a warning. The cause is a wrong clock of a node, or a user who has
/// edited the Lease. If the election used this reservation, all later resourceVersions would stay
/// ahead of the clock.
const MAX_AHEAD_OF_CLOCK: Duration = Duration::from_hours(24);

/// The Lease as this process has last seen it.
pub(super) struct SeenLease {
    pub(super) lease: Lease,
    pub(super) record: LeaseRecord,
    /// The time at which this process first saw the Lease with this record.
    pub(super) since: BootTime,
    /// True if the Lease had expired when it was last read. A Lease expires if its record does not
    /// change for one lease duration.
    pub(super) has_expired: bool,
}

impl<S: LeaseStore> Election<S> {
    /// Returns the highest resourceVersion that a renewal at this moment reserves.
    pub(super) fn reservation(&self, own: &OwnLeadership) -> Rv {
        let wall = version(own.at);
        let clock = wall.0 + micros(clock::boot().since(own.boot));
        let head = (self.inputs.head)().max(own.leadership.start);
        let ahead = clock.saturating_add(micros(RESERVED_AHEAD));
        Rv(ahead.max(head.0.saturating_add(micros(RESERVED_ABOVE_HEAD))))
    }

    /// Returns the highest resourceVersion that any leader can have reserved, as far as this
    /// process knows. Returns None if this process has found no usable reservation in the Lease.
    ///
    /// Another leader may have renewed the Lease after this process last read it. Each renewal
    /// raises the reservation by the elapsed time. So the returned value also grows with the time
    /// since this process read the reservation.
    pub(super) fn reservation_floor(&self) -> Option<Rv> {
        let (rv, seen) = self.seen_reservation?;
        Some(Rv(rv.0.saturating_add(micros(clock::boot().since(seen)))))
    }

    /// Returns the time limit of one request: half of the renew deadline, as in Kubernetes' own
    /// components. So if one request gets no answer, the leader can send a second request before it
    /// must stop leading.
    pub(super) fn request_timeout(&self) -> Duration {
        self.timing.renew_deadline / 2
    }

    /// Reads the Lease.
    pub(super) async fn read(&mut self) -> Result<(), LeaseError> {
        let sent = clock::boot();
        let within = self.request_timeout();
        match self.send_within(LeaseRequest::Get, within).await {
            Ok(lease) => self.record_lease(lease, sent),
            Err(LeaseError::NotFound) => self.seen = None,
            Err(error) => return Err(error),
        }
        self.has_read = true;
        Ok(())
    }

    /// Sends a request with the time limit `within`, and returns the Lease from the answer. Records
    /// the times of the request and of the answer in
    /// [`ElectionInputs::cluster_contact`](super::ElectionInputs).
    async fn send_within(
        &self,
        request: LeaseRequest,
        within: Duration,
    ) -> Result<Lease, LeaseError> {
        let cluster_contact = &self.inputs.cluster_contact;
        cluster_contact.send_modify(|contact| {
            contact.unanswered_since.get_or_insert_with(Instant::now);
        });
        let answer = timeout(within, self.store.send(request)).await;
        let late = || LeaseError::Unanswered("no answer in time".to_owned());
        let answer = answer.unwrap_or_else(|_| Err(late()));
        if !matches!(answer, Err(LeaseError::Unanswered(_))) {
            cluster_contact.send_replace(ClusterContact {
                last: Some(Instant::now()),
                unanswered_since: None,
            });
        }
        answer
    }

    /// Creates a Lease without a holder. The Lease contains the highest resourceVersion that any
    /// leader can have reserved, as far as this process knows. This matters if a user has deleted
    /// the Lease: the next leader may be a replica that does not know this resourceVersion.
    pub(super) async fn create(&mut self) -> Result<(), LeaseError> {
        let record = LeaseRecord {
            last: self.last_leader.clone(),
            reserved: self.reservation_floor(),
            duration: self.timing.lease_duration,
            ..LeaseRecord::default()
        };
        self.write(&record, self.request_timeout()).await
    }

    /// Removes the holder from the Lease. Writes `version` into the Lease as the final version.
    pub(super) async fn release(&mut self, version: Rv) -> Result<(), LeaseError> {
        let Some(seen) = &self.seen else {
            return Ok(());
        };
        let record = LeaseRecord {
            is_held: false,
            final_version: Some(version),
            // client-go also writes a duration of one second when it releases a Lease.
            duration: Duration::from_secs(1),
            acquired: None,
            ..seen.record.clone()
        };
        self.write(&record, self.request_timeout()).await?;
        tracing::info!(%version, "this replica has released the Lease");
        Ok(())
    }

    /// Writes the Lease with this replica as the holder.
    pub(super) async fn write_as_holder(
        &mut self,
        own: &OwnLeadership,
        reserved: Rv,
        within: Duration,
    ) -> Result<(), LeaseError> {
        let record = LeaseRecord {
            last: Some(own.leader.clone()),
            is_held: true,
            reserved: Some(reserved),
            is_index_copied: (self.inputs.is_index_copied)(),
            duration: self.timing.lease_duration,
            acquired: Some(own.at),
            transitions: own.transitions,
            ..LeaseRecord::default()
        };
        self.write(&record, within.min(self.request_timeout()))
            .await
    }

    /// Writes `record` with the time limit `within`. Replaces the Lease that this process last read
    /// or wrote. If the Lease did not exist at the last read, creates it.
    async fn write(&mut self, record: &LeaseRecord, within: Duration) -> Result<(), LeaseError> {
        let sent = clock::boot();
        let before = self.seen.as_ref().map(|seen| seen.lease.clone());
        let is_new = before.is_none();
        let lease = record.write(before.unwrap_or_default());
        let request = if is_new {
            LeaseRequest::Create(lease)
        } else {
            LeaseRequest::Update(lease)
        };
        let written = self.send_within(request, within).await?;
        self.record_lease(written, sent);
        Ok(())
    }

    /// Records the Lease from an answer. `sent` is the time at which the request was sent.
    fn record_lease(&mut self, lease: Lease, sent: BootTime) {
        let record = LeaseRecord::read(&lease);
        let before = self.seen.take();
        let was_invalid = before.as_ref().is_some_and(|it| it.record.is_note_invalid);
        if record.is_note_invalid && !was_invalid {
            tracing::warn!("the Lease has an annotation with invalid values, which are ignored");
        }
        if let Some(reserved) = record.reserved {
            let is_new = before.as_ref().and_then(|seen| seen.record.reserved) != Some(reserved);
            self.record_reservation(reserved, sent, is_new);
        }
        let now = clock::boot();
        let since = match before {
            Some(before) if before.record == record => before.since,
            _ => {
                if let Some(last) = &record.last {
                    self.no_other_holder_seen &= self.is_own_term(&last.term);
                    self.last_leader = Some(last.clone());
                }
                now
            }
        };
        let has_expired = now.since(since) >= self.expiry_period(&record);
        self.seen = Some(SeenLease {
            lease,
            record,
            since,
            has_expired,
        });
    }

    /// Records a reserved resourceVersion from the Lease. `sent` is the time at which the request
    /// for the Lease was sent.
    ///
    /// If the reserved resourceVersion is too far ahead of the clock ([`MAX_AHEAD_OF_CLOCK`]), the
    /// method ignores it. If `is_new` is also true, the method logs a warning. `is_new` is true if
    /// the previous answer did not have this reserved resourceVersion.
    fn record_reservation(&mut self, reserved: Rv, sent: BootTime, is_new: bool) {
        if reserved.0 > clock_version().0.saturating_add(micros(MAX_AHEAD_OF_CLOCK)) {
            if is_new {
                tracing::warn!(
                    %reserved,
                    "the reserved resourceVersion in the Lease is more than a day ahead of the clock; this replica ignores it"
                );
            }
        } else if self.reservation_floor().is_none_or(|floor| {
            reserved.0.saturating_add(micros(clock::boot().since(sent))) > floor.0
        }) {
            self.seen_reservation = Some((reserved, sent));
        }
    }
}

/// Returns the resourceVersion for the current time of the wall clock.
pub(super) fn clock_version() -> Rv {
    version(clock::now())
}

/// Returns the resourceVersion that corresponds to a time: the microseconds since 1970.
fn version(time: Timestamp) -> Rv {
    Rv(u64::try_from(time.as_microsecond()).unwrap_or(0))
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
