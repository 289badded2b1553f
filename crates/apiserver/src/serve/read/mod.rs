//! Answers get, list and watch from the store.

pub mod get;
pub mod list;
pub mod watch;
