//! One operation in the queue: its wanted state, the known state of its custom resource, and the
//! due time of its next write.

use super::{AtStop, JobResult, PersistSettings};
use crate::index::IndexEntry;
use crate::persist::failure::StoreFailure;
use crate::persist::rate_limit;
use crate::persist::store::Revision;
use crate::persist::written_summary::WrittenSummary;
use ifo_api::live::Phase;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// One operation, or one custom resource without an operation.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub wanted: WantedState,
    /// The custom resource in the cluster, as far as it is known.
    pub stored: StoredState,
    /// The time at which a write became due or becomes due. It is the position in the queue.
    pub due: Option<Instant>,
    /// No job starts before this time.
    pub not_before: Option<Instant>,
    pub is_writing: bool,
    /// True if the operation was completed long before this queue existed. If its custom resource
    /// is missing, another client has deleted it.
    pub is_old: bool,
    /// True if the last attempt was refused.
    pub is_refused: bool,
    /// Number of failures since the last successful write.
    pub failures: u32,
}

/// The wanted state of a custom resource.
#[derive(Clone, Debug, Default)]
pub(in crate::persist) enum WantedState {
    /// The state of the operation in the index, and the time since when it is in this state.
    Live(Arc<IndexEntry>, WrittenSummary, Instant),
    /// No custom resource.
    #[default]
    Gone,
    /// The operation ended unobserved. If the custom resource is Active, it is changed to
    /// Completed.
    Ended,
}

/// The known state of a custom resource.
#[derive(Clone, Debug, Default)]
pub(in crate::persist) enum StoredState {
    /// The custom resource does not exist.
    #[default]
    Absent,
    /// A write was not answered, or conflicted. The custom resource is read before the next write.
    Unknown,
    /// The custom resource exists in this state. The time is that of the last write of this queue.
    Present(WrittenSummary, Revision, Option<Instant>),
}

impl Record {
    /// The index and the time of this record among the waiting records of the queue. None if it
    /// does not wait.
    pub fn place(&self) -> Option<(usize, Instant)> {
        let due = self.due.filter(|_| !self.is_writing)?;
        let at = self.not_before.map_or(due, |earliest| earliest.max(due));
        Some((usize::from(self.failures > 0), at))
    }

    /// Returns the time of the next job, without back-off. None if the custom resource has the
    /// wanted state.
    pub fn plan(
        &self,
        settings: &PersistSettings,
        stopping: Option<AtStop>,
        now: Instant,
    ) -> Option<Instant> {
        let is_over = |summary: &WrittenSummary| summary.phase == Phase::Completed;
        match (&self.wanted, &self.stored) {
            (WantedState::Gone | WantedState::Ended, StoredState::Absent) => None,
            (WantedState::Ended, StoredState::Present(summary, ..)) if is_over(summary) => None,
            // The next process or the next leader finds the same custom resource.
            (WantedState::Ended, _) => stopping.is_none().then_some(now),
            // The live object is deleted next, and its custom resource with it.
            (WantedState::Live(_, summary, _), _) if is_over(summary) && !settings.retain => None,
            (WantedState::Live(_, summary, _), StoredState::Absent)
                if is_over(summary) && self.is_old =>
            {
                None
            }
            (WantedState::Live(_, summary, _), StoredState::Present(old, ..)) if summary == old => {
                None
            }
            (WantedState::Live(_, summary, since), StoredState::Present(_, _, at))
                if stopping.is_none() && !is_over(summary) =>
            {
                let again = at.map_or(now, |at| at + settings.resync);
                let settled = *since + settings.settling;
                Some(if summary.settling {
                    again.max(settled)
                } else {
                    again
                })
            }
            (WantedState::Gone | WantedState::Live(..), _) => Some(now),
        }
    }

    /// Records a successful job.
    pub fn succeeded(&mut self, done: &JobResult, now: Instant) {
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

    /// Records a failed job. It is retried after at most `most`.
    pub fn failed(&mut self, failure: &StoreFailure, most: Duration, now: Instant) {
        self.is_refused = failure.is_refusal();
        if matches!(
            failure,
            StoreFailure::Gone | StoreFailure::Conflict(_) | StoreFailure::Unreachable(..)
        ) {
            self.stored = StoredState::Unknown;
        }
        self.not_before = Some(now + rate_limit::delay(self.failures, most));
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns the phase of the operation in the index.
    pub fn live_phase(&self) -> Option<Phase> {
        match &self.wanted {
            WantedState::Live(_, summary, _) => Some(summary.phase),
            _ => None,
        }
    }

    /// Returns true if the operation is completed, still in the index, and was written as
    /// completed.
    pub fn is_history(&self) -> bool {
        let is_written = match (&self.wanted, &self.stored) {
            (WantedState::Live(_, summary, _), StoredState::Present(stored, ..)) => {
                summary == stored
            }
            _ => false,
        };
        is_written && self.live_phase() == Some(Phase::Completed)
    }
}
