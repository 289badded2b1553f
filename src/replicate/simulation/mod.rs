//! Parts of simulated clusters: processes with their own clocks, which can be paused between any
//! two steps, and a Lease in a kube-apiserver that loses and delays requests.
//!
//! A simulation runs on tokio's paused clock and on one thread. All random choices come from a
//! seed, so the same seed gives the same run.

mod client;
mod invariants;
mod leases;
mod network;
mod process;
mod replica;
mod subjects;

pub use client::{Client, Held};
pub use invariants::{Invariants, State};
pub use leases::{Faults, LeaseClient, SimulatedLeases};
pub use network::{Network, NetworkFaults};
pub use process::Process;
pub use replica::{Surroundings, WholeReplica};
pub use subjects::Subjects;
