//! Reads operations from the cluster, or from files (`--from`), and follows their changes.

pub(crate) mod bundle_index;
pub(crate) mod from_files;
pub(crate) mod operation;
pub(crate) mod operation_source;
