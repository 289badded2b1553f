//! The network between simulated replicas. It delays and loses messages, and can be interrupted.

use super::Process;
use crate::index::{Cursor, IndexChange, IndexReader, Key, ListScope, ReadVersion, Rv};
use crate::replicate::peer::{
    Events, LeaderEvent, Link, LinkError, LinkFactory, ObjectPage, PageStart, PeerAnswer,
};
use crate::replicate::{Leader, Term, View};
use crate::rules::IncompleteRuleSets;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Objects per page.
const PAGE: usize = 3;

/// Interval at which one side checks if the other one is still paused.
const LOOK: Duration = Duration::from_millis(20);

/// Time for a message that is lost several times and sent again.
const RETRANSMISSION: Duration = Duration::from_secs(5);

/// Probabilities of failures of messages between replicas, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkFaults {
    /// A message is lost, and sent again much later.
    pub lost: f64,
    /// A connection is reset.
    pub reset: f64,
    /// Longest delay in each direction.
    pub delay: Duration,
}

/// A replica as other replicas reach it.
#[derive(Clone)]
pub struct Peer {
    pub process: Process,
    pub view: View,
    pub reader: IndexReader,
    /// True if messages from and to this replica are lost.
    pub is_cut: Arc<AtomicBool>,
    /// True if it answers requests for data: it was in sync with a leader, or has read all targets
    /// as the leader.
    pub is_ready: Arc<AtomicBool>,
}

/// The network. Clones share it.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

struct State {
    peers: BTreeMap<String, Peer>,
    faults: NetworkFaults,
}

impl Network {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
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

    /// Returns the replicas that answer requests for data now.
    pub fn ready(&self) -> Vec<Peer> {
        let state = self.lock();
        let answers = |peer: &&Peer| peer.is_ready.load(Relaxed) && !peer.process.is_paused();
        state.peers.values().filter(answers).cloned().collect()
    }

    /// The links of a replica. `is_cut` interrupts its messages. The links have separate random
    /// choices, because the order in which tokio wakes several tasks is not repeatable.
    pub fn links(&self, is_cut: Arc<AtomicBool>, random: fastrand::Rng) -> SimulatedLinks {
        SimulatedLinks {
            network: self.clone(),
            is_cut,
            random: Arc::new(Mutex::new(random)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics that holds it")
    }
}

/// Creates the links of one replica.
#[derive(Clone)]
pub struct SimulatedLinks {
    network: Network,
    is_cut: Arc<AtomicBool>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl SimulatedLinks {
    /// Sends a message in one direction. An error if the connection is reset.
    async fn pass(&self) -> Result<(), LinkError> {
        let (time, is_lost, is_reset) = {
            let NetworkFaults { lost, reset, delay } = self.network.lock().faults;
            let mut random = self.random.lock().expect("nothing panics that holds it");
            let longest = 200 + u64::try_from(delay.as_micros()).expect("a short time");
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
    /// Sends a request. If the other replica is paused, it waits.
    async fn reach(&self) -> Result<Peer, LinkError> {
        self.links.pass().await?;
        let peer = self
            .links
            .network
            .lock()
            .peers
            .get(&self.leader.address)
            .cloned();
        let peer = peer.ok_or_else(|| LinkError::Failed("no replica is there".to_owned()))?;
        self.arrive(&peer).await?;
        Ok(peer)
    }

    /// Waits until a message has arrived.
    async fn arrive(&self, peer: &Peer) -> Result<(), LinkError> {
        // A lost message is sent again until it arrives.
        while self.links.is_cut.load(Relaxed)
            || peer.is_cut.load(Relaxed)
            || peer.process.is_paused()
        {
            sleep(LOOK).await;
        }
        if peer.process.is_killed() {
            return Err(LinkError::Failed("the process has ended".to_owned()));
        }
        Ok(())
    }

    /// Requests for another term than that of the other side are refused.
    fn served(peer: &Peer, term: &Term) -> Result<CancellationToken, LinkError> {
        peer.view
            .mirrored(term.as_str())
            .ok_or(LinkError::AnotherTerm)
    }
}

impl Link for SimulatedLink {
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>> {
        async {
            let peer = self.reach().await?;
            let term = self.leader.term.as_str();
            let answer = peer
                .process
                .within(|| peer.view.answer(term, IncompleteRuleSets::default()));
            self.links.pass().await?;
            answer.ok_or(LinkError::AnotherTerm)
        }
        .boxed()
    }

    fn page(&self, start: PageStart) -> BoxFuture<'_, Result<ObjectPage, LinkError>> {
        async move {
            let peer = self.reach().await?;
            Self::served(&peer, &self.leader.term)?;
            let page = page(&peer.reader, &start).ok_or(LinkError::Gone);
            self.links.pass().await?;
            page
        }
        .boxed()
    }

    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<Events, LinkError>> {
        async move {
            let peer = self.reach().await?;
            let ended = Self::served(&peer, &self.leader.term)?;
            let cursor = peer.reader.follow(after, ListScope::All);
            self.links.pass().await?;
            let watch = Watch {
                cursor: cursor.map_err(|_| LinkError::Gone)?,
                ended,
                peer,
                link: self.clone(),
                events: VecDeque::from([LeaderEvent::Bookmark(after)]),
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

/// A stream of changes.
struct Watch {
    cursor: Cursor,
    ended: CancellationToken,
    peer: Peer,
    link: SimulatedLink,
    events: VecDeque<LeaderEvent>,
}

impl Watch {
    async fn next(&mut self) -> Result<Option<LeaderEvent>, LinkError> {
        while self.events.is_empty() {
            let changes = tokio::select! {
                biased;
                () = self.ended.cancelled() => return Ok(None),
                changes = self.cursor.next() => changes.map_err(|_| LinkError::Gone)?,
            };
            self.events.extend(changes.iter().map(event));
            self.link.arrive(&self.peer).await?;
            self.link.links.pass().await?;
        }
        Ok(self.events.pop_front())
    }
}

fn event(change: &IndexChange) -> LeaderEvent {
    let IndexChange { rv, after, .. } = change;
    match (change.key().cloned(), after) {
        (None, _) => LeaderEvent::Bookmark(*rv),
        (Some(key), None) => LeaderEvent::Delete { rv: *rv, key },
        (Some(key), Some(entry)) => LeaderEvent::Put {
            rv: *rv,
            key,
            json: entry.json().to_vec(),
        },
    }
}

/// None if the version is no longer available.
fn page(reader: &IndexReader, start: &PageStart) -> Option<ObjectPage> {
    let (at, after) = match start {
        PageStart::Latest => (ReadVersion::Latest, None),
        PageStart::Exact(rv) => (ReadVersion::Exact(*rv), None),
        PageStart::Continue(token) => {
            let mut parts = token.splitn(3, '/');
            let rv = Rv(parts.next()?.parse().ok()?);
            (
                ReadVersion::Exact(rv),
                Some(Key::new(parts.next()?, parts.next()?)),
            )
        }
    };
    let (rv, entries) = reader.list(&ListScope::All, at).ok()?;
    let mut rest = entries
        .iter()
        .filter(|entry| after.as_ref() < Some(entry.key()));
    let objects: Vec<_> = rest
        .by_ref()
        .take(PAGE)
        .map(|entry| (entry.key().clone(), entry.rv(), entry.json().to_vec()))
        .collect();
    let last = rest.next().and(objects.last());
    let next = last.map(|(key, ..)| format!("{rv}/{}/{}", key.namespace, key.name));
    Some(ObjectPage { rv, objects, next })
}
