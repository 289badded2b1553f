//! Waits until the next turn of the leader election. In each turn, this replica reads or writes the
//! Lease. The wait ends after a pause, or earlier if an event occurs, such as a request to release
//! the Lease.

use super::super::LeaseStore;
use super::{Election, WAKE_INTERVAL};
use crate::index::Rv;
use std::future::pending;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

/// Time between two checks of this replica's index (its copy of the served objects). Each check
/// tests if the index has reached the final version: the last resourceVersion of the leader that
/// released the Lease.
const HEAD_INTERVAL: Duration = Duration::from_millis(20);

/// The event that ended the wait.
pub(super) enum ElectionEvent {
    /// The next turn is due.
    Timer,
    /// This replica must read the Lease soon. For example, the stream of changes from the leader
    /// has ended, so the Lease will probably change. A leader does not get this event.
    Woken,
    /// This replica must release the Lease. The value is the last resourceVersion that this replica
    /// issued.
    Release(Rv),
}

impl<S: LeaseStore> Election<S> {
    /// Waits until the next turn of the election is due, at most for `pause`. Returns the event
    /// that ended the wait.
    pub(super) async fn wait(
        &self,
        pause: Duration,
        release: &mut Option<oneshot::Receiver<Rv>>,
    ) -> ElectionEvent {
        let woken = async {
            if self.leading.is_some() {
                pending::<()>().await;
            }
            sleep(WAKE_INTERVAL).await;
            let mut in_sync = self.inputs.in_sync.clone();
            tokio::select! {
                biased;
                () = self.inputs.wake.notified() => {}
                () = changed(&mut in_sync) => {}
            }
        };
        tokio::select! {
            biased;
            version = release_requested(release) => ElectionEvent::Release(version),
            () = self.final_version_reached() => ElectionEvent::Timer,
            () = woken => ElectionEvent::Woken,
            () = sleep(pause) => ElectionEvent::Timer,
        }
    }

    /// Waits until this replica's index reaches the final version of the last leader. Never
    /// completes in these cases:
    ///
    /// - No final version is known.
    /// - The index already has the final version.
    /// - This replica must release the Lease, or has released it.
    async fn final_version_reached(&self) {
        let seen = self
            .seen
            .as_ref()
            .filter(|_| self.final_version_at_stop.is_none());
        let final_version = seen.and_then(|seen| seen.record.final_version);
        match final_version {
            Some(version) if (self.inputs.head)() != version => {
                while (self.inputs.head)() != version {
                    sleep(HEAD_INTERVAL).await;
                }
            }
            _ => pending().await,
        }
    }
}

/// Waits for a message on `release`. Never completes if the sender was dropped.
async fn release_requested(release: &mut Option<oneshot::Receiver<Rv>>) -> Rv {
    if let Some(receiver) = release {
        let version = receiver.await;
        *release = None;
        if let Ok(version) = version {
            return version;
        }
    }
    pending().await
}

/// Waits for a change of the value. Never completes if the sender was dropped.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        pending::<()>().await;
    }
}
