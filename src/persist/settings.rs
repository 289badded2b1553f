//! The settings of persistence mode, and what happens to waiting writes at the stop.

use std::time::Duration;

/// The settings that decide which operations are written, and when.
#[derive(Clone, Copy, Debug)]
pub struct PersistSettings {
    /// The shortest time between two writes of the same operation while it is in flight.
    pub resync: Duration,
    /// The delay before the queue writes the state `Settling`. Usually the operation ends before
    /// this delay has passed, and the queue writes only the end.
    pub settling: Duration,
    /// The pause after a request that fails because the CRD is missing, and the longest back-off
    /// after failures of a single object.
    pub requeue: Duration,
    /// True if the custom resources of completed operations are kept.
    pub retain: bool,
    /// The time for which completed operations are kept after their end.
    pub retain_for: Duration,
    /// The largest number of completed operations that are kept.
    pub retain_max: usize,
}

/// The treatment of waiting writes when this replica stops or releases the Lease. If this replica
/// loses the Lease, the task that sends the writes is aborted instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStop {
    /// The queue sends all waiting writes, for at most 10 s. A server without leader election uses
    /// this variant.
    WriteAll,
    /// The queue sends no more writes. It waits for at most 500 ms for the answers to writes that
    /// were already sent. The next leader sends the waiting writes.
    HandOver,
}

impl AtStop {
    /// Returns the longest time for which the queue continues after the stop.
    pub(super) fn limit(self) -> Duration {
        match self {
            // Before the queue stops, the server waits for 5 s. The sum of both times is less than
            // the grace period of the Pod, which is 30 s.
            Self::WriteAll => Duration::from_secs(10),
            // This replica releases the Lease only after the queue has stopped, so a longer limit
            // would delay the failover.
            Self::HandOver => Duration::from_millis(500),
        }
    }
}
