//! Detects operations: compiles rule sets, evaluates their rules on objects, and tracks the
//! operations that the rules detect. This crate does no I/O and reads no clock: its callers pass
//! data and times as arguments. So `ifo-apiserver`, `kubectl ifo rules replay` and the tests run
//! the same code.
//!
//! ```text
//! OperationRuleSet ──▶ rules ──RuleBook──▶ detect ──FeedEvent──▶ track ──▶ Write
//!                                             ▲                    ▲
//!                                JSON of one object, the time   the time
//! ```
//!
//! A `RuleBook` contains the compiled rules for one resource. A `FeedEvent` contains the results of
//! the rules for one object. Other `FeedEvent`s report the deletion of an object, or a change of
//! the watch, such as an interruption. A `Write` is a change of an operation.
//!
//! [`activity`] reads the writes of `track`, and computes whether a part of the cluster is idle.
//! [`replay`] runs the other modules in virtual time. Each module depends only on earlier ones in
//! this order: `rules`, `detect`, `track`, `activity`, `replay`.

pub mod rules;

pub mod detect;

pub mod track;

pub mod activity;

pub mod replay;

mod clock_reading;
mod component_share;
mod metrics_interface;

pub use clock_reading::ClockReading;
pub use metrics_interface::Meter;
