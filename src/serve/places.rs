//! Places: how much may go on at once, in all and for each who asks. Enters: a name.
//! Leaves: a place, which is given back when it is dropped, or none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many for each name, without a bound on all names together.
#[derive(Debug)]
pub struct Shares {
    each: usize,
    /// Names that have any; those without are not kept.
    taken: Mutex<HashMap<String, usize>>,
}

/// One of a name's share.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    name: String,
}

impl Shares {
    /// `each` for each name.
    pub fn new(each: usize) -> Arc<Self> {
        Arc::new(Self {
            each,
            taken: Mutex::default(),
        })
    }

    /// One for `name`, unless it has all of its share.
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

/// So many in all, and so many for each name.
#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    shares: Arc<Shares>,
}

/// One of them.
#[derive(Debug)]
pub struct RequestPlace {
    _of_all: OwnedSemaphorePermit,
    _of_share: Option<Share>,
}

impl Places {
    /// `all` places, of which each name may have `each`.
    pub fn new(all: usize, each: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS))),
            shares: Shares::new(each),
        }
    }

    /// A place for `name`, if there is one and its share is not used up; without a name,
    /// one that counts for no share.
    pub fn take(&self, name: Option<&str>) -> Option<RequestPlace> {
        let of_share = match name {
            Some(name) => Some(self.shares.take(name)?),
            None => None,
        };
        Some(RequestPlace {
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
        let places = Places::new(3, 2);
        let first = places.take(Some("a")).unwrap();
        let second = places.take(Some("a")).unwrap();
        assert!(places.take(Some("a")).is_none());
        let other = places.take(Some("b")).unwrap();
        // All are taken now, whoever asks.
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
        let places = Places::new(0, 5);
        assert!(places.take(Some("a")).is_none());
        assert!(places.shares.taken.lock().unwrap().is_empty());
        assert!(Places::new(5, 0).take(Some("a")).is_none());
    }
}
