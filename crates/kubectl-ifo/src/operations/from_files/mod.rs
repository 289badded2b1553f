//! `--from DIR|FILE`: the second source of operations, besides a cluster. The `rules` commands read
//! their files with the same functions.
//!
//! The files are one of these:
//!
//! - a support bundle of `kubectl ifo support-bundle`
//! - a folder of `oc adm must-gather`
//! - the output of `kubectl get ifos -o yaml`
//!
//! [`FileContents`] has the objects in the files: operations, records of completed operations, rule
//! sets and Events. `ApiClient::list` reads these objects instead of sending a list request. If the
//! files do not contain the requested objects, the result is an error.
//!
//! ```text
//! read_files (folder, tar, gzip, text) ─▶ contents
//! ```

mod contents;
mod read_files;

pub(crate) use contents::FileContents;
pub(crate) use read_files::{FoundFile, read, text};
