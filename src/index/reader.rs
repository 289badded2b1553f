//! Views of the index. Input: a scope and a version. Output: the objects of the scope at this
//! version, or a cursor that continues after it.

use super::ring::Ring;
use super::{Bounds, Cursor, IndexEntry, Key, ListScope, ReadVersion, Rv, VersionUnavailable};
use crate::clock;
use dashmap::DashMap;
use ifo_api::compare_namespaces;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::watch;

/// Number of attempts to list the newest state without a lock. An attempt fails if the ring drops
/// changes that the list has to undo. This needs a writer that fills the ring during one scan, so
/// two failures in a row are rare. The next attempt makes the writer wait.
const MAX_ATTEMPTS: usize = 3;

/// The entries of one namespace, sorted by name, so that a list does not sort them.
pub(super) type Names = BTreeMap<Arc<str>, Arc<IndexEntry>>;

/// The state and its history, which the writer and the readers share. No thread locks the ring and
/// a part of the map for writing at the same time.
pub(super) struct IndexState {
    pub map: DashMap<Arc<str>, Names>,
    pub len: AtomicUsize,
    /// The published version.
    pub head: watch::Sender<Rv>,
    ring: RwLock<Ring>,
}

impl fmt::Debug for IndexState {
    /// Prints no content, because it is large and needs locks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl IndexState {
    pub(super) fn new(bounds: Bounds, start: Rv) -> Self {
        Self {
            map: DashMap::new(),
            len: AtomicUsize::new(0),
            head: watch::Sender::new(start),
            ring: RwLock::new(Ring::new(bounds, start)),
        }
    }

    /// The published version.
    pub(super) fn head(&self) -> Rv {
        *self.head.borrow()
    }

    /// Ends the history, because another state replaces this one. All cursors wake up and get
    /// [`VersionUnavailable`].
    pub(super) fn retire(&self) {
        self.ring_mut().retire();
        self.head.send_modify(|_| {});
    }

    pub(super) fn ring(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().expect("nothing panics that holds it")
    }

    pub(super) fn ring_mut(&self) -> RwLockWriteGuard<'_, Ring> {
        self.ring.write().expect("nothing panics that holds it")
    }

    /// Puts an entry into the map.
    pub(super) fn put(&self, entry: Arc<IndexEntry>) {
        let Key { namespace, name } = entry.key().clone();
        let mut names = self.map.entry(namespace).or_default();
        if names.insert(name, entry).is_none() {
            self.len.fetch_add(1, Relaxed);
        }
    }

    /// The entry of the map at `key`.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<IndexEntry>> {
        self.map
            .get(&*key.namespace)
            .and_then(|names| names.get(&*key.name).cloned())
    }

    /// The entries of the map in `scope`, sorted by key. If the writer is working, this is not the
    /// state at any version.
    pub(super) fn scan(&self, scope: &ListScope) -> Vec<Arc<IndexEntry>> {
        let mut found = Vec::new();
        match scope {
            ListScope::Object(key) => found.extend(self.get(key)),
            ListScope::Namespace(namespace) => self.scan_namespace(namespace, &mut found),
            ListScope::All => {
                let mut namespaces: Vec<Arc<str>> =
                    self.map.iter().map(|names| names.key().clone()).collect();
                namespaces.sort_unstable_by(|a, b| compare_namespaces(a, b));
                found.reserve(self.len.load(Relaxed));
                for namespace in &namespaces {
                    self.scan_namespace(namespace, &mut found);
                }
                // Names without a namespace are sorted between names with a namespace.
                if namespaces.len() > 1 && namespaces.iter().any(|name| name.is_empty()) {
                    found.sort_by(|a, b| a.key().cmp(b.key()));
                }
            }
        }
        found
    }

    fn scan_namespace(&self, namespace: &str, found: &mut Vec<Arc<IndexEntry>>) {
        if let Some(names) = self.map.get(namespace) {
            found.extend(names.values().cloned());
        }
    }
}

/// Turns the result of a scan into the state at `rv`, with the objects that [`Ring::old`] returned
/// after the scan. They are few, so most entries are not compared.
pub(super) fn undo(
    rv: Rv,
    mut found: Vec<Arc<IndexEntry>>,
    mut old: Vec<Arc<IndexEntry>>,
) -> Vec<Arc<IndexEntry>> {
    found.retain(|entry| entry.rv() <= rv);
    if old.is_empty() {
        return found;
    }
    old.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let mut state = Vec::with_capacity(found.len() + old.len());
    let mut rest = found.into_iter();
    for entry in old {
        let ahead = rest.as_slice();
        let smaller = ahead.partition_point(|other| other.key() < entry.key());
        // The scan may have read this key before the change was made.
        let there = ahead
            .get(smaller)
            .is_some_and(|next| Arc::ptr_eq(next, &entry));
        state.extend(rest.by_ref().take(smaller));
        if !there {
            state.push(entry);
        }
    }
    state.extend(rest);
    state
}

/// A shared view of the index. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct IndexReader {
    /// The current state. [`Writer::replace`](super::Writer::replace) replaces it.
    current: watch::Receiver<Arc<IndexState>>,
}

impl IndexReader {
    pub(super) fn new(current: watch::Receiver<Arc<IndexState>>) -> Self {
        Self { current }
    }

    pub(super) fn shared(&self) -> Arc<IndexState> {
        self.current.borrow().clone()
    }

    /// The published version.
    pub fn head(&self) -> Rv {
        self.shared().head()
    }

    /// The ring's lower boundary. A watch may start here or at any later change.
    pub fn oldest(&self) -> Rv {
        self.shared().ring().floor()
    }

    /// Waits until the published version is at least `rv`. Returns false after `limit`, or if the
    /// writer was dropped.
    pub async fn reached(&self, rv: Rv, limit: Duration) -> bool {
        let mut current = self.current.clone();
        let reached = async {
            loop {
                let mut head = current.borrow_and_update().head.subscribe();
                tokio::select! {
                    // The new state is set before the head of the old state ends.
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

    /// The objects of `scope` with the version at which they are exact, sorted by key. For
    /// [`ReadVersion::Exact`], this is the requested version.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] for an exact version that the ring does not have: it was dropped, it
    /// was never the version of a change, or it is above the head. To list a version above the
    /// head, wait for it with [`IndexReader::reached`] first.
    pub fn list(
        &self,
        scope: &ListScope,
        at: ReadVersion,
    ) -> Result<(Rv, Vec<Arc<IndexEntry>>), VersionUnavailable> {
        match at {
            ReadVersion::Latest => Ok(self.latest(scope)),
            ReadVersion::Exact(rv) => {
                let shared = self.shared();
                shared.check(rv)?;
                Ok((rv, shared.state(scope, rv)?))
            }
        }
    }

    /// One object, and the version at which it was read.
    pub fn get(&self, key: &Key) -> (Rv, Option<Arc<IndexEntry>>) {
        let (rv, mut found) = self.latest(&ListScope::Object(key.clone()));
        (rv, found.pop())
    }

    /// A cursor on the changes of `scope` after `rv`. `rv` must be the version of a change or the
    /// lower boundary. The head always is one of them.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] for any other version.
    pub fn follow(&self, rv: Rv, scope: ListScope) -> Result<Cursor, VersionUnavailable> {
        let shared = self.shared();
        shared.check(rv)?;
        Ok(Cursor::new(shared, scope, rv))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.shared().len.load(Relaxed)
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that only the ring keeps in memory, as [`Bounds::bytes`] counts them.
    pub fn ring_bytes(&self) -> usize {
        self.shared().ring().bytes()
    }

    /// Age of the oldest change in the ring. Zero if the ring is empty.
    pub fn ring_age(&self) -> Duration {
        self.shared().ring().age(clock::steady())
    }

    /// The objects whose deletions the ring still has, as they were before the deletion.
    pub fn deleted(&self) -> Vec<Arc<IndexEntry>> {
        self.shared().ring().deleted()
    }

    fn latest(&self, scope: &ListScope) -> (Rv, Vec<Arc<IndexEntry>>) {
        loop {
            // This fails only if the index was replaced in the meantime.
            if let Ok(found) = self.shared().latest(scope) {
                return found;
            }
        }
    }
}

impl IndexState {
    /// Returns true if `rv` is the current version, or an earlier one that the ring still has.
    fn check(&self, rv: Rv) -> Result<(), VersionUnavailable> {
        let head = self.head();
        let ring = self.ring();
        // A change enters the ring before its version is published.
        if rv > head || !ring.knows(rv) {
            return Err(ring.gone(rv));
        }
        Ok(())
    }

    /// The state of `scope` at `rv`, a version between the lower boundary and the head.
    fn state(&self, scope: &ListScope, rv: Rv) -> Result<Vec<Arc<IndexEntry>>, VersionUnavailable> {
        let found = self.scan(scope);
        let old = self.ring().old(scope, rv)?;
        Ok(undo(rv, found, old))
    }

    /// The newest state.
    ///
    /// # Errors
    ///
    /// [`VersionUnavailable`] if the state is retired.
    fn latest(&self, scope: &ListScope) -> Result<(Rv, Vec<Arc<IndexEntry>>), VersionUnavailable> {
        for _ in 0..MAX_ATTEMPTS {
            let head = self.head();
            if let Ok(found) = self.state(scope, head) {
                return Ok((head, found));
            }
        }
        // The lock keeps the ring unchanged. Changes that the writer now makes in the map are in
        // the ring already.
        let ring = self.ring();
        let head = self.head();
        let found = self.scan(scope);
        // The lower boundary is not above the head, and neither of them decreases.
        let old = ring.old(scope, head)?;
        drop(ring);
        Ok((head, undo(head, found, old)))
    }
}
