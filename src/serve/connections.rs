//! Admission and eviction of connections. Input: the address of a new connection, and later the
//! user of its requests. Output: a place for the connection, or a refusal.
//!
//! A new connection is a newcomer and always gets a place. If there is no free place, an older
//! newcomer is evicted. The first request other than health moves the connection to the class of
//! its user or of the front proxy ([`ConnectionClass`]). If that class has no place, the request is
//! answered with 429, and the connection is closed. The module `access` determines the user, and
//! [`eviction`] contains the rules.

mod activity;
mod class;
mod eviction;
#[cfg(test)]
mod tests;

pub use activity::RequestInFlight;
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

/// Number of sockets of evicted connections that may still be open. The runtime closes them as soon
/// as it runs their tasks. Clients cannot delay this.
const MAX_CLOSING: usize = 64;

/// All open connections.
pub struct Connections {
    places: usize,
    registry: Mutex<OpenConnections>,
    /// One permit for each place, and [`MAX_CLOSING`] more.
    sockets: Arc<Semaphore>,
}

#[derive(Default)]
struct OpenConnections {
    /// The number of the next connection. No number is used twice.
    next: u64,
    /// The connections by their numbers, which is the order of their arrival. Evicted connections
    /// are removed.
    open: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    class: ConnectionClass,
    connection: Arc<ClientConnection>,
}

impl Connections {
    /// Creates the admission with this number of places.
    pub fn new(places: usize) -> Arc<Self> {
        let sockets = places
            .saturating_add(MAX_CLOSING)
            .min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            places,
            registry: Mutex::default(),
            sockets: Arc::new(Semaphore::new(sockets)),
        })
    }

    /// Waits until another socket may be open. It waits only for evicted connections that are being
    /// closed, so no client can delay it.
    pub async fn socket(&self) -> Socket {
        // The semaphore is never closed.
        Socket {
            _permit: Arc::clone(&self.sockets).acquire_owned().await.ok(),
        }
    }

    /// Gives a new connection the place of a newcomer. Another newcomer may be evicted.
    pub fn enter(self: &Arc<Self>, address: IpAddr, socket: Socket) -> OpenSlot {
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
        let room = registry.room(self.places, &entry.record());
        // There is always a place: if none is free, a newcomer can be evicted.
        if let AdmissionResult::After(evicted) = room {
            registry.evict(evicted);
        }
        registry.open.insert(number, entry);
        OpenSlot {
            connection,
            _socket: socket,
        }
    }

    /// Asks all clients except probes to reconnect elsewhere. Each connection accepts no further
    /// requests, and ends with its last request or after ten seconds. New connections are accepted.
    pub fn turn_away(&self) {
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
    /// Returns whether there is a place for a connection with this record. The current place of the
    /// connection counts as free.
    fn room(&self, places: usize, entering: &ConnectionRecord) -> AdmissionResult {
        let others = self.open.values().map(OpenConnection::record);
        let others: Vec<_> = others.filter(|it| it.number != entering.number).collect();
        eviction::room(places, &others, entering)
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
            idle: activity.asked() && activity.idle_since().is_some(),
        }
    }
}

/// A permit for an open socket. It is returned when it is dropped.
pub struct Socket {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The place of a connection. It is free again when it is dropped.
pub struct OpenSlot {
    /// The record of the connection.
    pub connection: Arc<ClientConnection>,
    _socket: Socket,
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        let mut registry = self.connection.connections.registry();
        registry.open.remove(&self.connection.number);
    }
}

/// A connection with its requests and its class.
pub struct ClientConnection {
    number: u64,
    network: IpAddr,
    connections: Arc<Connections>,
    activity: RequestActivity,
    evicted: CancellationToken,
    refused: CancellationToken,
}

impl ClientConnection {
    /// Completes when the connection has been evicted.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Completes when the connection was refused a place or asked to reconnect. It is closed when
    /// the answers to its requests have been sent.
    pub async fn refused(&self) {
        self.refused.cancelled().await;
    }

    /// Returns true if the connection has had a request.
    pub fn asked(&self) -> bool {
        self.activity.asked()
    }

    /// The time since which there is no request in flight.
    pub fn idle_since(&self) -> Option<Instant> {
        self.activity.idle_since()
    }

    /// Returns true if all requests were for health.
    pub fn is_newcomer(&self) -> bool {
        let registry = self.connections.registry();
        let entry = registry.open.get(&self.number);
        entry.is_none_or(|entry| entry.class == ConnectionClass::Newcomer)
    }

    /// Moves the connection to `class`, unless it has a higher class.
    fn admit(&self, class: ConnectionClass) -> Result<(), ConnectionRefused> {
        let mut registry = self.connections.registry();
        // An evicted connection is being closed.
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
        match registry.room(self.connections.places, &entering) {
            AdmissionResult::Free => {}
            AdmissionResult::After(evicted) => registry.evict(evicted),
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

/// There is no place for the connection, and it is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRefused;

/// Moves the connection of a request to `class`. Requests of tests have no connection, because
/// their routers have no listener.
pub fn admit(request: &Parts, class: ConnectionClass) -> Result<(), ConnectionRefused> {
    let connection = request.extensions.get::<Arc<ClientConnection>>();
    connection.map_or(Ok(()), |connection| connection.admit(class))
}

/// The unit by which connections are counted: an IPv4 address, or an IPv6 network of 64 bits,
/// because one host may have all its addresses. An IPv6 socket shows IPv4 addresses as mapped ones.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}
