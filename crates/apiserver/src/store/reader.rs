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
            }),
            head: watch::Sender::new(start),
        }
    }

    pub(super) fn head(&self) -> Rv {
        *self.head.borrow()
    }

    /// Ends this state, because a new state has replaced it. All cursors get an error.
    pub(super) fn retire(&self) {
        self.objects_mut().ring.retire();
        self.head.send_modify(|_| {});
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
/// that have been changed or deleted since `rv`, as they were at `rv`.
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
pub struct Reader<M: Model> {
    /// The current state. [`Writer::replace`](super::Writer::replace) replaces it.
    current: watch::Receiver<Arc<State<M>>>,
}

impl<M: Model> Reader<M> {
    pub(super) fn new(current: watch::Receiver<Arc<State<M>>>) -> Self {
        Self { current }
    }

    pub(super) fn shared(&self) -> Arc<State<M>> {
        self.current.borrow().clone()
    }

    /// Returns the newest published version.
    pub fn head(&self) -> Rv {
        self.shared().head()
    }

    /// Returns the oldest version that can be read. A watch may start at this version or at the
    /// version of any later change.
    pub fn oldest(&self) -> Rv {
        self.shared().objects().ring.oldest_readable
    }

    /// Waits until the published version is at least `rv`. Returns false if this takes longer than
    /// `limit`, or if the writer was dropped.
    pub async fn wait_until_reached(&self, rv: Rv, limit: Duration) -> bool {
        let mut current = self.current.clone();
        let reached = async {
            loop {
                let mut head = current.borrow_and_update().head.subscribe();
                tokio::select! {
                    // When the writer replaces the state, `current` changes first. Later, the
                    // channel of the old state's head is closed. So this code checks `current`
                    // first. Otherwise, it would mistake the closed channel for a dropped writer.
                    biased;
                    replaced = current.changed() => if replaced.is_err() {
                        return false;
                    },
                    reached = head.wait_for(|&head| head >= rv) => return reached.is_ok(),
                }
            }
        };
        tokio::time::timeout(limit, reached).await.unwrap_or(false)
    }

    /// Returns the objects in `scope`, sorted by key, and the version of this state. For
    /// [`ReadVersion::Exact`], the returned version is the requested version.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] if an exact version cannot be read.
    pub fn list(&self, scope: &Scope, at: ReadVersion) -> Result<Listed<M>, VersionUnavailable> {
        let shared = self.shared();
        let objects = shared.objects();
        let head = shared.head();
        match at {
            ReadVersion::Latest => Ok((head, objects.scan(scope))),
            ReadVersion::Exact(rv) => {
                objects.ring.check(rv)?;
                let old = objects.ring.old(scope, rv)?;
                Ok((rv, undo(rv, objects.scan(scope), old)))
            }
        }
    }

    /// Returns one object, and the version at which it was read.
    pub fn get(&self, key: &Key) -> (Rv, Option<Arc<Entry<M>>>) {
        let shared = self.shared();
        let objects = shared.objects();
        (shared.head(), objects.map.get(key).cloned())
    }

    /// Returns a cursor that delivers the changes in `scope` after `rv`. `rv` must be the published
    /// version of a change in the ring buffer, or the result of [`Reader::oldest`]. The newest
    /// published version is always valid.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] for any other version.
    pub fn follow(&self, rv: Rv, scope: Scope) -> Result<Cursor<M>, VersionUnavailable> {
        let shared = self.shared();
        shared.objects().ring.check(rv)?;
        Ok(Cursor::new(shared, scope, rv))
    }

    /// Returns a cursor that delivers the changes in `scope` after the newest version.
    pub fn follow_newest(&self, scope: Scope) -> Cursor<M> {
        let shared = self.shared();
        let head = shared.head();
        Cursor::new(shared, scope, head)
    }

    /// Returns the current objects in `scope`, sorted by key, and a cursor that delivers the
    /// changes after them.
    pub fn list_and_follow(&self, scope: Scope) -> (Vec<Arc<Entry<M>>>, Cursor<M>) {
        let shared = self.shared();
        let objects = shared.objects();
        let (head, found) = (shared.head(), objects.scan(&scope));
        drop(objects);
        (found, Cursor::new(shared, scope, head))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.shared().objects().map.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the ring buffer in bytes: its slots, and the replaced and deleted
    /// objects that only the ring buffer still refers to. [`Bounds::bytes`] limits this size.
    pub fn ring_bytes(&self) -> usize {
        self.shared().objects().ring.bytes
    }

    /// Returns the age of the oldest change in the ring buffer, or zero if there is no change.
    pub fn ring_age(&self) -> Duration {
        self.shared().objects().ring.age(clock::steady())
    }
}
