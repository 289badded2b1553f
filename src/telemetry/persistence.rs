//! Metrics of persistence mode. They have no series while it is off: nothing is written
//! then, and that is no trouble.

use super::Labels;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// See above.
#[derive(Default)]
pub struct PersistenceMetrics {
    writes: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    length: Family<Labels, Gauge>,
    oldest: Family<Labels, Gauge<f64, AtomicU64>>,
    oldest_pending: Mutex<Pending>,
}

/// The operation that has been waiting to be written for longest.
#[derive(Clone, Copy, Default)]
enum Pending {
    /// Persistence is off, as far as is known: there is nothing to show.
    #[default]
    Unknown,
    /// None waits.
    None,
    /// One has been waiting since then.
    Since(Instant),
}

impl std::fmt::Debug for PersistenceMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersistenceMetrics").finish_non_exhaustive()
    }
}

impl PersistenceMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "ifo_persistence_writes",
            "Custom resources written (apply) and deleted (delete)",
            self.writes.clone(),
        );
        registry.register(
            "ifo_persistence_failures",
            "Writes and lists of custom resources that failed",
            self.failures.clone(),
        );
        registry.register(
            "ifo_persistence_queue_length",
            "Operations that are to be written now",
            self.length.clone(),
        );
        registry.register(
            "ifo_persistence_oldest_pending_seconds",
            "How long the oldest of them has been waiting",
            self.oldest.clone(),
        );
    }

    /// A write succeeded: `apply` or `delete`.
    pub fn written(&self, verb: &'static str) {
        let labels = Labels(vec![("verb", verb.to_owned())]);
        self.writes.get_or_create(&labels).inc();
    }

    /// A write or a list failed, for one of the reasons that
    /// [`Failure`](crate::persist::Failure) has.
    pub fn failed(&self, reason: &'static str) {
        let labels = Labels(vec![("reason", reason.to_owned())]);
        self.failures.get_or_create(&labels).inc();
    }

    /// How many wait, and since when the oldest does.
    pub fn backlog(&self, length: usize, since: Option<Instant>) {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        self.length.get_or_create(&Labels(Vec::new())).set(length);
        let pending = since.map_or(Pending::None, Pending::Since);
        *self.pending() = pending;
    }

    /// Its age as of now: the queue may be waiting, too.
    pub(super) fn read(&self) {
        let age = match *self.pending() {
            Pending::Unknown => return,
            Pending::None => 0.0,
            Pending::Since(since) => since.elapsed().as_secs_f64(),
        };
        self.oldest.get_or_create(&Labels(Vec::new())).set(age);
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        let pending = self.oldest_pending.lock();
        pending.unwrap_or_else(PoisonError::into_inner)
    }
}
