//! Reads the store. A reader returns the objects in a scope (for example one namespace) at a
//! version. A reader also creates cursors, which deliver the changes after a version.

use super::key::compare_namespaces;
use super::ring::Ring;
use super::{Bounds, Cursor, Entry, Key, ReadVersion, Rv, Scope, VersionUnavailable};
use crate::{Model, clock};
use dashmap::DashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::watch;

/// Number of attempts to list the newest state without the lock of the ring buffer, which keeps the
/// latest changes. A list scans the map of the current objects, and the writer can change the map
/// during the scan. The list then replaces entries that are too new with older entries from the
/// ring buffer. If the ring buffer is so full that it has dropped these entries, the attempt fails.
/// Two failures in a row are rare. After the last attempt, the list holds the lock during the scan,
/// and the writer must wait.
const MAX_ATTEMPTS: usize = 3;

/// The entries of one namespace. They are sorted by name, so that a list need not sort them.
pub(super) type EntriesByName<M> = BTreeMap<Arc<str>, Arc<Entry<M>>>;

/// The objects and the latest changes, which the writer and the readers share. To avoid deadlocks,
/// no thread has write locks on the ring buffer and on a shard of the map at the same time.
pub(super) struct State<M: Model> {
    /// The current objects, by namespace.
    pub map: DashMap<Arc<str>, EntriesByName<M>>,
    /// Number of objects in `map`.
    pub len: AtomicUsize,
    /// The newest published version.
    pub head: watch::Sender<Rv>,
    ring: RwLock<Ring<M>>,
}

impl<M: Model> fmt::Debug for State<M> {
    /// Prints only the number of objects, because the content is large and needs locks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<M: Model> State<M> {
    pub(super) fn new(bounds: Bounds, start: Rv) -> Self {
        Self {
            map: DashMap::new(),
            len: AtomicUsize::new(0),
            head: watch::Sender::new(start),
            ring: RwLock::new(Ring::new(bounds, start)),
        }
    }

    /// Returns the newest published version.
    pub(super) fn head(&self) -> Rv {
        *self.head.borrow()
    }

    /// Drops all changes, because another state has replaced this state. All cursors on this state
    /// wake up and return [`VersionUnavailable`].
    pub(super) fn retire(&self) {
        self.ring_mut().retire();
        self.head.send_modify(|_| {});
    }

    pub(super) fn ring(&self) -> RwLockReadGuard<'_, Ring<M>> {
        self.ring
            .read()
            .expect("no code panics while it holds this lock")
    }

    pub(super) fn ring_mut(&self) -> RwLockWriteGuard<'_, Ring<M>> {
        self.ring
            .write()
            .expect("no code panics while it holds this lock")
    }

    /// Puts an entry into the map.
    pub(super) fn put(&self, entry: Arc<Entry<M>>) {
        let Key { namespace, name } = entry.key().clone();
        let mut entries = self.map.entry(namespace).or_default();
        if entries.insert(name, entry).is_none() {
            self.len.fetch_add(1, Relaxed);
        }
    }

    /// Returns the entry at `key`.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry<M>>> {
        self.map
            .get(&*key.namespace)
            .and_then(|entries| entries.get(&*key.name).cloned())
    }

    /// Returns the entries in `scope`, sorted by key. If the writer changes the map during the
    /// scan, the result can contain some changes and lack others. [`undo`] turns such a result into
    /// the state at one version.
    pub(super) fn scan(&self, scope: &Scope) -> Vec<Arc<Entry<M>>> {
        let mut found = Vec::new();
        match scope {
            Scope::Object(key) => found.extend(self.get(key)),
            Scope::Namespace(namespace) => self.scan_namespace(namespace, &mut found),
            Scope::Collection(_) | Scope::Everything => {
                let all = self.map.iter().map(|entries| entries.key().clone());
                let mut namespaces: Vec<Arc<str>> =
                    all.filter(|name| scope.has_namespace(name)).collect();
                namespaces.sort_unstable_by(|a, b| compare_namespaces(a, b));
                found.reserve(self.len.load(Relaxed));
                for namespace in &namespaces {
                    self.scan_namespace(namespace, &mut found);
                }
                // An object without a namespace has a key without a slash, such as `b`. The loop
                // above appends these objects together. But in the order of the keys, an object of
                // a namespace can be between two of them: `b`, `b-c/x`, `d`. So sort again.
                if namespaces.len() > 1 && namespaces.iter().any(|name| name.is_empty()) {
                    found.sort_by(|a, b| a.key().cmp(b.key()));
                }
            }
        }
        found
    }

    fn scan_namespace(&self, namespace: &str, found: &mut Vec<Arc<Entry<M>>>) {
        if let Some(entries) = self.map.get(namespace) {
            found.extend(entries.values().cloned());
        }
    }
}

/// Turns `found`, the result of a scan, into the state at the version `rv`. `old` contains each
/// object that has changed since `rv`, as it was at `rv`. The caller gets `old` from [`Ring::old`]
/// after the scan.
///
/// `old` usually has few objects. So a binary search in `found` for each of these objects is faster
/// than a merge of the two lists.
pub(super) fn undo<M: Model>(
    rv: Rv,
    mut found: Vec<Arc<Entry<M>>>,
    mut old: Vec<Arc<Entry<M>>>,
) -> Vec<Arc<Entry<M>>> {
    found.retain(|entry| entry.rv() <= rv);
    if old.is_empty() {
        return found;
    }
    old.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let mut state = Vec::with_capacity(found.len() + old.len());
    let mut rest = found.into_iter();
    for entry in old {
        let remaining = rest.as_slice();
        let smaller = remaining.partition_point(|other| other.key() < entry.key());
        // If the scan read this key before the writer replaced the entry, `found` already contains
        // the entry.
        let is_present = remaining
            .get(smaller)
            .is_some_and(|next| Arc::ptr_eq(next, &entry));
        state.extend(rest.by_ref().take(smaller));
        if !is_present {
            state.push(entry);
        }
    }
    state.extend(rest);
    state
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
        self.shared().ring().oldest_readable()
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
        match at {
            ReadVersion::Latest => Ok(self.latest(scope)),
            ReadVersion::Exact(rv) => {
                let shared = self.shared();
                shared.check(rv)?;
                Ok((rv, shared.entries_at(scope, rv)?))
            }
        }
    }

    /// Returns one object, and the version at which it was read.
    pub fn get(&self, key: &Key) -> (Rv, Option<Arc<Entry<M>>>) {
        let (rv, mut found) = self.latest(&Scope::Object(key.clone()));
        (rv, found.pop())
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
        shared.check(rv)?;
        Ok(Cursor::new(shared, scope, rv))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.shared().len.load(Relaxed)
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the entries that are in the ring buffer but no longer in the store, in
    /// bytes. [`Bounds::bytes`] limits this memory.
    pub fn ring_bytes(&self) -> usize {
        self.shared().ring().bytes()
    }

    /// Returns the age of the oldest change in the ring buffer, or zero if there is no change.
    pub fn ring_age(&self) -> Duration {
        self.shared().ring().age(clock::steady())
    }

    /// Returns the deleted objects whose deletions are still in the ring buffer, as they were
    /// before the deletion.
    pub fn deleted(&self) -> Vec<Arc<Entry<M>>> {
        self.shared().ring().deleted()
    }

    fn latest(&self, scope: &Scope) -> Listed<M> {
        loop {
            // An error means that the state was replaced during this attempt.
            if let Ok(found) = self.shared().latest(scope) {
                return found;
            }
        }
    }
}

impl<M: Model> State<M> {
    /// Succeeds if `rv` is the newest published version, or an earlier version that the ring buffer
    /// still has. Returns an error for every other version.
    fn check(&self, rv: Rv) -> Result<(), VersionUnavailable> {
        let head = self.head();
        let ring = self.ring();
        // The ring buffer can have changes whose versions are not published yet.
        if rv > head || !ring.has_version(rv) {
            return Err(ring.unavailable(rv));
        }
        Ok(())
    }

    /// Returns the objects in `scope` at the version `rv`. `rv` must not be above the published
    /// version.
    fn entries_at(&self, scope: &Scope, rv: Rv) -> Result<Vec<Arc<Entry<M>>>, VersionUnavailable> {
        let found = self.scan(scope);
        let old = self.ring().old(scope, rv)?;
        Ok(undo(rv, found, old))
    }

    /// Returns the newest version, and the objects in `scope` at this version.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] if another state has replaced this state.
    fn latest(&self, scope: &Scope) -> Result<Listed<M>, VersionUnavailable> {
        for _ in 0..MAX_ATTEMPTS {
            let head = self.head();
            if let Ok(found) = self.entries_at(scope, head) {
                return Ok((head, found));
            }
        }
        // While this lock is held, the ring buffer does not change. The writer adds each change to
        // the ring buffer before it changes the map. So the ring buffer has all changes that the
        // scan can find.
        let ring = self.ring();
        let head = self.head();
        let found = self.scan(scope);
        // The oldest version that can be read is never above the head. So an error means that
        // another state has replaced this state.
        let old = ring.old(scope, head)?;
        drop(ring);
        Ok((head, undo(head, found, old)))
    }
}
