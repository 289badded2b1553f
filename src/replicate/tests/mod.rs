//! Tests of the leader election, and of followers, which copy the leader's operations. The tests
//! run in a simulated cluster, and most of them inject failures, such as a paused process or a lost
//! message.

mod election_scenarios;
mod follower_reads;
mod lease_contents_and_requests;
mod random_elections;
mod random_replicas;
mod simulated_election_cluster;
