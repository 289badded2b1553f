//! Views of the index. Enters: a scope and a version. Leaves: the objects of the one
//! exactly as of the other, or a cursor that goes on from there.

use super::ring::Ring;
use super::{Bounds, Cursor, Gone, IndexEntry, Key, ListScope, ReadVersion, Rv};
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

/// How often a list of the newest state starts over when the ring has dropped what it
/// must undo, before it makes the writer wait for it: that takes a writer that fills the
/// ring within the time of one scan, and a second such time in a row is rare.
const TRIES: usize = 3;

/// The entries of one namespace. In the order of their names, so a list need not sort
/// them.
pub(super) type Names = BTreeMap<Arc<str>, Arc<IndexEntry>>;

/// What the writer and the readers share: one state and its history. Nobody takes one of the
/// two locks, the ring's and that of a part of the map, for writing while holding the other.
pub(super) struct IndexState {
    pub map: DashMap<Arc<str>, Names>,
    pub len: AtomicUsize,
    /// The published version.
    pub head: watch::Sender<Rv>,
    ring: RwLock<Ring>,
}

impl fmt::Debug for IndexState {
    /// Without what is in it, which is much and takes locks.
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

    /// Ends the history: another state has taken the place of this one. Every cursor is
    /// woken, and gets [`Gone`].
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

    /// What the map has at `key`.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<IndexEntry>> {
        self.map
            .get(&*key.namespace)
            .and_then(|names| names.get(&*key.name).cloned())
    }

    /// What the map has in `scope`, in order: no state that ever was, if the writer is
    /// at work.
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
                // Names without a namespace lie between those with one.
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

/// Turns what a scan has found into the state at `rv`, with what [`Ring::old`] gave
/// after it. Usually that is little, so it costs no comparison for each entry.
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
        // The scan may have come by before the change did.
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

/// A shared view. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IndexReader {
    /// The state that counts now. [`Writer::replace`](super::Writer::replace) replaces it.
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

    /// The ring's lower boundary: a watch may start there, or at any later change.
    pub fn oldest(&self) -> Rv {
        self.shared().ring().floor()
    }

    /// Waits until the published version is at least `rv`; false when `limit` ran out,
    /// or the writer is gone.
    pub async fn reached(&self, rv: Rv, limit: Duration) -> bool {
        let mut current = self.current.clone();
        let reached = async {
            loop {
                let mut head = current.borrow_and_update().head.subscribe();
                tokio::select! {
                    // The replacement comes first: the head of the old state ends with it.
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

    /// The objects of `scope`, in the order of their keys, exactly as of the version
    /// returned: for [`ReadVersion::Exact`] that very one.
    ///
    /// # Errors
    ///
    /// [`Gone`] for an exact version that the ring does not know: one that it has dropped,
    /// one that was never the version of a change here, and one above the head (who wants
    /// that waits for it with [`IndexReader::reached`] first).
    pub fn list(
        &self,
        scope: &ListScope,
        at: ReadVersion,
    ) -> Result<(Rv, Vec<Arc<IndexEntry>>), Gone> {
        match at {
            ReadVersion::Latest => Ok(self.latest(scope)),
            ReadVersion::Exact(rv) => {
                let shared = self.shared();
                shared.check(rv)?;
                Ok((rv, shared.state(scope, rv)?))
            }
        }
    }

    /// One object, now, with the version as of which that is so.
    pub fn get(&self, key: &Key) -> (Rv, Option<Arc<IndexEntry>>) {
        let (rv, mut found) = self.latest(&ListScope::Object(key.clone()));
        (rv, found.pop())
    }

    /// Changes of `scope` after `rv`, which must be a change's version or the lower
    /// boundary; the head always is one of the two.
    ///
    /// # Errors
    ///
    /// [`Gone`] for any other version.
    pub fn follow(&self, rv: Rv, scope: ListScope) -> Result<Cursor, Gone> {
        let shared = self.shared();
        shared.check(rv)?;
        Ok(Cursor::new(shared, scope, rv))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared().len.load(Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that only the ring keeps in memory, as [`Bounds::bytes`] counts them.
    pub fn ring_bytes(&self) -> usize {
        self.shared().ring().bytes()
    }

    /// Age of the oldest change in the ring; zero if there is none.
    pub fn ring_age(&self) -> Duration {
        self.shared().ring().age(clock::steady())
    }

    /// The objects whose deletions the ring remembers, as they were before.
    pub fn deleted(&self) -> Vec<Arc<IndexEntry>> {
        self.shared().ring().deleted()
    }

    fn latest(&self, scope: &ListScope) -> (Rv, Vec<Arc<IndexEntry>>) {
        loop {
            // It fails only if the index was rebuilt meanwhile.
            if let Ok(found) = self.shared().latest(scope) {
                return found;
            }
        }
    }
}

impl IndexState {
    /// Whether `rv` is a version of this state, now or at some time that the ring remembers.
    fn check(&self, rv: Rv) -> Result<(), Gone> {
        let head = self.head();
        let ring = self.ring();
        // A change above the head is in the ring before it is published.
        if rv > head || !ring.knows(rv) {
            return Err(ring.gone(rv));
        }
        Ok(())
    }

    /// The state of `scope` at `rv`, a version from the lower boundary to the head.
    fn state(&self, scope: &ListScope, rv: Rv) -> Result<Vec<Arc<IndexEntry>>, Gone> {
        let found = self.scan(scope);
        let old = self.ring().old(scope, rv)?;
        Ok(undo(rv, found, old))
    }

    /// The newest state.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the state is retired.
    fn latest(&self, scope: &ListScope) -> Result<(Rv, Vec<Arc<IndexEntry>>), Gone> {
        for _ in 0..TRIES {
            let head = self.head();
            if let Ok(found) = self.state(scope, head) {
                return Ok((head, found));
            }
        }
        // Nothing enters the ring or leaves it for so long. What the writer does to the
        // map meanwhile is in the ring already.
        let ring = self.ring();
        let head = self.head();
        let found = self.scan(scope);
        // The lower boundary is not above the head, and neither moves down.
        let old = ring.old(scope, head)?;
        drop(ring);
        Ok((head, undo(head, found, old)))
    }
}
