//! One row of the table of custom resources: the operation that the custom resource must contain,
//! the state in which it is stored, and the due time of its next write.

use super::client::Revision;
use super::conversion::has_same_content;
use super::failure::StoreFailure;
use ifo_api::live::{InFlightOperation, Phase, State};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The delay after the first failure. Each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The delay before an orphan is deleted. An orphan is a custom resource whose operation is missing
/// in the index. The operation has been missing since this leader first saw the custom resource.
///
/// The previous leader may have read objects from another kube-apiserver, whose data is newer. The
/// delay gives this leader time to receive the same data and to detect the same operation.
const ORPHAN_DELAY: Duration = Duration::from_secs(5);

/// The settings that decide which operations are written, and when.
#[derive(Clone, Copy, Debug)]
pub struct PersistSettings {
    /// The shortest time between two writes of the same operation while it is in flight.
    pub resync: Duration,
    /// The delay before the state `Settling` is written. Usually the operation ends before this
    /// delay has passed, and only the end is written.
    pub settling: Duration,
    /// The longest back-off after failures of an object.
    pub requeue: Duration,
    /// True if the index retains completed operations.
    pub retain: bool,
}

/// Returns the delay between a failure and the next attempt: 500 ms, doubled for each of the
/// earlier `failures`, but at most `most`.
pub(super) fn delay(failures: u32, most: Duration) -> Duration {
    // The limit of 16 prevents an overflow. 500 ms · 2^16 is 9 hours.
    (FIRST_DELAY * 2_u32.pow(failures.min(16))).min(most)
}

/// The state in which a custom resource is stored.
#[derive(Debug)]
struct Stored {
    revision: Revision,
    /// The operation in the custom resource. If it does not differ from the operation in the index,
    /// both fields share one object in memory. This object lacks the labels that other clients have
    /// added to the custom resource.
    operation: Arc<InFlightOperation>,
}

/// The row of one operation in the index, or of one custom resource without such an operation.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The operation in the index. None if the index does not contain the operation. Then the
    /// custom resource is deleted. There is one exception: an orphan stays until this leader has
    /// listed its target and restored all custom resources.
    pub wanted: Option<Arc<InFlightOperation>>,
    /// True if the custom resource is an orphan: its operation has been missing in the index since
    /// this leader first saw the custom resource.
    is_orphan: bool,
    /// The time of the last change of the wanted operation.
    unchanged_since: Option<Instant>,
    stored: Option<Stored>,
    /// The time at which this leader last applied the operation. None if this leader has not
    /// applied the operation.
    pub written: Option<Instant>,
    /// The due time of the next write, in the past or in the future. None if no write is needed.
    pub due: Option<Instant>,
    /// The end of the back-off after a failure.
    not_before: Option<Instant>,
    /// The number of failures since the last successful write.
    pub failures: u32,
    /// True if the custom resource of a completed operation must not be created, because a user has
    /// probably deleted it.
    pub is_abandoned: bool,
    /// False from the start of a list of the custom resources until the list delivers this custom
    /// resource.
    pub is_listed: bool,
}

impl Row {
    /// Returns true if neither the index nor the cluster has this operation.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_none() && self.stored.is_none()
    }

    pub fn is_completed(&self) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_some_and(|it| it.status.phase == Phase::Completed)
    }

    /// Returns the state that the next write must replace. None if the custom resource does not
    /// exist.
    pub fn revision(&self) -> Option<&Revision> {
        self.stored.as_ref().map(|stored| &stored.revision)
    }

    /// Returns the operation of an orphan. None if this row is no orphan.
    pub fn orphan(&self) -> Option<&InFlightOperation> {
        let stored = self.stored.as_ref().filter(|_| self.is_orphan);
        stored.map(|stored| &*stored.operation)
    }

    /// Returns true if the custom resource contains the wanted operation.
    fn is_written(&self) -> bool {
        let both = self.stored.as_ref().zip(self.wanted.as_ref());
        both.is_some_and(|(stored, wanted)| is_same(&stored.operation, wanted))
    }

    /// Replaces the operation in the index.
    pub fn set_wanted(&mut self, operation: &Arc<InFlightOperation>, now: Instant) {
        if (self.wanted.as_ref()).is_some_and(|wanted| Arc::ptr_eq(wanted, operation)) {
            return;
        }
        let before = self.wanted.replace(operation.clone());
        if before.is_none_or(|before| !is_same(&before, operation)) {
            self.unchanged_since = Some(now);
        }
        // If both fields share one operation, later comparisons only compare addresses.
        if let Some(stored) = &mut self.stored
            && is_same(&stored.operation, operation)
        {
            stored.operation = operation.clone();
        }
        if std::mem::take(&mut self.is_orphan) {
            self.due = None;
            if let Some(stored) = &mut self.stored
                && contains(&stored.operation, operation)
            {
                stored.operation = operation.clone();
            }
        }
    }

    /// Plans the next write. Returns the time at which the write may start. Returns None if no
    /// write is needed. `keep` is true if the row is an orphan that must not be deleted yet.
    pub fn plan(
        &mut self,
        settings: &PersistSettings,
        keep: bool,
        is_stopping: bool,
        now: Instant,
    ) -> Option<Instant> {
        if keep || !self.needs_write(settings.retain) {
            // No write is needed, so an earlier failed write is not repeated. For example, the
            // operation has ended, and completed operations are not retained.
            (self.due, self.failures) = (None, 0);
            return None;
        }
        let mut due = now;
        if let Some(wanted) = &self.wanted
            && !self.is_completed()
            && !is_stopping
        {
            // The time of the last write also counts if the custom resource is missing. So if
            // another controller always deletes the custom resource, this leader creates it only
            // once in each resync period.
            due = self.written.map_or(now, |at| at + settings.resync);
            if self.stored.is_some() && wanted.status.state == State::Settling {
                let since = self.unchanged_since.unwrap_or(now);
                due = due.max(since + settings.settling);
            }
        }
        // If an operation changes while its write is due but has not started, the write keeps its
        // due time. So frequent changes do not delay the write.
        let due = self.due.filter(|since| *since <= now).unwrap_or(due);
        self.due = Some(due);
        let not_before = self.not_before.filter(|_| !is_stopping);
        let orphaned = self.is_orphan.then_some(due + ORPHAN_DELAY);
        Some(due).max(not_before).max(orphaned)
    }

    /// Returns true if the custom resource differs from the wanted state, and a write must follow.
    fn needs_write(&self, retain: bool) -> bool {
        if self.wanted.is_none() {
            return self.stored.is_some();
        }
        // If completed operations are not retained, the tracker soon removes this operation from
        // the index, and the custom resource is then deleted. So no write of the end is needed.
        let is_deleted_by_user = self.stored.is_none() && self.is_abandoned;
        let is_left = self.is_completed() && (!retain || is_deleted_by_user);
        !is_left && !self.is_written()
    }

    /// Records the result of a write that applies `written`. If `written` is None, the write
    /// deletes the custom resource. `most` is the longest back-off after a failure.
    pub fn record_result(
        &mut self,
        written: Option<&Arc<InFlightOperation>>,
        result: Result<Option<Revision>, StoreFailure>,
        most: Duration,
        now: Instant,
    ) {
        let Ok(revision) = result else {
            self.not_before = Some(now + delay(self.failures, most));
            self.failures = self.failures.saturating_add(1);
            return;
        };
        (self.failures, self.due, self.not_before) = (0, None, None);
        self.is_orphan = false;
        // A list that began before this write may lack the custom resource. The end of the list
        // must not count the custom resource as deleted.
        self.is_listed = true;
        let newer = self.stored.take().filter(|stored| {
            // If the watch has already delivered a newer state than the answer, the newer state
            // stays.
            (revision.as_ref()).is_some_and(|revision| stored.revision.is_newer_than(revision))
        });
        self.written = written.map(|_| now);
        self.stored = newer.or_else(|| {
            Some(Stored {
                revision: revision?,
                operation: written?.clone(),
            })
        });
    }

    /// Records a state of the custom resource that the watch delivers. `operation` is None if
    /// `from_cr` does not accept the custom resource, for example because another client has
    /// created it. Such a custom resource counts as missing.
    pub fn record_state(&mut self, revision: Revision, operation: Option<InFlightOperation>) {
        self.is_listed = true;
        let before = self.stored.as_ref();
        if before.is_some_and(|before| !revision.is_newer_than(&before.revision)) {
            return;
        }
        if before.is_none() {
            // Before this state was known, a write may have seemed due. `plan` computes the due
            // time again.
            self.due = None;
        }
        self.is_orphan = self.wanted.is_none() && (before.is_none() || self.is_orphan);
        self.stored = operation.map(|operation| {
            let wanted = self.wanted.as_ref();
            let wanted = wanted.filter(|wanted| contains(&operation, wanted));
            Stored {
                revision,
                operation: wanted.cloned().unwrap_or_else(|| Arc::new(operation)),
            }
        });
    }

    /// Records that the custom resource does not exist any more.
    pub fn record_absence(&mut self) {
        // A user or the garbage collector has deleted the custom resource of a completed operation,
        // so it is not created again.
        self.is_abandoned |= self.is_completed() && self.is_written();
        self.stored = None;
        self.is_orphan = false;
    }
}

/// Returns true if both operations have the same content and the same labels. Then a custom
/// resource that contains one operation also contains the other.
fn is_same(one: &Arc<InFlightOperation>, other: &Arc<InFlightOperation>) -> bool {
    Arc::ptr_eq(one, other)
        || one.metadata.labels == other.metadata.labels && has_same_content(one, other)
}

/// Returns true if the stored operation has the content and all labels of `wanted`. Further labels
/// come from other clients, and do not matter.
fn contains(stored: &InFlightOperation, wanted: &InFlightOperation) -> bool {
    let mut labels = wanted.metadata.labels.iter();
    labels.all(|(key, value)| stored.metadata.labels.get(key) == Some(value))
        && has_same_content(stored, wanted)
}
