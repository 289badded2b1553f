//! The controller of rule sets. It reads OperationRuleSets, looks their targets (the watched
//! resources) up in discovery, and receives reports of the feeds (the watches). It publishes one
//! compiled and numbered [`RuleBook`](ifo_engine::rules::RuleBook) for each target, and writes the
//! status of each rule set.

mod controller;
mod incomplete_rule_sets;
mod lookups;
mod registry;
mod report;
mod status;
mod status_cache;
mod status_writes;
mod target_state;

#[cfg(test)]
mod tests;

pub use controller::{Controller, Inputs, Outputs, RuleSetEvent};
pub use incomplete_rule_sets::IncompleteRuleSets;
pub use registry::{Feedback, Publication};
pub use report::{Report, Reporter};
pub use status_writes::{StatusAnswer, StatusSink, StatusWrite};
