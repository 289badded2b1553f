//! The simulated network between replicas of the server, for tests of the replication. It connects
//! the HTTP client of a follower with the router of the leader. The network delays messages and resets
//! connections. A lost message is sent again, as with TCP. A test can cut off a replica from the
//! network.

use super::SimulatedProcess;
use crate::index::IndexReader;
use crate::replicate::ReplicaStatus;
use crate::replicate::link::PAGE_OBJECTS;
use aggregated_apiserver::serve::Readiness;
use axum::Router;
use axum::body::Body;
use futures::{StreamExt as _, stream};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use kube::Client;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::sleep;
use tower::{BoxError, ServiceExt as _};

/// The token with which replicas authenticate to each other.
pub const TOKEN: &str = "replica";

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
    /// The replica answers requests of clients when it has copied the leader's index, or when it
    /// leads and has listed all subjects (the objects that operations are about).
    pub readiness: Arc<Readiness>,
    /// Answers the requests of other replicas.
    pub router: Router,
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
        let answers = |peer: &&Peer| peer.readiness.synced() && !peer.process.is_paused();
        state.peers.values().filter(answers).cloned().collect()
    }

    /// Returns the connections of one replica to the others. The replica is cut off while `is_cut` is
    /// true.
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

/// The connections of one replica to the others.
#[derive(Clone)]
pub struct SimulatedLinks {
    network: Network,
    is_cut: Arc<AtomicBool>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl SimulatedLinks {
    /// Delays one message. Returns an error if the connection is reset.
    async fn transmit(&self) -> Result<(), BoxError> {
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
            return Err("the connection is reset".into());
        }
        Ok(())
    }

    /// Returns a client for the replica at `address`.
    pub fn client(&self, address: &str) -> Client {
        let (links, address) = (self.clone(), Arc::<str>::from(address));
        let send = move |request| links.clone().send(address.clone(), request);
        Client::new(tower::service_fn(send), "default")
    }

    /// Sends a request to the replica at `address`, and returns its answer. The replica sends only 3
    /// objects in a page, although the follower accepts more.
    async fn send(
        self,
        address: Arc<str>,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, BoxError> {
        self.transmit().await?;
        let peer = self.network.lock().peers.get(&*address).cloned();
        let peer = peer.ok_or("no replica has this address")?;
        self.wait_until_reachable(&peer).await?;
        let mut request = request.map(|_| Body::empty());
        // Small pages, so that a follower needs several of them.
        let limit = format!("limit={PAGE_OBJECTS}");
        let uri = request.uri().to_string().replace(&limit, "limit=3");
        *request.uri_mut() = uri.parse()?;
        let token = HeaderValue::from_str(&format!("Bearer {TOKEN}"))?;
        request.headers_mut().insert(AUTHORIZATION, token);
        let answer = peer.router.clone().oneshot(request);
        let answer = peer.process.poll_within(answer).await?;
        Ok(answer.map(|body| {
            let state = (self, peer, body.into_data_stream());
            Body::from_stream(stream::try_unfold(state, |(link, peer, mut body)| async {
                let Some(chunk) = peer.process.poll_within(body.next()).await else {
                    return Ok(None);
                };
                link.wait_until_reachable(&peer).await?;
                link.transmit().await?;
                Ok::<_, BoxError>(Some((chunk?, (link, peer, body))))
            }))
        }))
    }

    /// Waits until a message can reach `peer`. Returns an error if the process of `peer` has ended.
    async fn wait_until_reachable(&self, peer: &Peer) -> Result<(), BoxError> {
        // TCP repeats a message to an unreachable replica until the message arrives. So the message
        // is only delayed.
        while self.is_cut.load(Relaxed) || peer.is_cut.load(Relaxed) || peer.process.is_paused() {
            sleep(REACHABLE_CHECK_INTERVAL).await;
        }
        if peer.process.is_killed() {
            return Err("the process has ended".into());
        }
        Ok(())
    }
}
