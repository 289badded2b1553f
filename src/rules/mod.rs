//! Rule sets of a cluster. Enters: OperationRuleSets, what discovery says of their targets,
//! what the feeds report. Leaves: one [`RuleBook`](ifo_engine::rules::RuleBook) per target,
//! compiled and numbered, and the status that each rule set's author reads.

mod controller;
mod coverage;
mod held;
mod lookups;
mod registry;
mod report;
mod status;
mod target;
mod writes;

#[cfg(test)]
mod tests;

pub use controller::{Controller, Inputs, Outputs, RuleSetEvent};
pub use coverage::Coverage;
pub use registry::{Feedback, Publication};
pub use report::{Report, Reporter};
pub use writes::{StatusAnswer, StatusSink, StatusWrite};
