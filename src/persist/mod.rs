//! The optional persistence mode: the leader (the replica that detects operations) writes each
//! operation as a custom resource.
//!
//! The custom resources keep the history of completed operations. If all replicas restart, the new
//! leader restores the operations from the custom resources. A typical operation needs two writes:
//! one at its start and one at its end.
//!
//! ```text
//! index ──list──▶ table (one row per operation) ──writes──▶ client ──▶ kube-apiserver
//!                   ▲                                         │
//!                   └──── results of writes, and a watch ─────┘
//! ```
//!
//! [`Persist`] works in rounds of at least one second. In each round, it passes the operations of
//! the index to the table, and sends the writes that are due, at most 50. So at most 50 writes are
//! sent each second. If an operation changes several times between two rounds, only the newest
//! state is written. If a write fails for a reason that concerns all objects, for example because
//! the CRD is missing, the round sends no further writes.
//!
//! Requests of API clients never wait for persistence. The table has one row for each operation,
//! and shares the operation with the index. Only if the custom resource differs from the operation,
//! the row also holds the stored operation. So if operations change while the kube-apiserver is
//! unavailable, the table takes more memory.

mod client;
mod condition;
mod conversion;
mod failure;
mod row;
mod table;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::fake_cluster;

pub use client::{ClusterStore, FIELD_MANAGER, Pending, Revision, Store};
pub use condition::{PersistVerdict, keep_condition};
pub use conversion::{from_cr, to_cr};
pub use failure::StoreFailure;
pub use row::PersistSettings;
pub use table::UnsyncedRuleSets;

use crate::index::{self, IndexEntry, IndexReader, ReadVersion, Rv};
use crate::telemetry::{Metrics, count};
use futures::{StreamExt as _, future, stream};
use ifo_api::Text;
use ifo_api::live::InFlightOperation;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use table::{Job, Table};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The largest number of writes that run at the same time. If each write takes 20 ms, 50 writes per
/// second are possible without concurrency. With four concurrent writes, this rate is possible even
/// if each write takes 80 ms.
const CONCURRENCY: usize = 4;

/// The longest time for which the task continues after the stop. This replica releases the Lease
/// only after the task has ended, so a longer time would delay the failover. The next leader sends
/// the remaining writes.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Writes operations as custom resources.
pub struct Persist {
    /// The operations in the index.
    pub reader: IndexReader,
    /// Sends the requests for custom resources.
    pub store: Arc<dyn Store>,
    /// The settings that decide which operations are written, and when.
    pub settings: PersistSettings,
    /// The metrics of the server.
    pub metrics: Arc<Metrics>,
    /// The names of the rule sets whose operations can be missing in the index.
    ///
    /// The value is None until each feed (the watch of one target) has listed its target or failed
    /// to list it. Then the value contains the rule sets whose targets are not completely known,
    /// because the list failed or the watch is broken. If an operation of any other rule set is
    /// missing in the index, the operation has ended. So the task deletes its custom resource.
    pub unsynced_rule_sets: watch::Receiver<Option<Arc<UnsyncedRuleSets>>>,
    /// True if this leader has restored the operations of all custom resources that existed when
    /// its term began. Invalid custom resources and those of deleted namespaces are not restored.
    /// While this value is false, a completed operation can be missing in the index because it is
    /// not restored yet. So the task does not delete the custom resource of a completed operation
    /// that this leader has not seen in the index.
    pub is_restored: watch::Receiver<bool>,
    /// Stops the task.
    pub stop: CancellationToken,
    /// The channel on which the task publishes its verdict: operations are written, or requests
    /// fail. None until the custom resources have been listed, or requests have failed for some
    /// seconds.
    pub verdict: watch::Sender<Option<PersistVerdict>>,
}

impl Persist {
    /// Writes operations until the task is stopped. Then writes the remaining changes, for at most
    /// `STOP_LIMIT`.
    pub async fn run(self) {
        let stopped = async {
            self.stop.cancelled().await;
            tokio::time::sleep(STOP_LIMIT).await;
        };
        tokio::select! {
            () = self.run_rounds() => {}
            () = stopped => {}
        }
        // This task sends no more writes, so the metrics must show no backlog.
        self.metrics.persistence_backlog(0, Duration::ZERO);
    }

    /// Waits until each target has been listed, or its list has failed. Then runs one round after
    /// the other. Between two rounds, processes the events of the watch. Returns after the first
    /// round that begins after the stop.
    async fn run_rounds(&self) {
        let mut listed = self.unsynced_rule_sets.clone();
        let is_listed = listed.wait_for(Option::is_some);
        let Some(Ok(_)) = self.stop.run_until_cancelled(is_listed).await else {
            return self.stop.cancelled().await;
        };
        let mut table = Table::new(self.settings);
        let mut events = self.store.follow();
        let mut known = None;
        loop {
            let is_last = self.stop.is_cancelled();
            self.update(&mut table, &mut known);
            self.write(&mut table, is_last).await;
            let next = table.end_round(Instant::now());
            condition::publish(&self.verdict, table.verdict(Instant::now()));
            if is_last {
                return;
            }
            let mut next = pin!(tokio::time::sleep_until(next));
            loop {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => break,
                    () = &mut next => break,
                    Some(event) = events.next() => {
                        if let Some(failure) = table.process_event(&event, Instant::now()) {
                            let failures = &self.metrics.series.custom_resource_failures;
                            count(failures, "reason", failure.reason());
                        }
                    }
                }
            }
        }
    }

    /// Passes the operations in the index to the table. `known` is the version of the index at the
    /// last call. If the index has no newer version, does nothing.
    fn update(&self, table: &mut Table, known: &mut Option<Rv>) {
        if *known != Some(self.reader.head()) {
            let listed = self.reader.list(&index::OPERATIONS, ReadVersion::Latest);
            let (rv, entries) = listed.expect("a list of the newest version never fails");
            let operations = entries.iter().filter_map(|entry| named_operation(entry));
            table.update(&operations.collect(), known.is_none(), Instant::now());
            *known = Some(rv);
        }
    }

    /// Sends the writes that are due, until a failure concerns all objects.
    async fn write(&self, table: &mut Table, is_stopping: bool) {
        let now = Instant::now();
        let unsynced = self.unsynced_rule_sets.borrow().clone().unwrap_or_default();
        let jobs = table.due_jobs(&unsynced, *self.is_restored.borrow(), is_stopping, now);
        let (length, oldest) = table.backlog(now);
        self.metrics.persistence_backlog(length, oldest);
        let is_failing = AtomicBool::new(false);
        let mut answers = stream::iter(jobs)
            .take_while(|_| future::ready(!is_failing.load(Ordering::Relaxed)))
            .map(|job| async move {
                let result = run_job(&*self.store, &job).await;
                (job, result)
            })
            .buffer_unordered(CONCURRENCY);
        while let Some((job, result)) = answers.next().await {
            match &result {
                Ok(revision) => {
                    let is_applied = revision.is_some();
                    let verb = if is_applied { "apply" } else { "delete" };
                    count(&self.metrics.series.custom_resource_writes, "verb", verb);
                }
                Err(failure) => {
                    // `Invalid` concerns only this object. The message of the verdict does not name
                    // the object, so this log line names the object.
                    if matches!(failure, StoreFailure::Invalid(_)) {
                        tracing::warn!(name = %job.name, %failure, "an operation cannot be written");
                    }
                    let failures = &self.metrics.series.custom_resource_failures;
                    count(failures, "reason", failure.reason());
                    is_failing.fetch_or(!failure.is_of_one_object(), Ordering::Relaxed);
                }
            }
            table.process_result(&job, result, Instant::now());
        }
    }
}

/// Returns the operation of an index entry, and the name of its custom resource. Returns None if
/// the entry is not an operation, which never happens, because callers pass only operations.
fn named_operation(entry: &IndexEntry) -> Option<(Text, Arc<InFlightOperation>)> {
    let operation = entry.object().operation()?;
    let (name, uid) = (&operation.metadata.name, &operation.metadata.uid);
    Some((conversion::cr_name(name, uid).into(), operation.clone()))
}

/// Sends the request of one job. Returns the new revision, or None after a deletion.
async fn run_job(store: &dyn Store, job: &Job) -> Result<Option<Revision>, StoreFailure> {
    if let Some(operation) = &job.wanted {
        let mut cr = to_cr(operation);
        if let Some(revision) = job.revision.clone() {
            cr.metadata.uid = Some(revision.uid);
            cr.metadata.resource_version = Some(revision.resource_version);
        }
        return store.apply(&cr).await.map(Some);
    }
    if let Some(revision) = &job.revision {
        store.delete(&job.name, revision).await?;
    }
    Ok(None)
}
