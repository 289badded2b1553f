//! What of an operation is worth a write: a small value to compare instead of objects.

use super::convert;
use crate::api::live::{self, Phase, State};
use crate::api::persisted;
use crate::index::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What an operation looks like, in so far as a change of it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Whether it is over.
    pub phase: Phase,
    /// Whether it is no longer detected, but not over either.
    pub settling: bool,
    /// Everything else that a person would call a change.
    pub digest: u64,
}

impl Look {
    /// Of a custom resource as it is, or as it is to be.
    ///
    /// Left out are `lastDetected`, `subjectGeneration` and the conditions: they change
    /// along with what is not left out, or on their own with every gap in a watch, and
    /// then for all operations at once.
    pub fn of(cr: &persisted::InFlightOperation) -> Option<Self> {
        let status = cr.status.as_ref()?;
        let mut shown = serde_json::to_value(status).ok()?;
        for left_out in ["lastDetected", "subjectGeneration", "conditions"] {
            shown.as_object_mut()?.remove(left_out);
        }
        let (labels, annotations) = (&cr.metadata.labels, &cr.metadata.annotations);
        let bytes = serde_json::to_vec(&(&cr.spec, labels, annotations, shown)).ok()?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Some(Self {
            phase: status.phase,
            settling: status.state == State::Settling,
            digest: hasher.finish(),
        })
    }
}

/// The name of the custom resource for an object of the index, and the look it is to have.
/// None for what is no operation, which the index never holds.
pub(super) fn of_entry(entry: &Entry) -> Option<(String, Look)> {
    let cr = cr_of(entry)?;
    let look = Look::of(&cr)?;
    Some((cr.metadata.name?, look))
}

/// The custom resource for an object of the index.
pub(super) fn cr_of(entry: &Entry) -> Option<persisted::InFlightOperation> {
    let live: live::InFlightOperation = serde_json::from_slice(entry.json()).ok()?;
    Some(convert::to_cr(&live))
}
