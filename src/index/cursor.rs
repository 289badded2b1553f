//! A watch: a place in the ring, woken by the published version. There is no queue of
//! changes for each watcher that could fill up; a slow one is overtaken by the ring's
//! lower boundary, and told so.

use super::reader::IndexState;
use super::{Gone, IndexChange, ListScope, Rv};
use std::sync::Arc;
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Changes that are handed out at a time, but for those of the same version, which stay
/// together. Whoever is slow keeps what it was handed, so this and not the ring bounds
/// what a thousand slow watchers keep.
const AT_ONCE: usize = 16;

/// A place in the ring.
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

    /// The next changes of the scope, in order, at least one and not many at once; waits
    /// for them, without end once the writer is gone. Empty changes, which begin a term, are
    /// in every scope. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`Gone`] when the ring has moved past this cursor, or the index was rebuilt, and at
    /// every later call.
    pub async fn next(&mut self) -> Result<Vec<IndexChange>, Gone> {
        loop {
            // The borrow is a lock: it ends here, not at the await below.
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

    /// The version up to which everything has been delivered (also what is outside the scope).
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// The next changes up to `head`, and goes on to the last of them or to `head`.
    fn until(&mut self, head: Rv) -> Result<Vec<IndexChange>, Gone> {
        let ring = self.shared.ring();
        let mut changes: Vec<IndexChange> = Vec::new();
        let mut to = head.max(self.rv);
        let all = ring.after(self.rv)?;
        for change in all.take_while(|change| change.rv <= head) {
            if change.key().is_some_and(|key| !self.scope.contains(key)) {
                continue;
            }
            if let Some(last) = changes.last()
                && changes.len() >= AT_ONCE
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
