//! Reads the store. A reader returns the objects in a scope (for example one namespace) at a
//! version. A reader also creates cursors, which deliver the changes after a version.

use super::ring::Ring;
use super::{Bounds, Cursor, Entry, Key, ReadVersion, Rv, Scope, VersionUnavailable};
use crate::{Model, clock};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::watch;

/// The state that the writer and the readers share.
pub(super) struct State<M: Model> {
    objects: RwLock<Objects<M>>,
    /// The newest version. It changes only while `objects` is locked for writing.
    pub head: watch::Sender<Rv>,
}

/// The current objects and the latest changes.
pub(super) struct Objects<M: Model> {
    /// The current objects in the order of lists.
    pub map: BTreeMap<Key, Arc<Entry<M>>>,
    pub ring: Ring<M>,
    /// How often [`Writer::replace`](super::Writer::replace) has replaced all objects. A cursor
    /// cannot continue after a replacement, because the ring has no changes from the old objects to
    /// the new objects.
    pub replacements: u64,
}

impl<M: Model> std::fmt::Debug for State<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl<M: Model> State<M> {
    pub(super) fn new(bounds: Bounds, start: Rv) -> Self {
        Self {
            objects: RwLock::new(Objects {
                map: BTreeMap::new(),
                ring: Ring::new(bounds, start),
                replacements: 0,
            }),
            head: watch::Sender::new(start),
        }
    }

    pub(super) fn head(&self) -> Rv {
        *self.head.borrow()
    }

    /// Locks the objects for reading. The caller holds the lock only while it copies references.
    pub(super) fn objects(&self) -> RwLockReadGuard<'_, Objects<M>> {
        self.objects
            .read()
            .expect("no code panics while it holds this lock")
    }

    /// Locks the objects for writing.
    pub(super) fn objects_mut(&self) -> RwLockWriteGuard<'_, Objects<M>> {
        self.objects
            .write()
            .expect("no code panics while it holds this lock")
    }
}

impl<M: Model> Objects<M> {
    /// Returns the current objects in `scope`, sorted by key.
    fn scan(&self, scope: &Scope) -> Vec<Arc<Entry<M>>> {
        match scope {
            Scope::Object(key) => self.map.get(key).cloned().into_iter().collect(),
            Scope::Namespace(namespace) => {
                // Keys of another namespace can lie between the keys of this namespace. For
                // example, the key `a` in the namespace `records/x` lies between the keys `w` and
                // `y` in the namespace `records`.
                let first = Key::new(Arc::clone(namespace), "");
                let rest = self.map.range(first..);
                let nearby = rest.take_while(|(key, _)| key.namespace.starts_with(&**namespace));
                let own = nearby.filter(|(key, _)| key.namespace == *namespace);
                own.map(|(_, entry)| Arc::clone(entry)).collect()
            }
            Scope::Collection(_) | Scope::Everything => {
                let all = self.map.iter().filter(|(key, _)| scope.contains(key));
                all.map(|(_, entry)| Arc::clone(entry)).collect()
            }
        }
    }
}

/// Returns the objects at the version `rv`. `found` are the current objects. `old` are the objects
/// that have been replaced or deleted since `rv`, in the version that they had at `rv`.
fn undo<M: Model>(
    rv: Rv,
    mut found: Vec<Arc<Entry<M>>>,
    old: Vec<Arc<Entry<M>>>,
) -> Vec<Arc<Entry<M>>> {
    found.retain(|entry| entry.rv() <= rv);
    if !old.is_empty() {
        found.extend(old);
        found.sort_by(|a, b| a.key().cmp(b.key()));
    }
    found
}

/// The version of a list, and its entries in the order of their keys.
pub type Listed<M> = (Rv, Vec<Arc<Entry<M>>>);

/// A reader of the store. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Reader<M: Model>(pub(super) Arc<State<M>>);

impl<M: Model> Reader<M> {
    /// Returns the newest published version.
    pub fn head(&self) -> Rv {
        self.0.head()
    }

    /// Returns the oldest version that can be read. A watch may start at this version or at the
    /// version of any later change.
    pub fn oldest(&self) -> Rv {
        self.0.objects().ring.oldest_readable
    }

    /// Waits until the published version is at least `rv`. Returns false if this takes longer than
    /// `limit`.
    pub async fn wait_until_reached(&self, rv: Rv, limit: Duration) -> bool {
        let mut head = self.0.head.subscribe();
        let reached = tokio::time::timeout(limit, head.wait_for(|&head| head >= rv)).await;
        reached.is_ok()
    }

    /// Returns the objects in `scope`, sorted by key, and the version of this state. For
    /// [`ReadVersion::Exact`], the returned version is the requested version.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] if an exact version cannot be read.
    pub fn list(&self, scope: &Scope, at: ReadVersion) -> Result<Listed<M>, VersionUnavailable> {
        let objects = self.0.objects();
        match at {
            ReadVersion::Latest => Ok((self.head(), objects.scan(scope))),
            ReadVersion::Exact(rv) => {
                objects.ring.check(rv)?;
                let old = objects.ring.old(scope, rv)?;
                Ok((rv, undo(rv, objects.scan(scope), old)))
            }
        }
    }

    /// Returns one object, and the newest version of the store at the time of the read.
    pub fn get(&self, key: &Key) -> (Rv, Option<Arc<Entry<M>>>) {
        let objects = self.0.objects();
        (self.head(), objects.map.get(key).cloned())
    }

    /// Returns a cursor that delivers the changes in `scope` after `rv`. `rv` must be the published
    /// version of a change in the ring buffer, or the result of [`Reader::oldest`]. The newest
    /// published version is always valid.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] for any other version.
    pub fn follow(&self, rv: Rv, scope: Scope) -> Result<Cursor<M>, VersionUnavailable> {
        let objects = self.0.objects();
        objects.ring.check(rv)?;
        Ok(Cursor::new(&self.0, &objects, scope, rv))
    }

    /// Returns a cursor that delivers the changes in `scope` after the newest version.
    pub fn follow_newest(&self, scope: Scope) -> Cursor<M> {
        Cursor::new(&self.0, &self.0.objects(), scope, self.head())
    }

    /// Returns the current objects in `scope`, sorted by key, and a cursor that delivers the
    /// changes after them.
    pub fn list_and_follow(&self, scope: Scope) -> (Vec<Arc<Entry<M>>>, Cursor<M>) {
        let objects = self.0.objects();
        let found = objects.scan(&scope);
        (found, Cursor::new(&self.0, &objects, scope, self.head()))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.objects().map.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the ring buffer in bytes, which [`Bounds::bytes`] limits.
    pub fn ring_bytes(&self) -> usize {
        self.0.objects().ring.bytes
    }

    /// Returns the age of the oldest change in the ring buffer, or zero if there is no change.
    pub fn ring_age(&self) -> Duration {
        self.0.objects().ring.age(clock::steady())
    }
}
