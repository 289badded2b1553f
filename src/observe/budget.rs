//! The memory and the lists that all feeds of a cluster share.
//!
//! - At most [`MAX_LISTS`] lists run at the same time. Other feeds wait in their order.
//! - A feed may hold [`SMALL_OBJECT`] bytes of an object by itself. For a larger object, it needs
//!   the only place for large objects, and keeps it until the object has been evaluated. Other
//!   feeds wait in their order.
//!
//! The place is large enough for the largest object from the beginning. So the feed that has it
//! waits for no other feed, and feeds cannot block each other.

use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::{Instant, sleep},
};

/// Number of concurrent lists. The kube-apiserver holds a whole page of each list in memory. This
/// server holds one object.
const MAX_LISTS: usize = 8;

/// Time for which a list counts towards [`MAX_LISTS`]. A slower list continues, and the next list
/// starts, so a hanging list does not block other lists. Most lists take less than a second.
const LIST_TURN: Duration = Duration::from_mins(1);

/// Bytes of an object that a feed may hold without a place. Few objects are larger.
pub(super) const SMALL_OBJECT: usize = 64 << 10;

/// Number of objects of more than [`SMALL_OBJECT`] bytes in memory. One object may need 30 MB with
/// its decoded values.
const MAX_LARGE_OBJECTS: usize = 1;

/// Time in which a feed with a place must read the rest of its object. After that, the feed fails,
/// and the next feed gets the place.
const LARGE_OBJECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The budget. Cloning it is cheap.
#[derive(Clone, Debug)]
pub(super) struct ReadBudget {
    // tokio's semaphores are fair. A waiter that is dropped gives up its turn.
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
    /// Waits until another list may run.
    pub(super) async fn turn(&self) -> ListPermit {
        let permit = acquire(&self.lists).await;
        let held = tokio::spawn(async move {
            sleep(LIST_TURN).await;
            drop(permit);
        });
        ListPermit(held.abort_handle())
    }

    /// Waits until another large object may be read.
    pub(super) async fn place(&self) -> LargeObjectPermit {
        LargeObjectPermit {
            _permit: acquire(&self.large).await,
            until: Instant::now() + LARGE_OBJECT_TIMEOUT,
        }
    }
}

async fn acquire(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(semaphore).acquire_owned().await;
    permit.expect("the semaphores of a budget are never closed")
}

/// The right to list. It ends when this is dropped, or after [`LIST_TURN`].
#[derive(Debug)]
pub(super) struct ListPermit(AbortHandle);

impl Drop for ListPermit {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The place for a large object.
#[derive(Debug)]
pub(super) struct LargeObjectPermit {
    _permit: OwnedSemaphorePermit,
    /// The time by which the object must have been read.
    pub(super) until: Instant,
}

impl LargeObjectPermit {
    /// The same bytes. The place is free when they and all their slices have been dropped.
    pub(super) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Large {
            bytes,
            _place: self,
        })
    }
}

/// A large object with its place.
struct Large {
    bytes: Bytes,
    _place: LargeObjectPermit,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use tokio::task::yield_now;

    #[tokio::test(start_paused = true)]
    async fn lists_start_in_order_and_a_cancelled_one_gives_up_its_turn() {
        let budget = ReadBudget::default();
        let mut running = Vec::new();
        for _ in 0..MAX_LISTS {
            running.push(budget.turn().await);
        }
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(budget.turn())).collect();
        for turn in &mut waiting {
            assert!(turn.now_or_never().is_none());
        }
        drop(waiting.remove(1));
        // The aborted task returns the turn when it is polled.
        running.pop();
        yield_now().await;
        let first = (&mut waiting[0]).now_or_never().expect("the first in line");
        assert!((&mut waiting[1]).now_or_never().is_none());
        drop(first);
        yield_now().await;
        assert!((&mut waiting[1]).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_lists_block_the_others_for_a_minute_at_most() {
        let budget = ReadBudget::default();
        let mut hanging = Vec::new();
        for _ in 0..MAX_LISTS {
            hanging.push(budget.turn().await);
        }
        let began = Instant::now();
        let _turn = budget.turn().await;
        assert_eq!(began.elapsed(), LIST_TURN);
    }

    #[tokio::test]
    async fn a_permit_is_released_with_the_last_slice_of_its_object() {
        let budget = ReadBudget::default();
        let mut slices = Vec::new();
        for _ in 0..MAX_LARGE_OBJECTS {
            let object = budget
                .place()
                .await
                .hold(Bytes::from(vec![7; SMALL_OBJECT + 1]));
            slices.push(object.slice(1..3));
        }
        assert!(budget.place().now_or_never().is_none());
        assert_eq!(slices.pop().unwrap(), [7, 7][..]);
        assert!(budget.place().now_or_never().is_some());
    }
}
