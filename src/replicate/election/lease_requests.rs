//! Sends the requests for the Lease with which the replicas elect their leader, and remembers the
//! answers.
//!
//! A leader reserves resourceVersions in the Lease before it issues them. This module computes from
//! the answers the highest resourceVersion that any leader may have reserved. A new leader starts
//! above this resourceVersion.

use super::super::lease::{ElectionNote, LeaseRecord, whole_seconds};
use super::{Election, OwnLeadership};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

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

/// The Lease as this process has last seen it. If there is no Lease, all fields of `lease` and `record`
/// are empty.
pub(super) struct SeenLease {
    pub(super) lease: Lease,
    pub(super) record: LeaseRecord,
    /// The time at which this process first saw the Lease with this record.
    pub(super) since: BootTime,
    /// True if the Lease had expired when it was last read. A Lease expires if its record does not
    /// change for one lease duration.
    pub(super) has_expired: bool,
}

impl Election {
    /// Returns the highest resourceVersion that a write of the Lease at this moment reserves. The term
    /// began at the time `at` of the wall clock and `boot` of the boot clock, with the resourceVersion
    /// `start`.
    pub(super) fn reservation(&self, at: Timestamp, boot: BootTime, start: Rv) -> Rv {
        let clock = version(at).0 + micros(clock::boot().since(boot));
        let head = self.head().max(start);
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
        self.inputs.timing.renew_deadline / 2
    }

    /// Reads the Lease.
    pub(super) async fn read(&mut self) -> kube::Result<()> {
        let sent = clock::boot();
        let read = self.inputs.leases.get();
        let lease = self.within(self.request_timeout(), read).await?;
        self.record_lease(lease.unwrap_or_default(), sent);
        Ok(())
    }

    /// Sends a request for the Lease with the time limit `limit`, and returns its answer. Records the
    /// times of the request and of the answer in the status of this replica.
    async fn within<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let renew_deadline = self.inputs.timing.renew_deadline;
        self.inputs.status.asks_cluster(renew_deadline);
        let late = || kube::Error::Service(io::Error::other("no answer in time").into());
        let answer = timeout(limit, request).await;
        let answer = answer.unwrap_or_else(|_| Err(late()));
        if matches!(answer, Ok(_) | Err(kube::Error::Api(_))) {
            self.inputs.status.cluster_answered();
        }
        answer
    }

    /// Removes the holder from the Lease. Writes `version` into the Lease as the final version.
    pub(super) async fn release(&mut self, version: Rv) -> kube::Result<()> {
        self.end_leadership("it releases the Lease");
        let Some(seen) = &self.seen else {
            return Ok(());
        };
        let mut record = seen.record.clone();
        // The annotation can have been edited since the last renewal.
        record.note.last_holder = record.holder().unwrap_or_default();
        record.spec.holder_identity = None;
        record.spec.acquire_time = None;
        // client-go also writes a duration of one second when it releases a Lease.
        record.spec.lease_duration_seconds = Some(1);
        record.note.final_version = Some(version.0);
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
    ) -> kube::Result<()> {
        let term = &own.leadership.term;
        let record = LeaseRecord {
            spec: LeaseSpec {
                holder_identity: Some(term.to_string()),
                lease_duration_seconds: Some(whole_seconds(self.inputs.timing.lease_duration)),
                acquire_time: Some(MicroTime(own.at)),
                lease_transitions: Some(own.transitions),
                ..LeaseSpec::default()
            },
            note: ElectionNote {
                leader_address: self.inputs.address.clone(),
                last_holder: term.clone(),
                reserved_version: Some(reserved.0),
                mirrored: self.inputs.status.is_index_copied(),
                ..ElectionNote::default()
            },
            uid: None,
        };
        self.write(&record, within.min(self.request_timeout()))
            .await
    }

    /// Writes `record` with the time limit `limit`. Replaces the Lease that this process last read
    /// or wrote. If there was no Lease at the last read, creates it.
    async fn write(&mut self, record: &LeaseRecord, limit: Duration) -> kube::Result<()> {
        let sent = clock::boot();
        let before = self.seen.as_ref().map(|seen| seen.lease.clone());
        let lease = record.write(before.unwrap_or_default());
        let written = self.within(limit, self.inputs.leases.write(lease)).await?;
        self.record_lease(written, sent);
        Ok(())
    }

    /// Records the Lease from an answer. `sent` is the time at which the request was sent.
    fn record_lease(&mut self, lease: Lease, sent: BootTime) {
        let record = LeaseRecord::read(&lease);
        let before = self.seen.take();
        if let Some(reserved) = record.note.reserved_version {
            let known = before
                .as_ref()
                .and_then(|it| it.record.note.reserved_version);
            self.record_reservation(Rv(reserved), sent, known != Some(reserved));
        }
        let now = clock::boot();
        let since = match before {
            Some(before) if before.record == record => before.since,
            _ => {
                if let Some(last) = record.last() {
                    self.no_other_holder_seen &= self.is_own_term(&last.term);
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
