//! Detection of operations, without I/O and without a clock: data and time come in as
//! arguments, so the server, `kubectl ifo rules replay` and the tests run the same code.
//!
//! ```text
//! OperationRuleSet ──▶ rules ──RuleBook──▶ evaluate ──Evaluation──▶ track ──▶ Write
//!                                             ▲
//!                                 fields of one object, the time
//! ```

pub mod rules;

pub mod detect;

pub mod track;

pub mod replay;

mod clock;
mod meter;

pub use clock::ClockReading;
pub use meter::Meter;
