//! The readiness of this replica (one process of the server). Other modules report these events:
//!
//! - The store is complete.
//! - The replica has joined the other replicas.
//! - The replica is impaired: it does not reach the leader or the kube-apiserver.
//! - The server is stopping.
//!
//! Output: the results of the checks of `/readyz`.

use std::sync::atomic::{AtomicBool, Ordering};

/// The state that decides whether this replica is ready.
#[derive(Debug, Default)]
pub struct Readiness {
    synced: AtomicBool,
    draining: AtomicBool,
    was_ready: AtomicBool,
    has_joined: AtomicBool,
    impaired: AtomicBool,
}

impl Readiness {
    /// Creates the state of a replica that has just started.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that the store is complete, or that the time limit for filling the store is over.
    /// Before this call, the server answers get, list and watch with a 429, and the check
    /// `informer-sync` fails.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Returns true if [`Readiness::set_synced`] was called.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Records that the replica has joined the other replicas. A follower (a replica that copies
    /// the leader's objects) joins when it has received all objects of the leader. A replica also
    /// counts as joined if it has no leader from which it copies objects. Examples are the leader
    /// itself, and every replica while the `APIService` is not registered. From now on, the check
    /// `replica` passes while the replica is not impaired.
    pub fn set_has_joined(&self) {
        self.has_joined.store(true, Ordering::Release);
    }

    /// Records whether the replica is impaired. The check `replica` fails while the replica is
    /// impaired. A replica is impaired in two cases:
    ///
    /// - It does not reach the leader, although the Lease of the leader has not expired.
    /// - It does not reach the kube-apiserver, although the leader reaches the kube-apiserver.
    pub fn set_impaired(&self, impaired: bool) {
        self.impaired.store(impaired, Ordering::Release);
    }

    /// Returns true if the check `replica` passes: the replica has joined and is not impaired.
    pub fn is_among_replicas(&self) -> bool {
        self.has_joined.load(Ordering::Acquire) && !self.impaired.load(Ordering::Acquire)
    }

    /// Records that the server is stopping. From now on, `/readyz` fails, so that clients use other
    /// replicas.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Records that a readiness probe has succeeded.
    pub fn set_was_ready(&self) {
        self.was_ready.store(true, Ordering::Release);
    }

    /// Returns true if a readiness probe has succeeded since the server started.
    pub fn was_ready(&self) -> bool {
        self.was_ready.load(Ordering::Acquire)
    }

    /// Returns true if the server is stopping.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
