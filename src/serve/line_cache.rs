//! A cache of the latest lines of watches. Input: a change in a form, and a function that encodes
//! it. Output: the bytes of the line. All watchers with the same form share them, so a change is
//! encoded once for each form.
//!
//! A line that is not in the cache is encoded again. This happens to watchers that are far behind.

use super::encode::VersionedEntry;
use super::negotiate::ObjectForm;
use crate::clock;
use crate::index::{IndexEntry, Rv};
use bytes::Bytes;
use jiff::Timestamp;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of cached lines: the lines of some ten milliseconds in a very busy cluster, in several
/// forms. With 2 KB each, they take 256 KB.
const MAX_LINES: usize = 128;

/// The latest lines of one resource.
pub struct LineCache {
    /// Each key has one slot. So a lookup has a constant cost, and watchers of different changes do
    /// not wait for each other.
    slots: [Mutex<Option<EncodedLine>>; MAX_LINES],
}

struct EncodedLine {
    key: LineKey,
    /// Distinguishes changes with the same version, which a mirror can have. The weak reference
    /// keeps the address from being used again without keeping the object.
    entry: Weak<IndexEntry>,
    bytes: Bytes,
}

/// Everything except the object that a line depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LineKey {
    kind: &'static str,
    rv: Rv,
    form: ObjectForm,
    columns: bool,
    /// The current second, because tables show ages.
    second: Option<i64>,
}

impl LineCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self {
            slots: [const { Mutex::new(None) }; MAX_LINES],
        }
    }

    /// The line of `entry`'s event of this kind, at the version `at` or its own version. `encode`
    /// is called if the line is not in the cache.
    pub fn line(
        &self,
        kind: &'static str,
        entry: &Arc<IndexEntry>,
        at: Option<Rv>,
        form: ObjectForm,
        columns: bool,
        encode: impl FnOnce(VersionedEntry<'_>, Timestamp) -> Bytes,
    ) -> Bytes {
        let now = clock::now();
        let key = LineKey {
            kind,
            rv: at.unwrap_or(entry.rv()),
            form,
            columns,
            second: matches!(form, ObjectForm::Table { .. }).then(|| now.as_second()),
        };
        // The lock is held while encoding, so that only one of several watchers encodes the line.
        let mut slot = self.slots[key.slot()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = &*slot
            && line.key == key
            && std::ptr::eq(line.entry.as_ptr(), Arc::as_ptr(entry))
        {
            return line.bytes.clone();
        }
        let shown = VersionedEntry { entry, rv: key.rv };
        let bytes = encode(shown, now);
        *slot = Some(EncodedLine {
            key,
            entry: Arc::downgrade(entry),
            bytes: bytes.clone(),
        });
        bytes
    }
}

impl LineKey {
    fn slot(&self) -> usize {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let slots = u64::try_from(MAX_LINES).expect("it is small");
        usize::try_from(hasher.finish() % slots).expect("it is below MAX_LINES")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{
        self, Bounds, Key as Place, ListScope, ReadVersion, VersionAssignment, Write,
    };
    use std::cell::Cell;
    use std::time::Duration;

    /// Two objects with the same version, as a mirror can have them.
    fn entries() -> Vec<Arc<IndexEntry>> {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(1),
        };
        let (mut writer, reader) = index::index_from(bounds, Rv(1));
        let put = |name: &str| Write::Put {
            key: Place {
                namespace: Arc::from("ns"),
                name: Arc::from(name),
            },
            json: format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).into_bytes(),
        };
        let batch = vec![put("a"), put("b")];
        writer
            .commit(batch, VersionAssignment::Exact(Rv(7)))
            .expect("two objects");
        let (_, entries) = reader
            .list(&ListScope::All, ReadVersion::Latest)
            .expect("the state");
        entries
    }

    #[test]
    fn each_version_and_form_of_an_object_is_encoded_once() {
        let (lines, entries) = (LineCache::new(), entries());
        let partial = ObjectForm::Metadata { version: "v1" };
        let encoded = Cell::new(0_u8);
        let line = |kind, entry, at, form, columns| {
            lines.line(kind, entry, at, form, columns, |_, _| {
                encoded.set(encoded.get() + 1);
                Bytes::copy_from_slice(&[encoded.get()])
            })
        };
        let others = [
            ("ADDED", &entries[0], None, ObjectForm::Whole, false),
            ("ADDED", &entries[1], None, ObjectForm::Whole, false),
            ("MODIFIED", &entries[0], None, ObjectForm::Whole, false),
            ("ADDED", &entries[0], Some(Rv(8)), ObjectForm::Whole, false),
            ("ADDED", &entries[0], None, partial, false),
            ("ADDED", &entries[0], None, ObjectForm::Whole, true),
        ];
        for (number, (kind, entry, at, form, columns)) in (1..).zip(others) {
            for _ in 0..3 {
                assert_eq!(line(kind, entry, at, form, columns), [number].as_slice());
            }
        }
    }
}
