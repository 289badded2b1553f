//! The contents of the Lease, as the replicas read and write them.

use super::{Leader, Term};
use crate::clock;
use crate::index::Rv;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// `HOST:PORT` of the holder. It is kept after a release, for replicas that still mirror the
/// holder.
const ADDRESS: &str = "ifo.kubevirt.io/leader-address";
/// The highest version that the holder may issue.
const RESERVED: &str = "ifo.kubevirt.io/reserved-version";
/// The last version of the holder that released the Lease.
const FINAL: &str = "ifo.kubevirt.io/final-version";
/// The previous holder, while the Lease has no holder.
const LAST: &str = "ifo.kubevirt.io/last-holder";

/// Records if another replica mirrors the holder and so has its changes.
const MIRRORED: &str = "ifo.kubevirt.io/mirrored";

/// Lease durations outside these bounds are treated as typing errors. Otherwise, a duration of a
/// year would keep the replicas without a leader for a year.
pub(super) const MIN_LEASE_DURATION: Duration = Duration::from_secs(1);
pub(super) const MAX_LEASE_DURATION: Duration = Duration::from_mins(1);

/// The fields of the Lease that the replicas use. Two records from reads differ if the holder has
/// renewed the Lease in between. Edits of other fields make no difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// UID of the Lease, which differs if the Lease was deleted and created again. Read only.
    pub uid: Option<String>,
    /// Resource version, which differs with each renewal. Read only.
    pub renewed: Option<Timestamp>,
    /// The holder of the Lease, or the last one.
    pub last: Option<Leader>,
    /// True if the holder holds the Lease now.
    pub is_held: bool,
    /// Time at which the holder acquired the Lease.
    pub acquired: Option<Timestamp>,
    /// Time for which the Lease is valid without a renewal.
    pub duration: Duration,
    /// Number of changes of the holder.
    pub transitions: i32,
    /// The highest version that the holder may issue.
    pub reserved: Option<Rv>,
    /// The last version of the holder that released the Lease. None while it is held.
    pub final_version: Option<Rv>,
    /// True if another replica has the changes of the last leader.
    pub is_mirrored: bool,
    /// Annotations with invalid values.
    pub unusable: Vec<&'static str>,
}

impl LeaseRecord {
    /// Reads a Lease. Any user with the rights may have edited it, so no value is trusted.
    pub fn read(lease: &Lease) -> Self {
        let empty = (LeaseSpec::default(), BTreeMap::new());
        let spec = lease.spec.as_ref().unwrap_or(&empty.0);
        let annotations = lease.metadata.annotations.as_ref().unwrap_or(&empty.1);
        let mut unusable = Vec::new();
        let mut version = |name: &'static str| {
            let version = annotations.get(name)?.parse().map(Rv);
            version.map_err(|_| unusable.push(name)).ok()
        };
        let (reserved, released) = (version(RESERVED), version(FINAL));
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
            final_version: released.filter(|_| holder.is_none()),
            is_held: holder.is_some(),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            last: last.map(|term| Leader { term, address }),
            duration: duration
                .unwrap_or(MIN_LEASE_DURATION)
                .clamp(MIN_LEASE_DURATION, MAX_LEASE_DURATION),
            transitions: spec.lease_transitions.unwrap_or(0),
            reserved,
            is_mirrored: annotations.get(MIRRORED).is_some_and(|it| it == "true"),
            unusable,
        }
    }

    /// Returns the term that holds the Lease.
    pub fn holder(&self) -> Option<&Term> {
        let last = self.last.as_ref().filter(|_| self.is_held);
        last.map(|leader| &leader.term)
    }

    /// Returns the Lease with these contents, renewed now. All other fields are kept.
    pub fn write(&self, mut lease: Lease) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        // The other replicas recognize a renewal by its time. So the time must change even if the
        // clock was set back.
        let micros = clock::now().as_microsecond();
        let before = spec.renew_time.as_ref().map(|time| time.0.as_microsecond());
        let micros = micros + i64::from(before == Some(micros));
        let now = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
        let last = self.last.as_ref();
        let name = last.map(|leader| leader.term.as_str().to_owned());
        spec.holder_identity = name.clone().filter(|_| self.is_held);
        // Durations are whole seconds, rounded up, because a Lease must not expire too early.
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
            (MIRRORED, self.is_mirrored.then(|| "true".to_owned())),
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
