//! Limits the number of open connections. Input: the address of each new connection, and later the
//! user of its requests. Output: a slot for the connection, or a refusal.
//!
//! A new connection is a newcomer, because its user is not known yet. A newcomer always gets a
//! slot. If no slot is free, the server evicts (closes) an older newcomer.
//!
//! The first request other than a health probe moves the connection to another class
//! ([`ConnectionClass`]): the class of the user, or the class of the front proxy (a kube-apiserver
//! that forwards the requests of users). If no slot is available in the new class, the server
//! answers the request with a 429 and closes the connection. The middleware determines the user.
//! The module [`eviction`] chooses the connections to evict.

mod activity;
mod class;
mod eviction;
#[cfg(test)]
mod tests;

pub use activity::{CountedBody, RequestInFlight};
pub use class::ConnectionClass;

use activity::RequestActivity;
use eviction::{AdmissionResult, ConnectionRecord};
use http::request::Parts;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Largest number of evicted connections whose sockets are still open. If the limit is reached, the
/// server accepts the next connection after one of these sockets is closed. The task of an evicted
/// connection closes the socket as soon as the task runs, so a client cannot delay the closing.
const MAX_CLOSING: usize = 64;

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
    pub async fn wait_for_socket(&self) -> Socket {
        // `ok` never yields None, because the semaphore is never closed.
        Socket {
            _permit: Arc::clone(&self.sockets).acquire_owned().await.ok(),
        }
    }

    /// Gives a new connection a slot as a newcomer. If no slot is free, another newcomer is
    /// evicted.
    pub fn add_newcomer(self: &Arc<Self>, address: IpAddr, socket: Socket) -> OpenSlot {
        let mut registry = self.registry();
        let number = registry.next;
        registry.next += 1;
        let connection = Arc::new(ClientConnection {
            number,
            network: network(address),
            connections: Arc::clone(self),
            activity: RequestActivity::new(),
            evicted: CancellationToken::new(),
            refused: CancellationToken::new(),
        });
        let entry = OpenConnection {
            class: ConnectionClass::Newcomer,
            connection: Arc::clone(&connection),
        };
        let result = registry.find_slot(self.slots, &entry.record());
        // The result is never `Full`. At least one slot is reserved for newcomers. If no slot is
        // free, another newcomer uses this slot and can be evicted.
        if let AdmissionResult::AfterEvicting(evicted) = result {
            registry.evict(evicted);
        }
        registry.open.insert(number, entry);
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
    /// Checks if a connection can get a slot in a new class. `entering` is the record of this
    /// connection, and contains the new class. If the connection already has a slot in its old
    /// class, the old slot counts as free.
    fn find_slot(&self, slots: usize, entering: &ConnectionRecord) -> AdmissionResult {
        let others = self.open.values().map(OpenConnection::record);
        let others: Vec<_> = others.filter(|it| it.number != entering.number).collect();
        eviction::find_slot(slots, &others, entering)
    }

    fn evict(&mut self, number: u64) {
        if let Some(entry) = self.open.remove(&number) {
            entry.connection.evicted.cancel();
        }
    }
}

impl OpenConnection {
    fn record(&self) -> ConnectionRecord {
        let ClientConnection {
            number,
            network,
            activity,
            ..
        } = &*self.connection;
        ConnectionRecord {
            number: *number,
            class: self.class.clone(),
            network: *network,
            idle: activity.had_request() && activity.idle_since().is_some(),
        }
    }
}

/// The permission for one open socket. When this value is dropped, another socket may be opened.
pub struct Socket {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The slot of an open connection. The slot becomes free when this value is dropped, or earlier if
/// the connection is evicted.
pub struct OpenSlot {
    /// The connection that uses the slot.
    pub connection: Arc<ClientConnection>,
    _socket: Socket,
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
    network: IpAddr,
    connections: Arc<Connections>,
    activity: RequestActivity,
    evicted: CancellationToken,
    refused: CancellationToken,
}

impl ClientConnection {
    /// Waits until the connection is evicted.
    pub async fn wait_until_evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Waits until the server refuses a slot to the connection, or until
    /// [`Connections::close_client_connections`] selects the connection. The caller then accepts no
    /// further requests on the connection. It closes the connection when all answers have been
    /// sent, or after ten seconds.
    pub async fn wait_until_refused(&self) {
        self.refused.cancelled().await;
    }

    /// Returns true if the connection has had a request.
    pub fn had_request(&self) -> bool {
        self.activity.had_request()
    }

    /// Returns the time since which no request is in flight. None if a request is in flight.
    pub fn idle_since(&self) -> Option<Instant> {
        self.activity.idle_since()
    }

    /// Returns true if the connection is still a newcomer: it has had no requests, or only health
    /// probes. Also returns true if the connection was evicted.
    pub fn is_newcomer_or_evicted(&self) -> bool {
        let registry = self.connections.registry();
        let entry = registry.open.get(&self.number);
        entry.is_none_or(|entry| entry.class == ConnectionClass::Newcomer)
    }

    /// Moves the connection to `class` if `class` has a higher precedence than the connection's
    /// current class. Otherwise, the connection keeps its class. Returns an error if no slot is
    /// available in `class`, or if the connection was evicted.
    fn admit(&self, class: ConnectionClass) -> Result<(), ConnectionRefused> {
        let mut registry = self.connections.registry();
        // An evicted connection is absent from `open`. Its task is about to close the socket.
        let Some(entry) = registry.open.get(&self.number) else {
            return Err(ConnectionRefused);
        };
        if class.precedence() <= entry.class.precedence() {
            return Ok(());
        }
        let entering = ConnectionRecord {
            class,
            ..entry.record()
        };
        match registry.find_slot(self.connections.slots, &entering) {
            AdmissionResult::Free => {}
            AdmissionResult::AfterEvicting(evicted) => registry.evict(evicted),
            AdmissionResult::Full => {
                self.refused.cancel();
                return Err(ConnectionRefused);
            }
        }
        if let Some(entry) = registry.open.get_mut(&self.number) {
            entry.class = entering.class;
        }
        Ok(())
    }
}

/// The error if no slot is available for a connection, or if the connection was evicted. The server
/// then closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRefused;

/// Moves the connection of a request to `class`. In tests that call the router without a listener,
/// a request has no connection. Such a request is admitted.
pub fn admit(request: &Parts, class: ConnectionClass) -> Result<(), ConnectionRefused> {
    let connection = request.extensions.get::<Arc<ClientConnection>>();
    connection.map_or(Ok(()), |connection| connection.admit(class))
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
