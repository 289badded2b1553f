//! An entry of the store: one object at one version.

use super::{Key, Rv};
use crate::Model;
use std::mem::size_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Maximum size of the cached JSON of all entries together, in bytes. While the maximum is reached,
/// the store caches no further JSON. Each answer then encodes the objects whose JSON is not cached.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// Size of the cached JSON of all entries, in bytes.
static CACHED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// One object at one version.
#[derive(Debug)]
pub struct Entry<M: Model> {
    key: Key,
    rv: Rv,
    object: M::Object,
    /// The cached JSON of the object with its version. The first answer that contains the object
    /// caches the JSON, unless [`MAX_CACHED_BYTES`] is reached.
    json: OnceLock<Box<[u8]>>,
}

impl<M: Model> Entry<M> {
    pub(super) fn new(key: Key, rv: Rv, object: M::Object) -> Self {
        Self {
            key,
            rv,
            object,
            json: OnceLock::new(),
        }
    }

    /// Returns an entry with the same key, but with another version and another object. The new
    /// entry shows one user only the part of the object that this user may see. It is not in the
    /// store.
    #[must_use]
    pub fn replaced(&self, rv: Rv, object: M::Object) -> Self {
        Self::new(self.key.clone(), rv, object)
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
    pub fn object(&self) -> &M::Object {
        &self.object
    }

    /// Returns the JSON of the object with its version.
    pub fn json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        self.append_json(&mut json);
        json
    }

    /// Appends the JSON of the object with its version to `out`. Caches the JSON, unless the cached
    /// JSON of all entries has already reached 16 MiB.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        if let Some(json) = self.json.get() {
            out.extend_from_slice(json);
            return;
        }
        let start = out.len();
        M::append_json(&self.object, self.rv, out);
        let json = &out[start..];
        let may_cache = CACHED_BYTES.fetch_add(json.len(), Relaxed) < MAX_CACHED_BYTES;
        // `set` fails if another thread has set the JSON in the meantime.
        if !may_cache || self.json.set(json.into()).is_err() {
            CACHED_BYTES.fetch_sub(json.len(), Relaxed);
        }
    }

    #[cfg(test)]
    pub(super) fn cached_json(&self) -> Option<&[u8]> {
        self.json.get().map(|json| &**json)
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + M::bytes(&self.object)
    }
}

impl<M: Model> Drop for Entry<M> {
    fn drop(&mut self) {
        let cached = self.json.get().map_or(0, |json| json.len());
        CACHED_BYTES.fetch_sub(cached, Relaxed);
    }
}
