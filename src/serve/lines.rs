//! The newest lines of watches. Enters: a change as it is to be shown, and how to encode
//! it. Leaves: the line's bytes, which all watchers share that show it in the same form:
//! a change is encoded once for each form, however many watch.
//!
//! Nothing depends on a line being here. A watcher that is far behind finds its slots
//! taken and encodes for itself.

use super::encode::Shown;
use super::negotiate::Form;
use crate::clock;
use crate::index::{IndexEntry, Rv};
use bytes::Bytes;
use jiff::Timestamp;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Lines that are kept: those of some ten milliseconds of a very busy cluster, in a few
/// forms. With 2 KB each they take 256 KB at most where operations are of the usual size.
const SLOTS: usize = 128;

/// The newest lines of one resource.
pub struct LineCache {
    /// Each key has one place, so finding a line costs the same however many there are,
    /// and watchers of different changes do not wait for each other.
    slots: [Mutex<Option<EncodedLine>>; SLOTS],
}

struct EncodedLine {
    key: LineKey,
    /// Tells changes of the same version apart, as a mirror has them. Weak keeps the
    /// address from being used again, without keeping the object.
    entry: Weak<IndexEntry>,
    bytes: Bytes,
}

/// All that a line depends on, besides the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LineKey {
    kind: &'static str,
    rv: Rv,
    form: Form,
    columns: bool,
    /// Tables show ages, which count in seconds.
    second: Option<i64>,
}

impl LineCache {
    /// None yet.
    pub fn new() -> Self {
        Self {
            slots: [const { Mutex::new(None) }; SLOTS],
        }
    }

    /// The line of `entry`'s event of this kind, at the version `at` or its own. `encode`
    /// makes it, unless another watcher has done so.
    pub fn line(
        &self,
        kind: &'static str,
        entry: &Arc<IndexEntry>,
        at: Option<Rv>,
        form: Form,
        columns: bool,
        encode: impl FnOnce(Shown<'_>, Timestamp) -> Bytes,
    ) -> Bytes {
        let now = clock::now();
        let key = LineKey {
            kind,
            rv: at.unwrap_or(entry.rv()),
            form,
            columns,
            second: matches!(form, Form::Table { .. }).then(|| now.as_second()),
        };
        // Held while encoding, so that of the watchers that wake together one encodes.
        let mut slot = self.slots[key.slot()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = &*slot
            && line.key == key
            && std::ptr::eq(line.entry.as_ptr(), Arc::as_ptr(entry))
        {
            return line.bytes.clone();
        }
        let shown = Shown { entry, rv: key.rv };
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
        let slots = u64::try_from(SLOTS).expect("it is small");
        usize::try_from(hasher.finish() % slots).expect("it is below SLOTS")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{self, Bounds, CommitVersion, Key as Place, ListScope, ReadVersion, Write};
    use std::cell::Cell;
    use std::time::Duration;

    /// Two objects, which a mirror has at the same version.
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
            .commit(batch, CommitVersion::Exact(Rv(7)))
            .expect("two objects");
        let (_, entries) = reader
            .list(&ListScope::All, ReadVersion::Latest)
            .expect("the state");
        entries
    }

    #[test]
    fn each_object_kind_version_and_form_is_encoded_once() {
        let (lines, entries) = (LineCache::new(), entries());
        let partial = Form::Metadata { version: "v1" };
        let encoded = Cell::new(0_u8);
        let line = |kind, entry, at, form, columns| {
            lines.line(kind, entry, at, form, columns, |_, _| {
                encoded.set(encoded.get() + 1);
                Bytes::copy_from_slice(&[encoded.get()])
            })
        };
        let others = [
            ("ADDED", &entries[0], None, Form::Whole, false),
            ("ADDED", &entries[1], None, Form::Whole, false),
            ("MODIFIED", &entries[0], None, Form::Whole, false),
            ("ADDED", &entries[0], Some(Rv(8)), Form::Whole, false),
            ("ADDED", &entries[0], None, partial, false),
            ("ADDED", &entries[0], None, Form::Whole, true),
        ];
        for (number, (kind, entry, at, form, columns)) in (1..).zip(others) {
            for _ in 0..3 {
                assert_eq!(line(kind, entry, at, form, columns), [number].as_slice());
            }
        }
    }
}
