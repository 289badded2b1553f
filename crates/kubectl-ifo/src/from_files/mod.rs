//! `--from DIR|FILE`: the second source of operations, besides a cluster.
//!
//! The files are one of these:
//!
//! - a support bundle of `kubectl ifo support-bundle`
//! - a folder of `oc adm must-gather`
//! - the output of `kubectl get ifos -o yaml`
//!
//! [`FileContents`] has the objects in the files: operations, records of completed operations, rule
//! sets and Events. `ApiClient::list` takes them from there instead of a list request. If the files
//! do not contain the requested objects, the result is an error.
//!
//! ```text
//! read_files (folder, gzip, text) · archive (tar) ─▶ file_contents (time), resources ─▶ objects
//! ```

mod archive;
mod file_contents;
mod objects;
mod read_files;
mod resources;

pub(super) use file_contents::FileContents;
pub(crate) use read_files::MAX_FILE_BYTES;
