//! The invariants of every run.
//!
//! Input: the indexes of all replicas, and the events that clients receive. Output: violations.
//!
//! Each observed version is recorded with a fingerprint of its state. Another replica or client
//! must have the same state at that version.

use crate::index::{Cursor, IndexEntry, IndexReader, Key, ListScope, ReadVersion, Rv};
use crate::replicate::Leadership;
use futures::FutureExt as _;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard};

/// The observations of all replicas. Clones share them.
#[derive(Clone, Default)]
pub struct Invariants(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// The state at each version, and the place of its first observation.
    states: BTreeMap<Rv, (u64, String)>,
    terms: Vec<Leadership>,
    /// True if the Lease is replaced by older ones. Then a new replica cannot know the reservation,
    /// and only issued versions are compared.
    loses_reservations: bool,
    violations: Vec<String>,
}

impl Invariants {
    /// Records a violation.
    pub fn violation(&self, what: String) {
        self.lock().violations.push(what);
    }

    /// Allows from now on that the Lease is replaced by older ones, or deleted.
    pub fn lose_reservations(&self) {
        self.lock().loses_reservations = true;
    }

    /// Records the beginning of a term.
    pub fn begins(&self, leadership: &Leadership) {
        let mut seen = self.lock();
        if let Some((last, (_, at))) = seen.states.last_key_value()
            && *last > leadership.start
        {
            let violation = format!("{leadership:?} begins below {last}, which {at} has");
            seen.violations.push(violation);
        }
        seen.terms.push(leadership.clone());
    }

    /// Records the state of `at` at this version.
    pub fn state(&self, rv: Rv, state: &State, at: &str) {
        if rv == Rv(0) {
            return;
        }
        let mut seen = self.lock();
        let now = state.fingerprint();
        if let Some((before, there)) = seen.states.get(&rv) {
            if *before != now {
                let violation =
                    format!("{there} and {at} have different states at {rv}: {state:?}");
                seen.violations.push(violation);
            }
            return;
        }
        seen.states.insert(rv, (now, at.to_owned()));
    }

    /// Returns the violations.
    pub fn violations(&self) -> Vec<String> {
        let seen = self.lock();
        let mut violations = seen.violations.clone();
        let mut terms: Vec<_> = seen.terms.iter().collect();
        terms.sort_by_key(|term| term.start);
        for pair in terms.windows(2) {
            if !seen.loses_reservations && pair[0].granted() >= pair[1].start {
                violations.push(format!("terms share versions: {pair:?}"));
            }
        }
        violations
    }

    /// Returns the number of terms and of versions.
    pub fn counts(&self) -> (usize, usize) {
        let seen = self.lock();
        (seen.terms.len(), seen.states.len())
    }

    /// Returns observed versions, to request them from replicas.
    pub fn some_version(&self, random: &mut fastrand::Rng) -> Option<Rv> {
        let seen = self.lock();
        let newest: Vec<Rv> = seen.states.keys().rev().take(100).copied().collect();
        random.choice(newest)
    }

    /// Returns the sum of all fingerprints. Equal runs have the same sum.
    pub fn fingerprint(&self) -> u64 {
        let seen = self.lock();
        let all = seen.states.iter();
        all.fold(0, |sum, (rv, (state, _))| {
            sum.wrapping_mul(31).wrapping_add(rv.0 ^ state)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("nothing panics that holds it")
    }
}

/// The objects at one version: a hash of each, with its version and its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(BTreeMap<Key, u64>);

impl State {
    /// Returns the fingerprint of a list.
    pub fn of(entries: &[Arc<IndexEntry>]) -> Self {
        let entries = entries.iter();
        Self(
            entries
                .map(|entry| (entry.key().clone(), hash(entry)))
                .collect(),
        )
    }

    /// Applies a change as a client does. Returns false if it does not match the state.
    pub fn apply(&mut self, change: &crate::index::IndexChange) -> bool {
        let Some(key) = change.key() else { return true };
        let before = match &change.after {
            Some(entry) => self.0.insert(key.clone(), hash(entry)),
            None => self.0.remove(key),
        };
        before == change.before.as_ref().map(|entry| hash(entry))
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (key, hash) in &self.0 {
            (&key.namespace, &key.name, hash).hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn hash(entry: &IndexEntry) -> u64 {
    let mut hasher = DefaultHasher::new();
    (entry.rv().0, &entry.json()).hash(&mut hasher);
    hasher.finish()
}

/// Follows the index of one replica, and records the state at each of its versions.
pub struct Observer {
    name: String,
    reader: IndexReader,
    invariants: Invariants,
    following: Option<(Cursor, State, Rv)>,
}

impl Observer {
    pub fn new(name: String, reader: IndexReader, invariants: Invariants) -> Self {
        Self {
            name,
            reader,
            invariants,
            following: None,
        }
    }

    /// Records the changes since the last call.
    pub fn observe(&mut self) {
        loop {
            let Some((cursor, state, head)) = &mut self.following else {
                if !self.begin() {
                    return;
                }
                continue;
            };
            match cursor.next().now_or_never() {
                None => return,
                // The index was replaced, or its ring has dropped changes.
                Some(Err(_)) => self.following = None,
                Some(Ok(changes)) => {
                    for change in changes {
                        if change.rv <= *head {
                            let violation =
                                format!("{}: {} comes after {head}", self.name, change.rv);
                            self.invariants.violation(violation);
                        }
                        if !state.apply(&change) {
                            let violation = format!("{}: {change:?} does not fit", self.name);
                            self.invariants.violation(violation);
                        }
                        *head = change.rv;
                        self.invariants.state(*head, state, &self.name);
                    }
                }
            }
        }
    }

    /// Checks that the state at `rv` is the recorded one, if this replica has it.
    pub fn check(&self, rv: Rv) {
        if let Ok((rv, entries)) = self.reader.list(&ListScope::All, ReadVersion::Exact(rv)) {
            self.invariants.state(rv, &State::of(&entries), &self.name);
        }
    }

    fn begin(&mut self) -> bool {
        self.check(self.reader.oldest());
        let Ok((rv, entries)) = self.reader.list(&ListScope::All, ReadVersion::Latest) else {
            return false;
        };
        let state = State::of(&entries);
        self.invariants.state(rv, &state, &self.name);
        let cursor = self.reader.follow(rv, ListScope::All).ok();
        self.following = cursor.map(|cursor| (cursor, state, rv));
        self.following.is_some()
    }
}
