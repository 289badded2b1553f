//! Pauses requests that compare many objects with a selector. During a pause, the thread runs other
//! requests. Clients can send hundreds of requests with selectors at once. Without pauses, a health
//! probe would have to wait for all these requests.

/// Number of objects that a request compares before it pauses. The comparison of these objects
/// takes less than a millisecond, even if the selector has the largest number of requirements
/// (100).
pub const ENTRIES_PER_TURN: usize = 256;

/// Counts the objects that a request has compared since its last pause.
#[derive(Debug, Default)]
pub struct ComparePace {
    compared: usize,
}

impl ComparePace {
    /// Adds `objects` to the number of compared objects. If [`ENTRIES_PER_TURN`] is reached, the
    /// function lets other requests run and returns true.
    pub async fn count_compared(&mut self, objects: usize) -> bool {
        self.compared += objects;
        let must_pause = self.compared >= ENTRIES_PER_TURN;
        if must_pause {
            self.compared = 0;
            tokio::task::yield_now().await;
        }
        must_pause
    }
}
