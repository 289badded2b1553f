//! Code that the server and the kubectl plugin share: the choice of a proxy, the pager of lists,
//! the plural and scope of kinds, the reading of manifests and recordings, and the text of errors.

pub mod error;
pub mod kinds;
pub mod list;
pub mod manifest;
pub mod proxy;
pub mod recording;
