//! The invariants that the simulations of complete replicas check.
//!
//! The main invariant is: if two replicas or clients have the same resourceVersion, they have the
//! same operations. [`Invariants`] records the first observation of each resourceVersion, with a
//! fingerprint (a hash) of the operations. Each later observation of this resourceVersion must have
//! the same fingerprint.

use crate::index::{self, Cursor, IndexEntry, IndexReader, Key, ReadVersion, Rv, Scope};
use crate::replicate::Leadership;
use futures::FutureExt as _;
use ifo_api::live::{Phase, State};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard};

/// The observations of all replicas and clients, and the violated invariants. Clones share the
/// observations.
#[derive(Clone, Default)]
pub struct Invariants(Arc<Mutex<ObservedStates>>);

#[derive(Default)]
struct ObservedStates {
    /// For each resourceVersion: the fingerprint of its state, and the name of the replica or
    /// client that observed it first.
    states: BTreeMap<Rv, (u64, String)>,
    terms: Vec<Leadership>,
    /// True if the simulation can delete the Lease or replace it by an older version.
    ///
    /// A leader reserves resourceVersions in the Lease before it issues them. If the Lease is
    /// deleted or replaced, a new leader may not know the reservation of the last leader. So two
    /// leaders may reserve the same resourceVersions. But they must not issue the same
    /// resourceVersions.
    loses_reservations: bool,
    violations: Vec<String>,
}

impl Invariants {
    /// Records the violation of an invariant.
    pub fn violation(&self, what: String) {
        self.lock().violations.push(what);
    }

    /// Records that the simulation can delete the Lease or replace it by an older version.
    pub fn lose_reservations(&self) {
        self.lock().loses_reservations = true;
    }

    /// Records the start of a leadership term (the time for which one leader holds the Lease).
    /// Checks that all recorded resourceVersions are below the first resourceVersion of the term.
    pub fn record_term(&self, leadership: &Leadership) {
        let mut seen = self.lock();
        if let Some((last, (_, at))) = seen.states.last_key_value()
            && *last >= leadership.start
        {
            let violation = format!("{leadership:?} does not begin above {last}, which {at} has");
            seen.violations.push(violation);
        }
        seen.terms.push(leadership.clone());
    }

    /// Records that the replica or client `at` has `state` at the resourceVersion `rv`. Compares
    /// `state` with earlier observations of `rv`.
    pub fn record_state(&self, rv: Rv, state: &ObjectHashes, at: &str) {
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

    /// Returns the recorded violations. If the simulation cannot delete or replace the Lease, also
    /// returns a violation for each pair of consecutive terms whose reserved resourceVersions
    /// overlap.
    pub fn violations(&self) -> Vec<String> {
        let seen = self.lock();
        let mut violations = seen.violations.clone();
        let mut terms: Vec<_> = seen.terms.iter().collect();
        terms.sort_by_key(|term| term.start);
        for pair in terms.windows(2) {
            if !seen.loses_reservations && pair[0].granted() >= pair[1].start {
                violations.push(format!("terms share reserved versions: {pair:?}"));
            }
        }
        violations
    }

    /// Returns the number of leadership terms, and the number of observed resourceVersions.
    pub fn counts(&self) -> (usize, usize) {
        let seen = self.lock();
        (seen.terms.len(), seen.states.len())
    }

    /// Returns one of the 100 newest observed resourceVersions at random.
    pub fn some_version(&self, random: &mut fastrand::Rng) -> Option<Rv> {
        let seen = self.lock();
        let newest: Vec<Rv> = seen.states.keys().rev().take(100).copied().collect();
        random.choice(newest)
    }

    /// Returns a hash of all observations. Runs with the same seed have the same hash.
    pub fn fingerprint(&self) -> u64 {
        let seen = self.lock();
        let all = seen.states.iter();
        all.fold(0, |sum, (rv, (state, _))| {
            sum.wrapping_mul(31).wrapping_add(rv.0 ^ state)
        })
    }

    fn lock(&self) -> MutexGuard<'_, ObservedStates> {
        self.0.lock().expect("no lock holder panics")
    }
}

/// All objects at one resourceVersion, by key. The value is a hash of the object's JSON and of the
/// object's own resourceVersion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectHashes(BTreeMap<Key, u64>);

impl ObjectHashes {
    /// Returns the state that a list contains.
    pub fn of(entries: &[Arc<IndexEntry>]) -> Self {
        let entries = entries.iter();
        Self(
            entries
                .map(|entry| (entry.key().clone(), hash(entry)))
                .collect(),
        )
    }

    /// Applies a change as a client does. Returns false if the change contradicts the state, for
    /// example if it deletes an object that does not exist.
    pub fn apply(&mut self, change: &crate::index::IndexChange) -> bool {
        let Some(key) = change.key() else { return true };
        let before = match &change.after {
            Some(entry) => self.0.insert(key.clone(), hash(entry)),
            None => self.0.remove(key),
        };
        before == change.before.as_ref().map(|entry| hash(entry))
    }

    /// Returns a hash of all objects.
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

/// Returns a violation if an activity says that its namespace or the cluster is idle, although an
/// operation is in flight there.
fn idle_although_busy(entries: &[Arc<IndexEntry>]) -> Option<String> {
    let is_idle = |namespace: &str, name: &str| {
        let key = index::collection::ACTIVITIES.key(namespace, name);
        let mut entries = entries.iter();
        let activity = entries.find(|entry| *entry.key() == key)?;
        let idle = activity.object().activity()?.idle()?;
        Some(idle.status == "True")
    };
    for entry in entries {
        let Some(operation) = entry.object().operation() else {
            continue;
        };
        let status = &operation.status;
        let is_in_flight = status.phase == Phase::Active && status.state != State::Held;
        let namespace = &entry.key().namespace;
        let places = [(&**namespace, "namespace"), ("ifo-system", "cluster")];
        for (namespace, name) in places {
            if is_in_flight && is_idle(namespace, name) == Some(true) {
                let key = entry.key();
                return Some(format!(
                    "{namespace}/{name} is idle, but {key} is in flight"
                ));
            }
        }
    }
    None
}

/// Records the state of one replica's index at each resourceVersion.
pub struct IndexObserver {
    name: String,
    reader: IndexReader,
    invariants: Invariants,
    following: Option<(Cursor, ObjectHashes, Rv)>,
}

impl IndexObserver {
    pub fn new(name: String, reader: IndexReader, invariants: Invariants) -> Self {
        Self {
            name,
            reader,
            invariants,
            following: None,
        }
    }

    /// Records the state after each change since the last call.
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
                // The replica has replaced its index, or its ring buffer (the latest changes) no
                // longer has the next change. So the observer begins again with the current state.
                Some(Err(_)) => self.following = None,
                Some(Ok(changes)) => {
                    let versions: Vec<Rv> = changes.iter().map(|change| change.rv).collect();
                    for change in changes {
                        if change.rv <= *head {
                            let violation =
                                format!("{}: {} comes after {head}", self.name, change.rv);
                            self.invariants.violation(violation);
                        }
                        if !state.apply(&change) {
                            let violation = format!(
                                "{}: {change:?} does not match the state before it",
                                self.name
                            );
                            self.invariants.violation(violation);
                        }
                        *head = change.rv;
                        self.invariants.record_state(*head, state, &self.name);
                    }
                    for rv in versions {
                        self.check_activities(rv);
                    }
                }
            }
        }
    }

    /// If the replica can still list its state at the resourceVersion `rv`, compares this state
    /// with the recorded state.
    pub fn check(&self, rv: Rv) {
        if let Ok((rv, entries)) = self.reader.list(&index::OPERATIONS, ReadVersion::Exact(rv)) {
            self.invariants
                .record_state(rv, &ObjectHashes::of(&entries), &self.name);
        }
        self.check_activities(rv);
    }

    /// Checks that no activity is idle while an operation is in flight, if the replica can still
    /// list its state at the resourceVersion `rv`.
    fn check_activities(&self, rv: Rv) {
        let all = Scope::Everything;
        if let Ok((rv, entries)) = self.reader.list(&all, ReadVersion::Exact(rv))
            && let Some(violation) = idle_although_busy(&entries)
        {
            let violation = format!("{} at {rv}: {violation}", self.name);
            self.invariants.violation(violation);
        }
    }

    /// Records the oldest and the newest state of the replica, and follows the changes after the
    /// newest state. Returns false if the observer cannot follow the changes now.
    fn begin(&mut self) -> bool {
        self.check(self.reader.oldest());
        let Ok((rv, entries)) = self.reader.list(&index::OPERATIONS, ReadVersion::Latest) else {
            return false;
        };
        let state = ObjectHashes::of(&entries);
        self.invariants.record_state(rv, &state, &self.name);
        let cursor = self.reader.follow(rv, index::OPERATIONS).ok();
        self.following = cursor.map(|cursor| (cursor, state, rv));
        self.following.is_some()
    }
}
