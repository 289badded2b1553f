//! Tests of the election and of followers, in simulated clusters. Most of them inject failures,
//! such as a paused process or a lost message.

mod cluster;
mod lease;
mod random_elections;
mod random_replicas;
mod scenarios;
mod view;
