//! Sends the requests for the Lease with which the replicas elect their leader, and remembers the
//! answers.
//!
//! A leader reserves resourceVersions in the Lease before it issues them. A new leader starts above
//! all reserved resourceVersions.

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
/// clock. A resourceVersion is a time in microseconds. A new leader starts at least this time ahead
/// of its own clock.
///
/// If the leader cannot renew the Lease, it stops leading after the renew deadline. The default
/// deadline is 5 s, so the leader stops before it uses up the reservation. With a deadline above
/// 15 s, a leader that has used up the reservation waits for the next renewal.
const RESERVED_AHEAD: Duration = Duration::from_secs(15);

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

/// If two reads find no Lease, the election assumes that there was no Lease between these reads. It
/// assumes this only if less than this number of retry periods passed between the reads. Usually, a
/// replica reads the Lease once per retry period.
const MAX_READ_GAP_PERIODS: u32 = 3;

/// The Lease as this process last read or wrote it. If there is no Lease, all fields of `lease` and
/// `record` are empty.
pub(super) struct SeenLease {
    lease: Lease,
    pub(super) record: LeaseRecord,
    /// The time at which this process first saw the Lease with this record. Before the first read,
    /// this time is [`BootTime::MAX`], so that no replica acquires the Lease without a read.
    pub(super) since: BootTime,
    /// The time of the last successful read or write, even if the read found no Lease.
    answered: BootTime,
    /// True if the Lease had expired when it was last read. A Lease expires if its record does not
    /// change for one lease duration.
    pub(super) has_expired: bool,
}

impl SeenLease {
    /// Returns the state before the first read.
    pub(super) fn unread() -> Self {
        Self {
            lease: Lease::default(),
            record: LeaseRecord::default(),
            since: BootTime::MAX,
            answered: BootTime::MAX,
            has_expired: false,
        }
    }
}

impl Election {
    /// Returns the first resourceVersion of a new leader's term. This resourceVersion is above the
    /// reservation in `record`, and above the newest resourceVersion of this replica's index. It is
    /// also at least [`RESERVED_AHEAD`] ahead of the clock, because `record` may not contain the
    /// newest reservation.
    pub(super) fn first_version(&self, record: &LeaseRecord) -> Rv {
        let now = version(clock::now());
        let reserved = record.note.reserved_version.unwrap_or(0);
        let is_usable = reserved <= now.saturating_add(micros(MAX_AHEAD_OF_CLOCK));
        if !is_usable {
            tracing::warn!(
                reserved,
                "the reserved resourceVersion in the Lease is more than a day ahead of the clock; this replica ignores it"
            );
        }
        let known = if is_usable { reserved } else { 0 };
        let highest = now.saturating_add(micros(RESERVED_AHEAD)).max(known);
        Rv(highest.max(self.head().0).saturating_add(1))
    }

    /// Returns the highest resourceVersion that a write of the Lease at this moment reserves. This
    /// resourceVersion is never below an earlier reservation of the term, because the boot clock
    /// and the index never go back.
    fn reservation(&self, own: &OwnLeadership) -> Rv {
        let clock = version(own.at) + micros(clock::boot().since(own.boot));
        let head = self.head().max(own.leadership.start);
        let ahead = clock.saturating_add(micros(RESERVED_AHEAD));
        Rv(ahead.max(head.0.saturating_add(micros(RESERVED_ABOVE_HEAD))))
    }

    /// Returns the time limit of one request: half of the renew deadline, as in Kubernetes' own
    /// components. So if one request gets no answer, the leader can send a second request before it
    /// must stop leading. A request of the leader also ends when the leadership ends.
    fn request_timeout(&self) -> Duration {
        let left = self.leadership_end().since(clock::boot());
        left.min(self.inputs.timing.renew_deadline / 2)
    }

    /// Reads the Lease.
    pub(super) async fn read(&mut self) -> kube::Result<()> {
        let lease = self.in_time(self.inputs.leases.get()).await?;
        self.record_lease(lease.unwrap_or_default());
        Ok(())
    }

    /// Sends a request for the Lease, and returns the answer. Fails after the time limit of a
    /// request. If the kube-apiserver answers, records the time in the status of this replica.
    async fn in_time<T>(&self, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let late = || kube::Error::Service(io::Error::other("no answer in time").into());
        let answer = timeout(self.request_timeout(), request).await;
        let answer = answer.unwrap_or_else(|_| Err(late()));
        if matches!(answer, Ok(_) | Err(kube::Error::Api(_))) {
            let renew_deadline = self.inputs.timing.renew_deadline;
            self.inputs.status.cluster_answered(renew_deadline);
        }
        answer
    }

    /// Removes the holder from the Lease. Writes `version` into the Lease as the final version.
    pub(super) async fn release(&mut self, version: Rv) -> kube::Result<()> {
        self.end_leadership("it releases the Lease");
        let mut record = self.seen.record.clone();
        // A user may have edited the annotation since the last renewal, so the last holder is read
        // from the spec.
        record.note.last_holder = record.holder().unwrap_or_default();
        record.spec.holder_identity = None;
        record.spec.acquire_time = None;
        // client-go also writes a duration of one second when it releases a Lease.
        record.spec.lease_duration_seconds = Some(1);
        record.note.final_version = Some(version.0);
        self.write(&record).await?;
        tracing::info!(%version, "this replica has released the Lease");
        Ok(())
    }

    /// Writes the Lease with this replica as the holder. The write acquires the Lease, or renews
    /// it.
    pub(super) async fn hold(&mut self, own: &OwnLeadership) -> kube::Result<()> {
        let sent = clock::boot();
        let reserved = self.reservation(own);
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
        };
        self.write(&record).await?;
        if self.leading.is_some() {
            let took = clock::boot().since(sent).as_secs_f64();
            self.inputs.metrics.series.lease_renew.observe(took);
        }
        let until = sent + self.inputs.timing.renew_deadline;
        own.leadership.renew(reserved, until);
        Ok(())
    }

    /// Writes `record`. Replaces the Lease that this process last read or wrote. If there was no
    /// Lease at the last read, creates it.
    async fn write(&mut self, record: &LeaseRecord) -> kube::Result<()> {
        let lease = record.write(self.seen.lease.clone());
        let written = self.in_time(self.inputs.leases.write(lease)).await?;
        self.record_lease(written);
        Ok(())
    }

    /// Records the Lease from an answer.
    fn record_lease(&mut self, lease: Lease) {
        let record = LeaseRecord::read(&lease);
        let now = clock::boot();
        // An existing Lease shows by its content whether another replica has held it since the last
        // read. A missing Lease does not: another replica may have created the Lease, and a user
        // may have deleted it again. That replica may still lead. So after a long gap, `since`
        // begins again.
        let gap = now.since(self.seen.answered);
        let is_known = lease.metadata.resource_version.is_some()
            || gap < MAX_READ_GAP_PERIODS * self.inputs.timing.retry_period;
        let is_same = is_known && self.seen.record == record;
        let since = if is_same {
            self.seen.since.min(now)
        } else {
            now
        };
        let has_expired = now.since(since) >= self.expiry_period(&record);
        self.seen = SeenLease {
            lease,
            record,
            since,
            answered: now,
            has_expired,
        };
    }
}

/// Returns the resourceVersion that corresponds to a time: the microseconds since 1970.
fn version(time: Timestamp) -> u64 {
    u64::try_from(time.as_microsecond()).unwrap_or(0)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
