//! The cursor of a watch: a position in the ring. It wakes up when a version is published. There is
//! no queue for each watcher. If a watcher is slower than the ring's lower boundary, it gets an
//! error.

use super::reader::IndexState;
use super::{IndexChange, ListScope, Rv, VersionUnavailable};
use std::sync::Arc;
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Number of changes that are delivered at once. Changes of the same version stay together. A slow
/// watcher holds the changes that it has received, so this number limits the memory of a thousand
/// slow watchers.
const MAX_CHANGES: usize = 16;

/// A position in the ring.
#[derive(Debug)]
pub struct Cursor {
    shared: Arc<IndexState>,
    head: watch::Receiver<Rv>,
    scope: ListScope,
    rv: Rv,
}

impl Cursor {
    pub(super) fn new(shared: Arc<IndexState>, scope: ListScope, rv: Rv) -> Self {
        Self {
            head: shared.head.subscribe(),
            shared,
            scope,
            rv,
        }
    }

    /// Waits for the next changes of the scope and returns them in their order: at least one, and a
    /// limited number. Markers are in every scope. If the writer was dropped, this waits forever.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] if the ring has dropped the next change, or if the state was
    /// replaced. Later calls return it again.
    pub async fn next(&mut self) -> Result<Vec<IndexChange>, VersionUnavailable> {
        loop {
            // The borrow is a lock. It ends here, before the await below.
            let head = *self.head.borrow_and_update();
            let changes = self.until(head)?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            if self.head.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The version up to which all changes were delivered or are outside the scope.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// The next changes up to `head`. The cursor moves to the last of them, or to `head`.
    fn until(&mut self, head: Rv) -> Result<Vec<IndexChange>, VersionUnavailable> {
        let ring = self.shared.ring();
        let mut changes: Vec<IndexChange> = Vec::new();
        let mut to = head.max(self.rv);
        let all = ring.after(self.rv)?;
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
        drop(ring);
        self.rv = to;
        Ok(changes)
    }
}
