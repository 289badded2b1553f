//! A simulated client that keeps a local copy of the operations, like an informer. The client
//! lists, watches from the resourceVersion of the list, and lists again if the watch fails, for
//! example with a 410. Each request goes to a random ready replica.

use super::Network;
use super::invariants::{Invariants, ObjectHashes};
use crate::index::{self, ReadVersion, Rv};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The time for which a watch waits until the replica has the resourceVersion of the client. After
/// this time, the client lists again.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The time for which a list waits until the replica has the newest operations of the leader. After
/// this time, the list fails, and the client lists again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's copy of the operations. Clones share the copy.
#[derive(Clone, Default)]
pub struct ClientCopy(Arc<Mutex<Option<ObjectHashes>>>);

impl ClientCopy {
    pub fn equals(&self, state: &ObjectHashes) -> bool {
        self.0.lock().expect("no lock holder panics").as_ref() == Some(state)
    }

    fn set(&self, state: &ObjectHashes) {
        *self.0.lock().expect("no lock holder panics") = Some(state.clone());
    }
}

pub struct Client {
    pub name: String,
    pub network: Network,
    pub invariants: Invariants,
    pub random: fastrand::Rng,
    pub copy: ClientCopy,
}

impl Client {
    /// Lists and watches repeatedly. The future never completes.
    pub async fn run(mut self) {
        loop {
            let Some((mut rv, mut state)) = self.list().await else {
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            self.copy.set(&state);
            while self.watch(&mut rv, &mut state).await {
                sleep(Duration::from_millis(self.random.u64(0..2_000))).await;
            }
        }
    }

    async fn list(&mut self) -> Option<(Rv, ObjectHashes)> {
        let peer = self.random.choice(self.network.ready())?;
        timeout(ANSWER_TIMEOUT, peer.replica_status.wait_until_current())
            .await
            .ok()?;
        if peer.process.is_paused() || peer.process.is_killed() {
            return None;
        }
        let (rv, entries) = peer
            .reader
            .list(&index::OPERATIONS, ReadVersion::Latest)
            .ok()?;
        let state = ObjectHashes::of(&entries);
        self.invariants.record_state(rv, &state, &self.name);
        Some((rv, state))
    }

    /// Watches for a random time, and applies the changes to `rv` and `state`. Returns false if the
    /// client has to list again.
    async fn watch(&mut self, rv: &mut Rv, state: &mut ObjectHashes) -> bool {
        let Some(peer) = self.random.choice(self.network.ready()) else {
            return true;
        };
        if !peer.reader.wait_until_reached(*rv, CATCH_UP_TIMEOUT).await {
            return false;
        }
        let Ok(mut cursor) = peer.reader.follow(*rv, index::OPERATIONS) else {
            return false;
        };
        let until = Instant::now() + Duration::from_millis(self.random.u64(0..20_000));
        while let Ok(changes) = timeout_at(until, cursor.next()).await {
            let Ok(changes) = changes else { return false };
            for change in &changes {
                if !state.apply(change) {
                    let violation = format!(
                        "{}: {change:?} does not match the state before it",
                        self.name
                    );
                    self.invariants.violation(violation);
                }
            }
            *rv = cursor.rv();
            self.invariants.record_state(*rv, state, &self.name);
            self.copy.set(state);
            if peer.process.is_killed() {
                break;
            }
        }
        true
    }
}
