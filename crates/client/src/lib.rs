//! Code that the server and the kubectl plugin share. It chooses the proxy for a connection, finds
//! the resources and short names of kinds, decodes lists, reads manifests and recorded watches, and
//! formats errors. It also finds the API group that a user probably meant, and computes the delays
//! between attempts.

pub mod backoff;
pub mod error_text;
pub mod list;
pub mod manifest;
pub mod offline_kinds;
pub mod proxy;
pub mod recorded_watch;
pub mod served_resource;
pub mod short_names;
mod similar_group;

pub use similar_group::similar_group;
