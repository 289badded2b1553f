//! The controller of rule sets. It reads OperationRuleSets, and looks up their targets (the watched
//! resources) in discovery. For each served target, the controller publishes one
//! [`RuleBook`](ifo_engine::rules::RuleBook) with the compiled rule sets of this target. The feeds
//! (the watches of the targets) report to the controller whether they are up to date. The
//! controller writes the status of each rule set.

mod compilations;
mod controller;
mod health;
mod registry;
mod rule_set;
mod states;
mod status;
mod status_writes;
mod tracked_target;

#[cfg(test)]
mod tests;

pub use compilations::{CompileResult, Compiler, compile_on_thread};
pub use controller::{Controller, Outputs, RuleSetEvent};
pub use states::Report;
pub use status_writes::{StatusAnswer, StatusSink, StatusWrite};
pub use tracked_target::Feedback;
