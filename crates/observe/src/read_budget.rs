//! Limits the number of large objects in memory. All feeds of a cluster share this limit. A feed lists
//! and watches one resource.
//!
//! A feed may hold [`SMALL_OBJECT`] bytes of an object without a permit. For a larger object, the feed
//! needs the permit for large objects. There is only one such permit. The consumer of the feed
//! evaluates the rules on the object and drops it, which releases the permit.
//!
//! A feed receives a large object in chunks, but needs only one permit for the whole object. If
//! each chunk needed its own permit, two feeds could deadlock: each feed could hold permits for its
//! first chunks, and wait for the permits that the other feed holds.

use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Number of bytes of an object that a feed may hold without a permit. Few objects are larger.
pub(super) const SMALL_OBJECT: usize = 64 << 10;

/// Maximum number of objects of more than [`SMALL_OBJECT`] bytes in memory. One object with its
/// decoded values can take 30 MB.
const MAX_LARGE_OBJECTS: usize = 1;

/// Time in which a feed with the permit must receive the rest of its object. After this time, the
/// watch or list fails, and the next feed gets the permit.
const LARGE_OBJECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The permits for large objects, which all feeds of a cluster share. Clones are cheap.
#[derive(Clone, Debug)]
pub(super) struct ReadBudget {
    // tokio's semaphore gives permits to the waiters in order. A waiter that is dropped leaves the
    // queue.
    large: Arc<Semaphore>,
}

impl Default for ReadBudget {
    fn default() -> Self {
        let large = Arc::new(Semaphore::new(MAX_LARGE_OBJECTS));
        Self { large }
    }
}

impl ReadBudget {
    /// Waits until the caller may hold a large object.
    pub(super) async fn large_object_permit(&self) -> LargeObjectPermit {
        let permit = self.large.clone().acquire_owned().await;
        LargeObjectPermit {
            _permit: permit.expect("the semaphore is never closed"),
            receive_deadline: Instant::now() + LARGE_OBJECT_TIMEOUT,
        }
    }
}

/// The permission to hold a large object in memory.
#[derive(Debug)]
pub(super) struct LargeObjectPermit {
    _permit: OwnedSemaphorePermit,
    /// The time until which the feed must receive the whole object. After this time, the watch or
    /// list fails.
    pub(super) receive_deadline: Instant,
}

impl LargeObjectPermit {
    /// Binds the permit to `bytes`. The permit is released when the returned bytes and all their
    /// slices have been dropped.
    pub(super) fn bind_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Large {
            bytes,
            _permit: self,
        })
    }
}

/// A large object with its permit.
struct Large {
    bytes: Bytes,
    _permit: LargeObjectPermit,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
