//! The index: operations, records, activities and gaps in memory. A gap is a rule set that may miss
//! operations. The index is a store of the library [`aggregated_apiserver`]. The store contains the
//! objects of this server.

use aggregated_apiserver::store;
pub use aggregated_apiserver::store::{
    Bounds, Error, Key, ReadVersion, Rv, Scope, VersionAssignment, VersionUnavailable,
};
use arc_swap::ArcSwap;
pub use ifo_api::Object;
use ifo_client::short_names::ShortNames;
use ifo_engine::track;
use std::mem::size_of;

/// The model of the objects in the index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model;

impl aggregated_apiserver::Model for Model {
    type Object = Object;
    /// The short names of kinds, for the column Subject. A task of the server replaces them when
    /// they change.
    type Context = ArcSwap<ShortNames>;

    fn append_json(object: &Object, version: Rv, out: &mut Vec<u8>) {
        object.append_json(version, out);
    }

    fn append_metadata(object: &Object, version: Rv, out: &mut Vec<u8>) {
        object.append_metadata(version, out);
    }

    fn label<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
        object.label(key)
    }

    fn bytes(object: &Object) -> usize {
        let texts = object.reason_and_message();
        let message = texts.map_or(0, |(_, message)| message.len());
        size_of::<Object>() + OPERATION_BYTES + message
    }
}

/// Approximate memory of an operation on the heap, in bytes, with its labels and conditions but
/// without its message.
const OPERATION_BYTES: usize = 1500;

/// An object at one version.
pub type IndexEntry = store::Entry<Model>;
/// Reads the index.
pub type IndexReader = store::Reader<Model>;
/// A change of the index.
pub type IndexChange = store::Change<Model>;
/// The position of a watch in the changes of the index.
pub type Cursor = store::Cursor<Model>;
/// Writes the index.
pub type Writer = store::Writer<Model>;
/// A change that a [`Writer`] commits.
pub type Write = store::Write<Model>;
/// A resource that is served from an index.
pub type Resource = aggregated_apiserver::serve::Resource<Model>;

/// Creates an empty index. Its first version is the current time. If the clock was not set back,
/// this version is above the versions that an earlier process has issued.
pub fn index(bounds: Bounds) -> (Writer, IndexReader) {
    store::open(bounds)
}

/// Creates an empty index whose newest version is `start`. In a cluster, a replica starts with
/// version 0, which is below all versions of a leader. So a follower with a new index notices that
/// it must first copy the leader's whole index.
pub fn index_from(bounds: Bounds, start: Rv) -> (Writer, IndexReader) {
    store::open_from(bounds, start)
}

/// All operations.
pub const OPERATIONS: Scope = Scope::Collection(collection::OPERATIONS);
/// All records of completed operations.
pub const RECORDS: Scope = Scope::Collection(collection::RECORDS);
/// All activities.
pub const ACTIVITIES: Scope = Scope::Collection(collection::ACTIVITIES);

/// The collections of the index. [`ifo_api::Collection`] has the same prefixes.
pub mod collection {
    use aggregated_apiserver::store::Collection;

    /// Operations.
    pub const OPERATIONS: Collection = Collection::DEFAULT;
    /// Records of completed operations.
    pub const RECORDS: Collection = Collection::new("records/");
    /// Activities.
    pub const ACTIVITIES: Collection = Collection::new("activities/");
}

/// Converts a key of the engine into a key of the index.
pub fn index_key(key: ifo_api::Key) -> Key {
    Key {
        namespace: key.namespace.into(),
        name: key.name.into(),
    }
}

/// Converts a key of the index into a key of the engine.
pub fn engine_key(key: &Key) -> ifo_api::Key {
    ifo_api::Key {
        namespace: key.namespace.clone().into(),
        name: key.name.clone().into(),
    }
}

/// Converts a change of the engine into a change of the index.
pub fn index_write(write: track::Write) -> Write {
    match write {
        track::Write::Put { key, object } => Write::Put {
            key: index_key(key),
            object,
        },
        track::Write::Delete { key } => Write::Delete {
            key: index_key(key),
        },
    }
}
