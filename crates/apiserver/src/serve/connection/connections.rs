//! Limits the number of open connections, and records their requests. Input: the address of each
//! new connection, and later the user of its requests. Output: a slot for the connection, or a
//! refusal.
//!
//! Each class of connections ([`ConnectionClass`]) has its own slots. Within a class, connections
//! are grouped by client: by the address for newcomers, kube-apiservers and other replicas, and by
//! the user for users.
//!
//! - A new connection is a newcomer. If all slots for newcomers are used, the server evicts
//!   (closes) a newcomer of the address with most newcomers. So a newcomer always gets a slot.
//! - The first authenticated request moves a connection to another class. If all slots of that
//!   class are used, the server evicts a connection of the client with most connections. The new
//!   connection counts for its own client. A client with fewer connections than this client loses
//!   none. A client with equally many loses only an idle one. This can be the same client. If no
//!   connection can be evicted, the server answers with a 429 and closes the new connection.
//!
//! Among the connections of the selected client, the server evicts idle ones first, and then the
//! oldest.

use crate::auth::User;
use crate::serve::concurrency_limit::client_name;
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http_body_util::BodyExt as _;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Largest number of evicted connections whose sockets are still open. If the limit is reached, the
/// server accepts the next connection after one of these sockets is closed. The task of an evicted
/// connection closes the socket as soon as the task runs, so a client cannot delay the closing.
const MAX_CLOSING: usize = 64;

/// What the server knows about the client of a connection. A connection only moves to a later
/// variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionClass {
    /// The connection has had no request, or only requests without authentication.
    Newcomer,
    /// The connection of an authenticated user.
    User,
    /// A kube-apiserver that forwards the requests of users, or another replica.
    FrontProxy,
}

impl ConnectionClass {
    /// Returns the number of slots of the class, of `all` slots.
    fn slots(self, all: usize) -> usize {
        let (newcomers, proxies) = ((all / 4).max(1), (all * 3 / 8).max(1));
        match self {
            Self::Newcomer => newcomers,
            Self::FrontProxy => proxies,
            Self::User => all.saturating_sub(newcomers + proxies).max(1),
        }
    }
}

/// All open connections.
pub struct Connections {
    slots: usize,
    registry: Mutex<OpenConnections>,
    /// Each open socket has one permit. The number of permits is the number of slots plus
    /// [`MAX_CLOSING`].
    sockets: Arc<Semaphore>,
}

#[derive(Default)]
struct OpenConnections {
    /// The number of the next connection. Numbers are not reused.
    next: u64,
    /// The connections by number, in the order of their arrival. Evicted connections are not
    /// included.
    open: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    class: ConnectionClass,
    /// The name of the client. The server counts the connections of each client in a class.
    client: String,
    connection: Arc<ClientConnection>,
}

impl Connections {
    /// Creates an empty set of connections. At most `slots` connections can be open.
    pub fn new(slots: usize) -> Arc<Self> {
        let sockets = slots
            .saturating_add(MAX_CLOSING)
            .min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            slots,
            registry: Mutex::default(),
            sockets: Arc::new(Semaphore::new(sockets)),
        })
    }

    /// Waits until another socket may be opened. The wait is short: there are more permits for
    /// sockets than slots. So if no permit is free, some sockets belong to evicted connections. The
    /// server closes these sockets soon, and clients cannot delay this.
    pub async fn wait_for_socket(&self) -> Option<OwnedSemaphorePermit> {
        // `ok` never yields None, because the semaphore is never closed.
        Arc::clone(&self.sockets).acquire_owned().await.ok()
    }

    /// Gives a new connection a slot as a newcomer. If no slot is free, another newcomer is
    /// evicted.
    pub fn add_newcomer(
        self: &Arc<Self>,
        address: IpAddr,
        socket: Option<OwnedSemaphorePermit>,
    ) -> OpenSlot {
        let mut registry = self.registry();
        let number = registry.next;
        registry.next += 1;
        let connection = Arc::new(ClientConnection {
            number,
            network: network(address).to_string(),
            connections: Arc::clone(self),
            activity: Mutex::new(Activity {
                had_request: false,
                in_flight: 0,
                last_end: Instant::now(),
            }),
            evicted: CancellationToken::new(),
            refused: CancellationToken::new(),
        });
        let entering = OpenConnection {
            class: ConnectionClass::Newcomer,
            client: connection.network.clone(),
            connection: Arc::clone(&connection),
        };
        // A newcomer is never refused.
        let _ = registry.enter(self.slots, number, entering);
        OpenSlot {
            connection,
            _socket: socket,
        }
    }

    /// Closes the connections of clients, so that the clients reconnect and reach another replica.
    /// Newcomers, such as the connections of probes, stay open. All other connections accept no
    /// further requests. Each of them is closed when all answers have been sent, or after ten
    /// seconds. The server still accepts new connections.
    pub fn close_client_connections(&self) {
        let registry = self.registry();
        let clients = registry.open.values();
        for client in clients.filter(|it| it.class != ConnectionClass::Newcomer) {
            client.connection.refused.cancel();
        }
    }

    fn registry(&self) -> MutexGuard<'_, OpenConnections> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Adds a connection, or moves it to another class. If no slot of the class is free, the server
    /// evicts another connection of the class. Returns an error if none may be evicted.
    fn enter(
        &mut self,
        slots: usize,
        number: u64,
        entering: OpenConnection,
    ) -> Result<(), ConnectionRefused> {
        let class = entering.class;
        let members = self.open.iter().filter(|(_, it)| it.class == class);
        let members: Vec<_> = members.collect();
        if members.len() >= class.slots(slots) {
            let mut loads: HashMap<&str, usize> = HashMap::from([(entering.client.as_str(), 1)]);
            for (_, member) in &members {
                *loads.entry(&member.client).or_default() += 1;
            }
            let rank = |it: &OpenConnection| (loads[it.client.as_str()], it.connection.is_idle());
            let own = loads[entering.client.as_str()];
            let may_evict =
                |it: &OpenConnection| class == ConnectionClass::Newcomer || rank(it) > (own, false);
            let evicted = members
                .iter()
                .filter(|(_, it)| may_evict(it))
                .max_by_key(|(number, it)| (rank(it), Reverse(*number)))
                .map(|(number, _)| **number);
            let evicted = evicted.and_then(|evicted| self.open.remove(&evicted));
            evicted
                .ok_or(ConnectionRefused)?
                .connection
                .evicted
                .cancel();
        }
        self.open.insert(number, entering);
        Ok(())
    }
}

/// The slot of an open connection. The slot becomes free when this value is dropped, or earlier if
/// the connection is evicted.
pub struct OpenSlot {
    /// The connection that uses the slot.
    pub connection: Arc<ClientConnection>,
    /// When it is dropped, another socket may be opened.
    _socket: Option<OwnedSemaphorePermit>,
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        let mut registry = self.connection.connections.registry();
        registry.open.remove(&self.connection.number);
    }
}

/// An open connection of a client.
pub struct ClientConnection {
    number: u64,
    network: String,
    connections: Arc<Connections>,
    activity: Mutex<Activity>,
    evicted: CancellationToken,
    refused: CancellationToken,
}

/// The requests of a connection.
struct Activity {
    had_request: bool,
    in_flight: usize,
    /// The time at which the last request ended. Before the first request, the time at which the
    /// connection was accepted.
    last_end: Instant,
}

impl ClientConnection {
    /// Waits until the connection is evicted.
    pub async fn wait_until_evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Waits until the server refuses a slot to the connection, or until
    /// [`Connections::close_client_connections`] selects the connection. The caller then accepts no
    /// further requests on the connection. The caller closes the connection when all answers have
    /// been sent, or after ten seconds.
    pub async fn wait_until_refused(&self) {
        self.refused.cancelled().await;
    }

    /// Returns true if the connection has had a request.
    pub fn had_request(&self) -> bool {
        self.activity().had_request
    }

    /// Returns the time since which no request is in flight. None if a request is in flight.
    pub fn idle_since(&self) -> Option<Instant> {
        let activity = self.activity();
        (activity.in_flight == 0).then_some(activity.last_end)
    }

    /// Returns true if all requests of the connection have ended. A connection that has never had a
    /// request is not idle, because its first request may be on its way.
    fn is_idle(&self) -> bool {
        let activity = self.activity();
        activity.had_request && activity.in_flight == 0
    }

    /// Returns true if the connection is still a newcomer. Also returns true if the connection was
    /// evicted.
    pub fn is_newcomer_or_evicted(&self) -> bool {
        let registry = self.connections.registry();
        let entry = registry.open.get(&self.number);
        entry.is_none_or(|entry| entry.class == ConnectionClass::Newcomer)
    }

    /// Moves the connection to `class`, unless it already has this class or a later one. Returns an
    /// error if no slot is available in `class`, or if the connection was evicted.
    fn admit(
        self: &Arc<Self>,
        class: ConnectionClass,
        user: Option<&User>,
    ) -> Result<(), ConnectionRefused> {
        let mut registry = self.connections.registry();
        // An evicted connection is absent from `open`. Its task is about to close the socket.
        let entry = registry.open.get(&self.number).ok_or(ConnectionRefused)?;
        if class <= entry.class {
            return Ok(());
        }
        let entering = OpenConnection {
            class,
            client: user.map_or_else(|| self.network.clone(), client_name),
            connection: Arc::clone(self),
        };
        let entered = registry.enter(self.connections.slots, self.number, entering);
        if entered.is_err() {
            self.refused.cancel();
        }
        entered
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error if no slot is available for a connection, or if the connection was evicted. The server
/// then closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRefused;

/// Moves the connection of a request to `class`. In tests that call the router without a listener,
/// a request has no connection. Such a request is admitted.
pub fn admit(
    request: &Parts,
    class: ConnectionClass,
    user: Option<&User>,
) -> Result<(), ConnectionRefused> {
    let connection = request.extensions.get::<Arc<ClientConnection>>();
    connection.map_or(Ok(()), |connection| connection.admit(class, user))
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
/// dropped.
pub struct RequestInFlight(Arc<ClientConnection>);

impl RequestInFlight {
    /// Begins a request on the connection.
    pub fn of(connection: &Arc<ClientConnection>) -> Self {
        let mut activity = connection.activity();
        activity.had_request = true;
        activity.in_flight += 1;
        drop(activity);
        Self(Arc::clone(connection))
    }

    /// Returns the answer with a body that ends the request when it is dropped.
    pub fn until_sent(self, answer: Response) -> Response {
        answer.map(|body| {
            let counted = body.map_frame(move |frame| {
                let _in_flight = &self;
                frame
            });
            Body::new(counted)
        })
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.in_flight -= 1;
        activity.last_end = Instant::now();
    }
}

#[cfg(test)]
mod tests;
