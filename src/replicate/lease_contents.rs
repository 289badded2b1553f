//! The contents of the Lease with which the replicas elect their leader. This module converts
//! between the Kubernetes object and a [`LeaseRecord`]. The values for which a Lease has no field
//! are in an annotation.

use super::{Leader, Term};
use crate::clock;
use crate::index::Rv;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Annotation with an [`ElectionNote`] as JSON.
const NOTE: &str = "ifo.kubevirt.io/election";

/// The values for which a Lease has no field.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ElectionNote {
    /// The `HOST:PORT` of the holder. It stays after the holder has released the Lease, because
    /// followers may still copy the holder's last changes.
    leader_address: String,
    /// The holder, or the previous holder if the Lease has none.
    last_holder: String,
    reserved_version: Option<u64>,
    final_version: Option<u64>,
    mirrored: bool,
}

/// The shortest and the longest accepted lease duration. A user may write a wrong duration into the
/// Lease, such as one year. If the leader then crashed, no replica would lead for a year. So
/// [`LeaseRecord::read`] replaces a duration outside this range by the nearest end of the range.
pub(super) const MIN_LEASE_DURATION: Duration = Duration::from_secs(1);
pub(super) const MAX_LEASE_DURATION: Duration = Duration::from_mins(1);

/// The values of the Lease that the election uses. Each renewal changes the record. If the record
/// does not change for one lease duration, the Lease has expired. Labels and other fields that the
/// election does not use are not in the record. So an edit of these fields does not count as a
/// renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// The UID of the Lease, which changes if the Lease is deleted and created again. The UID is
    /// read and never written.
    pub uid: Option<String>,
    /// The time of the last renewal. None if the Lease was never held. [`LeaseRecord::write`]
    /// ignores this value, and writes the current time.
    pub renewed: Option<Timestamp>,
    /// The holder of the Lease, or the last holder if there is no holder now. None if the Lease was
    /// never held.
    pub last: Option<Leader>,
    /// True if the Lease has a holder now.
    pub is_held: bool,
    /// The time at which the holder acquired the Lease. None if the Lease has no holder.
    pub acquired: Option<Timestamp>,
    /// The time for which the Lease is valid without a renewal.
    pub duration: Duration,
    /// The number of times that the Lease was acquired.
    pub transitions: i32,
    /// The highest reserved resourceVersion. The holder issues no higher resourceVersion before the
    /// next renewal, and the next leader starts above it. None if the Lease has no reservation.
    pub reserved: Option<Rv>,
    /// The last resourceVersion that the last holder issued before it released the Lease. None if
    /// the Lease has a holder, or if the last holder did not release the Lease.
    pub final_version: Option<Rv>,
    /// True if another replica was copying the index of the last holder at the time of the holder's
    /// last write to the Lease.
    pub is_index_copied: bool,
    /// True if the annotation has invalid values, because a user has edited it. Its values are then
    /// ignored.
    pub is_note_invalid: bool,
}

impl LeaseRecord {
    /// Reads a Lease. Ignores or replaces invalid values, because users may have edited the Lease.
    pub fn read(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let annotations = lease.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(NOTE));
        let note = text.map(|text| serde_json::from_str::<ElectionNote>(text));
        let is_note_invalid = note.as_ref().is_some_and(Result::is_err);
        let note = note.and_then(Result::ok).unwrap_or_default();
        let holder = spec.holder_identity.filter(|name| !name.is_empty());
        let is_held = holder.is_some();
        let last = holder.unwrap_or(note.last_holder);
        let seconds = spec.lease_duration_seconds.map(u64::try_from);
        let duration = seconds.and_then(Result::ok).map(Duration::from_secs);
        Self {
            uid: lease.metadata.uid.clone(),
            renewed: spec.renew_time.map(|time| time.0),
            final_version: note.final_version.map(Rv).filter(|_| !is_held),
            is_held,
            acquired: spec.acquire_time.map(|time| time.0),
            last: (!last.is_empty()).then(|| Leader {
                term: last.as_str().into(),
                address: note.leader_address,
            }),
            duration: duration
                .unwrap_or(MIN_LEASE_DURATION)
                .clamp(MIN_LEASE_DURATION, MAX_LEASE_DURATION),
            transitions: spec.lease_transitions.unwrap_or(0),
            reserved: note.reserved_version.map(Rv),
            is_index_copied: note.mirrored,
            is_note_invalid,
        }
    }

    /// Returns the leadership term of the replica that holds the Lease. Returns None if the Lease
    /// has no holder.
    pub fn holder(&self) -> Option<&Term> {
        let last = self.last.as_ref().filter(|_| self.is_held);
        last.map(|leader| &leader.term)
    }

    /// Writes the values of this record into `lease`. If the record names a leader, also writes the
    /// current time as the renewal time. Keeps all other fields of `lease`.
    pub fn write(&self, mut lease: Lease) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        // The other replicas notice a renewal by the change of `renewTime`. So the new time must
        // differ from the last one. If a clock was set back, the two times could be equal.
        let micros = clock::now().as_microsecond();
        let before = spec.renew_time.as_ref().map(|time| time.0.as_microsecond());
        let micros = micros + i64::from(before == Some(micros));
        let now = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
        let last = self.last.as_ref();
        let name = last.map(|leader| leader.term.to_string());
        spec.holder_identity = name.clone().filter(|_| self.is_held);
        // The Lease contains whole seconds. The duration is rounded up, because the Lease must not
        // expire too early.
        let seconds = self.duration.as_millis().div_ceil(1000);
        spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
        spec.renew_time = last.map(|_| MicroTime(now));
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);

        let note = ElectionNote {
            leader_address: last
                .map(|leader| leader.address.clone())
                .unwrap_or_default(),
            last_holder: name.unwrap_or_default(),
            reserved_version: self.reserved.map(|rv| rv.0),
            final_version: self.final_version.map(|rv| rv.0),
            mirrored: self.is_index_copied,
        };
        let note = serde_json::to_string(&note).expect("the note is JSON");
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(NOTE.to_owned(), note);
        lease
    }
}
