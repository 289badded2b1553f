//! An entry of the index (the objects in memory): one object at one version.

use super::{Key, Rv};
use ifo_api::Object;
use std::mem::size_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Approximate memory of an operation without its texts, in bytes: the object, its labels and its
/// conditions.
const OPERATION_BYTES: usize = 1500;

/// Maximum size of the cached JSON of all entries together, in bytes. This is the JSON of about
/// 8,000 operations. If the maximum is reached, the JSON of further entries is encoded for each
/// answer.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// Size of the cached JSON of all entries, in bytes.
static CACHED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// One object at one version.
#[derive(Debug)]
pub struct IndexEntry {
    key: Key,
    rv: Rv,
    object: Object,
    /// The JSON of the object with its version. The first answer that contains the object sets it.
    json: OnceLock<Box<[u8]>>,
}

impl IndexEntry {
    pub(super) fn new(key: Key, rv: Rv, object: Object) -> Self {
        Self {
            key,
            rv,
            object,
            json: OnceLock::new(),
        }
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
        self.append_json(&mut json);
        json
    }

    /// Appends the JSON of the object with its version to `out`. Caches the JSON, unless the cached
    /// JSON of all entries would exceed 16 MiB.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        if let Some(json) = self.json.get() {
            out.extend_from_slice(json);
            return;
        }
        let start = out.len();
        self.object.append_json(self.rv, out);
        let json = &out[start..];
        let may_cache = CACHED_BYTES.fetch_add(json.len(), Relaxed) < MAX_CACHED_BYTES;
        // Another thread can have set the JSON meanwhile.
        if !may_cache || self.json.set(json.into()).is_err() {
            CACHED_BYTES.fetch_sub(json.len(), Relaxed);
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let texts = self.object.reason_and_message();
        let message = texts.map_or(0, |(_, message)| message.len());
        size_of::<Self>() + OPERATION_BYTES + message
    }
}

impl Drop for IndexEntry {
    fn drop(&mut self) {
        let cached = self.json.get().map_or(0, |json| json.len());
        CACHED_BYTES.fetch_sub(cached, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::example;
    use serde_json::json;

    #[test]
    fn the_json_is_encoded_once() {
        let object = example::object(&json!({}));
        let entry = IndexEntry::new(Key::new("a", "x"), Rv(7), object);
        let first = entry.json();
        let cached = entry.json.get().map(|json| json.as_ptr());
        assert!(cached.is_some());
        assert_eq!(entry.json(), first);
        assert_eq!(entry.json.get().map(|json| json.as_ptr()), cached);
        let decoded: serde_json::Value = serde_json::from_slice(&first).unwrap();
        assert_eq!(decoded["metadata"]["resourceVersion"], "7");
    }
}
