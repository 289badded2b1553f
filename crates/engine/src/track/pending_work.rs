//! Work on many subjects that the tracker does in parts. One message can change all operations of a
//! rule set, for example if the rule set is deleted. If all writes were made at once, they would
//! need much memory. So the tracker does such work until it has made a batch of writes. It continues
//! after the caller has taken the batch.

use super::end_reason::End;
use super::last_runs::Identity;
use super::subject::{SubjectEventContext, TrackedSubject};
use crate::ClockReading;
use ifo_api::Gvr;
use std::sync::Arc;

/// Number of writes after which a batch is full. The changes of one subject are never split. So a
/// batch can have more writes, by the writes for one subject.
pub const FULL_BATCH: usize = 1_000;

/// Work that is not finished: the action must be done on these subjects.
#[derive(Debug)]
pub(super) struct PendingWork {
    pub identities: std::vec::IntoIter<Identity>,
    pub action: SubjectAction,
    pub now: ClockReading,
}

/// An action on a subject.
#[derive(Clone, Debug)]
pub(super) enum SubjectAction {
    /// See [`TrackedSubject::refresh`].
    Refresh,
    /// See [`TrackedSubject::complete_all`].
    CompleteAll(End),
    /// See [`TrackedSubject::rules_changed`].
    RulesChanged(Option<Arc<Gvr>>, End),
}

impl SubjectAction {
    pub(super) fn apply(&self, tracked: &mut TrackedSubject, step: &mut SubjectEventContext<'_>) {
        match self {
            Self::Refresh => tracked.refresh(step),
            Self::CompleteAll(end) => tracked.complete_all(end, step),
            Self::RulesChanged(target, end) => tracked.rules_changed(target.as_ref(), end, step),
        }
    }
}
