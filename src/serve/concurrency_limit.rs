//! Limits the number of concurrent requests, both in total and for each user.
//!
//! Input: the name of a user. Output: a slot, or None if a limit is reached. Without a slot, the
//! middleware answers the request with a 429. Only administrators' requests other than watches need
//! no slot. A slot becomes free when its value is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit for each name, such as the name of a user. The number of names is not limited.
#[derive(Debug)]
pub struct PerNameLimit {
    slots_per_name: usize,
    /// The number of used slots by name. Names without a used slot are absent.
    used: Mutex<HashMap<String, usize>>,
}

/// A slot that counts for one name.
#[derive(Debug)]
pub struct NamePermit {
    limit: Arc<PerNameLimit>,
    name: String,
}

impl PerNameLimit {
    /// Creates a limit of `slots_per_name` slots for each name.
    pub fn new(slots_per_name: usize) -> Arc<Self> {
        Arc::new(Self {
            slots_per_name,
            used: Mutex::default(),
        })
    }

    /// Takes a slot for `name`. Returns None if all slots of this name are in use.
    pub fn acquire(self: &Arc<Self>, name: &str) -> Option<NamePermit> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match used.get_mut(name) {
            Some(count) if *count >= self.slots_per_name => return None,
            Some(count) => *count += 1,
            None if self.slots_per_name == 0 => return None,
            None => {
                used.insert(name.to_owned(), 1);
            }
        }
        Some(NamePermit {
            limit: Arc::clone(self),
            name: name.to_owned(),
        })
    }
}

impl Drop for NamePermit {
    fn drop(&mut self) {
        let mut used = self
            .limit
            .used
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match used.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                used.remove(&self.name);
            }
        }
    }
}

/// A limit for all names together, combined with a limit for each name.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    total: Arc<Semaphore>,
    per_name: Arc<PerNameLimit>,
}

/// A slot of a [`ConcurrencyLimit`].
#[derive(Debug)]
pub struct RequestSlot {
    _total_permit: OwnedSemaphorePermit,
    _name_permit: Option<NamePermit>,
}

impl ConcurrencyLimit {
    /// Creates a limit of `total` slots. Each name can use at most `slots_per_name` of these slots.
    pub fn new(total: usize, slots_per_name: usize) -> Self {
        Self {
            total: Arc::new(Semaphore::new(total.min(Semaphore::MAX_PERMITS))),
            per_name: PerNameLimit::new(slots_per_name),
        }
    }

    /// Takes a slot for `name`. Returns None if the total limit or the limit of the name is
    /// reached. If `name` is None, only the total limit applies.
    pub fn acquire(&self, name: Option<&str>) -> Option<RequestSlot> {
        let name_permit = match name {
            Some(name) => Some(self.per_name.acquire(name)?),
            None => None,
        };
        Some(RequestSlot {
            _total_permit: Arc::clone(&self.total).try_acquire_owned().ok()?,
            _name_permit: name_permit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gets_no_more_slots_than_its_limit() {
        let limit = ConcurrencyLimit::new(3, 2);
        let first = limit.acquire(Some("a")).unwrap();
        let second = limit.acquire(Some("a")).unwrap();
        assert!(limit.acquire(Some("a")).is_none());
        let other = limit.acquire(Some("b")).unwrap();
        // All three slots are in use now, so other names get no slot.
        assert!(limit.acquire(Some("c")).is_none());
        assert!(limit.acquire(None).is_none());
        drop(first);
        assert!(limit.acquire(None).is_some());
        let third = limit.acquire(Some("a")).unwrap();
        assert!(limit.acquire(Some("a")).is_none());
        drop((second, other, third));
        assert!(limit.per_name.used.lock().unwrap().is_empty());
    }

    #[test]
    fn a_refused_name_uses_no_slot() {
        let limit = ConcurrencyLimit::new(0, 5);
        assert!(limit.acquire(Some("a")).is_none());
        assert!(limit.per_name.used.lock().unwrap().is_empty());
        assert!(ConcurrencyLimit::new(5, 0).acquire(Some("a")).is_none());
    }
}
