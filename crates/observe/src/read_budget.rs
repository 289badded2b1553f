//! The limits that all feeds of a cluster share: the number of concurrent lists, and the number of
//! large objects in memory. A feed lists and watches one resource.
//!
//! - At most [`MAX_LISTS`] lists run at the same time. A list that has run for a minute no longer
//!   counts. Other feeds wait, and get a permit in the order of their requests.
//! - A feed may hold [`SMALL_OBJECT`] bytes of an object without a permit. For a larger object, the
//!   feed needs the permit for large objects. There is only one such permit. The consumer of the
//!   feed evaluates the rules on the object and drops it, which releases the permit.
//!
//! A feed receives a large object in chunks, but needs only one permit for the whole object. If
//! each chunk needed its own permit, two feeds could deadlock: each feed could hold permits for its
//! first chunks, and wait for the permits that the other feed holds.

use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::{Instant, sleep},
};

/// Maximum number of concurrent lists. Further lists wait. For each list, the kube-apiserver holds
/// a whole page in memory, and this server holds one object.
const MAX_LISTS: usize = 8;

/// Time for which a list counts towards [`MAX_LISTS`]. After this time, the list continues, but
/// another list may start. So a hanging list does not block other lists. Most lists take less than
/// a second.
const LIST_PERMIT_TIME: Duration = Duration::from_mins(1);

/// Number of bytes of an object that a feed may hold without a permit. Few objects are larger.
pub(super) const SMALL_OBJECT: usize = 64 << 10;

/// Maximum number of objects of more than [`SMALL_OBJECT`] bytes in memory. One object with its
/// decoded values can take 30 MB.
const MAX_LARGE_OBJECTS: usize = 1;

/// Time in which a feed with the permit must receive the rest of its object. After this time, the
/// watch or list fails, and the next feed gets the permit.
const LARGE_OBJECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The permits for lists and for large objects, which all feeds of a cluster share. Clones are
/// cheap.
#[derive(Clone, Debug)]
pub(super) struct ReadBudget {
    // tokio's semaphores give permits to the waiters in order. A waiter that is dropped leaves the
    // queue.
    lists: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for ReadBudget {
    fn default() -> Self {
        Self {
            lists: Arc::new(Semaphore::new(MAX_LISTS)),
            large: Arc::new(Semaphore::new(MAX_LARGE_OBJECTS)),
        }
    }
}

impl ReadBudget {
    /// Waits until the caller may list.
    pub(super) async fn list_permit(&self) -> ListPermit {
        let permit = acquire(&self.lists).await;
        let held = tokio::spawn(async move {
            sleep(LIST_PERMIT_TIME).await;
            drop(permit);
        });
        ListPermit(held.abort_handle())
    }

    /// Waits until the caller may hold a large object.
    pub(super) async fn large_object_permit(&self) -> LargeObjectPermit {
        LargeObjectPermit {
            _permit: acquire(&self.large).await,
            receive_deadline: Instant::now() + LARGE_OBJECT_TIMEOUT,
        }
    }
}

async fn acquire(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(semaphore).acquire_owned().await;
    permit.expect("the semaphores of a budget are never closed")
}

/// The permission to list. The permission ends when this value is dropped, or after
/// [`LIST_PERMIT_TIME`].
#[derive(Debug)]
pub(super) struct ListPermit(AbortHandle);

impl Drop for ListPermit {
    fn drop(&mut self) {
        self.0.abort();
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
