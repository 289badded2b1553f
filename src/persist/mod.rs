//! Optional: operations as real custom resources. Enters: the index, by a cursor like any
//! watcher's. Leaves: about two writes for each operation.

mod convert;

pub use convert::{from_cr, name_of, to_cr};
