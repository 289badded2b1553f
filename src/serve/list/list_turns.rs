//! Turns of requests that read all operations. A selector is compared with each object, and clients
//! can send hundreds of such requests at once. Each request pauses after its turn, so that probes
//! do not wait for all of them.

/// Number of objects in one turn. With a hundred requirements, the largest number in a selector, a
/// turn takes a fraction of a millisecond.
pub const ENTRIES_PER_TURN: usize = 256;

/// The rest of the current turn.
#[derive(Debug, Default)]
pub struct ListPace {
    looked: usize,
}

impl ListPace {
    /// Counts `objects` that were compared. At the end of the turn, other requests run. Returns
    /// true in this case.
    pub async fn looked(&mut self, objects: usize) -> bool {
        self.looked += objects;
        let over = self.looked >= ENTRIES_PER_TURN;
        if over {
            self.looked = 0;
            tokio::task::yield_now().await;
        }
        over
    }
}
