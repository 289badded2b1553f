//! Limits of concurrent work, in total and for each name, such as that of a user.
//!
//! Input: a name. Output: a slot, or none if a limit is reached. Dropping the slot frees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit for each name, without a limit for all names together.
#[derive(Debug)]
pub struct PerNameLimit {
    each: usize,
    /// The number of used slots, for each name that uses any.
    taken: Mutex<HashMap<String, usize>>,
}

/// A slot in the share of a name.
#[derive(Debug)]
pub struct NamePermit {
    shares: Arc<PerNameLimit>,
    name: String,
}

impl PerNameLimit {
    /// Allows `each` slots for each name.
    pub fn new(each: usize) -> Arc<Self> {
        Arc::new(Self {
            each,
            taken: Mutex::default(),
        })
    }

    /// Takes a slot for `name`. None if all slots of the name are in use.
    pub fn take(self: &Arc<Self>, name: &str) -> Option<NamePermit> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(name) {
            Some(count) if *count >= self.each => return None,
            Some(count) => *count += 1,
            None if self.each == 0 => return None,
            None => {
                taken.insert(name.to_owned(), 1);
            }
        }
        Some(NamePermit {
            shares: Arc::clone(self),
            name: name.to_owned(),
        })
    }
}

impl Drop for NamePermit {
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
    shares: Arc<PerNameLimit>,
}

/// A slot of a [`ConcurrencyLimit`].
#[derive(Debug)]
pub struct RequestSlot {
    _of_all: OwnedSemaphorePermit,
    _of_share: Option<NamePermit>,
}

impl ConcurrencyLimit {
    /// Allows `all` slots in total, of which each name can use `each`.
    pub fn new(all: usize, each: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS))),
            shares: PerNameLimit::new(each),
        }
    }

    /// Takes a slot for `name`. None if the total or the share of the name is used up. Without a
    /// name, only the total counts.
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
    fn a_user_gets_no_more_than_its_share() {
        let places = ConcurrencyLimit::new(3, 2);
        let first = places.take(Some("a")).unwrap();
        let second = places.take(Some("a")).unwrap();
        assert!(places.take(Some("a")).is_none());
        let other = places.take(Some("b")).unwrap();
        // All slots are in use now, for every name.
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
    fn a_rejected_request_holds_no_permit() {
        let places = ConcurrencyLimit::new(0, 5);
        assert!(places.take(Some("a")).is_none());
        assert!(places.shares.taken.lock().unwrap().is_empty());
        assert!(ConcurrencyLimit::new(5, 0).take(Some("a")).is_none());
    }
}
