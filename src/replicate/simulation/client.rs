//! A client that uses list and watch: it lists, watches from the version of the list, and lists
//! again after 410. It moves between replicas.

use super::Network;
use super::invariants::{Invariants, State};
use crate::index::{ListScope, ReadVersion, Rv};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time for which a server waits for a version that it does not have yet.
const FRESH_WAIT: Duration = Duration::from_secs(3);

/// Longest time for which a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state of a client.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<Option<State>>>);

impl Held {
    pub fn is(&self, state: &State) -> bool {
        self.0
            .lock()
            .expect("nothing panics that holds it")
            .as_ref()
            == Some(state)
    }

    fn set(&self, state: &State) {
        *self.0.lock().expect("nothing panics that holds it") = Some(state.clone());
    }
}

pub struct Client {
    pub name: String,
    pub network: Network,
    pub invariants: Invariants,
    pub random: fastrand::Rng,
    pub held: Held,
}

impl Client {
    /// Never ends.
    pub async fn run(mut self) {
        loop {
            let Some((mut rv, mut state)) = self.list().await else {
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            self.held.set(&state);
            while self.watch(&mut rv, &mut state).await {
                sleep(Duration::from_millis(self.random.u64(0..2_000))).await;
            }
        }
    }

    async fn list(&mut self) -> Option<(Rv, State)> {
        let peer = self.random.choice(self.network.ready())?;
        timeout(PATIENCE, peer.view.confirm()).await.ok()?;
        if peer.process.is_paused() || peer.process.is_killed() {
            return None;
        }
        let (rv, entries) = peer
            .reader
            .list(&ListScope::All, ReadVersion::Latest)
            .ok()?;
        let state = State::of(&entries);
        self.invariants.state(rv, &state, &self.name);
        Some((rv, state))
    }

    /// Watches for some time. Returns false if the client has to list again.
    async fn watch(&mut self, rv: &mut Rv, state: &mut State) -> bool {
        let Some(peer) = self.random.choice(self.network.ready()) else {
            return true;
        };
        if !peer.reader.reached(*rv, FRESH_WAIT).await {
            return false;
        }
        let Ok(mut cursor) = peer.reader.follow(*rv, ListScope::All) else {
            return false;
        };
        let until = Instant::now() + Duration::from_millis(self.random.u64(0..20_000));
        while let Ok(changes) = timeout_at(until, cursor.next()).await {
            let Ok(changes) = changes else { return false };
            for change in &changes {
                if !state.apply(change) {
                    let violation = format!("{}: {change:?} does not fit", self.name);
                    self.invariants.violation(violation);
                }
            }
            *rv = cursor.rv();
            self.invariants.state(*rv, state, &self.name);
            self.held.set(state);
            if peer.process.is_killed() {
                break;
            }
        }
        true
    }
}
