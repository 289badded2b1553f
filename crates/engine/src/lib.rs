//! Detection of operations, without I/O and without a clock: data and time come in as
//! arguments, so the server, `kubectl ifo rules replay` and the tests run the same code.
//!
//! ```text
//! OperationRuleSet ──▶ rules ──RuleBook──▶ detect ──FeedEvent──▶ track ──▶ Write
//!                                             ▲                    ▲
//!                                JSON of one object, the time   the time
//! ```
//!
//! [`replay`] runs all of it in virtual time. Each module depends on those before it only.

pub mod rules;

pub mod detect;

pub mod track;

pub mod replay;

mod clock;
mod meter;

pub use clock::ClockReading;
pub use meter::Meter;
