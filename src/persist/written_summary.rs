//! In persistence mode, the leader (the replica that detects operations) writes each operation as a
//! custom resource. This module computes the summaries that show when a write is necessary.
//!
//! The leader compares the summary of the custom resource with the summary of the operation in the
//! index (the operations in memory). If the summaries differ, the leader writes the custom
//! resource. A summary is small, because it consists mostly of hashes.

use super::conversion;
use super::store_failure::StoreFailure;
use crate::index::IndexEntry;
use ifo_api::Text;
use ifo_api::live::{self, Phase, StartTimeSource, State};
use ifo_api::persisted;
use std::hash::{DefaultHasher, Hasher as _};

/// The summary of one operation, or of its custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenSummary {
    /// The phase of the operation.
    pub phase: Phase,
    /// True if the operation is settling: it is no longer detected, but the debounce period of its
    /// rule is not over.
    pub settling: bool,
    /// A hash of all fields whose changes cause a write. See [`WrittenSummary::of`].
    pub digest: u64,
    /// A hash of the keys of the labels that this server writes. If the keys have changed, the next
    /// write may have to remove labels.
    pub labels: u64,
}

impl WrittenSummary {
    /// Returns the summary of a custom resource. Returns None if the custom resource has no status.
    ///
    /// These fields are not in the summary, so their changes cause no write:
    ///
    /// - `lastDetected` and the conditions, because an interruption of a watch changes them for all
    ///   operations on the watched resource at once.
    /// - `subjectGeneration`, because it changes with each change of the subject's spec. The
    ///   subject is the object on which the operation runs.
    /// - `startTimeSource`, because a restart of the server changes it.
    /// - Labels and annotations of other clients, because this server does not write them.
    pub fn of(cr: &persisted::InFlightOperation) -> Option<Self> {
        let status = cr.status.as_ref()?;
        let compared = live::Status {
            last_detected: status.started,
            subject_generation: None,
            conditions: Vec::new(),
            start_time_source: StartTimeSource::Detected,
            ..status.live.clone()
        };
        let identity = (&status.live_uid, &status.started);
        let annotations = cr.metadata.annotations.as_ref();
        let live_annotation = annotations.and_then(|all| all.get(persisted::LIVE_ANNOTATION));
        let labels = conversion::own_labels(cr);
        let keys: Vec<&String> = labels.iter().flatten().map(|(key, _)| key).collect();
        let bytes =
            serde_json::to_vec(&(&cr.spec, &labels, live_annotation, identity, compared)).ok()?;
        Some(Self {
            phase: status.live.phase,
            settling: status.live.state == State::Settling,
            digest: hash(&bytes),
            labels: hash(&keys),
        })
    }
}

fn hash(of: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Returns the name and the summary of the custom resource for an operation in the index. Returns
/// None if the entry is not an operation. Callers pass only operations, so this does not occur.
pub(super) fn name_and_summary(entry: &IndexEntry) -> Option<(Text, WrittenSummary)> {
    let cr = cr_of(entry).ok()?;
    let summary = WrittenSummary::of(&cr)?;
    Some((cr.metadata.name?.into(), summary))
}

/// Returns the custom resource for an entry of the index.
pub(super) fn cr_of(entry: &IndexEntry) -> Result<persisted::InFlightOperation, StoreFailure> {
    let live = entry.object().operation();
    let live = live.ok_or_else(|| {
        StoreFailure::Invalid("the entry of the index is not an operation".into())
    })?;
    Ok(conversion::to_cr(live))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cr() -> persisted::InFlightOperation {
        let cr = json!({
            "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
            "metadata": {"name": "a", "labels": {"a": "b"}},
            "spec": {
                "operation": "Migrating", "ruleSet": "rules", "component": "kubevirt",
                "subject": {"apiVersion": "v1", "kind": "VM", "name": "vm"},
            },
            "status": {
                "phase": "Active", "state": "Progressing", "reason": "Migrating",
                "started": "2026-01-02T03:04:05Z", "liveUID": "u", "progress": 5,
                "startTimeSource": "Detected", "lastDetected": "2026-01-02T03:04:05Z",
            },
        });
        serde_json::from_value(cr).unwrap()
    }

    fn status(cr: &mut persisted::InFlightOperation) -> &mut live::Status {
        &mut cr.status.as_mut().unwrap().live
    }

    #[test]
    fn detections_watch_interruptions_and_restarts_do_not_change_the_summary() {
        let before = WrittenSummary::of(&cr()).unwrap();
        let changed = |change: fn(&mut persisted::InFlightOperation)| {
            let mut cr = cr();
            change(&mut cr);
            WrittenSummary::of(&cr).unwrap() != before
        };
        assert_eq!(WrittenSummary::of(&cr()), Some(before));
        assert!(changed(|cr| status(cr).progress = Some(6)));
        assert!(changed(|cr| status(cr).message = "m".into()));
        assert!(changed(|cr| status(cr).state = State::Settling));
        assert!(changed(|cr| cr.metadata.labels = None));
        assert!(changed(|cr| cr.spec.live.component = "other".into()));
        assert!(!changed(|cr| {
            let status = status(cr);
            status.subject_generation = Some(9);
            status.last_detected.0 += jiff::SignedDuration::from_secs(9);
            status.start_time_source = live::StartTimeSource::Restored;
        }));
        assert!(!changed(|cr| {
            let annotations = cr.metadata.annotations.get_or_insert_default();
            annotations.insert("somebody's".to_owned(), "note".to_owned());
        }));
        // The kube-apiserver adds these fields to each object.
        assert!(!changed(|cr| {
            cr.metadata.uid = Some("x".to_owned());
            cr.metadata.resource_version = Some("1".to_owned());
        }));
    }
}
