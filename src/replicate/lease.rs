//! The contents of the Lease with which the replicas elect their leader. The values for which a
//! Lease has no field are in an annotation.

use super::{Leader, Term};
use crate::clock;
use crate::config::LEASE_DURATIONS;
use crate::index::Rv;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The annotation with an [`ElectionNote`] as JSON.
const NOTE: &str = "ifo.kubevirt.io/election";

/// The values for which a Lease has no field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ElectionNote {
    /// The `HOST:PORT` of the holder. The address stays in the Lease after the holder has released
    /// the Lease, because followers may still copy the holder's last changes.
    pub leader_address: String,
    /// The term of the holder. If the Lease has no holder, the term of the previous holder.
    pub last_holder: Term,
    /// The highest reserved resourceVersion. The holder issues no higher resourceVersion before the
    /// next renewal, and the next leader starts above it. None if the Lease has no reservation.
    pub reserved_version: Option<u64>,
    /// The last resourceVersion that the last holder issued before it released the Lease. None if
    /// the last holder did not release the Lease.
    pub final_version: Option<u64>,
    /// True if another replica was copying the holder's index when the holder last renewed the
    /// Lease. A release does not change this value.
    pub mirrored: bool,
}

/// The values of the Lease that the election uses. Each renewal changes this record. If the record
/// does not change for one lease duration, the Lease has expired. The record does not contain
/// labels and other annotations, so an edit of these does not count as a renewal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LeaseRecord {
    /// The holder, its renewals, and the lease duration.
    pub spec: LeaseSpec,
    /// The content of the annotation.
    pub note: ElectionNote,
}

impl LeaseRecord {
    /// Reads a Lease. Ignores an invalid annotation, because users may have edited the Lease.
    pub fn read(lease: &Lease) -> Self {
        let annotations = lease.metadata.annotations.as_ref();
        let note = annotations.and_then(|annotations| annotations.get(NOTE));
        let note = note.and_then(|text| serde_json::from_str(text).ok());
        Self {
            spec: lease.spec.clone().unwrap_or_default(),
            note: note.unwrap_or_default(),
        }
    }

    /// Writes the values of this record into `lease`, with the current time as the renewal time.
    /// Keeps the metadata of `lease`, apart from the annotation of the election.
    pub fn write(&self, mut lease: Lease) -> Lease {
        let before = lease.spec.take().and_then(|spec| spec.renew_time);
        // The other replicas notice a renewal because `renewTime` changes, so the new time must
        // differ from the last one. After a clock was set back, the two times can be equal by
        // chance.
        let micros = clock::now().as_microsecond();
        let micros = micros + i64::from(before.is_some_and(|it| it.0.as_microsecond() == micros));
        let now = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
        lease.spec = Some(LeaseSpec {
            renew_time: Some(MicroTime(now)),
            ..self.spec.clone()
        });
        let note = serde_json::to_string(&self.note).expect("the note is JSON");
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(NOTE.to_owned(), note);
        lease
    }

    /// Returns the leadership term of the replica that holds the Lease. Returns None if the Lease
    /// has no holder.
    pub fn holder(&self) -> Option<Term> {
        let holder = self.spec.holder_identity.as_deref();
        holder.filter(|holder| !holder.is_empty()).map(Term::from)
    }

    /// Returns the holder of the Lease, or the last holder if there is no holder now. Returns None
    /// if the Lease was never held.
    pub fn last(&self) -> Option<Leader> {
        let term = self
            .holder()
            .unwrap_or_else(|| self.note.last_holder.clone());
        (!term.is_empty()).then(|| Leader {
            term,
            address: self.note.leader_address.clone(),
        })
    }

    /// Returns the last resourceVersion that the last holder issued, if it has released the Lease.
    pub fn final_version(&self) -> Option<Rv> {
        let is_held = self.holder().is_some();
        self.note.final_version.map(Rv).filter(|_| !is_held)
    }

    /// Returns the time for which the Lease is valid without a renewal, limited to the range
    /// [`LEASE_DURATIONS`].
    pub fn duration(&self) -> Duration {
        let seconds = self.spec.lease_duration_seconds.unwrap_or(0);
        let duration = Duration::from_secs(seconds.try_into().unwrap_or(0));
        duration.clamp(*LEASE_DURATIONS.start(), *LEASE_DURATIONS.end())
    }
}

/// Returns a lease duration in the unit of a Lease. The Lease contains whole seconds. The duration
/// is rounded up, because the Lease must not expire too early.
pub(super) fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_millis().div_ceil(1000);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}
