//! The simulated cluster in which the tests run the leader election and the copying of operations.
//!
//! A simulated cluster has replicas of the server, clients, a network, and a kube-apiserver with a
//! Lease. Each replica runs in a simulated process that has its own clocks and can be paused at
//! every await. The network and the kube-apiserver delay and lose messages.
//!
//! A simulation runs in one thread on tokio's paused clock, so it needs no real time for waiting.
//! All random choices come from a seed, so the same seed gives the same run.

mod client;
mod cluster;
mod invariants;
mod lease_server;
mod network;
mod process;
mod replica;
mod simulated_pipeline;

pub use client::{Client, ClientCopy};
pub use cluster::SimulatedCluster;
pub use invariants::{Invariants, ObjectHashes};
pub use lease_server::{Faults, LeaseClient, SimulatedLeases};
pub use network::{Network, NetworkFaults};
pub use process::SimulatedProcess;
pub use replica::{ReplicaEnvironment, WholeReplica};
pub use simulated_pipeline::Subjects;
