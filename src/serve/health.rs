//! Whether this replica is ready. Enters: what the pipeline, the election and the shutdown
//! report. Leaves: the answers to the checks of `/readyz`.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is anything to serve yet, or still.
#[derive(Debug, Default)]
pub struct Health {
    synced: AtomicBool,
    draining: AtomicBool,
    was_ready: AtomicBool,
    has_joined: AtomicBool,
    impaired: AtomicBool,
}

impl Health {
    /// Nothing synced, not draining.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on data requests are answered, and `informer-sync` passes.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Whether data requests are answered.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// This replica has joined the others: it has had all that the leader has, or there was
    /// no leader. From now on the check `replica` passes unless the replica is impaired.
    pub fn set_has_joined(&self) {
        self.has_joined.store(true, Ordering::Release);
    }

    /// Whether this replica does not reach the leader or the kube-apiserver, and another
    /// replica serves clients better.
    pub fn set_impaired(&self, impaired: bool) {
        self.impaired.store(impaired, Ordering::Release);
    }

    /// Whether clients are served well by this replica.
    pub fn is_among_replicas(&self) -> bool {
        self.has_joined.load(Ordering::Acquire) && !self.impaired.load(Ordering::Acquire)
    }

    /// From now on `/readyz` fails, so that no new requests are sent here.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// A readiness probe has succeeded.
    pub(super) fn set_was_ready(&self) {
        self.was_ready.store(true, Ordering::Release);
    }

    /// Whether a readiness probe has succeeded since the start.
    pub fn was_ready(&self) -> bool {
        self.was_ready.load(Ordering::Acquire)
    }

    /// Whether the server is about to stop.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
