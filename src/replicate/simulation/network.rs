//! The simulated network between replicas of the server, for tests of the replication. The network
//! delays messages and resets connections. A lost message is sent again, as with TCP. A test can
//! cut off a replica from the network.

use super::SimulatedProcess;
use crate::index::{Cursor, IndexChange, IndexReader, Key, ReadVersion, Rv, Scope, Write};
use crate::replicate::link::{
    LeaderChange, LeaderChanges, Link, LinkError, LinkFactory, ObjectPage, PeerAnswer,
};
use crate::replicate::{Leader, ReplicaStatus, Term};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The largest number of objects in a page of a list.
const PAGE_OBJECTS: usize = 3;

/// The time between two checks whether a waiting message can continue. A message waits while the
/// leader or the follower is cut off, or while the leader's process is paused.
const REACHABLE_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The additional delay of a lost message. TCP sends a lost message again.
const RETRANSMISSION: Duration = Duration::from_secs(5);

/// The failures of the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkFaults {
    /// The probability, from 0 to 1, that a message is lost and sent again 5 s later.
    pub lost: f64,
    /// The probability, from 0 to 1, that a message resets the connection.
    pub reset: f64,
    /// The longest delay of a message.
    pub delay: Duration,
}

/// A replica, as the other replicas and the clients see it.
#[derive(Clone)]
pub struct Peer {
    pub process: SimulatedProcess,
    pub replica_status: ReplicaStatus,
    pub reader: IndexReader,
    /// True if the replica is cut off from the other replicas. While this is true, requests and
    /// changes between this replica and the other replicas wait.
    pub is_cut: Arc<AtomicBool>,
    /// True if the replica answers requests of clients. The value becomes true when the replica has
    /// copied the leader's index, or when the replica leads and has listed all subjects (the
    /// objects that operations are about).
    pub is_ready: Arc<AtomicBool>,
}

/// The simulated network. Clones share its state.
#[derive(Clone)]
pub struct Network(Arc<Mutex<NetworkState>>);

struct NetworkState {
    peers: BTreeMap<String, Peer>,
    faults: NetworkFaults,
}

impl Network {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(NetworkState {
            peers: BTreeMap::new(),
            faults: NetworkFaults::default(),
        })))
    }

    pub fn set_faults(&self, faults: NetworkFaults) {
        self.lock().faults = faults;
    }

    pub fn add(&self, address: String, peer: Peer) {
        self.lock().peers.insert(address, peer);
    }

    pub fn remove(&self, address: &str) {
        self.lock().peers.remove(address);
    }

    /// Returns the replicas that answer requests of clients now.
    pub fn ready(&self) -> Vec<Peer> {
        let state = self.lock();
        let answers = |peer: &&Peer| peer.is_ready.load(Relaxed) && !peer.process.is_paused();
        state.peers.values().filter(answers).cloned().collect()
    }

    /// Returns the factory that creates the links (connections) from one replica to leaders. The
    /// replica is cut off while `is_cut` is true.
    ///
    /// Each replica has its own generator of random numbers. Tokio can run the tasks of several
    /// replicas in any order. So if the replicas shared one generator, a test could not repeat a
    /// run.
    pub fn links(&self, is_cut: Arc<AtomicBool>, random: fastrand::Rng) -> SimulatedLinks {
        SimulatedLinks {
            network: self.clone(),
            is_cut,
            random: Arc::new(Mutex::new(random)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().expect("no lock holder panics")
    }
}

/// Creates the links of one replica to leaders.
#[derive(Clone)]
pub struct SimulatedLinks {
    network: Network,
    is_cut: Arc<AtomicBool>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl SimulatedLinks {
    /// Delays one message. Returns an error if the connection is reset.
    async fn transmit(&self) -> Result<(), LinkError> {
        let (time, is_lost, is_reset) = {
            let NetworkFaults { lost, reset, delay } = self.network.lock().faults;
            let mut random = self.random.lock().expect("no lock holder panics");
            let longest =
                200 + u64::try_from(delay.as_micros()).expect("the delay fits into 64 bits");
            let time = Duration::from_micros(random.u64(100..=longest));
            let (first, second) = (random.f64(), random.f64());
            (time, first < lost, second < reset)
        };
        sleep(time).await;
        if is_lost {
            sleep(RETRANSMISSION).await;
        }
        if is_reset {
            return Err(LinkError::Failed("the connection is reset".to_owned()));
        }
        Ok(())
    }
}

impl LinkFactory for SimulatedLinks {
    fn connect<'a>(
        &'a self,
        leader: &'a Leader,
    ) -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>> {
        let link: Box<dyn Link> = Box::new(SimulatedLink {
            links: self.clone(),
            leader: leader.clone(),
        });
        std::future::ready(Ok(link)).boxed()
    }
}

#[derive(Clone)]
struct SimulatedLink {
    links: SimulatedLinks,
    leader: Leader,
}

impl SimulatedLink {
    /// Sends a request to the leader, and returns the leader. Waits while the leader is paused or
    /// cut off.
    async fn send_request(&self) -> Result<Peer, LinkError> {
        self.links.transmit().await?;
        let peer = self
            .links
            .network
            .lock()
            .peers
            .get(&self.leader.address)
            .cloned();
        let peer =
            peer.ok_or_else(|| LinkError::Failed("no replica has this address".to_owned()))?;
        self.wait_until_reachable(&peer).await?;
        Ok(peer)
    }

    /// Waits until a message can reach `peer`. Returns an error if the process of `peer` has ended.
    async fn wait_until_reachable(&self, peer: &Peer) -> Result<(), LinkError> {
        // TCP repeats a message to an unreachable replica until the message arrives. So the message
        // is only delayed.
        while self.links.is_cut.load(Relaxed)
            || peer.is_cut.load(Relaxed)
            || peer.process.is_paused()
        {
            sleep(REACHABLE_CHECK_INTERVAL).await;
        }
        if peer.process.is_killed() {
            return Err(LinkError::Failed("the process has ended".to_owned()));
        }
        Ok(())
    }

    /// Returns a token that is cancelled when `peer` stops serving the changes of the leadership
    /// term `term`. Returns an error if `peer` does not serve these changes.
    fn check_term(peer: &Peer, term: &Term) -> Result<CancellationToken, LinkError> {
        peer.replica_status
            .end_of_streams(term)
            .ok_or(LinkError::AnotherTerm)
    }
}

impl Link for SimulatedLink {
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>> {
        async {
            let peer = self.send_request().await?;
            let term = &self.leader.term;
            let answer = peer.process.within(|| peer.replica_status.answer(term));
            self.links.transmit().await?;
            answer.ok_or(LinkError::AnotherTerm)
        }
        .boxed()
    }

    fn page<'a>(
        &'a self,
        at: Rv,
        token: Option<&'a str>,
    ) -> BoxFuture<'a, Result<ObjectPage, LinkError>> {
        async move {
            let peer = self.send_request().await?;
            Self::check_term(&peer, &self.leader.term)?;
            let page = page(&peer.reader, at, token).ok_or(LinkError::Gone);
            self.links.transmit().await?;
            page
        }
        .boxed()
    }

    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<LeaderChanges, LinkError>> {
        async move {
            let peer = self.send_request().await?;
            let ended = Self::check_term(&peer, &self.leader.term)?;
            let cursor = peer.reader.follow(after, Scope::Everything);
            self.links.transmit().await?;
            let watch = ChangeStream {
                cursor: cursor.map_err(|_| LinkError::Gone)?,
                ended,
                peer,
                link: self.clone(),
                events: VecDeque::from([(after, None)]),
            };
            let events = stream::unfold(Some(watch), |watch| async {
                let mut watch = watch?;
                match watch.next().await {
                    Ok(event) => event.map(|event| (Ok(event), Some(watch))),
                    Err(error) => Some((Err(error), None)),
                }
            });
            Ok(events.boxed())
        }
        .boxed()
    }
}

/// The stream of a leader's changes to one follower.
struct ChangeStream {
    cursor: Cursor,
    ended: CancellationToken,
    peer: Peer,
    link: SimulatedLink,
    events: VecDeque<LeaderChange>,
}

impl ChangeStream {
    async fn next(&mut self) -> Result<Option<LeaderChange>, LinkError> {
        while self.events.is_empty() {
            let changes = tokio::select! {
                biased;
                () = self.ended.cancelled() => return Ok(None),
                changes = self.cursor.next() => changes.map_err(|_| LinkError::Gone)?,
            };
            self.events.extend(changes.iter().map(event));
            self.link.wait_until_reachable(&self.peer).await?;
            self.link.links.transmit().await?;
        }
        Ok(self.events.pop_front())
    }
}

fn event(change: &IndexChange) -> LeaderChange {
    let write = change.key().cloned().map(|key| match &change.after {
        None => Write::Delete { key },
        Some(entry) => Write::Put {
            key,
            object: entry.object().clone(),
        },
    });
    (change.rv, write)
}

/// Returns a page of the list. Returns None if the requested resourceVersion is no longer
/// available.
fn page(reader: &IndexReader, at: Rv, token: Option<&str>) -> Option<ObjectPage> {
    let after = token.and_then(|token| token.rsplit_once(' '));
    let after = after.map(|(namespace, name)| Key::new(namespace, name));
    let (_, entries) = reader
        .list(&Scope::Everything, ReadVersion::Exact(at))
        .ok()?;
    let mut rest = entries
        .iter()
        .filter(|entry| after.as_ref() < Some(entry.key()));
    let objects: Vec<_> = rest
        .by_ref()
        .take(PAGE_OBJECTS)
        .map(|entry| (entry.key().clone(), entry.rv(), entry.object().clone()))
        .collect();
    let last = rest.next().and(objects.last());
    let next = last.map(|(key, ..)| format!("{} {}", key.namespace, key.name));
    Some(ObjectPage { objects, next })
}
