//! What the server and the kubectl plugin share as clients of a cluster, and as readers of
//! files.

pub mod error;
pub mod kinds;
pub mod list;
pub mod manifest;
pub mod proxy;
pub mod recording;
