//! A simulated kube-apiserver that stores the Lease of the leader election. It can delay, lose or
//! refuse requests.

use crate::replicate::Leases;
use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tower::BoxError;

/// The failures of requests. Each probability is from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The probability that a request is lost, so that the client gets no answer.
    pub lost_requests: f64,
    /// The probability that a read is lost, in addition to `lost_requests`.
    pub lost_reads: f64,
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
        self.lease = Some(lease.clone());
        lease
    }

    /// Returns the stored Lease, or the code of the refusal.
    fn answer(&mut self, method: &Method, sent: Option<Lease>) -> Result<Lease, u16> {
        let id = |lease: &Lease| {
            let metadata = &lease.metadata;
            (metadata.uid.clone(), metadata.resource_version.clone())
        };
        match (sent, &self.lease) {
            (None, stored) => stored.clone().ok_or(404),
            (Some(mut lease), None) if method == Method::POST => {
                self.writes += 1;
                lease.metadata.uid = Some(format!("uid-{}", self.version));
                Ok(self.store(lease))
            }
            (Some(lease), Some(stored)) if method == Method::PUT && id(stored) == id(&lease) => {
                self.writes += 1;
                Ok(self.store(lease))
            }
            (Some(_), None) => Err(404),
            (Some(_), Some(_)) => Err(409),
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

    /// Returns the access to the Lease over this connection.
    pub fn leases(&self) -> Leases {
        let client = self.clone();
        let send = move |request| client.clone().send(request);
        let client = Client::new(tower::service_fn(send), "ifo-system");
        Leases::new(client, "ifo-system", "ifo-apiserver")
    }

    /// Processes the request in the kube-apiserver. Returns None if the replica gets no answer.
    fn process(&self, method: &Method, sent: Option<Lease>) -> Option<Result<Lease, u16>> {
        let mut state = self.leases.lock();
        let faults = state.faults;
        let happens = |probability: f64| self.random().f64() < probability;
        let is_write = sent.is_some();
        let is_lost_read = !is_write && happens(faults.lost_reads);
        if self.is_cut.load(Relaxed) || is_lost_read || happens(faults.lost_requests) {
            return None;
        }
        if happens(faults.errors) {
            return Some(Err(500));
        }
        if is_write && happens(faults.conflicts) {
            return Some(Err(409));
        }
        let is_lost = is_write && happens(faults.lost_answers);
        let answer = state.answer(method, sent);
        (!is_lost).then_some(answer)
    }

    /// Sends a request in a separate task. So the kube-apiserver processes the request even if the
    /// replica stops waiting, is paused or is killed. If the request or its answer is lost, the
    /// returned future never completes.
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if request.uri().path().contains("clusterroles") {
            // The replicas may not read the owner of the Lease.
            return response(Err(403));
        }
        let Faults { delay, .. } = self.leases.lock().faults;
        let random_delay = || Duration::from_micros(self.random().u64(100..=200 + micros(delay)));
        let (to_server, to_client) = (random_delay(), random_delay());
        let (answer, answered) = oneshot::channel();
        let method = request.method().clone();
        let body = request.into_body().collect_bytes().await?;
        let lease = (method != Method::GET).then(|| serde_json::from_slice(&body));
        let lease = lease.transpose()?;
        tokio::spawn(async move {
            sleep(to_server).await;
            if let Some(result) = self.process(&method, lease) {
                sleep(to_client).await;
                if !self.is_cut.load(Relaxed) {
                    // If the replica has stopped waiting, the receiver is dropped, and the send
                    // fails.
                    let _ = answer.send(result);
                }
            }
        });
        match answered.await {
            Ok(result) => response(result),
            Err(_) => pending().await,
        }
    }
}

fn response(answer: Result<Lease, u16>) -> Result<Response<Body>, BoxError> {
    let (code, body): (u16, Value) = match answer {
        Ok(lease) => (200, serde_json::to_value(lease)?),
        Err(code) => (
            code,
            json!({
                "kind": "Status", "status": "Failure", "code": code,
                "reason": if code == 404 { "NotFound" } else { "Other" },
            }),
        ),
    };
    let body = Body::from(body.to_string().into_bytes());
    Ok(Response::builder().status(code).body(body)?)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
