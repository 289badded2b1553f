//! One entry of the write queue: the wanted state of a custom resource, its stored state, and the due
//! time of its next write.

use super::listed::ListedResource;
use crate::persist::conversion::write_hash;
use crate::persist::pace::delay;
use crate::persist::{PersistSettings, Revision, StoreFailure};
use ifo_api::live::{InFlightOperation, Phase, State};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The known state of a custom resource.
#[derive(Clone, Debug, Default)]
pub(in crate::persist) enum StoredState {
    /// The custom resource does not exist.
    #[default]
    Absent,
    /// The last request was not answered or met a conflict. The next job reads the revision first.
    Unknown,
    /// The custom resource exists.
    Present {
        revision: Revision,
        /// The [`write_hash`] of the operation in the custom resource. None if the content of the
        /// custom resource is not that of the wanted operation at the last comparison.
        hash: Option<u64>,
        /// The time of this queue's last write. None if there was no write.
        written: Option<Instant>,
    },
}

/// The entry of one operation in the index, or of one orphan that must be deleted.
#[derive(Debug, Default)]
pub(super) struct QueueEntry {
    /// The operation in the index. None if the custom resource must not exist.
    pub wanted: Option<Arc<InFlightOperation>>,
    /// The [`write_hash`] of the wanted operation, and the time since which it has been the same.
    hash: Option<(u64, Instant)>,
    pub stored: StoredState,
    /// The time from which the write is due. None if no write is needed, and before the first call
    /// of [`super::Queue::set_unsynced_rule_sets`].
    pub due: Option<Instant>,
    /// The end of the back-off after a failure, or of the delay for an orphan.
    pub not_before: Option<Instant>,
    pub is_running: bool,
    /// True if the operation had ended long before the queue was created ([`super::OLD_AGE`]).
    pub is_old: bool,
    /// The number of failures since the last successful write.
    pub failures: u32,
}

impl QueueEntry {
    pub fn is_completed(&self) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_some_and(|it| it.status.phase == Phase::Completed)
    }

    /// Returns true if the operation is completed, and its custom resource contains the end.
    pub fn is_completion_written(&self) -> bool {
        self.is_completed() && self.is_written()
    }

    /// Returns true if the custom resource contains the wanted operation.
    fn is_written(&self) -> bool {
        let wanted = self.hash.map(|(hash, _)| hash);
        matches!(self.stored, StoredState::Present { hash, .. } if hash == wanted)
    }

    /// Replaces the operation.
    pub fn set_wanted(&mut self, operation: &Arc<InFlightOperation>, now: Instant) {
        if self.wanted.is_none() {
            // An orphan waits before its deletion. Now its operation is in the index.
            self.not_before = None;
        }
        self.wanted = Some(operation.clone());
        let hash = write_hash(operation);
        if self.hash.is_none_or(|(before, _)| before != hash) {
            self.hash = Some((hash, now));
        }
    }

    /// Returns the time at which the next job is due, without the back-off. Returns None if no job
    /// is needed.
    pub fn plan(
        &self,
        settings: &PersistSettings,
        is_stopping: bool,
        now: Instant,
    ) -> Option<Instant> {
        let Some(wanted) = &self.wanted else {
            return (!matches!(self.stored, StoredState::Absent)).then_some(now);
        };
        let is_completed = self.is_completed();
        // If completed operations are not retained, the index removes this operation soon, and the
        // queue then deletes the custom resource. So no write of the end is needed.
        if is_completed && !settings.retain {
            return None;
        }
        match &self.stored {
            StoredState::Absent if is_completed && self.is_old => None,
            StoredState::Present { .. } if self.is_written() => None,
            StoredState::Present { written, .. } if !is_completed && !is_stopping => {
                let resync_at = written.map_or(now, |at| at + settings.resync);
                let is_settling = wanted.status.state == State::Settling;
                let settling_since = self.hash.filter(|_| is_settling);
                let settling_at = settling_since.map(|(_, since)| since + settings.settling);
                Some(settling_at.map_or(resync_at, |at| at.max(resync_at)))
            }
            _ => Some(now),
        }
    }

    /// Records the result of a job that has applied `written`, or deleted the custom resource.
    /// `most` is the longest back-off after a failure.
    pub fn record(
        &mut self,
        written: Option<&InFlightOperation>,
        result: Result<Option<Revision>, StoreFailure>,
        most: Duration,
        now: Instant,
    ) {
        self.is_running = false;
        match result {
            Ok(revision) => {
                (self.failures, self.due, self.not_before) = (0, None, None);
                self.stored =
                    revision.map_or(StoredState::Absent, |revision| StoredState::Present {
                        revision,
                        hash: written.map(write_hash),
                        written: Some(now),
                    });
            }
            Err(failure) => {
                if matches!(
                    failure,
                    StoreFailure::Conflict | StoreFailure::Unreachable(_)
                ) {
                    self.stored = StoredState::Unknown;
                }
                self.not_before = Some(now + delay(self.failures, most));
                self.failures = self.failures.saturating_add(1);
            }
        }
    }

    /// Records a custom resource that a comparison has found.
    pub fn record_listed(&mut self, found: ListedResource) {
        let written = match &self.stored {
            // The custom resource has not changed since this queue last wrote or read it.
            StoredState::Present { revision, .. } if *revision == found.revision => return,
            StoredState::Present { written, .. } => *written,
            _ => None,
        };
        let wanted = self.wanted.as_ref();
        let is_same = wanted.is_some_and(|wanted| found.contains(wanted));
        self.stored = StoredState::Present {
            hash: self.hash.map(|(hash, _)| hash).filter(|_| is_same),
            revision: found.revision,
            written,
        };
    }

    /// Returns the time at which the next job may start. Returns None if no job is needed, or if a
    /// job is running.
    pub fn start_at(&self) -> Option<Instant> {
        let due = self.due.filter(|_| !self.is_running)?;
        Some(self.not_before.map_or(due, |earliest| earliest.max(due)))
    }
}
