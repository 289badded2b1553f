//! Tests of the leader election, and of followers, which copy the leader's operations. The tests
//! run in a simulated cluster, and most of them inject failures, such as a paused process or a lost
//! message.

mod copies;
mod elections;
mod follower_reads;
mod lease;
mod random_replicas;
