//! An entry of the index (the objects in memory): one object at one version.

use super::{Key, Rv};
use ifo_api::Object;
use std::mem::size_of;

/// Approximate memory of an operation without its texts, in bytes: the object, its labels and its
/// conditions.
const OPERATION_BYTES: usize = 1500;

/// One object at one version.
#[derive(Debug)]
pub struct IndexEntry {
    key: Key,
    rv: Rv,
    object: Object,
}

impl IndexEntry {
    pub(super) fn new(key: Key, rv: Rv, object: Object) -> Self {
        Self { key, rv, object }
    }

    /// Returns the namespace and name of the object.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the version of the object's last change.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// Returns the object, without its version.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the JSON of the object with its version.
    pub fn json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        self.object.append_json(self.rv, &mut json);
        json
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let texts = self.object.reason_and_message();
        let message = texts.map_or(0, |(_, message)| message.len());
        size_of::<Self>() + OPERATION_BYTES + message
    }
}
