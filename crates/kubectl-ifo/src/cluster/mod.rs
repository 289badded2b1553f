//! Connects to the cluster and sends requests. Finds the kinds and the rule sets of the cluster,
//! and defines the errors that commands report.

pub(crate) mod api_client;
pub(crate) mod connect;
pub(crate) mod discovered_kinds;
pub(crate) mod problem;
pub(crate) mod rule_sets;
