//! The wait between two turns of the election.
//!
//! Input: the pause that the last turn requested. Output: the event that ended the wait.

use super::super::LeaseStore;
use super::{Election, WAKE_INTERVAL};
use crate::index::Rv;
use std::future::pending;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

/// Interval at which the mirrored version is compared with the final version.
const HEAD_INTERVAL: Duration = Duration::from_millis(20);

/// The event that ends a wait.
pub(super) enum ElectionEvent {
    Timer,
    Woken,
    Release(Rv),
}

impl<S: LeaseStore> Election<S> {
    /// Waits for the next turn.
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
            let (mut in_sync, mut may_begin) =
                (self.replica.in_sync.clone(), self.replica.may_begin.clone());
            tokio::select! {
                biased;
                () = self.replica.wake.notified() => {}
                () = changed(&mut in_sync) => {}
                () = changed(&mut may_begin) => {}
            }
        };
        tokio::select! {
            biased;
            version = released(release) => ElectionEvent::Release(version),
            () = self.reached() => ElectionEvent::Timer,
            () = woken => ElectionEvent::Woken,
            () = sleep(pause) => ElectionEvent::Timer,
        }
    }

    /// Waits until the mirror has reached the final version of the last leader.
    async fn reached(&self) {
        let seen = self.seen.as_ref().filter(|_| self.retired.is_none());
        let missing = seen.and_then(|seen| seen.record.final_version);
        match missing {
            Some(version) if (self.replica.head)() != version => {
                while (self.replica.head)() != version {
                    sleep(HEAD_INTERVAL).await;
                }
            }
            _ => pending().await,
        }
    }
}

/// Waits for a release. Never completes if the sender was dropped.
async fn released(release: &mut Option<oneshot::Receiver<Rv>>) -> Rv {
    if let Some(receiver) = release {
        let version = receiver.await;
        *release = None;
        if let Ok(version) = version {
            return version;
        }
    }
    pending().await
}

/// Waits for a change. Never completes if the sender was dropped.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        pending::<()>().await;
    }
}
