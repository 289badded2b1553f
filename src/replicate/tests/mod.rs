//! Tests of elections between simulated replicas.

mod cluster;
mod lease;
mod random;
mod replicas;
mod scenarios;
mod view;
