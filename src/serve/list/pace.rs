//! Turns: whoever looks through all operations lets others run in between. Selectors
//! cost a look at each object, and anybody may ask with hundreds of requests at once;
//! without this, probes would wait until all of them are through.

/// Objects that are looked at in one turn. With a hundred requirements, the most that a
/// selector may have, that takes a fraction of a millisecond.
pub const TURN: usize = 256;

/// What is left of a turn.
#[derive(Debug, Default)]
pub struct ListPace {
    looked: usize,
}

impl ListPace {
    /// Counts `objects` that were looked at; lets others run if the turn is over, which it
    /// tells.
    pub async fn looked(&mut self, objects: usize) -> bool {
        self.looked += objects;
        let over = self.looked >= TURN;
        if over {
            self.looked = 0;
            tokio::task::yield_now().await;
        }
        over
    }
}
