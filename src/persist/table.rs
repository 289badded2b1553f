//! The table of custom resources. Decides which custom resource is written next, and when.
//!
//! Each row stands for one name: an operation in the index (the operations in memory), its custom
//! resource, or both. A row contains the wanted state and the stored state of the custom resource.
//! If these states differ, the table plans a write. If an operation changes several times before
//! its write, only its newest state is written.
//!
//! The stored state comes from the answers to the writes, and from a watch of the custom resources.
//! So the table also notices changes by other clients and by late writes of previous leaders.
//!
//! If a write fails, its row backs off: the time until the next attempt grows with each failure, up
//! to a limit. The writes are sent in rounds. A failure that concerns all objects ends the round, for
//! example a missing CRD. While the watch fails, nothing is written.
//!
//! An orphan is a custom resource whose operation is missing in the index. The operation was already
//! missing when this leader first saw the custom resource. So if this leader itself has removed the
//! operation from the index, the custom resource is no orphan. [`Table::due_jobs`] decides which
//! orphans stay.

use super::client::Revision;
use super::condition::PersistVerdict;
use super::conversion;
use super::failure::StoreFailure;
use super::row::{PersistSettings, Row};
use crate::clock;
use ifo_api::Text;
use ifo_api::live::{InFlightOperation, Phase};
use ifo_api::persisted;
use ifo_observe::Raw;
use jiff::Timestamp;
use kube::core::PartialObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time from the end of a round to the start of the next.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// The largest number of writes in a round, so at most 50 each second. If 1,000 operations start
/// together, their writes take 20 s or longer. This is a small load for a kube-apiserver.
pub(super) const WRITES_PER_ROUND: usize = 50;

/// The longest pause that a kube-apiserver can request.
const MAX_PAUSE: Duration = Duration::from_mins(10);

/// If an operation ended more than this time before the table was created, the leader does not
/// create a missing custom resource for the operation. A user has probably deleted this custom
/// resource.
///
/// If the operation ended later, the previous leader may not have written its custom resource, for
/// example because the kube-apiserver was restarting. A restart usually takes less than this time.
const OLD_AGE: Duration = Duration::from_mins(10);

/// The time for which requests must fail before the verdict becomes [`PersistVerdict::failing`].
/// After its start, a kube-apiserver refuses all requests for some seconds, until it has read the
/// RBAC objects. A missing CRD is reported at once.
const FAILING_PERIOD: Duration = Duration::from_secs(10);

/// The names of the rule sets whose target (the resource that the rule set names) is unsynced. A
/// target is unsynced if it has not been listed yet, or if its watch is interrupted.
pub type UnsyncedRuleSets = BTreeSet<String>;

/// The request that brings one custom resource to its wanted state.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The name of the custom resource.
    pub name: Text,
    /// The operation that the custom resource must contain. None if the custom resource must not
    /// exist.
    pub wanted: Option<Arc<InFlightOperation>>,
    /// The state that the request replaces. None if the custom resource does not exist.
    pub revision: Option<Revision>,
}

/// The rows of all operations and custom resources.
#[derive(Debug)]
pub(super) struct Table {
    settings: PersistSettings,
    rows: BTreeMap<Text, Row>,
    created: Timestamp,
    /// True while the watch of the custom resources works, and has listed all custom resources.
    is_synced: bool,
    /// The longest pause that a failure in this round requires.
    pause: Duration,
    /// None while the watch and all writes succeed. Otherwise, the time at which the failures began,
    /// and the latest failure.
    failing: Option<(Instant, StoreFailure)>,
}

impl Table {
    pub fn new(settings: PersistSettings) -> Self {
        Self {
            settings,
            rows: BTreeMap::new(),
            created: clock::now(),
            is_synced: false,
            pause: Duration::ZERO,
            failing: None,
        }
    }

    /// Replaces the wanted operations by `all`, the operations in the index. `is_first` is true at
    /// the first call.
    pub fn update(
        &mut self,
        all: &BTreeMap<Text, Arc<InFlightOperation>>,
        is_first: bool,
        now: Instant,
    ) {
        let oldest = self.created.checked_sub(OLD_AGE).unwrap_or(Timestamp::MIN);
        for (name, row) in &mut self.rows {
            if !all.contains_key(name) {
                row.wanted = None;
            }
        }
        for (name, operation) in all {
            let row = self.rows.entry(name.clone()).or_default();
            if row.is_empty() {
                let completed = operation.status.completed.as_ref();
                // At later calls, a new row has an operation that this leader has itself detected.
                // So a missing custom resource only means that the operation is not written yet.
                row.is_abandoned = is_first && completed.is_some_and(|time| time.0 < oldest);
            }
            row.set_wanted(operation, now);
        }
    }

    /// Processes an event of the watch of the custom resources. Returns the failure if the watch is
    /// interrupted.
    pub fn process_event(&mut self, event: &Raw, now: Instant) -> Option<StoreFailure> {
        match event {
            Raw::Reset => self.rows.values_mut().for_each(|row| row.is_listed = false),
            Raw::Applied(json) => {
                if let Some((name, revision)) = identity(json) {
                    let cr: Option<persisted::InFlightOperation> =
                        serde_json::from_slice(json).ok();
                    let operation = cr.as_ref().and_then(conversion::from_cr);
                    let row = self.rows.entry(name).or_default();
                    row.record_state(revision, operation);
                }
            }
            Raw::Deleted(json) => {
                if let Some((name, deleted)) = identity(json)
                    && let Some(row) = self.rows.get_mut(&name)
                    && row.revision().is_some_and(|it| it.uid == deleted.uid)
                {
                    row.record_absence();
                }
            }
            Raw::Synced => {
                let unlisted = self.rows.values_mut().filter(|row| !row.is_listed);
                unlisted.for_each(Row::record_absence);
                self.is_synced = true;
            }
            Raw::Lost(reason) => {
                let failure = StoreFailure::of_gap(reason);
                self.is_synced = false;
                self.process_failure(&failure, now);
                return Some(failure);
            }
        }
        None
    }

    /// Returns the writes of this round, at most [`WRITES_PER_ROUND`], the longest waiting first.
    /// These are the writes that are due. If `is_stopping` is true, these are all planned writes,
    /// except the deletions of orphans whose delay (`ORPHAN_DELAY`) has not ended. An orphan stays
    /// in these cases:
    ///
    /// - A rule set in `unsynced` can still detect the operation in flight.
    /// - The operation has completed, and `is_restored` is false. Then the leader has not restored
    ///   all custom resources, and the orphan can be one that was not restored.
    pub fn due_jobs(
        &mut self,
        unsynced: &UnsyncedRuleSets,
        is_restored: bool,
        is_stopping: bool,
        now: Instant,
    ) -> Vec<Job> {
        let stays = |orphan: &InFlightOperation| {
            let status = &orphan.status;
            let mut rule_sets = status.detected_by.iter().chain([&orphan.spec.rule_set]);
            match status.phase {
                Phase::Completed => !is_restored,
                Phase::Active | Phase::Unknown(_) => {
                    rule_sets.any(|name| unsynced.contains(&**name))
                }
            }
        };
        let mut due = Vec::new();
        let settings = &self.settings;
        self.rows.retain(|name, row| {
            let start = row.plan(settings, row.orphan().is_some_and(stays), is_stopping, now);
            due.extend(
                start
                    .filter(|start| *start <= now)
                    .map(|start| (start, name.clone())),
            );
            !row.is_empty()
        });
        if !self.is_synced {
            return Vec::new();
        }
        due.sort_unstable();
        due.truncate(WRITES_PER_ROUND);
        let job = |(_, name): (Instant, Text)| Job {
            wanted: self.rows[&name].wanted.clone(),
            revision: self.rows[&name].revision().cloned(),
            name,
        };
        due.into_iter().map(job).collect()
    }

    /// Processes the result of a job. The result is the new revision of the custom resource, or
    /// None if the job has deleted the custom resource.
    pub fn process_result(
        &mut self,
        job: &Job,
        result: Result<Option<Revision>, StoreFailure>,
        now: Instant,
    ) {
        if let Err(failure) = &result {
            if let StoreFailure::Throttled(after) = failure {
                self.pause = self.pause.max(*after).min(MAX_PAUSE);
            }
            self.process_failure(failure, now);
        }
        let most = self.settings.requeue;
        if let Some(row) = self.rows.get_mut(&job.name) {
            row.record_result(job.wanted.as_ref(), result, most, now);
        }
    }

    fn process_failure(&mut self, failure: &StoreFailure, now: Instant) {
        if *failure == StoreFailure::CrdMissing {
            // The custom resources were deleted together with the CRD, and not one by one by a
            // user. So all are created again.
            for row in self.rows.values_mut() {
                (row.is_abandoned, row.written) = (false, None);
            }
        }
        if *failure != StoreFailure::Conflict {
            let since = self.failing.take().map_or(now, |(since, _)| since);
            self.failing = Some((since, failure.clone()));
        }
    }

    /// Ends the round. Returns the time at which the next round starts.
    pub fn end_round(&mut self, now: Instant) -> Instant {
        if self.is_synced && self.rows.values().all(|row| row.failures == 0) {
            self.failing = None;
        }
        now + std::mem::take(&mut self.pause).max(ROUND_INTERVAL)
    }

    /// Returns the verdict of the recent requests. Returns None if the custom resources are not
    /// listed, or if requests have failed only for a short time.
    pub fn verdict(&self, now: Instant) -> Option<PersistVerdict> {
        match &self.failing {
            Some((since, failure))
                if *failure == StoreFailure::CrdMissing || now - *since >= FAILING_PERIOD =>
            {
                Some(PersistVerdict::failing(failure))
            }
            None if self.is_synced => Some(PersistVerdict::working()),
            _ => None,
        }
    }

    /// Returns the number of custom resources whose write is due, and the time for which the oldest
    /// of these writes has been waiting.
    pub fn backlog(&self, now: Instant) -> (usize, Duration) {
        let waiting = self.rows.values().filter_map(|row| row.due);
        let waiting = waiting.filter_map(|due| now.checked_duration_since(due));
        (waiting.clone().count(), waiting.max().unwrap_or_default())
    }
}

/// Returns the name and the revision of an object. Returns None if its name, UID or resourceVersion
/// is missing. A kube-apiserver always sends them.
fn identity(json: &[u8]) -> Option<(Text, Revision)> {
    let object: PartialObjectMeta = serde_json::from_slice(json).ok()?;
    let revision = Revision::of(&object.metadata)?;
    Some((object.metadata.name?.into(), revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::testing;
    use serde_json::json;

    #[test]
    fn while_the_watch_fails_operations_wait_and_ended_ones_leave_no_row() {
        let mut table = Table::new(PersistSettings {
            resync: Duration::from_secs(30),
            settling: Duration::from_mins(1),
            requeue: Duration::from_mins(1),
            retain: true,
        });
        let object = testing::object(&json!({}));
        let operation = object.operation().unwrap().clone();
        let wanted = BTreeMap::from([("a".into(), operation)]);
        let now = Instant::now();
        for (wanted, waiting) in [(wanted, 1), (BTreeMap::new(), 0)] {
            table.update(&wanted, true, now);
            let due = table.due_jobs(&UnsyncedRuleSets::new(), true, false, now);
            assert!(due.is_empty());
            assert_eq!(table.backlog(now).0, waiting);
            assert_eq!(table.rows.len(), waiting);
        }
    }
}
