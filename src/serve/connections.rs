//! Who is connected, and who has to go when there is no room. Enters: the address of a
//! new connection. Leaves: its place, or none.
//!
//! What counts is what a connection has shown: nothing, a user's credentials, or a
//! certificate that the cluster vouches for, as the kube-apiserver has one. It is
//! recognized where requests are authenticated ([`Recognizing`]), and before that for the
//! paths that ask nobody who they are ([`recognize`]).

use super::Shared;
use crate::auth::{Authenticate, PeerCertificates, Unauthenticated, User};
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, header};
use hyper::body::{Frame, SizeHint};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether one may be closed now, while none may.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Whose name is none.
const ANONYMOUS: &str = "system:anonymous";

tokio::task_local! {
    /// The connection that the request at work came by.
    static CONNECTION: Arc<ClientConnection>;
}

/// All connections: so many, and so many of each address.
pub struct Connections {
    most: usize,
    each: usize,
    /// By the order in which they came.
    here: Mutex<BTreeMap<u64, Arc<ClientConnection>>>,
    left: Notify,
}

/// Why there is no place.
enum Full {
    /// Its address has all it may, and none of them may be closed.
    Refused,
    /// One is about to be free, or none may be closed for now.
    Wait,
}

impl Connections {
    /// `most` in all, `each` of each address.
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            each,
            here: Mutex::default(),
            left: Notify::new(),
        })
    }

    /// A place for one more, for which another may be closed; it waits until there is
    /// one. None if its address has all it may, and needs them.
    pub async fn enter(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        loop {
            let left = self.left.notified();
            match self.try_enter(address) {
                Ok(slot) => return Some(slot),
                Err(Full::Refused) => return None,
                Err(Full::Wait) => {}
            }
            tokio::select! {
                () = left => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    fn try_enter(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionSlot, Full> {
        let mut here = self.here();
        let neighbours: Vec<_> = here.values().filter(|it| it.address == address).collect();
        let crowded = neighbours.len() >= self.each;
        if !crowded && here.len() < self.most {
            let number = here.last_key_value().map_or(0, |(last, _)| last + 1);
            let connection = Arc::new(ClientConnection::new(address));
            here.insert(number, Arc::clone(&connection));
            return Ok(ConnectionSlot {
                all: Arc::clone(self),
                number,
                connection,
            });
        }
        let among = if crowded {
            neighbours
        } else {
            here.values().collect()
        };
        // One at a time: no more are closed than there are new ones.
        if among
            .iter()
            .any(|connection| connection.dismissed.is_cancelled())
        {
            return Err(Full::Wait);
        }
        match least_worth(&among) {
            Some(connection) => connection.dismissed.cancel(),
            None if crowded => return Err(Full::Refused),
            None => {}
        }
        Err(Full::Wait)
    }

    fn here(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientConnection>>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one to be closed, if any may be: of the address that has most of those that may,
/// so that however fast somebody connects, it is at the cost of their own; of these by
/// [`Worth`], and the oldest of its kind. `all` are in the order in which they came.
fn least_worth<'a>(all: &[&'a Arc<ClientConnection>]) -> Option<&'a Arc<ClientConnection>> {
    let may_go: Vec<_> = all
        .iter()
        .filter_map(|connection| Some((*connection, connection.worth()?)))
        .collect();
    let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
    for (connection, _) in &may_go {
        *of_address.entry(connection.address).or_default() += 1;
    }
    // The first of equals.
    let least = may_go
        .into_iter()
        .min_by_key(|(connection, worth)| (Reverse(of_address[&connection.address]), *worth));
    least.map(|(connection, _)| connection)
}

/// The place of a connection, given back when it is dropped.
pub struct ConnectionSlot {
    all: Arc<Connections>,
    number: u64,
    /// What is known of the connection.
    pub connection: Arc<ClientConnection>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.all.here().remove(&self.number);
        self.all.left.notify_waiters();
    }
}

/// One connection, as far as it is known.
pub struct ClientConnection {
    address: IpAddr,
    state: Mutex<Known>,
    dismissed: CancellationToken,
}

struct Known {
    shown: Shown,
    asked: bool,
    /// In flight, until their answers are sent.
    requests: usize,
    /// When there were none any more.
    since: Instant,
}

/// Credentials, the better ones last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Nothing,
    User,
    Certificate,
}

/// What is lost with a connection that may be closed, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// It never asked for anything.
    Silent,
    /// It has no request in flight.
    Idle,
    /// It has, but nobody knows whose.
    Anonymous,
}

impl ClientConnection {
    fn new(address: IpAddr) -> Self {
        Self {
            address,
            state: Mutex::new(Known {
                shown: Shown::Nothing,
                asked: false,
                requests: 0,
                since: Instant::now(),
            }),
            dismissed: CancellationToken::new(),
        }
    }

    /// Ends when the connection is to be closed for another.
    pub async fn dismissed(&self) {
        self.dismissed.cancelled().await;
    }

    /// Whether a request ever came.
    pub fn asked(&self) -> bool {
        self.known().asked
    }

    /// Since when there is no request in flight.
    pub fn idle_since(&self) -> Option<Instant> {
        let known = self.known();
        (known.requests == 0).then_some(known.since)
    }

    /// Answers a request, which is in flight until the body of its answer is dropped.
    pub fn serve<E>(
        self: Arc<Self>,
        answer: impl Future<Output = Result<Response, E>>,
    ) -> impl Future<Output = Result<http::Response<Held>, E>> {
        let flight = Flight::of(&self);
        let answer = CONNECTION.scope(self, answer);
        async {
            let held = |body| Held {
                body,
                _flight: flight,
            };
            Ok(answer.await?.map(held))
        }
    }

    /// The one that the running request came by; none in a router without a listener.
    fn current() -> Option<Arc<Self>> {
        CONNECTION.try_with(Arc::clone).ok()
    }

    fn show(&self, shown: Shown) {
        let mut known = self.known();
        known.shown = known.shown.max(shown);
    }

    /// None if it is kept.
    fn worth(&self) -> Option<Worth> {
        let known = self.known();
        match known.shown {
            Shown::Certificate => None,
            _ if !known.asked => Some(Worth::Silent),
            _ if known.requests == 0 => Some(Worth::Idle),
            Shown::User => None,
            Shown::Nothing => Some(Worth::Anonymous),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a request until it is dropped.
struct Flight(Arc<ClientConnection>);

impl Flight {
    fn of(connection: &Arc<ClientConnection>) -> Self {
        let mut known = connection.known();
        known.asked = true;
        known.requests += 1;
        drop(known);
        Self(Arc::clone(connection))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut known = self.0.known();
        known.requests -= 1;
        known.since = Instant::now();
    }
}

/// The body of an answer, with its request in flight.
pub struct Held {
    body: Body,
    _flight: Flight,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Notes of each connection what it has shown.
pub struct Recognizing(pub Arc<dyn Authenticate>);

impl Authenticate for Recognizing {
    fn authenticate<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        Box::pin(async move {
            let user = self.0.authenticate(peer, headers).await?;
            if user.name != ANONYMOUS
                && let Some(connection) = ClientConnection::current()
            {
                connection.show(if by_certificate(peer, headers) {
                    Shown::Certificate
                } else {
                    Shown::User
                });
            }
            Ok(user)
        })
    }
}

/// Whether nothing but a certificate can tell who asks.
fn by_certificate(peer: &PeerCertificates, headers: &HeaderMap) -> bool {
    !peer.0.is_empty() && !headers.contains_key(header::AUTHORIZATION)
}

/// The middleware that looks at certificates also where nobody has to show any, until a
/// good one was seen: the kube-apiserver has connections for nothing but discovery. No
/// cluster is asked, and no request is refused here.
pub async fn recognize(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    if let Some(connection) = ClientConnection::current()
        && connection.known().shown < Shown::Certificate
        && let Some(peer) = request.extensions().get::<PeerCertificates>()
        && by_certificate(peer, request.headers())
    {
        let authenticate = &shared.server.authenticate;
        // What comes of it is with the connection.
        let _ = authenticate.authenticate(peer, request.headers()).await;
    }
    next.run(request).await
}

#[cfg(test)]
mod tests;
