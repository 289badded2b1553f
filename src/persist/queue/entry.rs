//! One entry of the write queue: the wanted state of a custom resource, its stored state, and the due
//! time of its next write.

use super::listed::ListedResource;
use crate::persist::conversion::write_hash;
use crate::persist::{PersistSettings, Revision, StoreFailure};
use ifo_api::live::{InFlightOperation, Phase, State};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest delay after the first failure. Each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// Returns the delay between a failure and the next attempt. `failures` is the number of earlier
/// failures.
///
/// The longest delay is 500 ms, doubled for each earlier failure, but at most `most`. The returned
/// delay is random, and at least half of the longest delay. So the retries of several objects do not
/// all come at the same time.
pub(super) fn delay(failures: u32, most: Duration) -> Duration {
    // The limit of 16 prevents an overflow. 500 ms · 2^16 is 9 hours.
    let step = (FIRST_DELAY * 2_u32.pow(failures.min(16))).min(most);
    step.mul_f64(0.5 + fastrand::f64() / 2.0)
}

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
    /// The time from which the write is due, at the last call of [`Self::plan`]. None if no write is
    /// needed.
    pub due: Option<Instant>,
    /// The end of the back-off after a failure, or of the delay for an orphan.
    pub not_before: Option<Instant>,
    /// True if the operation had ended long before the queue was created ([`super::OLD_AGE`]).
    pub is_old: bool,
    /// The number of failures since the last successful write.
    pub failures: u32,
}

impl QueueEntry {
    pub fn new(is_old: bool) -> Self {
        Self {
            is_old,
            ..Self::default()
        }
    }

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
        if (self.wanted.as_ref()).is_some_and(|wanted| Arc::ptr_eq(wanted, operation)) {
            return;
        }
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

    /// Plans the next job. Returns the time at which it may start. Returns None if no job is needed.
    pub fn plan(
        &mut self,
        settings: &PersistSettings,
        is_stopping: bool,
        now: Instant,
    ) -> Option<Instant> {
        // If an operation changes while its write is due but has not started, the write keeps its
        // due time. So frequent changes do not delay the write.
        let waiting_since = self.due.filter(|since| *since <= now);
        let due = self.next_due(settings, is_stopping, now);
        self.due = due.map(|due| waiting_since.unwrap_or(due));
        let not_before = self.not_before.filter(|_| !is_stopping);
        self.due.map(|due| not_before.map_or(due, |at| at.max(due)))
    }

    /// Returns the time at which the next job is due, without the back-off. Returns None if no job
    /// is needed.
    fn next_due(
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
}
