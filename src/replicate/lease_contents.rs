//! The contents of the Lease with which the replicas elect their leader. This module converts
//! between the Kubernetes object and a [`LeaseRecord`]. The values for which a Lease has no field
//! are in annotations.

use super::{Leader, Term};
use crate::clock;
use crate::index::Rv;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// Annotation with the `HOST:PORT` of the holder. The annotation stays after the holder has
/// released the Lease, because followers may still copy the holder's last changes.
const ADDRESS: &str = "ifo.kubevirt.io/leader-address";
/// Annotation with the highest resourceVersion that the holder may issue.
const RESERVED: &str = "ifo.kubevirt.io/reserved-version";
/// Annotation with the last resourceVersion that the last holder issued. The holder writes this
/// annotation when it releases the Lease.
const FINAL: &str = "ifo.kubevirt.io/final-version";
/// Annotation with the previous holder. The annotation exists only while the Lease has no holder.
const LAST: &str = "ifo.kubevirt.io/last-holder";

/// Annotation that is `true` if another replica copies the holder's index (the operations in
/// memory). Otherwise, the annotation does not exist.
const MIRRORED: &str = "ifo.kubevirt.io/mirrored";

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
    /// The names of annotations with invalid values. [`LeaseRecord::read`] ignores these values.
    pub unusable: Vec<&'static str>,
}

impl LeaseRecord {
    /// Reads a Lease. Ignores or replaces invalid values, because users may have edited the Lease.
    pub fn read(lease: &Lease) -> Self {
        let empty = (LeaseSpec::default(), BTreeMap::new());
        let spec = lease.spec.as_ref().unwrap_or(&empty.0);
        let annotations = lease.metadata.annotations.as_ref().unwrap_or(&empty.1);
        let mut unusable = Vec::new();
        let mut version = |name: &'static str| {
            let version = annotations.get(name)?.parse().map(Rv);
            version.map_err(|_| unusable.push(name)).ok()
        };
        let (reserved, final_version) = (version(RESERVED), version(FINAL));
        let term = |name: &String| Some(Term::new(name)).filter(|_| !name.is_empty());
        let holder = spec.holder_identity.as_ref().and_then(term);
        let last = holder
            .clone()
            .or_else(|| annotations.get(LAST).and_then(term));
        let address = annotations.get(ADDRESS).cloned().unwrap_or_default();
        let is_address = |it: &str| {
            let parts = it.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        let address = if is_address(&address) {
            address
        } else {
            if last.is_some() {
                unusable.push(ADDRESS);
            }
            String::new()
        };
        let seconds = spec.lease_duration_seconds.map(u64::try_from);
        let duration = seconds.and_then(Result::ok).map(Duration::from_secs);
        Self {
            uid: lease.metadata.uid.clone(),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            final_version: final_version.filter(|_| holder.is_none()),
            is_held: holder.is_some(),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            last: last.map(|term| Leader { term, address }),
            duration: duration
                .unwrap_or(MIN_LEASE_DURATION)
                .clamp(MIN_LEASE_DURATION, MAX_LEASE_DURATION),
            transitions: spec.lease_transitions.unwrap_or(0),
            reserved,
            is_index_copied: annotations.get(MIRRORED).is_some_and(|it| it == "true"),
            unusable,
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
        let name = last.map(|leader| leader.term.as_str().to_owned());
        spec.holder_identity = name.clone().filter(|_| self.is_held);
        // The Lease contains whole seconds. The duration is rounded up, because the Lease must not
        // expire too early.
        let seconds = self.duration.as_millis().div_ceil(1000);
        spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
        spec.renew_time = last.map(|_| MicroTime(now));
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);

        let annotations = lease.metadata.annotations.get_or_insert_default();
        let values = [
            (ADDRESS, last.map(|leader| leader.address.clone())),
            (RESERVED, self.reserved.map(|rv| rv.to_string())),
            (FINAL, self.final_version.map(|rv| rv.to_string())),
            (MIRRORED, self.is_index_copied.then(|| "true".to_owned())),
            (LAST, name.filter(|_| !self.is_held)),
        ];
        for (key, value) in values {
            match value {
                Some(value) => annotations.insert(key.to_owned(), value),
                None => annotations.remove(key),
            };
        }
        lease
    }
}
