//! Sends requests to the cluster: the connection, its kinds and rule sets, and the problems of answers.

pub(crate) mod api_client;
pub(crate) mod connect;
pub(crate) mod discovered_kinds;
pub(crate) mod problem;
pub(crate) mod rule_sets;
