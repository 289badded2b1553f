//! A load balancer in front of the replicas (processes of the server). It replaces the Service and
//! the kubelet in these tests: it probes the replicas, and forwards each new connection to the next
//! ready replica.

use crate::harness::{Caller, DEADLINE};
use futures::future::join_all;
use kube::Config;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Pause between two readiness probes of a replica.
const PROBE_PERIOD: Duration = Duration::from_millis(500);

/// Time limit of a probe, as in Kubernetes by default.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Path of the readiness probe in `deploy/`.
const PROBE_PATH: &str = "/readyz?exclude=informer-sync";

/// The address and the state of one replica.
pub struct Endpoint {
    /// The number of the replica in this test. A replica keeps its number when it restarts.
    pub number: usize,
    pub port: u16,
    /// A client that connects to the replica directly. It has the client certificate of the
    /// kube-apiserver.
    pub caller: Caller,
    probe: Config,
    ready: AtomicBool,
    /// Number of disturbances of the replica, for example by a SIGKILL, that have begun or ended so
    /// far. Odd while the test disturbs the replica.
    disturbances: AtomicUsize,
}

/// A replica that was ready and not disturbed when a client chose it.
pub struct Chosen {
    pub endpoint: Arc<Endpoint>,
    disturbances: usize,
}

impl Chosen {
    /// Returns true if no disturbance of the replica has begun since the client chose it.
    pub fn is_undisturbed(&self) -> bool {
        self.endpoint.disturbances.load(Ordering::Acquire) == self.disturbances
    }
}

impl Endpoint {
    pub fn new(number: usize, port: u16, caller: Caller, probe: Config) -> Self {
        Self {
            number,
            port,
            caller,
            probe,
            ready: AtomicBool::new(true),
            disturbances: AtomicUsize::new(0),
        }
    }

    /// Returns true if the balancer sends new connections to this replica. Returns false if the
    /// last probe failed, or if a connection attempt has failed since that probe. Returns true
    /// before the first probe.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Records that a disturbance of the replica begins.
    pub fn disturb(&self) {
        self.disturbances.fetch_or(1, Ordering::AcqRel);
    }

    /// Records that the replica has recovered from its disturbance.
    pub fn recover(&self) {
        let count = self.disturbances.load(Ordering::Acquire);
        let even = count.next_multiple_of(2);
        self.disturbances.store(even, Ordering::Release);
    }

    /// Chooses this replica for a client. Returns None if the replica is not ready or is disturbed.
    fn choose(self: &Arc<Self>) -> Option<Chosen> {
        let disturbances = self.disturbances.load(Ordering::Acquire);
        let free = self.is_ready() && disturbances.is_multiple_of(2);
        free.then(|| Chosen {
            endpoint: self.clone(),
            disturbances,
        })
    }

    /// Sends a readiness probe on a new connection, as a kubelet does.
    async fn probe(&self) {
        let caller = Caller::new(self.probe.clone());
        let probe = tokio::time::timeout(PROBE_TIMEOUT, caller.try_get(PROBE_PATH)).await;
        let ready = matches!(probe, Ok(Ok(answer)) if answer.code == 200);
        self.ready.store(ready, Ordering::Release);
    }
}

/// The endpoints of all running replicas.
#[derive(Clone, Default)]
pub struct Endpoints {
    all: Arc<Mutex<Vec<Arc<Endpoint>>>>,
    turn: Arc<AtomicUsize>,
}

impl Endpoints {
    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    pub fn add(&self, endpoint: Arc<Endpoint>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(endpoint);
    }

    pub fn remove(&self, number: usize) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|it| it.number != number);
    }

    /// Returns a random replica that is ready and not disturbed. Returns None if there is no such
    /// replica.
    pub fn any_undisturbed(&self) -> Option<Chosen> {
        let all = self.all();
        let free: Vec<Chosen> = all.iter().filter_map(Endpoint::choose).collect();
        fastrand::choice(free)
    }

    /// Returns the ready replicas in rotating order: each call begins with another replica.
    fn next(&self) -> Vec<Arc<Endpoint>> {
        let mut ready = self.all();
        ready.retain(|it| it.is_ready());
        if !ready.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let count = ready.len();
            ready.rotate_left(turn % count);
        }
        ready
    }
}

/// Starts the balancer, which runs until the test process ends. Returns its port.
pub async fn start(endpoints: &Endpoints) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port on loopback is free");
    let port = listener
        .local_addr()
        .expect("the listener has an address")
        .port();
    let served = endpoints.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(forward(client, served.next()));
        }
    });
    let probed = endpoints.clone();
    tokio::spawn(async move {
        loop {
            let all = probed.all();
            join_all(all.iter().map(|it| it.probe())).await;
            tokio::time::sleep(PROBE_PERIOD).await;
        }
    });
    port
}

/// Forwards a connection to the first candidate that accepts it. If no candidate accepts it, closes
/// the connection. The forwarded connection stays open even if a later probe fails.
async fn forward(mut client: TcpStream, candidates: Vec<Arc<Endpoint>>) {
    for endpoint in candidates {
        match TcpStream::connect(("127.0.0.1", endpoint.port)).await {
            Ok(mut server) => {
                let _ = copy_bidirectional(&mut client, &mut server).await;
                return;
            }
            Err(_) => endpoint.ready.store(false, Ordering::Release),
        }
    }
}

/// Waits until [`Endpoint::is_ready`] is true for all replicas.
pub async fn wait_until_all_ready(endpoints: &Endpoints) {
    let ready = async {
        while !endpoints.all().iter().all(|it| it.is_ready()) {
            tokio::time::sleep(PROBE_PERIOD).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, ready).await;
    let unready = endpoints.all().into_iter().filter(|it| !it.is_ready());
    let unready: Vec<_> = unready.map(|it| it.number).collect();
    assert!(waited.is_ok(), "these replicas are not ready: {unready:?}");
}
