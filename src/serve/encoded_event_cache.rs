//! A cache of encoded watch events. Each event is one line of JSON. Watches that request the same
//! form (whole objects, metadata or a table) share the bytes of a line. So a change is usually
//! encoded once for each form, and not once for each watch.
//!
//! The cache has only the latest lines. If a watch is far behind, the server encodes the lines for
//! this watch again.

use super::content_negotiation::ObjectForm;
use super::encode_objects::VersionedEntry;
use crate::clock;
use crate::index::{IndexEntry, Rv};
use bytes::Bytes;
use jiff::Timestamp;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of cached lines. A new line replaces an older line in the same slot. In a very busy
/// cluster, the cache has the lines of the last 10 to 100 milliseconds. With 2 KB for each line,
/// the cache takes 256 KB.
const MAX_LINES: usize = 128;

/// The cache of the latest lines of one resource.
pub struct LineCache {
    /// The lines. The hash of a line's key determines the slot of the line. So a lookup takes
    /// constant time, and watches that need lines in different slots do not wait for each other.
    slots: [Mutex<Option<EncodedLine>>; MAX_LINES],
}

struct EncodedLine {
    key: LineKey,
    /// The encoded object. On a follower (a replica that copies the leader's index), several
    /// objects can have the same version. So a lookup also compares the address of the object.
    /// While the weak reference exists, no other object can get the same address. The weak
    /// reference does not keep the content of the object in memory.
    entry: Weak<IndexEntry>,
    bytes: Bytes,
}

/// The values that determine the bytes of a line, apart from the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LineKey {
    kind: &'static str,
    rv: Rv,
    form: ObjectForm,
    /// True if the line contains the column definitions of a table.
    columns: bool,
    /// The time at which the line was encoded, in seconds since 1970. None if the form is not a
    /// table, because only tables contain ages.
    second: Option<i64>,
}

impl LineCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self {
            slots: [const { Mutex::new(None) }; MAX_LINES],
        }
    }

    /// Returns the line of an event about `entry`. `kind` is the type of the event, such as
    /// `ADDED`. `rv` is the resourceVersion in the line. If `rv` is None, the line has the version
    /// of `entry`. If the line is not in the cache, `encode` creates it.
    pub fn line(
        &self,
        kind: &'static str,
        entry: &Arc<IndexEntry>,
        rv: Option<Rv>,
        form: ObjectForm,
        columns: bool,
        encode: impl FnOnce(VersionedEntry<'_>, Timestamp) -> Bytes,
    ) -> Bytes {
        let now = clock::now();
        let key = LineKey {
            kind,
            rv: rv.unwrap_or(entry.rv()),
            form,
            columns,
            second: matches!(form, ObjectForm::Table { .. }).then(|| now.as_second()),
        };
        // This function holds the lock of the slot while it encodes the line. Other watches that
        // need the same line wait for the lock and then find the line in the cache.
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
        let slots = u64::try_from(MAX_LINES).expect("MAX_LINES is far below u64::MAX");
        usize::try_from(hasher.finish() % slots)
            .expect("the remainder is below MAX_LINES, which is a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{self, Bounds, Key, ListScope, ReadVersion, VersionAssignment, Write};
    use std::cell::Cell;
    use std::time::Duration;

    /// Returns two objects with the same version. A follower replica can have such objects.
    fn entries() -> Vec<Arc<IndexEntry>> {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(1),
        };
        let (mut writer, reader) = index::index_from(bounds, Rv(1));
        let put = |name: &str| Write::Put {
            key: Key {
                namespace: Arc::from("ns"),
                name: Arc::from(name),
            },
            json: format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).into_bytes(),
        };
        let batch = vec![put("a"), put("b")];
        writer
            .commit(batch, VersionAssignment::Exact(Rv(7)))
            .expect("both objects have metadata, and version 7 is newer than version 1");
        let (_, entries) = reader
            .list(&ListScope::Operations, ReadVersion::Latest)
            .expect("a list of the newest state cannot fail");
        entries
    }

    #[test]
    fn each_version_and_form_of_an_object_is_encoded_once() {
        let (lines, entries) = (LineCache::new(), entries());
        let partial = ObjectForm::Metadata { version: "v1" };
        let encoded = Cell::new(0_u8);
        let line = |kind, entry, rv, form, columns| {
            lines.line(kind, entry, rv, form, columns, |_, _| {
                encoded.set(encoded.get() + 1);
                Bytes::copy_from_slice(&[encoded.get()])
            })
        };
        let cases = [
            ("ADDED", &entries[0], None, ObjectForm::Whole, false),
            ("ADDED", &entries[1], None, ObjectForm::Whole, false),
            ("MODIFIED", &entries[0], None, ObjectForm::Whole, false),
            ("ADDED", &entries[0], Some(Rv(8)), ObjectForm::Whole, false),
            ("ADDED", &entries[0], None, partial, false),
            ("ADDED", &entries[0], None, ObjectForm::Whole, true),
        ];
        for (number, (kind, entry, rv, form, columns)) in (1..).zip(cases) {
            for _ in 0..3 {
                assert_eq!(line(kind, entry, rv, form, columns), [number].as_slice());
            }
        }
    }
}
