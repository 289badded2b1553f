//! What every actor of the scenario has in its hands: the world, the clock, dice and
//! the speed at which time is played.

use crate::demo::random::Dice;
use crate::demo::store::World;
use crate::demo::time::WorldTime;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many operations the stories that take turns may show together. With the half
/// dozen that are always under way this fills a terminal and not more.
const TURNS: usize = 7;

/// One actor's access to the world.
pub(super) struct Stage {
    /// The objects.
    pub world: World,
    /// This actor's own randomness, so that the actors do not disturb each other's.
    pub dice: Dice,
    speed: f64,
    turns: Arc<Semaphore>,
}

impl Stage {
    /// `speed` 1 is real time, 2 is twice as fast.
    pub fn new(world: World, seed: u64, speed: f64) -> Self {
        Self {
            world,
            dice: Dice::new(seed),
            speed,
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }

    /// A stage for another actor in the same world.
    pub fn fork(&mut self) -> Self {
        Self {
            world: self.world.clone(),
            dice: Dice::new(self.dice.roll()),
            speed: self.speed,
            turns: Arc::clone(&self.turns),
        }
    }

    /// Waits between `low` and `high` milliseconds of the scenario's time.
    pub async fn wait(&mut self, low: u64, high: u64) {
        let played = Duration::from_millis(self.dice.between(low, high));
        tokio::time::sleep(played.div_f64(self.speed)).await;
    }

    /// Waits between `low` and `high` seconds of the scenario's time.
    pub async fn wait_seconds(&mut self, low: u64, high: u64) {
        self.wait(low * 1_000, high * 1_000).await;
    }

    /// Waits until there is room for a story that shows about so many operations at
    /// once, in the order in which the stories asked. The room is given back when the
    /// permit is dropped.
    pub async fn turn(&self, operations: u32) -> OwnedSemaphorePermit {
        let turns = Arc::clone(&self.turns).acquire_many_owned(operations);
        turns.await.expect("the semaphore is never closed")
    }

    /// The time in the world.
    pub fn time(&self) -> WorldTime {
        self.world.time()
    }

    /// The time now, as objects carry it.
    pub fn now(&self) -> String {
        self.time().stamp()
    }
}
