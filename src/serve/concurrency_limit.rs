//! Limits of concurrent work, in total and for each name. Input: a name. Output:
//! a place that is free again when it is dropped, or none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit for each name, without a limit for all names together.
#[derive(Debug)]
pub struct Shares {
    each: usize,
    /// The number of places of each name that has any.
    taken: Mutex<HashMap<String, usize>>,
}

/// A place in a name's share.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    name: String,
}

impl Shares {
    /// Allows `each` places for each name.
    pub fn new(each: usize) -> Arc<Self> {
        Arc::new(Self {
            each,
            taken: Mutex::default(),
        })
    }

    /// A place for `name`, unless its share is used up.
    pub fn take(self: &Arc<Self>, name: &str) -> Option<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(name) {
            Some(count) if *count >= self.each => return None,
            Some(count) => *count += 1,
            None if self.each == 0 => return None,
            None => {
                taken.insert(name.to_owned(), 1);
            }
        }
        Some(Share {
            shares: Arc::clone(self),
            name: name.to_owned(),
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self
            .shares
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                taken.remove(&self.name);
            }
        }
    }
}

/// A limit for all names together, and a limit for each name.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    all: Arc<Semaphore>,
    shares: Arc<Shares>,
}

/// A place of [`ConcurrencyLimit`].
#[derive(Debug)]
pub struct RequestSlot {
    _of_all: OwnedSemaphorePermit,
    _of_share: Option<Share>,
}

impl ConcurrencyLimit {
    /// Allows `all` places, of which each name may have `each`.
    pub fn new(all: usize, each: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS))),
            shares: Shares::new(each),
        }
    }

    /// A place for `name`, if there is one and its share is not used up. Without a name, no share
    /// is used.
    pub fn take(&self, name: Option<&str>) -> Option<RequestSlot> {
        let of_share = match name {
            Some(name) => Some(self.shares.take(name)?),
            None => None,
        };
        Some(RequestSlot {
            _of_all: Arc::clone(&self.all).try_acquire_owned().ok()?,
            _of_share: of_share,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_share_and_no_more() {
        let places = ConcurrencyLimit::new(3, 2);
        let first = places.take(Some("a")).unwrap();
        let second = places.take(Some("a")).unwrap();
        assert!(places.take(Some("a")).is_none());
        let other = places.take(Some("b")).unwrap();
        // All places are taken now, for every name.
        assert!(places.take(Some("c")).is_none());
        assert!(places.take(None).is_none());
        drop(first);
        assert!(places.take(None).is_some());
        let third = places.take(Some("a")).unwrap();
        assert!(places.take(Some("a")).is_none());
        drop((second, other, third));
        assert!(places.shares.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn what_is_refused_leaves_nothing_behind() {
        let places = ConcurrencyLimit::new(0, 5);
        assert!(places.take(Some("a")).is_none());
        assert!(places.shares.taken.lock().unwrap().is_empty());
        assert!(ConcurrencyLimit::new(5, 0).take(Some("a")).is_none());
    }
}
