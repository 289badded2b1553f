//! A cursor delivers the changes of the store (the objects in memory) to one watch. The latest
//! changes are in a ring buffer, which all watches share. A cursor is the position of one watch in
//! the ring buffer. So a watch needs no queue of its own.
//!
//! The cursor waits until the store publishes a new version, and then reads the changes. If the
//! ring buffer has dropped a change that the watch has not read, the cursor returns an error.

use super::reader::{Objects, State};
use super::{Change, Rv, Scope, VersionUnavailable};
use crate::Model;
use std::sync::Arc;
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Maximum number of changes that [`Cursor::next`] returns at once. There is one exception: changes
/// with the same version are always returned together, because the position of a cursor is a
/// version. A watch keeps the events for the returned changes in memory until its client has
/// received them. So this number limits the memory of watches with slow clients.
const MAX_CHANGES: usize = 16;

/// The position of a watch in the ring buffer of changes.
#[derive(Debug)]
pub struct Cursor<M: Model> {
    shared: Arc<State<M>>,
    head: watch::Receiver<Rv>,
    scope: Scope,
    rv: Rv,
    /// The value of [`Objects::replacements`] when the cursor was created.
    replacements: u64,
}

impl<M: Model> Cursor<M> {
    pub(super) fn new(shared: &Arc<State<M>>, objects: &Objects<M>, scope: Scope, rv: Rv) -> Self {
        Self {
            head: shared.head.subscribe(),
            shared: Arc::clone(shared),
            scope,
            rv,
            replacements: objects.replacements,
        }
    }

    /// Waits for the next changes in the cursor's scope, and returns at least one change, in order.
    /// Changes without an object (markers) are in every scope. This method is cancel-safe.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] if the ring buffer has dropped the next change, or if the whole store
    /// was replaced. Later calls return the same error.
    pub async fn next(&mut self) -> Result<Vec<Change<M>>, VersionUnavailable> {
        loop {
            // The borrow is a lock, which must be released before the await below.
            let head = *self.head.borrow_and_update();
            let changes = self.read_until(head)?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            let changed = self.head.changed().await;
            changed.expect("the cursor's own state has the sender");
        }
    }

    /// Returns the version that the cursor has reached. [`Self::next`] has returned all changes in
    /// the scope up to this version.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// Returns the next changes, up to the version `head`. If more changes remain, moves the cursor
    /// to the last returned change. Otherwise, moves the cursor to `head`.
    fn read_until(&mut self, head: Rv) -> Result<Vec<Change<M>>, VersionUnavailable> {
        let objects = self.shared.objects();
        if objects.replacements != self.replacements {
            return Err(objects.ring.unavailable(self.rv));
        }
        let mut changes: Vec<Change<M>> = Vec::new();
        let mut to = head.max(self.rv);
        let all = objects.ring.after(self.rv)?;
        for change in all.take_while(|change| change.rv <= head) {
            if change.key().is_some_and(|key| !self.scope.contains(key)) {
                continue;
            }
            if let Some(last) = changes.last()
                && changes.len() >= MAX_CHANGES
                && last.rv < change.rv
            {
                to = last.rv;
                break;
            }
            changes.push(change.clone());
        }
        drop(objects);
        self.rv = to;
        Ok(changes)
    }
}
