//! A watch: a place in the ring, woken by the published version. There is no queue of
//! changes for each watcher that could fill up; a slow one is overtaken by the ring's
//! lower boundary, and told so.

use super::reader::Shared;
use super::{Change, Gone, Rv, Scope};
use std::sync::Arc;
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// A place in the ring.
#[derive(Debug)]
pub struct Cursor {
    shared: Arc<Shared>,
    head: watch::Receiver<Rv>,
    scope: Scope,
    rv: Rv,
}

impl Cursor {
    pub(super) fn new(
        shared: Arc<Shared>,
        head: watch::Receiver<Rv>,
        scope: Scope,
        rv: Rv,
    ) -> Self {
        Self {
            shared,
            head,
            scope,
            rv,
        }
    }

    /// The changes of the scope since the last call, in order, at least one; waits for
    /// them, without end once the writer is gone. How many there can be at once is
    /// bounded as the ring is. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`Gone`] when the ring has moved past this cursor, and at every later call.
    pub async fn next(&mut self) -> Result<Vec<Change>, Gone> {
        loop {
            // The borrow is a lock: it ends here, not at the await below.
            let head = *self.head.borrow_and_update();
            if head > self.rv {
                let changes = self.until(head)?;
                self.rv = head;
                if !changes.is_empty() {
                    return Ok(changes);
                }
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

    fn until(&self, head: Rv) -> Result<Vec<Change>, Gone> {
        let ring = self.shared.ring();
        let changes = ring.after(self.rv)?;
        Ok(changes
            .take_while(|change| change.rv <= head)
            .filter(|change| self.scope.contains(change.key()))
            .cloned()
            .collect())
    }
}
