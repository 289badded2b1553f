//! Admission and eviction of connections. Enters: the address of a new connection, and
//! later the user of its requests. Leaves: a place for the connection, or a refusal.
//!
//! A new connection is a newcomer. It always gets a place: if there is none, an older
//! newcomer is evicted. The first request for anything but health moves the connection to
//! the class of its user or of the front proxy ([`Class`]). If that class has no place, the
//! request is answered with a 429 and the connection is closed. `access` finds out the
//! user, and [`eviction`] has the rules.

mod activity;
mod class;
mod eviction;
#[cfg(test)]
mod tests;

pub use activity::RequestInFlight;
pub use class::Class;

use activity::RequestActivity;
use eviction::{ConnectionRecord, Room};
use http::request::Parts;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Sockets of evicted connections that may still be open. The runtime closes them as soon
/// as it runs their tasks. Clients cannot delay that.
const CLOSING: usize = 64;

/// All open connections.
pub struct Connections {
    places: usize,
    registry: Mutex<OpenConnections>,
    /// One permit for each place, and [`CLOSING`] more.
    sockets: Arc<Semaphore>,
}

#[derive(Default)]
struct OpenConnections {
    /// The number of the next connection. No number is used twice.
    next: u64,
    /// By their numbers, so in the order in which they came. Evicted ones are gone.
    open: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    class: Class,
    connection: Arc<ClientConnection>,
}

impl Connections {
    /// With this number of places.
    pub fn new(places: usize) -> Arc<Self> {
        let sockets = places.saturating_add(CLOSING).min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            places,
            registry: Mutex::default(),
            sockets: Arc::new(Semaphore::new(sockets)),
        })
    }

    /// Waits until one more socket may be open. It waits only for evicted connections that
    /// are being closed, so no client can delay it.
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
            class: Class::Newcomer,
            connection: Arc::clone(&connection),
        };
        let room = registry.room(self.places, &entry.record());
        // It is never full: without a free place, there is a newcomer to evict.
        if let Room::After(evicted) = room {
            registry.evict(evicted);
        }
        registry.open.insert(number, entry);
        OpenSlot {
            connection,
            _socket: socket,
        }
    }

    /// Asks all clients to go, but for probes: each connection takes no further requests, and
    /// ends when its requests have, or after ten seconds. New connections are accepted.
    pub fn turn_away(&self) {
        let registry = self.registry();
        let clients = registry.open.values();
        for client in clients.filter(|it| it.class != Class::Newcomer) {
            client.connection.refused.cancel();
        }
    }

    fn registry(&self) -> MutexGuard<'_, OpenConnections> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Whether there is room for a connection with this record. If the connection has a
    /// place already, that one counts as free.
    fn room(&self, places: usize, entering: &ConnectionRecord) -> Room {
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

/// One of the sockets that may be open at once, given back when it is dropped.
pub struct Socket {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The place of a connection, given back when it is dropped.
pub struct OpenSlot {
    /// What is known of the connection.
    pub connection: Arc<ClientConnection>,
    _socket: Socket,
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        let mut registry = self.connection.connections.registry();
        registry.open.remove(&self.connection.number);
    }
}

/// One connection, as far as it is known.
pub struct ClientConnection {
    number: u64,
    network: IpAddr,
    connections: Arc<Connections>,
    activity: RequestActivity,
    evicted: CancellationToken,
    refused: CancellationToken,
}

impl ClientConnection {
    /// Ends when the connection has lost its place to another one.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Ends when the connection has been refused a place, or its client was turned away. It
    /// is to be closed once the answers to its requests are sent.
    pub async fn refused(&self) {
        self.refused.cancelled().await;
    }

    /// Whether a request ever came.
    pub fn asked(&self) -> bool {
        self.activity.asked()
    }

    /// Since when there is no request in flight.
    pub fn idle_since(&self) -> Option<Instant> {
        self.activity.idle_since()
    }

    /// Whether it has asked for nothing but health.
    pub fn is_newcomer(&self) -> bool {
        let registry = self.connections.registry();
        let entry = registry.open.get(&self.number);
        entry.is_none_or(|entry| entry.class == Class::Newcomer)
    }

    /// Counts the connection as `class`, unless it counts as a higher one already.
    fn admit(&self, class: Class) -> Result<(), ConnectionRefused> {
        let mut registry = self.connections.registry();
        // An evicted connection is about to be closed.
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
            Room::Free => {}
            Room::After(evicted) => registry.evict(evicted),
            Room::Full => {
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

/// There is no place for a connection, and it is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRefused;

/// Counts the connection of a request as `class`. In tests there are routers without a
/// listener, whose requests have no connection.
pub fn admit(request: &Parts, class: Class) -> Result<(), ConnectionRefused> {
    let connection = request.extensions.get::<Arc<ClientConnection>>();
    connection.map_or(Ok(()), |connection| connection.admit(class))
}

/// What counts as one address: an IPv4 address, or an IPv6 network of 64 bits, since one
/// host may have all addresses of it. An IPv6 socket shows IPv4 addresses as mapped ones.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}
