//! Tests of the index, which keeps the operations in memory. A ring buffer in the index keeps the
//! latest changes for watches. One test lists and watches while another thread writes at full
//! speed. A property test compares the index with a simple model after random sequences of writes.

use futures::FutureExt;
use ifo::index::{
    Bounds, Cursor, IndexChange, IndexEntry, IndexReader, Key, OPERATIONS, ReadVersion, Rv, Scope,
    VersionAssignment, VersionUnavailable, Write, Writer, index,
};
use ifo_api::example;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A write to the index: the key of an object, and the number that the object contains. The number
/// is None if the write deletes the object.
type TestWrite = (Key, Option<u64>);

fn put(key: &Key, n: u64) -> Write {
    let message = n.to_string();
    Write::Put {
        key: key.clone(),
        object: example::object(&json!({"status": {"message": message}})),
    }
}

fn write((key, n): &TestWrite) -> Write {
    match n {
        Some(n) => put(key, *n),
        None => Write::Delete { key: key.clone() },
    }
}

fn number(entry: &IndexEntry) -> u64 {
    let (_, message) = entry.object().reason_and_message().unwrap();
    message.parse().unwrap()
}

/// Returns element `n` of a pseudorandom sequence.
fn scramble(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

const NAMESPACES: [&str; 5] = ["a", "a-b", "b", "c.d", "e"];

fn key(number: u64) -> Key {
    let namespace = usize::try_from(number % 5).unwrap();
    Key::new(NAMESPACES[namespace], format!("vm-{}", number / 5 % 20))
}

/// Commits batches of writes as fast as possible until `done` is true. Returns the writes of each
/// batch, and the version of the index after the batch.
fn write_until(done: &AtomicBool, writer: &mut Writer) -> Vec<(Rv, Vec<TestWrite>)> {
    let mut log: Vec<(Rv, Vec<TestWrite>)> = Vec::new();
    let mut now: BTreeMap<Key, u64> = BTreeMap::new();
    for n in 1_u64.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let random = scramble(n);
        let mut steps = Vec::new();
        for i in 0..=random % 4 {
            let key = key(scramble(random + i));
            let step = if scramble(random + i + 99).is_multiple_of(3) {
                now.remove(&key).map(|_| (key, None))
            } else {
                now.insert(key.clone(), n * 4 + i);
                Some((key, Some(n * 4 + i)))
            };
            steps.extend(step);
        }
        let rv = writer
            .commit(
                steps.iter().map(write).collect::<Vec<_>>(),
                VersionAssignment::Mint,
            )
            .unwrap();
        if !steps.is_empty() {
            log.push((rv, steps));
        }
    }
    log
}

/// The result of one round of reading: a list at the version `rv`, and the first changes of a watch
/// from this version. `scope` is the part of the index that both read, such as one namespace.
struct ReaderResult {
    scope: Scope,
    rv: Rv,
    listed: Vec<(Key, u64)>,
    watched: Vec<TestWrite>,
}

#[test]
fn lists_and_watches_beside_a_writer_at_full_speed_are_exact() {
    const LISTS: usize = 3_000;
    let (mut writer, reader) = index(Bounds {
        bytes: 64 << 20,
        age: Duration::from_mins(10),
    });
    let done = Arc::new(AtomicBool::new(false));
    let worker = std::thread::spawn({
        let done = done.clone();
        move || write_until(&done, &mut writer)
    });

    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut seen = Vec::new();
    let mut overtaken = 0;
    while seen.len() < LISTS {
        let (scope, want) = match seen.len() % 3 {
            0 => (OPERATIONS, 60),
            1 => (Scope::Namespace(NAMESPACES[seen.len() % 5].into()), 20),
            _ => (Scope::Object(key(scramble(seen.len() as u64))), 2),
        };
        let (rv, listed) = reader.list(&scope, ReadVersion::Latest).unwrap();
        let listed = listed
            .iter()
            .map(|entry| {
                assert!(entry.rv() <= rv);
                (entry.key().clone(), number(entry))
            })
            .collect();
        match runtime.block_on(watch(&reader, rv, &scope, want)) {
            Ok(watched) => seen.push(ReaderResult {
                scope,
                rv,
                listed,
                watched,
            }),
            // The ring buffer has already dropped the next change of this watch. This happens if
            // the operating system runs the writer, but not this thread, for some time.
            Err(_) => overtaken += 1,
        }
        assert!(
            overtaken < LISTS,
            "most watches fail: the ring buffer keeps no changes"
        );
    }
    done.store(true, Ordering::Relaxed);
    let log = worker.join().unwrap();

    seen.sort_by_key(|seen| seen.rv);
    let mut model: BTreeMap<Key, u64> = BTreeMap::new();
    let mut batches = log.iter();
    let mut at = 0;
    for seen in &seen {
        while at < log.len() && log[at].0 <= seen.rv {
            for (key, n) in &batches.next().unwrap().1 {
                match n {
                    Some(n) => model.insert(key.clone(), *n),
                    None => model.remove(key),
                };
            }
            at += 1;
        }
        let state: Vec<_> = model
            .iter()
            .filter(|(key, _)| seen.scope.contains(key))
            .map(|(key, n)| (key.clone(), *n))
            .collect();
        assert_eq!(seen.listed, state, "{:?} at {}", seen.scope, seen.rv);
        let after: Vec<_> = log[at..]
            .iter()
            .flat_map(|(_, steps)| steps)
            .filter(|(key, _)| seen.scope.contains(key))
            .take(seen.watched.len())
            .cloned()
            .collect();
        assert_eq!(seen.watched, after, "{:?} after {}", seen.scope, seen.rv);
    }
}

/// Watches a scope from version `rv`. Returns the first changes, at least `want` of them. If the
/// ring buffer has already dropped the next change, returns an error.
async fn watch(
    reader: &IndexReader,
    rv: Rv,
    scope: &Scope,
    want: usize,
) -> Result<Vec<TestWrite>, VersionUnavailable> {
    let mut cursor = reader.follow(rv, scope.clone())?;
    let mut watched = Vec::new();
    let mut last = rv;
    while watched.len() < want {
        for change in cursor.next().await? {
            assert!(change.rv > last, "{} after {last}", change.rv);
            last = change.rv;
            let key = change
                .key()
                .expect("this test writes and deletes only objects, so each change has a key")
                .clone();
            watched.push((key, change.after.as_deref().map(number)));
        }
        assert!(cursor.rv() >= last);
    }
    Ok(watched)
}

/// A simple model of the index. It keeps the state of the index at each version.
struct Model {
    past: Vec<Past>,
}

/// A write to the index, and the version and the state of the index after this write. In the first
/// element of [`Model::past`], `step` is None and the state is empty.
struct Past {
    rv: Rv,
    step: Option<TestWrite>,
    state: BTreeMap<Key, (Rv, u64)>,
}

impl Model {
    fn last(&self) -> &Past {
        self.past
            .last()
            .expect("the list begins with the empty state")
    }

    fn state(&self, rv: Rv) -> &BTreeMap<Key, (Rv, u64)> {
        let after = self.past.partition_point(|past| past.rv <= rv);
        &self.past[after - 1].state
    }

    /// Returns the writes for which the index must publish a change. `mirror` is true if the index
    /// is a follower's copy of the leader's index.
    ///
    /// | write | publishes a change |
    /// | --- | --- |
    /// | deletion of an absent object | never |
    /// | put with the content that the object already has | only if `mirror` is true |
    /// | any other write | always |
    fn changing(&self, steps: &[TestWrite], mirror: bool) -> Vec<TestWrite> {
        let last = self.last().state.iter();
        let mut now: BTreeMap<Key, u64> = last.map(|(key, (_, n))| (key.clone(), *n)).collect();
        let changes = |(key, n): &&TestWrite| match n {
            Some(n) => now.insert(key.clone(), *n) != Some(*n) || mirror,
            None => now.remove(key).is_some(),
        };
        steps.iter().filter(changes).cloned().collect()
    }

    fn record(&mut self, rv: Rv, step: TestWrite) {
        let mut state = self.last().state.clone();
        match &step {
            (key, Some(n)) => state.insert(key.clone(), (rv, *n)),
            (key, None) => state.remove(key),
        };
        let step = Some(step);
        self.past.push(Past { rv, step, state });
    }

    /// Compares the lists and watches of a scope with the model, at every version.
    fn check(&self, reader: &IndexReader, scope: &Scope) {
        let expected = |rv: Rv| -> Vec<_> {
            let state = self.state(rv).iter();
            let scoped = state.filter(|(key, _)| scope.contains(key));
            scoped.map(|(key, value)| (key.clone(), *value)).collect()
        };
        let seen = |entries: Vec<Arc<IndexEntry>>| -> Vec<_> {
            let one = |e: &Arc<IndexEntry>| (e.key().clone(), (e.rv(), number(e)));
            entries.iter().map(one).collect()
        };
        let (rv, entries) = reader.list(scope, ReadVersion::Latest).unwrap();
        assert_eq!(rv, self.last().rv);
        assert_eq!(seen(entries), expected(rv));

        for (i, past) in self.past.iter().enumerate() {
            let next = self.past.get(i + 1);
            if next.is_some_and(|next| next.rv == past.rv) {
                continue;
            }
            let before_next = next.map_or(past.rv, |next| Rv(next.rv.0 - 1));
            for at in [past.rv, before_next] {
                let oldest = reader.oldest();
                match reader.list(scope, ReadVersion::Exact(at)) {
                    Ok((rv, entries)) => {
                        assert!(at >= oldest && (at == past.rv || at == oldest));
                        assert_eq!(rv, at);
                        assert_eq!(seen(entries), expected(at), "at {at}");
                    }
                    Err(gone) => {
                        assert!(at < oldest || at != past.rv);
                        assert_eq!(gone, VersionUnavailable { asked: at, oldest });
                    }
                }
                match reader.follow(at, scope.clone()) {
                    Ok(cursor) => {
                        assert!(at >= oldest && (at == past.rv || at == oldest));
                        self.check_changes(i + 1, scope, cursor);
                    }
                    Err(gone) => {
                        assert!(at < oldest || at != past.rv);
                        assert_eq!(gone, VersionUnavailable { asked: at, oldest });
                    }
                }
            }
        }
    }

    /// Compares the changes that `cursor` returns with the changes in `self.past[from..]` that
    /// belong to `scope`.
    fn check_changes(&self, from: usize, scope: &Scope, cursor: Cursor) {
        let ours = |past: &&Past| scope.contains(&past.step.as_ref().unwrap().0);
        let mut expected = self.past[from..].iter().filter(ours);
        for change in ready(cursor) {
            let past = expected
                .next()
                .expect("the cursor must not return more changes than the model has");
            let (key, n) = past.step.as_ref().unwrap();
            assert_eq!((change.rv, change.key()), (past.rv, Some(key)));
            assert_eq!(change.after.as_deref().map(number), *n);
            let at = self.past.iter().position(|p| std::ptr::eq(p, past));
            let before = self.past[at.unwrap() - 1].state.get(key).copied();
            let old = change.before.as_deref().map(|old| (old.rv(), number(old)));
            assert_eq!(old, before);
        }
        assert!(
            expected.next().is_none(),
            "the cursor returned too few changes"
        );
    }
}

/// Returns all changes that a cursor returns before it would wait for further changes.
fn ready(mut cursor: Cursor) -> Vec<IndexChange> {
    let mut all = Vec::new();
    while let Some(changes) = cursor.next().now_or_never() {
        all.extend(changes.unwrap());
    }
    all
}

fn batches() -> impl Strategy<Value = Vec<Vec<TestWrite>>> {
    let namespace = prop_oneof![Just(""), Just("a"), Just("a-b"), Just("b")];
    let step = (namespace, 0..4_u8, prop::option::weighted(0.7, 0..3_u64))
        .prop_map(|(namespace, name, n)| (Key::new(namespace, format!("n{name}")), n));
    prop::collection::vec(prop::collection::vec(step, 0..5), 0..20)
}

proptest! {
    #[test]
    fn any_sequence_of_batches_reads_like_a_model(
        batches in batches(),
        bytes in prop_oneof![Just(usize::MAX), 0..30_000_usize],
        mirror in any::<bool>(),
        // If `old` is true, the test trims the ring buffer after each batch as if the batch were as
        // old as `Bounds::MIN_AGE`. The limit `bytes` applies only to changes of at least this age.
        old in any::<bool>(),
    ) {
        let bounds = Bounds { bytes, age: Duration::from_mins(10) };
        let (mut writer, reader) = index(bounds);
        let empty = Past { rv: reader.head(), step: None, state: BTreeMap::new() };
        let mut model = Model { past: vec![empty] };
        model.check(&reader, &OPERATIONS);
        for steps in batches {
            let head = writer.head();
            let changing = model.changing(&steps, mirror);
            let stamp = if mirror { VersionAssignment::Exact(Rv(head.0 + 10)) } else { VersionAssignment::Mint };
            let last = writer.commit(steps.iter().map(write).collect::<Vec<_>>(), stamp).unwrap();
            prop_assert_eq!(last, reader.head());
            let count = changing.len() as u64;
            if count == 0 {
                prop_assert_eq!(last, head);
            } else if mirror {
                prop_assert_eq!(last, Rv(head.0 + 10));
            } else {
                prop_assert!(last.0 >= head.0 + count);
            }
            for (i, step) in (1..).zip(changing) {
                // If the index assigns the versions, the changes of a batch have consecutive
                // versions.
                model.record(if mirror { last } else { Rv(last.0 - count + i) }, step);
            }
            prop_assert!(reader.ring_bytes() <= bounds.peak_bytes());
            if old {
                writer.trim(Instant::now() + Bounds::MIN_AGE);
                prop_assert!(reader.ring_bytes() <= bytes);
            }
            prop_assert_eq!(reader.len(), model.last().state.len());
        }
        for scope in [
            OPERATIONS,
            Scope::Namespace("a".into()),
            Scope::Namespace("".into()),
            Scope::Object(Key::new("a-b", "n1")),
        ] {
            model.check(&reader, &scope);
        }
    }
}
