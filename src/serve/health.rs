//! Readiness of this replica. Input: reports of the pipeline, the election and the shutdown.
//! Output: the results of the checks of `/readyz`.

use std::sync::atomic::{AtomicBool, Ordering};

/// The state that decides whether this replica is ready.
#[derive(Debug, Default)]
pub struct Health {
    synced: AtomicBool,
    draining: AtomicBool,
    was_ready: AtomicBool,
    has_joined: AtomicBool,
    impaired: AtomicBool,
}

impl Health {
    /// A replica that has synced nothing and is not stopping.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the index as synced: data requests are answered, and `informer-sync` passes.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Returns true if data requests are answered.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Marks the replica as joined: it has received all operations of the leader, or there was no
    /// leader. The check `replica` passes from now on, unless the replica is impaired.
    pub fn set_has_joined(&self) {
        self.has_joined.store(true, Ordering::Release);
    }

    /// Sets whether the replica is impaired: it does not reach the leader or the kube-apiserver,
    /// and another replica can serve clients better.
    pub fn set_impaired(&self, impaired: bool) {
        self.impaired.store(impaired, Ordering::Release);
    }

    /// Returns true if this replica can serve clients.
    pub fn is_among_replicas(&self) -> bool {
        self.has_joined.load(Ordering::Acquire) && !self.impaired.load(Ordering::Acquire)
    }

    /// Makes `/readyz` fail, so that clients go to other replicas.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Records that a readiness probe has succeeded.
    pub(super) fn set_was_ready(&self) {
        self.was_ready.store(true, Ordering::Release);
    }

    /// Returns true if a readiness probe has succeeded since the start.
    pub fn was_ready(&self) -> bool {
        self.was_ready.load(Ordering::Acquire)
    }

    /// Returns true if the server is stopping.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
