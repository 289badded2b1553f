//! Limits the number of open connections, and records their requests. Input: the address of each
//! new connection, and later the user of its requests. Output: a slot for each connection.
//!
//! Each class of connections ([`ConnectionClass`]) has a share of the slots. While slots are free,
//! a class may use more than its share. If no slot is free, the server evicts (closes) a connection
//! for the new connection. So the server never refuses a new connection. The server selects the
//! evicted connection in these steps:
//!
//! 1. It selects a class that has more than its share. The new connection also counts, and the
//!    shares add up to all slots, so there usually is such a class. If there is none, an evicted
//!    connection has not closed yet. The new connection then gets the slot of that connection.
//! 2. In this class, it selects the client with most connections. Newcomers, kube-apiservers and
//!    other replicas count by address, and users by name.
//! 3. It selects an idle connection of this client. If none is idle, it selects a connection with
//!    the fewest open requests. Of several such connections, it selects the oldest. It never
//!    selects the new connection.

use crate::auth::User;
use crate::serve::concurrency_limit::client_name;
use http::request::Parts;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The server closes a newcomer that has had no open request for this time. The timeout is short,
/// because clients connect when they have a request to send. A longer timeout would not help
/// probes, because the kubelet opens a new connection for each probe.
const NEWCOMER_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which any other idle connection is closed. The kube-apiserver has the same limit.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Interval at which a connection checks if it has been idle for too long.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the server knows about the client of a connection. The class of a connection only changes
/// to a later variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionClass {
    /// The connection has had no request, or only requests without authentication.
    Newcomer,
    /// The connection of an authenticated user.
    User,
    /// A kube-apiserver that forwards the requests of users, or another replica.
    FrontProxy,
}

impl ConnectionClass {
    const ALL: [Self; 3] = [Self::Newcomer, Self::User, Self::FrontProxy];

    /// Returns the share of the class, of `all` slots.
    fn share(self, all: usize) -> usize {
        let (newcomers, proxies) = ((all / 4).max(1), all * 3 / 8);
        match self {
            Self::Newcomer => newcomers,
            Self::FrontProxy => proxies,
            Self::User => all.saturating_sub(newcomers + proxies),
        }
    }
}

/// All open connections.
pub struct Connections {
    slots: usize,
    free: Arc<Semaphore>,
    /// The connections in the order of their arrival. Evicted connections are not included.
    open: Mutex<Vec<Arc<ClientConnection>>>,
}

impl Connections {
    /// Creates an empty set of connections. At most `slots` connections can be open.
    pub fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            slots,
            free: Arc::new(Semaphore::new(slots)),
            open: Mutex::default(),
        })
    }

    /// Waits for a slot for a new connection, which is a newcomer. If no slot is free, evicts
    /// another connection. The task of the evicted connection closes its socket as soon as the task
    /// runs, so clients cannot delay the eviction. The caller must close the new connection when
    /// `closing` is cancelled.
    pub(super) async fn add_newcomer(
        self: &Arc<Self>,
        address: IpAddr,
        closing: CancellationToken,
    ) -> OpenSlot {
        let connection = Arc::new(ClientConnection {
            state: Mutex::new(ConnectionState {
                class: ConnectionClass::Newcomer,
                client: network(address).to_string(),
                had_request: false,
                in_flight: 0,
                last_end: Instant::now(),
            }),
            closing,
            evicted: CancellationToken::new(),
        });
        self.open().push(Arc::clone(&connection));
        if self.free.available_permits() == 0 {
            self.evict();
        }
        OpenSlot {
            connection,
            connections: Arc::clone(self),
            // `ok` never yields None, because the semaphore is never closed.
            _permit: Arc::clone(&self.free).acquire_owned().await.ok(),
        }
    }

    /// Closes the connections of clients, so that the clients reconnect and reach another replica.
    /// Newcomers, such as the connections of probes, stay open. All other connections accept no
    /// further requests. Each of them is closed when all answers have been sent, or after ten
    /// seconds. The server still accepts new connections.
    pub fn close_client_connections(&self) {
        for connection in &*self.open() {
            if connection.state().class != ConnectionClass::Newcomer {
                connection.closing.cancel();
            }
        }
    }

    /// Evicts a connection, which is selected in the steps that the module documentation describes.
    fn evict(&self) {
        let mut open = self.open();
        // A request can change the client of a connection at any time. So each client is read once.
        let clients: &Vec<_> = &open.iter().map(|it| it.client()).collect();
        let mut counts: HashMap<&(ConnectionClass, String), usize> = HashMap::new();
        for client in clients {
            *counts.entry(client).or_default() += 1;
        }
        let members = |class| (0..clients.len()).filter(move |number| clients[*number].0 == class);
        let mut classes = ConnectionClass::ALL.into_iter();
        let Some(class) = classes.find(|class| members(*class).count() > class.share(self.slots))
        else {
            return;
        };
        let rank = |number: &usize| {
            let connection = &open[*number];
            // The connection with the fewest open requests is evicted, because one connection of a
            // kube-apiserver can carry the requests of many users.
            let in_flight = Reverse(connection.state().in_flight);
            let count = counts[&clients[*number]];
            (count, connection.is_idle(), in_flight, Reverse(*number))
        };
        // The last connection is the new one.
        let earlier = members(class).filter(|number| number + 1 < clients.len());
        if let Some(number) = earlier.max_by_key(rank) {
            open.remove(number).evicted.cancel();
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<ClientConnection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of an open connection. The slot becomes free when this value is dropped.
pub(super) struct OpenSlot {
    /// The connection that uses the slot.
    pub connection: Arc<ClientConnection>,
    connections: Arc<Connections>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        let is_other = |it: &Arc<ClientConnection>| !Arc::ptr_eq(it, &self.connection);
        self.connections.open().retain(is_other);
    }
}

/// An open connection of a client.
pub struct ClientConnection {
    state: Mutex<ConnectionState>,
    /// After this token is cancelled, the server accepts no further requests on the connection. The
    /// server closes the connection when all answers have been sent, or after ten seconds.
    pub closing: CancellationToken,
    /// When this token is cancelled, the server closes the connection at once.
    pub evicted: CancellationToken,
}

struct ConnectionState {
    class: ConnectionClass,
    /// The name of the user, or the address of a newcomer, a kube-apiserver or another replica. The
    /// server counts the connections of each client in a class.
    client: String,
    had_request: bool,
    in_flight: usize,
    /// The time at which the last request ended. Before the first request, the time at which the
    /// connection was accepted.
    last_end: Instant,
}

impl ClientConnection {
    /// Returns true if the connection has had a request.
    pub fn had_request(&self) -> bool {
        self.state().had_request
    }

    /// Waits until the connection has been without an open request for the limit of its class:
    /// [`NEWCOMER_IDLE_TIMEOUT`] for a newcomer, and [`IDLE_TIMEOUT`] for any other connection.
    pub async fn wait_until_idle_timeout(&self) {
        let started = Instant::now();
        let is_over = || {
            let state = self.state();
            let limit = match state.class {
                ConnectionClass::Newcomer => NEWCOMER_IDLE_TIMEOUT,
                _ => IDLE_TIMEOUT,
            };
            state.in_flight == 0 && state.last_end.max(started).elapsed() >= limit
        };
        while !is_over() {
            sleep(IDLE_CHECK_INTERVAL).await;
        }
    }

    /// Returns true if all requests of the connection have ended. A connection that has never had a
    /// request is not idle, because its first request may be on its way.
    fn is_idle(&self) -> bool {
        let state = self.state();
        state.had_request && state.in_flight == 0
    }

    /// Returns true if the client is a kube-apiserver that forwards requests, or another replica.
    pub fn is_front_proxy(&self) -> bool {
        self.state().class == ConnectionClass::FrontProxy
    }

    fn client(&self) -> (ConnectionClass, String) {
        let state = self.state();
        (state.class, state.client.clone())
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves the connection of a request to `class`, unless it already has this class or a later one.
/// In tests that call the router without a listener, a request has no connection.
pub fn classify(request: &Parts, class: ConnectionClass, user: Option<&User>) {
    let Some(connection) = request.extensions.get::<Arc<ClientConnection>>() else {
        return;
    };
    let mut state = connection.state();
    if class > state.class {
        state.class = class;
        if let Some(user) = user {
            state.client = client_name(user);
        }
    }
}

/// Returns the unit by which connections are counted: an IPv4 address, or an IPv6 network of 64
/// bits. One host may use all addresses of such an IPv6 network.
fn network(address: IpAddr) -> IpAddr {
    // A dual-stack socket reports an IPv4 address as `::ffff:a.b.c.d`.
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A request whose answer has not been sent. The request counts as in flight until this value is
/// dropped. The listener adds it to each request as an extension, and the middleware keeps it until
/// the answer has been sent. The middleware does not see requests that the listener refuses, and
/// requests for public routes. These requests stop counting before their answers are written.
pub struct RequestInFlight(Arc<ClientConnection>);

impl RequestInFlight {
    /// Begins a request on the connection.
    pub fn of(connection: &Arc<ClientConnection>) -> Self {
        let mut state = connection.state();
        state.had_request = true;
        state.in_flight += 1;
        drop(state);
        Self(Arc::clone(connection))
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight -= 1;
        state.last_end = Instant::now();
    }
}

#[cfg(test)]
mod tests;
