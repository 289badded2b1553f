//! One entry of the write queue: the wanted state of a custom resource, its stored state, and the
//! due time of its next write.

use super::{AtStop, JobResult, PersistSettings};
use crate::index::IndexEntry;
use crate::persist::client::Revision;
use crate::persist::store_failure::StoreFailure;
use crate::persist::write_rate;
use crate::persist::written_summary::WrittenSummary;
use ifo_api::live::Phase;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The queue entry of one operation in the index, or of one orphan. An orphan is a custom resource
/// whose operation is not in the index.
#[derive(Debug, Default)]
pub(super) struct QueueEntry {
    pub wanted: WantedState,
    /// The state of the custom resource in the cluster, as far as this queue knows it.
    pub stored: StoredState,
    /// The time from which the write is due. None if no write is needed. Also None before the first
    /// call of [`super::Queue::set_unsynced_rule_sets`]. Of all writes without back-off, the queue
    /// sends the write with the earliest due time first.
    pub due: Option<Instant>,
    /// The end of the back-off after a failure, or of the delay for an orphan. No job starts before
    /// this time.
    pub not_before: Option<Instant>,
    /// True while a job (a write or a read) for this custom resource runs.
    pub has_running_job: bool,
    /// True if the operation had ended more than ten minutes before this queue was created. If an
    /// old operation has no custom resource, a user has probably deleted the custom resource. So
    /// the queue does not create the custom resource again.
    pub is_old: bool,
    /// True if the last failure was a refusal by the kube-apiserver, and no write has succeeded
    /// since then. False if no write is needed.
    pub is_refused: bool,
    /// The number of failures since the last successful write. 0 if no write is needed.
    pub failures: u32,
}

/// The wanted state of a custom resource.
#[derive(Clone, Debug, Default)]
pub(in crate::persist) enum WantedState {
    /// The custom resource must have the state of this entry of the index. The [`Instant`] is the
    /// time at which the operation got this state.
    Live(Arc<IndexEntry>, WrittenSummary, Instant),
    /// The custom resource must not exist.
    #[default]
    Gone,
    /// The operation ended while no leader was running. The phase of the custom resource must be
    /// `Completed`. If the custom resource does not exist, the queue does not create it.
    Completed,
}

/// The known state of a custom resource.
#[derive(Clone, Debug, Default)]
pub(in crate::persist) enum StoredState {
    /// The custom resource does not exist.
    #[default]
    Absent,
    /// The state is unknown, because the last request was not answered or met a conflict. The next
    /// job reads the custom resource.
    Unknown,
    /// The custom resource exists, with this summary (the fields that the queue compares) and this
    /// revision. The [`Instant`] is the time of this queue's last write. It is None if this queue
    /// has not written the custom resource, or has read it since the last write.
    Present(WrittenSummary, Revision, Option<Instant>),
}

impl QueueEntry {
    /// Returns the place of this queue entry in `waiting`, a field of [`super::Queue`] with two
    /// sets. The number is the index of the set: 0 without failures, 1 with failures. The
    /// [`Instant`] is the time at which the next job may start. Returns None if no job is needed,
    /// or if a job is running.
    pub fn queue_position(&self) -> Option<(usize, Instant)> {
        let due = self.due.filter(|_| !self.has_running_job)?;
        let at = self.not_before.map_or(due, |earliest| earliest.max(due));
        Some((usize::from(self.failures > 0), at))
    }

    /// Returns the time at which the next job is due. The back-off and the delay for an orphan do
    /// not change this time. Returns None if no job is needed.
    pub fn plan(
        &self,
        settings: &PersistSettings,
        stopping: Option<AtStop>,
        now: Instant,
    ) -> Option<Instant> {
        let is_completed = |summary: &WrittenSummary| summary.phase == Phase::Completed;
        match (&self.wanted, &self.stored) {
            (WantedState::Gone | WantedState::Completed, StoredState::Absent) => None,
            (WantedState::Completed, StoredState::Present(summary, ..))
                if is_completed(summary) =>
            {
                None
            }
            // While the queue stops, orphans are not completed. The next leader finds these orphans
            // in its first comparison, and completes them.
            (WantedState::Completed, _) => stopping.is_none().then_some(now),
            // If completed operations are not retained, the index removes this operation soon, and
            // the queue then deletes the custom resource. So no write of the end is needed.
            (WantedState::Live(_, summary, _), _) if is_completed(summary) && !settings.retain => {
                None
            }
            (WantedState::Live(_, summary, _), StoredState::Absent)
                if is_completed(summary) && self.is_old =>
            {
                None
            }
            (WantedState::Live(_, summary, _), StoredState::Present(old, ..)) if summary == old => {
                None
            }
            (WantedState::Live(_, summary, since), StoredState::Present(_, _, at))
                if stopping.is_none() && !is_completed(summary) =>
            {
                let resync_at = at.map_or(now, |at| at + settings.resync);
                let settling_at = *since + settings.settling;
                Some(if summary.settling {
                    resync_at.max(settling_at)
                } else {
                    resync_at
                })
            }
            (WantedState::Gone | WantedState::Live(..), _) => Some(now),
        }
    }

    /// Records a successful job.
    pub fn record_success(&mut self, done: &JobResult, now: Instant) {
        self.not_before = None;
        let (found, at) = match done {
            JobResult::Written(found) => {
                (self.failures, self.is_refused, self.due) = (0, false, None);
                (found, Some(now))
            }
            JobResult::Read(found) => (found, None),
        };
        self.stored = found
            .clone()
            .map_or(StoredState::Absent, |(summary, revision)| {
                StoredState::Present(summary, revision, at)
            });
    }

    /// Records a failed job, and delays the next attempt. The delay grows with each failure, up to
    /// `most`.
    pub fn record_failure(&mut self, failure: &StoreFailure, most: Duration, now: Instant) {
        self.is_refused = failure.is_refusal();
        if matches!(
            failure,
            StoreFailure::ObjectDeleted | StoreFailure::Conflict(_) | StoreFailure::Unreachable(..)
        ) {
            self.stored = StoredState::Unknown;
        }
        self.not_before = Some(now + write_rate::delay(self.failures, most));
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns the phase of the operation in the index. Returns None if the index does not have the
    /// operation.
    pub fn live_phase(&self) -> Option<Phase> {
        match &self.wanted {
            WantedState::Live(_, summary, _) => Some(summary.phase),
            _ => None,
        }
    }

    /// Returns true if the index has the operation as completed, and the custom resource has the
    /// end of the operation.
    pub fn is_completion_written(&self) -> bool {
        let is_written = match (&self.wanted, &self.stored) {
            (WantedState::Live(_, summary, _), StoredState::Present(stored, ..)) => {
                summary == stored
            }
            _ => false,
        };
        is_written && self.live_phase() == Some(Phase::Completed)
    }
}
