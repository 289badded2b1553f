//! The one that changes the index. Enters: batches. Leaves: changes in the ring, then
//! in the map, then the published version.

use super::entry::Encoded;
use super::reader::Shared;
use super::{Bounds, Change, Entry, Error, Key, Layout, Reader, Rv, Stamp, Write};
use crate::clock;
use dashmap::Entry as Slot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::sync::watch;

/// How far another machine's clock may be ahead of ours for its versions to count.
const AHEAD: SignedDuration = SignedDuration::from_hours(1);

/// The only one that changes the index.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    head: watch::Sender<Rv>,
    layout: &'static Layout,
    /// Every version is above it.
    floor: Rv,
}

/// An empty index.
pub(super) fn pair(layout: &'static Layout, bounds: Bounds, start: Rv) -> (Writer, Reader) {
    let (head, published) = watch::channel(start);
    let shared = Arc::new(Shared::new(bounds, start));
    let writer = Writer {
        shared: shared.clone(),
        head,
        layout,
        floor: start,
    };
    (writer, Reader::new(shared, published))
}

impl Writer {
    /// Makes all versions to come be above `version`, which another index has issued. One
    /// that no clock near ours can have made is ignored: it would use the versions up.
    pub fn raise(&mut self, version: Rv) {
        let ahead = clock::now().checked_add(AHEAD).unwrap_or(Timestamp::MAX);
        if version <= Rv::of_clock(ahead) {
            self.floor = self.floor.max(version);
        } else {
            tracing::warn!(%version, "a resourceVersion that is far ahead of the time is ignored");
        }
    }

    /// Applies the batch in order and publishes the last version, which it returns: the
    /// head as it was, if nothing in the batch changes anything. Readers see all of the
    /// batch or nothing of it.
    ///
    /// # Errors
    ///
    /// If JSON is malformed, or the stamp is not above the head, or versions have run
    /// out. Nothing has changed then.
    pub fn commit(&mut self, batch: Vec<Write>, stamp: Stamp) -> Result<Rv, Error> {
        let head = self.head();
        let mut draft = Draft::new(self, stamp, head)?;
        for write in batch {
            draft.write(write)?;
        }
        let changes = draft.changes;
        let Some(last) = changes.last().map(|change| change.rv) else {
            return Ok(head);
        };

        let now = clock::steady();
        {
            let mut ring = self.shared.ring_mut();
            for change in &changes {
                ring.push(change.clone(), now);
            }
        }
        for change in changes {
            self.apply(change);
        }
        self.head.send_replace(last);
        self.let_go(now);
        Ok(last)
    }

    /// The entry at `key` now.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.shared.get(key)
    }

    /// The published version.
    pub fn head(&self) -> Rv {
        *self.head.borrow()
    }

    /// Drops from the ring what is too old at `now`. Each commit does this too; a timer
    /// may, so that an index at rest lets go of its past.
    pub fn trim(&mut self, now: Instant) {
        self.shared.ring_mut().trim(now, self.head());
    }

    /// Trims, and sees to it that what the ring keeps only while it is young goes even if
    /// nothing is committed any more. Without a runtime that waits for the next commit.
    fn let_go(&self, now: Instant) {
        let mut ring = self.shared.ring_mut();
        let more = ring.trim(now, self.head());
        if !more || ring.watched {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        ring.watched = true;
        drop(ring);
        let (shared, head) = (Arc::downgrade(&self.shared), self.head.subscribe());
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(Bounds::YOUNG).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let head = *head.borrow();
                let mut ring = shared.ring_mut();
                ring.watched = ring.trim(clock::steady(), head);
                if !ring.watched {
                    return;
                }
            }
        });
    }

    /// Changes the map. The ring has the change already.
    fn apply(&self, change: Change) {
        let Change { before, after, .. } = change;
        match (before, after) {
            (_, Some(after)) => {
                let Key { namespace, name } = after.key().clone();
                let mut names = self.shared.map.entry(namespace).or_default();
                if names.insert(name, after).is_none() {
                    self.shared.len.fetch_add(1, Relaxed);
                }
            }
            (Some(before), None) => {
                let Key { namespace, name } = before.key().clone();
                // Namespaces come and go; an empty one takes no room.
                if let Slot::Occupied(mut names) = self.shared.map.entry(namespace) {
                    if names.get_mut().remove(&name).is_some() {
                        self.shared.len.fetch_sub(1, Relaxed);
                    }
                    if names.get().is_empty() {
                        names.remove();
                    }
                }
            }
            (None, None) => {}
        }
    }
}

/// A batch while it is worked out: the changes that it will make, and what lies where
/// after them.
struct Draft<'a> {
    shared: &'a Shared,
    layout: &'static Layout,
    stamp: Stamp,
    head: Rv,
    /// The least version that the clock allows.
    clock: Rv,
    changes: Vec<Change>,
    /// Where `changes` has the last word on a key.
    drafted: HashMap<Key, usize>,
    /// One Arc for each namespace that is new.
    namespaces: HashSet<Arc<str>>,
}

impl<'a> Draft<'a> {
    fn new(writer: &'a Writer, stamp: Stamp, head: Rv) -> Result<Self, Error> {
        match stamp {
            Stamp::Exact(asked) if asked <= head => return Err(Error::NotAbove { asked, head }),
            Stamp::Exact(asked) if asked >= Rv::LIMIT => return Err(Error::Exhausted { head }),
            _ => {}
        }
        Ok(Self {
            shared: &writer.shared,
            layout: writer.layout,
            stamp,
            head,
            clock: Rv::of_clock(clock::now()).max(Rv(writer.floor.0 + 1)),
            changes: Vec::new(),
            drafted: HashMap::new(),
            namespaces: HashSet::new(),
        })
    }

    fn write(&mut self, write: Write) -> Result<(), Error> {
        let rv = self.next()?;
        let (before, after) = match write {
            Write::Put { key, json } => {
                let before = self.current(&key);
                let key = match &before {
                    Some(before) => before.key().clone(),
                    None => self.shared_namespace(key),
                };
                let after = match Encoded::new(rv, &json, self.layout) {
                    Ok(after) => after,
                    Err(source) => return Err(Error::Malformed { key, source }),
                };
                let same = |old: &Arc<Entry>| after.is_same_but_version(old);
                if matches!(self.stamp, Stamp::Mint) && before.as_ref().is_some_and(same) {
                    return Ok(());
                }
                (before, Some(Arc::new(after.pack(key))))
            }
            Write::Delete { key } => match self.current(&key) {
                None => return Ok(()),
                before => (before, None),
            },
        };
        let change = Change { rv, before, after };
        self.drafted
            .insert(change.key().clone(), self.changes.len());
        self.changes.push(change);
        Ok(())
    }

    /// The version of the next change.
    fn next(&self) -> Result<Rv, Error> {
        match self.stamp {
            Stamp::Exact(rv) => Ok(rv),
            Stamp::Mint => {
                let last = self.changes.last().map_or(self.head, |change| change.rv);
                let next = self.clock.max(Rv(last.0.saturating_add(1)));
                if next >= Rv::LIMIT {
                    return Err(Error::Exhausted { head: self.head });
                }
                Ok(next)
            }
        }
    }

    fn current(&self, key: &Key) -> Option<Arc<Entry>> {
        match self.drafted.get(key) {
            Some(&change) => self.changes[change].after.clone(),
            None => self.shared.get(key),
        }
    }

    /// The key with the Arc of its namespace that others there have.
    fn shared_namespace(&mut self, key: Key) -> Key {
        let known = self.shared.map.get(&*key.namespace);
        let namespace = known.map(|names| names.key().clone()).or_else(|| {
            let new = self.namespaces.get(&key.namespace).cloned();
            new.or_else(|| {
                self.namespaces.insert(key.namespace.clone());
                None
            })
        });
        Key {
            namespace: namespace.unwrap_or(key.namespace),
            name: key.name,
        }
    }
}
