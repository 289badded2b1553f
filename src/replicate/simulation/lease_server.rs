//! A simulated kube-apiserver that stores the Lease of the leader election. It can delay, lose or
//! refuse requests.

use crate::replicate::{LeaseError, LeaseRequest, LeaseStore};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// The failures of requests. Each probability is from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The probability that a request is lost, so that the client gets no answer.
    pub lost_requests: f64,
    /// The probability that a write succeeds, but its answer is lost.
    pub lost_answers: f64,
    /// The probability that a request fails with a server error.
    pub errors: f64,
    /// The probability that a write is refused as a conflict although the Lease has not changed.
    pub conflicts: f64,
    /// The longest additional delay of a request, and of an answer. Without it, the delay is 0.1 ms
    /// to 0.2 ms.
    pub delay: Duration,
}

/// The simulated kube-apiserver. Clones share its state.
#[derive(Clone, Debug)]
pub struct SimulatedLeases(Arc<Mutex<LeaseStoreState>>);

#[derive(Debug)]
struct LeaseStoreState {
    lease: Option<Lease>,
    version: u64,
    faults: Faults,
    random: fastrand::Rng,
    writes: u64,
}

/// A replica's connection to the simulated kube-apiserver.
#[derive(Clone, Debug)]
pub struct LeaseClient {
    leases: SimulatedLeases,
    is_cut: Arc<AtomicBool>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl SimulatedLeases {
    /// Creates a kube-apiserver in which the Lease does not exist.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(LeaseStoreState {
            lease: None,
            version: 1,
            faults: Faults::default(),
            random: fastrand::Rng::with_seed(seed),
            writes: 0,
        })))
    }

    /// Creates a connection for one replica.
    pub fn client(&self) -> LeaseClient {
        LeaseClient {
            leases: self.clone(),
            is_cut: Arc::default(),
            random: Arc::new(Mutex::new(self.lock().random.fork())),
        }
    }

    /// Sets the failures of requests. If the kube-apiserver has not processed a request yet, the
    /// new probabilities apply to it. Its delay stays the same.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Returns the current Lease.
    pub fn lease(&self) -> Option<Lease> {
        self.lock().lease.clone()
    }

    /// Returns the number of successful writes of the Lease by replicas.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Simulates that a user deletes the Lease.
    pub fn delete(&self) {
        self.lock().lease = None;
    }

    /// Simulates that a user edits the Lease.
    pub fn edit(&self, edit: impl FnOnce(&mut Lease)) {
        let mut state = self.lock();
        if let Some(mut lease) = state.lease.take() {
            edit(&mut lease);
            state.store(lease);
        }
    }

    /// Simulates that a user restores the Lease from a backup of etcd. The Lease gets the
    /// resourceVersion that it has in the backup.
    pub fn restore(&self, backup: Option<Lease>) {
        self.lock().lease = backup;
    }

    fn lock(&self) -> MutexGuard<'_, LeaseStoreState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseStoreState {
    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        // The Lease is serialized and parsed, as if a real kube-apiserver had sent it.
        let json = serde_json::to_string(&lease).expect("a Lease has only string keys");
        let lease: Lease =
            serde_json::from_str(&json).expect("the JSON was serialized from a Lease");
        self.lease = Some(lease.clone());
        lease
    }

    fn answer(&mut self, request: LeaseRequest) -> Result<Lease, LeaseError> {
        match request {
            LeaseRequest::Get => self.lease.clone().ok_or(LeaseError::NotFound),
            LeaseRequest::Create(_) if self.lease.is_some() => Err(LeaseError::Conflict),
            LeaseRequest::Create(mut lease) => {
                self.writes += 1;
                lease.metadata.uid = Some(format!("uid-{}", self.version));
                Ok(self.store(lease))
            }
            LeaseRequest::Update(lease) => {
                let stored = self.lease.as_ref().ok_or(LeaseError::Conflict)?;
                let id = |lease: &Lease| {
                    let metadata = &lease.metadata;
                    (metadata.uid.clone(), metadata.resource_version.clone())
                };
                if id(stored) != id(&lease) {
                    return Err(LeaseError::Conflict);
                }
                self.writes += 1;
                Ok(self.store(lease))
            }
        }
    }
}

impl LeaseClient {
    /// Interrupts the connection if `is_cut` is true. Otherwise restores it. Requests and answers
    /// on an interrupted connection are lost.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Relaxed);
    }

    fn random(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes the request in the kube-apiserver. Returns None if the replica gets no answer.
    fn process(&self, request: LeaseRequest) -> Option<Result<Lease, LeaseError>> {
        let mut state = self.leases.lock();
        let faults = state.faults;
        let happens = |probability: f64| self.random().f64() < probability;
        if self.is_cut.load(Relaxed) || happens(faults.lost_requests) {
            return None;
        }
        if happens(faults.errors) {
            return Some(Err(LeaseError::Refused("etcd is unavailable".into())));
        }
        let is_write = !matches!(request, LeaseRequest::Get);
        if is_write && happens(faults.conflicts) {
            return Some(Err(LeaseError::Conflict));
        }
        let is_lost = is_write && happens(faults.lost_answers);
        let answer = state.answer(request);
        (!is_lost).then_some(answer)
    }
}

impl LeaseStore for LeaseClient {
    /// Sends a request in a separate task. So the kube-apiserver processes the request even if the
    /// replica stops waiting, is paused or is killed. If the request or its answer is lost, the
    /// returned future never completes.
    fn send(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseError>> {
        let Faults { delay, .. } = self.leases.lock().faults;
        let random_delay = || Duration::from_micros(self.random().u64(100..=200 + micros(delay)));
        let (to_server, to_client) = (random_delay(), random_delay());
        let (client, (answer, answered)) = (self.clone(), oneshot::channel());
        tokio::spawn(async move {
            sleep(to_server).await;
            if let Some(result) = client.process(request) {
                sleep(to_client).await;
                if !client.is_cut.load(Relaxed) {
                    // If the replica has stopped waiting, the receiver is dropped, and the send
                    // fails.
                    let _ = answer.send(result);
                }
            }
        });
        async {
            match answered.await {
                Ok(result) => result,
                Err(_) => pending().await,
            }
        }
        .boxed()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
