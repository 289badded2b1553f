//! Reads the arguments that select operations, and checks them.

pub(crate) mod arguments;
pub(crate) mod filter;
pub(crate) mod filter_check;
pub(crate) mod label_selector;
pub(crate) mod resource_argument;
