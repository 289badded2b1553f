//! The address in front of the replicas. It replaces a Service: each new connection goes to the
//! next replica whose readiness probe succeeds.

use crate::harness::{Caller, DEADLINE};
use futures::future::join_all;
use kube::Config;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Interval at which a replica is probed.
const PERIOD: Duration = Duration::from_millis(500);

/// Time limit of a probe: Kubernetes' default.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The readiness probe in `deploy/`.
const PROBE: &str = "/readyz?exclude=informer-sync";

/// A replica as a target of clients.
#[derive(Debug)]
pub struct Endpoint {
    /// The number of the replica in this run.
    pub number: usize,
    pub port: u16,
    /// Connects to the replica as kube-apiserver does.
    pub caller: CallerOf,
    probe: Config,
    ready: AtomicBool,
    disturbed: AtomicBool,
    /// The number of its disturbances.
    disturbances: AtomicUsize,
    /// Ends the open connections.
    hang_up: Notify,
}

/// A replica that was not disturbed when a client chose it.
#[derive(Debug)]
pub struct Chosen {
    pub endpoint: Arc<Endpoint>,
    disturbances: usize,
}

impl Chosen {
    /// Returns true if no test has stopped the replica, paused it or interrupted its network since
    /// then.
    pub fn is_undisturbed(&self) -> bool {
        self.endpoint.disturbances.load(Ordering::Acquire) == self.disturbances
    }
}

/// A client, with the identity that it claims.
#[derive(Clone)]
pub struct CallerOf(pub Caller);

impl std::fmt::Debug for CallerOf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("CallerOf")
    }
}

impl Endpoint {
    pub fn new(number: usize, port: u16, caller: Caller, probe: Config) -> Self {
        Self {
            number,
            port,
            caller: CallerOf(caller),
            probe,
            ready: AtomicBool::new(true),
            disturbed: AtomicBool::new(false),
            disturbances: AtomicUsize::new(0),
            hang_up: Notify::new(),
        }
    }

    /// Closes the open connections, so that clients connect again.
    pub fn hang_up(&self) {
        self.hang_up.notify_waiters();
    }

    /// Returns true if the balancer sends new connections to it.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Records that a test stops the replica, pauses it or interrupts its network.
    pub fn disturb(&self) {
        self.disturbances.fetch_add(1, Ordering::AcqRel);
        self.disturbed.store(true, Ordering::Release);
    }

    /// Records that the replica has recovered.
    pub fn recover(&self) {
        self.disturbed.store(false, Ordering::Release);
    }

    fn choose(self: &Arc<Self>) -> Option<Chosen> {
        // This is read before the flag, because a disturbance after this line changes it.
        let disturbances = self.disturbances.load(Ordering::Acquire);
        let free = self.is_ready() && !self.disturbed.load(Ordering::Acquire);
        free.then(|| Chosen {
            endpoint: self.clone(),
            disturbances,
        })
    }

    /// Probes on a new connection, as a kubelet does.
    async fn probe(&self) {
        let caller = Caller::new(self.probe.clone());
        let probe = tokio::time::timeout(TIMEOUT, caller.try_get(PROBE)).await;
        let ready = matches!(probe, Ok(Ok(answer)) if answer.code == 200);
        self.ready.store(ready, Ordering::Release);
    }
}

/// The running replicas.
#[derive(Clone, Debug, Default)]
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

    /// Returns a replica that no test disturbs.
    pub fn any_undisturbed(&self) -> Option<Chosen> {
        let all = self.all();
        let free: Vec<Chosen> = all.iter().filter_map(Endpoint::choose).collect();
        fastrand::choice(free)
    }

    /// Returns the ready replicas, each time starting with the next one.
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
        .expect("a free port on loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let served = endpoints.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, served.next()));
        }
    });
    let probed = endpoints.clone();
    tokio::spawn(async move {
        loop {
            let all = probed.all();
            join_all(all.iter().map(|it| it.probe())).await;
            tokio::time::sleep(PERIOD).await;
        }
    });
    port
}

/// Connects to the first of these replicas that accepts the connection. Later probes do not affect
/// an open connection.
async fn carry(mut client: TcpStream, candidates: Vec<Arc<Endpoint>>) {
    for endpoint in candidates {
        match TcpStream::connect(("127.0.0.1", endpoint.port)).await {
            Ok(mut server) => {
                // It ends when either side closes it.
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    () = endpoint.hang_up.notified() => {}
                }
                return;
            }
            Err(_) => endpoint.ready.store(false, Ordering::Release),
        }
    }
}

/// Waits until a probe of each replica succeeds.
pub async fn all_ready(endpoints: &Endpoints) {
    let ready = async {
        while !endpoints.all().iter().all(|it| it.is_ready()) {
            tokio::time::sleep(PERIOD).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, ready).await;
    assert!(waited.is_ok(), "not all ready: {:?}", endpoints.all());
}
