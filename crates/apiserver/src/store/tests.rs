//! Tests of the store: lists while a writer writes, the
//! limits of the ring buffer (the recent changes), the versions, and the replacement of the whole
//! state.

use super::*;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

const MANY: Bounds = Bounds {
    bytes: 64 << 20,
    age: Duration::from_hours(1),
};

/// Objects that are numbers. Each of them counts 1,500 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Numbers;

impl Model for Numbers {
    type Object = u64;
    type Context = ();
    /// The tens.
    type Group = u64;

    fn group(_: &Key, object: &u64) -> Option<u64> {
        Some(object / 10)
    }

    fn append_json(object: &u64, version: Rv, out: &mut Vec<u8>) {
        out.extend(format!("{{\"n\":{object},\"version\":{version}}}").bytes());
    }

    fn append_metadata(_: &u64, version: Rv, out: &mut Vec<u8>) {
        out.extend(format!("{{\"version\":{version}}}").bytes());
    }

    fn label<'a>(_: &'a u64, _: &str) -> Option<&'a str> {
        None
    }

    fn bytes(_: &u64) -> usize {
        1500
    }
}

type Write = super::Write<Numbers>;
type Entry = super::Entry<Numbers>;
type Cursor = super::Cursor<Numbers>;
type Change = super::Change<Numbers>;
type Writer = super::Writer<Numbers>;
type Reader = super::Reader<Numbers>;

const DEFAULT: Scope = Scope::Collection(Collection::DEFAULT);

fn store(bounds: Bounds) -> (Writer, Reader) {
    open(bounds)
}

fn store_from(bounds: Bounds, start: Rv) -> (Writer, Reader) {
    open_from(bounds, start)
}

#[test]
fn the_json_is_encoded_once() {
    let (mut writer, reader) = store(MANY);
    let rv = writer
        .commit([put("a", "x", 7)], VersionAssignment::Mint)
        .unwrap();
    let (_, entry) = reader.get(&Key::new("a", "x"));
    let entry = entry.unwrap();
    assert!(entry.cached_json().is_none());
    let first = entry.json();
    let cached = entry.cached_json().map(<[u8]>::as_ptr);
    assert!(cached.is_some());
    assert_eq!(entry.json(), first);
    assert_eq!(entry.cached_json().map(<[u8]>::as_ptr), cached);
    assert_eq!(first, format!("{{\"n\":7,\"version\":{rv}}}").into_bytes());
}

#[test]
fn objects_of_a_group_share_it_in_later_states_too() {
    let (mut writer, reader) = store(MANY);
    let group = |name: &str| {
        let (_, entry) = reader.get(&Key::new("a", name));
        entry.unwrap().group().unwrap().clone()
    };
    let batch = [put("a", "x", 1), put("a", "y", 2), put("a", "z", 12)];
    writer.commit(batch, VersionAssignment::Mint).unwrap();
    let x = group("x");
    assert!(Arc::ptr_eq(&x, &group("y")));
    assert!(!Arc::ptr_eq(&x, &group("z")));

    let mut replacement = writer.replacement(writer.head());
    replacement.add(Key::new("a", "later"), Rv(1), 3);
    writer.replace(replacement);
    assert!(Arc::ptr_eq(&x, &group("later")));
}

fn put(namespace: &str, name: &str, n: u64) -> Write {
    Write::Put {
        key: Key::new(namespace, name),
        object: n,
    }
}

fn delete(namespace: &str, name: &str) -> Write {
    Write::Delete {
        key: Key::new(namespace, name),
    }
}

/// Returns the key, the version and the number of each object. The number is the argument `n` of
/// [`put`].
fn shown(entries: &[Arc<Entry>]) -> Vec<(String, Rv, String)> {
    entries
        .iter()
        .map(|entry| {
            let number = entry.object().to_string();
            (entry.key().to_string(), entry.rv(), number)
        })
        .collect()
}

/// Returns all changes that a cursor returns without waiting.
fn read_available(mut cursor: Cursor) -> Vec<Change> {
    let mut all = Vec::new();
    while let Some(changes) = cursor.next().now_or_never() {
        all.extend(changes.unwrap());
    }
    all
}

#[test]
fn lists_beside_a_fast_writer_are_exact() {
    let (mut writer, reader) = store(MANY);
    let mut at = reader.head();
    let done = Arc::new(AtomicBool::new(false));
    let (log, states) = mpsc::channel();
    let worker = std::thread::spawn({
        let done = done.clone();
        move || {
            // A pair is two objects of the same name, in the namespaces `a` and `z`. At a published
            // version, the objects of a pair always have the same number.
            for n in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let pair = (n % 50).to_string();
                let batch = if n % 7 == 0 {
                    vec![delete("a", &pair), delete("z", &pair)]
                } else {
                    vec![put("a", &pair, n), put("z", &pair, n)]
                };
                let rv = writer.commit(batch, VersionAssignment::Mint).unwrap();
                let number = (n % 7 != 0).then(|| n.to_string());
                // The receiver is dropped at the end of the test.
                if log.send((rv, pair, number)).is_err() {
                    return;
                }
            }
        }
    });

    let mut model = BTreeMap::new();
    for _ in 0..2_000 {
        let (rv, listed) = reader.list(&DEFAULT, ReadVersion::Latest).unwrap();
        while at < rv {
            let (then, pair, n) = states.recv().unwrap();
            match n {
                Some(n) => model.insert(pair, n),
                None => model.remove(&pair),
            };
            at = then;
        }
        assert_eq!(at, rv, "a version in the middle of a batch was published");
        let expected: Vec<_> = ["a", "z"]
            .iter()
            .flat_map(|ns| {
                model
                    .iter()
                    .map(move |(k, v)| (format!("{ns}/{k}"), v.clone()))
            })
            .collect();
        let seen: Vec<_> = shown(&listed).into_iter().map(|(k, _, n)| (k, n)).collect();
        assert_eq!(seen, expected, "at version {rv}");
    }
    done.store(true, Ordering::Relaxed);
    drop(states);
    worker.join().unwrap();
}

/// Returns the number of bytes that one replaced object takes in the ring buffer.
fn replaced_weight() -> usize {
    let (mut writer, reader) = store(MANY);
    let empty = reader.ring_bytes();
    writer
        .commit(vec![put("w", "w", 1)], VersionAssignment::Mint)
        .unwrap();
    let added = reader.ring_bytes();
    writer
        .commit(vec![put("w", "w", 2)], VersionAssignment::Mint)
        .unwrap();
    let replaced = reader.ring_bytes();
    assert!(
        added - empty < 100,
        "the bytes of the ring must not include the current object"
    );
    replaced - added
}

/// Trims the ring buffer as if all changes were at least as old as [`Bounds::MIN_AGE`].
fn trim_as_old(writer: &mut Writer) {
    writer.trim(Instant::now() + Bounds::MIN_AGE);
}

#[test]
fn the_ring_counts_only_its_own_bytes_and_stays_within_its_limit() {
    let one = replaced_weight();
    assert!((1_000..3_000).contains(&one), "{one}");

    let bytes = 10 * one;
    let (mut writer, reader) = store(Bounds { bytes, ..MANY });
    let first = reader.head();
    for n in 0..100 {
        writer
            .commit(vec![put("w", "w", n % 9)], VersionAssignment::Mint)
            .unwrap();
        trim_as_old(&mut writer);
        assert!(reader.ring_bytes() <= bytes);
    }
    assert!(
        reader.ring_bytes() > bytes - one,
        "the ring buffer must not drop more changes than necessary"
    );
    assert!(reader.oldest() > first);
    let kept = reader.follow(reader.oldest(), DEFAULT).unwrap();
    assert_eq!(read_available(kept).len(), 10);
}

#[test]
fn the_ring_drops_old_changes_and_the_state_is_kept() {
    let age = Duration::from_mins(1);
    let (mut writer, reader) = store(Bounds { age, ..MANY });
    assert_eq!(reader.ring_age(), Duration::ZERO);
    let first = writer
        .commit(vec![put("a", "x", 1)], VersionAssignment::Mint)
        .unwrap();
    let second = writer
        .commit(vec![put("a", "x", 2)], VersionAssignment::Mint)
        .unwrap();
    assert!(reader.ring_age() > Duration::ZERO);

    writer.trim(Instant::now());
    assert!(reader.list(&DEFAULT, ReadVersion::Exact(first)).is_ok());
    let later = Instant::now() + age + Duration::from_secs(1);
    writer.trim(later);
    assert!(
        reader.list(&DEFAULT, ReadVersion::Exact(first)).is_ok(),
        "the ring must keep `MIN_CHANGES` changes even if they are old"
    );
    let newest = (0..Bounds::MIN_CHANGES).map(|n| {
        let number = u64::try_from(n).unwrap() + 3;
        writer.commit(vec![put("a", "x", number)], VersionAssignment::Mint)
    });
    let newest = newest.last().unwrap().unwrap();
    writer.trim(later);
    assert_eq!((reader.oldest(), reader.head()), (second, newest));
    assert!(reader.list(&DEFAULT, ReadVersion::Exact(first)).is_err());
    let (rv, entries) = reader.list(&DEFAULT, ReadVersion::Exact(second)).unwrap();
    assert_eq!(shown(&entries), [("a/x".into(), rv, "2".into())]);
    let kept = reader.follow(second, DEFAULT).unwrap();
    assert_eq!(read_available(kept).len(), Bounds::MIN_CHANGES);
}

/// The limits that the server uses.
const SERVER_BOUNDS: Bounds = Bounds {
    bytes: 12 << 20,
    age: Duration::from_mins(5),
};
/// The number of operations for which the limits of the server are chosen.
const OPERATIONS: usize = 10_000;

/// Returns a write of the operation number `n`.
fn operation(n: usize, is_completed: bool) -> Write {
    let n_of_two = 2 * u64::try_from(n).unwrap();
    Write::Put {
        key: Key::new(format!("team-{}", n % 100), format!("vm-{n}")),
        object: n_of_two + u64::from(is_completed),
    }
}

/// Commits all operations. Then commits one batch that completes and deletes each operation. The
/// ifo server commits such a batch when the rule of the operations is renamed. Returns the version
/// before this batch.
fn end_all(writer: &mut Writer) -> Rv {
    let begin: Vec<Write> = (0..OPERATIONS).map(|n| operation(n, false)).collect();
    let before = writer.commit(begin, VersionAssignment::Mint).unwrap();
    let ends = (0..OPERATIONS).flat_map(|n| {
        let completed = operation(n, true);
        let Write::Put { key, .. } = &completed else {
            unreachable!("an operation is put")
        };
        let delete = Write::Delete { key: key.clone() };
        [completed, delete]
    });
    writer
        .commit(ends.collect::<Vec<_>>(), VersionAssignment::Mint)
        .unwrap();
    before
}

#[test]
fn a_batch_larger_than_the_ring_reaches_cursors_that_are_up_to_date() {
    let (mut writer, reader) = store(SERVER_BOUNDS);
    let before = end_all(&mut writer);
    assert!(
        reader.ring_bytes() > SERVER_BOUNDS.bytes
            && reader.ring_bytes() <= SERVER_BOUNDS.peak_bytes()
    );
    let changes = read_available(reader.follow(before, DEFAULT).unwrap());
    let deletions = changes.iter().filter(|change| change.after.is_none());
    assert_eq!(
        (changes.len(), deletions.count()),
        (2 * OPERATIONS, OPERATIONS)
    );
    // The version before the batch can still be listed. A client that has read the first page of a
    // list at this version can read the next page.
    let (_, then) = reader.list(&DEFAULT, ReadVersion::Exact(before)).unwrap();
    assert_eq!(then.len(), OPERATIONS);
}

#[tokio::test(start_paused = true)]
async fn young_changes_expire_without_a_further_commit() {
    let (mut writer, reader) = store(SERVER_BOUNDS);
    let before = end_all(&mut writer);
    tokio::time::sleep(Bounds::MIN_AGE / 2).await;
    assert!(reader.follow(before, DEFAULT).is_ok());
    tokio::time::sleep(Bounds::MIN_AGE).await;
    assert!(reader.ring_bytes() <= SERVER_BOUNDS.bytes);
    assert!(reader.follow(before, DEFAULT).is_err());
    assert!(reader.follow(reader.oldest(), DEFAULT).is_ok());
    // The trim timer has ended. A further batch must start it again.
    let before = end_all(&mut writer);
    assert!(reader.follow(before, DEFAULT).is_ok());
    tokio::time::sleep(2 * Bounds::MIN_AGE).await;
    assert!(reader.ring_bytes() <= SERVER_BOUNDS.bytes);
}

#[test]
fn young_changes_are_limited_as_well() {
    let one = replaced_weight();
    let bounds = Bounds {
        bytes: 10 * one,
        ..MANY
    };
    let (mut writer, reader) = store(bounds);
    for n in 0..500 {
        let batch = vec![put("w", "w", n), put("w", "w", n + 1000)];
        writer.commit(batch, VersionAssignment::Mint).unwrap();
        assert!(reader.ring_bytes() <= bounds.peak_bytes());
    }
    assert!(reader.ring_bytes() > bounds.peak_bytes() - 2 * one);
    // Each row has two limits in bytes: the normal limit, and the limit while the oldest change is
    // younger than [`Bounds::MIN_AGE`].
    for (bytes, most) in [(0, 0), (4 << 20, 48 << 20), (1 << 30, 1 << 30)] {
        assert_eq!(Bounds { bytes, ..MANY }.peak_bytes(), most);
    }
}

#[test]
fn an_empty_index_is_listed_and_followed_from_its_first_version() {
    let (mut writer, reader) = store_from(MANY, Rv(7));
    assert_eq!((reader.head(), reader.oldest()), (Rv(7), Rv(7)));
    for at in [ReadVersion::Latest, ReadVersion::Exact(Rv(7))] {
        let (rv, entries) = reader.list(&DEFAULT, at).unwrap();
        assert_eq!((rv, entries.len()), (Rv(7), 0));
    }
    let cursor = reader.follow(Rv(7), DEFAULT).unwrap();
    writer
        .commit(vec![put("a", "x", 1)], VersionAssignment::Exact(Rv(9)))
        .unwrap();
    let changes = read_available(cursor);
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].rv, changes[0].before.is_none()), (Rv(9), true));
}

#[test]
fn a_version_that_no_change_had_is_unavailable() {
    let (mut writer, reader) = store_from(MANY, Rv(10));
    for rv in [20, 30] {
        writer
            .commit(vec![put("a", "x", rv)], VersionAssignment::Exact(Rv(rv)))
            .unwrap();
    }
    let listed = |rv| {
        let listed = reader.list(&DEFAULT, ReadVersion::Exact(Rv(rv)));
        listed.map(|(_, entries)| shown(&entries).len())
    };
    let followed = |rv| {
        let followed = reader.follow(Rv(rv), DEFAULT);
        followed.map(|cursor| read_available(cursor).len())
    };
    for (rv, objects, changes) in [(10, 0, 2), (20, 1, 1), (30, 1, 0)] {
        assert_eq!(listed(rv), Ok(objects));
        assert_eq!(followed(rv), Ok(changes));
    }
    for rv in [0, 9, 11, 19, 29, 31] {
        let gone = VersionUnavailable {
            asked: Rv(rv),
            oldest: Rv(10),
        };
        assert_eq!(listed(rv), Err(gone));
        assert_eq!(followed(rv), Err(gone));
    }
}

#[test]
fn a_recreated_object_is_rolled_back_to_its_earlier_state() {
    let (mut writer, reader) = store(MANY);
    let key = Key::new("a", "x");
    let rv = writer
        .commit(vec![put("a", "x", 1)], VersionAssignment::Mint)
        .unwrap();
    let last = writer
        .commit(
            vec![
                delete("a", "x"),
                put("a", "x", 2),
                delete("a", "x"),
                put("a", "x", 1),
            ],
            VersionAssignment::Mint,
        )
        .unwrap();
    let (_, then) = reader.list(&DEFAULT, ReadVersion::Exact(rv)).unwrap();
    assert_eq!(shown(&then), [("a/x".into(), rv, "1".into())]);
    // The changes of a batch have increasing versions.
    let changes = read_available(reader.follow(rv, Scope::Object(key.clone())).unwrap());
    let versions: Vec<_> = changes.iter().map(|change| change.rv).collect();
    assert!(versions.is_sorted_by(|a, b| a < b));
    assert_eq!((changes.len(), versions[3]), (4, last));
    for (change, objects) in changes.iter().zip([0, 1, 0, 1]) {
        let (_, then) = reader
            .list(&DEFAULT, ReadVersion::Exact(change.rv))
            .unwrap();
        assert_eq!(then.len(), objects);
    }
    let (rv, now) = reader.get(&key);
    let now = now.unwrap();
    assert_eq!((rv, now.rv()), (last, last));
    assert!(Arc::ptr_eq(&now, &writer.get(&key).unwrap()));
}

#[test]
fn a_write_that_changes_nothing_has_no_version() {
    let (mut writer, reader) = store(MANY);
    let head = writer
        .commit(vec![put("a", "x", 1)], VersionAssignment::Mint)
        .unwrap();
    let there = reader.get(&Key::new("a", "x")).1.unwrap();
    let again = Write::Put {
        key: there.key().clone(),
        object: *there.object(),
    };
    let bytes = reader.ring_bytes();
    let nothing = vec![put("a", "x", 1), delete("a", "y"), delete("b", "x"), again];
    assert_eq!(
        writer.commit(nothing, VersionAssignment::Mint).unwrap(),
        head
    );
    assert_eq!(
        writer
            .commit(vec![], VersionAssignment::Exact(Rv(head.0 + 1)))
            .unwrap(),
        head
    );
    assert_eq!((reader.head(), reader.ring_bytes()), (head, bytes));
}

#[tokio::test(start_paused = true)]
async fn versions_follow_the_monotonic_clock_from_the_start_of_the_term() {
    let before = Rv::of_clock(clock::now());
    let (writer, _) = store(MANY);
    assert!(writer.head() >= before);

    let _time = clock::simulated::begin(Timestamp::from_microsecond(1_000).unwrap());
    let (mut writer, _) = store_from(MANY, Rv(1_000));
    tokio::time::advance(Duration::from_millis(5)).await;
    let two = vec![put("a", "x", 1), put("a", "y", 1)];
    assert_eq!(
        writer.commit(two, VersionAssignment::Mint).unwrap(),
        Rv(6_001)
    );
    // No time has passed since the last commit, so the version is the previous version plus one.
    let next = writer
        .commit(vec![delete("a", "x")], VersionAssignment::Mint)
        .unwrap();
    assert_eq!(next, Rv(6_002));
    for asked in [next, Rv(7)] {
        let past = writer.commit(vec![delete("a", "y")], VersionAssignment::Exact(asked));
        assert!(matches!(past, Err(Error::NotAbove { asked: reported, .. }) if reported == asked));
        assert!(matches!(writer.begin(asked), Err(Error::NotAbove { .. })));
    }

    // The versions of the previous leader are ahead of the clock of this leader. So each version is
    // the previous version plus one.
    writer.begin(Rv(1_000_000)).unwrap();
    writer.reserve(Rv(2_000_000));
    let ahead = vec![put("a", "z", 1), put("a", "z", 2)];
    assert_eq!(
        writer.commit(ahead, VersionAssignment::Mint).unwrap(),
        Rv(1_000_002)
    );

    // A time before 1970 or after [`Rv::MAX`] yields version 0.
    let before_1970 = Timestamp::UNIX_EPOCH - Duration::from_secs(1);
    assert_eq!(Rv::of_clock(before_1970), Rv(0));
    assert_eq!(Rv::of_clock(Timestamp::MAX), Rv(0));
}

#[tokio::test(start_paused = true)]
async fn a_term_begins_with_an_empty_change_and_issues_only_reserved_versions() {
    let _time = clock::simulated::begin(Timestamp::UNIX_EPOCH);
    let (mut writer, reader) = store_from(MANY, Rv(10));
    writer
        .commit(vec![put("a", "x", 1)], VersionAssignment::Exact(Rv(20)))
        .unwrap();
    let other_namespace = reader.follow(Rv(20), Scope::Namespace("b".into())).unwrap();
    writer.begin(Rv(1_000)).unwrap();
    let marker = read_available(other_namespace);
    assert_eq!(marker.len(), 1);
    assert_eq!((marker[0].rv, marker[0].key()), (Rv(1_000), None));
    let (_, entries) = reader
        .list(&DEFAULT, ReadVersion::Exact(Rv(1_000)))
        .unwrap();
    assert_eq!(entries.len(), 1);
    assert!(reader.follow(Rv(1_000), DEFAULT).is_ok());

    let change = || vec![put("a", "x", 2), put("a", "y", 2)];
    let refused = |error| matches!(error, Err(Error::NotReserved { .. }));
    assert!(
        refused(writer.commit(change(), VersionAssignment::Mint)),
        "a batch must be refused before versions are reserved"
    );
    writer.reserve(Rv(1_001));
    assert!(
        refused(writer.commit(change(), VersionAssignment::Mint)),
        "a batch of two writes must be refused if only one version is reserved"
    );
    assert_eq!(
        reader.head(),
        Rv(1_000),
        "no write of a refused batch must be committed"
    );
    writer.reserve(Rv(1_002));
    assert_eq!(
        writer.commit(change(), VersionAssignment::Mint).unwrap(),
        Rv(1_002)
    );
    writer.reserve(Rv(0));
    assert!(refused(
        writer.commit(vec![delete("a", "x")], VersionAssignment::Mint)
    ));
}

#[tokio::test]
async fn replacing_the_state_drops_the_history_and_notifies_every_cursor() {
    let (mut writer, reader) = store_from(MANY, Rv(10));
    for rv in [20, 30] {
        writer
            .commit(vec![put("a", "x", rv)], VersionAssignment::Exact(Rv(rv)))
            .unwrap();
    }
    let mut waiting = reader.follow(Rv(30), DEFAULT).unwrap();
    let waiting = tokio::spawn(async move { (waiting.next().await, waiting.next().await) });
    let mut behind = reader.follow(Rv(20), DEFAULT).unwrap();
    let later = reader.clone();
    let reached = tokio::spawn(async move {
        later
            .wait_until_reached(Rv(40), Duration::from_hours(1))
            .await
    });
    tokio::task::yield_now().await;

    let mut replacement = writer.replacement(Rv(25));
    for (name, rv) in [("x", 5), ("y", 21)] {
        replacement.add(Key::new("b", name), Rv(rv), rv);
    }
    assert_eq!(
        reader.head(),
        Rv(30),
        "a replacement must not be visible before it replaces the state"
    );
    writer.replace(replacement);
    assert_eq!((reader.oldest(), reader.head()), (Rv(25), Rv(25)));
    let (rv, entries) = reader.list(&DEFAULT, ReadVersion::Latest).unwrap();
    let x = ("b/x".to_owned(), Rv(5), "5".to_owned());
    let y = ("b/y".to_owned(), Rv(21), "21".to_owned());
    assert_eq!((rv, shown(&entries)), (Rv(25), vec![x, y]));
    assert_eq!(reader.len(), 2);

    let (first, second) = waiting.await.unwrap();
    assert!(first.is_err() && second.is_err());
    assert!(behind.next().await.is_err());
    for gone in [10, 20, 30] {
        assert!(reader.follow(Rv(gone), DEFAULT).is_err());
    }
    assert!(!reached.is_finished());
    let mut after = reader.follow(Rv(25), DEFAULT).unwrap();
    writer
        .commit(vec![delete("b", "x")], VersionAssignment::Exact(Rv(40)))
        .unwrap();
    assert_eq!(after.next().await.unwrap()[0].rv, Rv(40));
    assert!(reached.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn versions_stay_below_2_to_the_53() {
    let _time = clock::simulated::begin(Timestamp::UNIX_EPOCH);
    let (mut writer, reader) = store_from(MANY, Rv(Rv::MAX.0 - 2));
    let last = writer
        .commit(vec![put("a", "x", 1)], VersionAssignment::Mint)
        .unwrap();
    assert_eq!(last, Rv(Rv::MAX.0 - 1));
    for assignment in [
        VersionAssignment::Mint,
        VersionAssignment::Exact(Rv::MAX),
        VersionAssignment::Exact(Rv(u64::MAX)),
    ] {
        let error = writer
            .commit(vec![put("a", "x", 2)], assignment)
            .unwrap_err();
        assert!(matches!(error, Error::Exhausted { head } if head == last));
    }
    assert_eq!(reader.head(), last);
}

#[test]
fn an_unchanged_put_with_an_exact_version_sets_the_version() {
    let (mut writer, reader) = store_from(MANY, Rv(1));
    for rv in [5, 6] {
        writer
            .commit(vec![put("a", "x", 1)], VersionAssignment::Exact(Rv(rv)))
            .unwrap();
    }
    let (rv, entry) = reader.get(&Key::new("a", "x"));
    assert_eq!((rv, entry.unwrap().rv()), (Rv(6), Rv(6)));
}

#[test]
fn changes_of_one_version_are_visible_atomically() {
    // The limit is reached in the middle of a batch of two changes.
    let bytes = 3 * replaced_weight();
    let (mut writer, reader) = store_from(Bounds { bytes, ..MANY }, Rv(1));
    for rv in 2..9 {
        let batch = vec![put("a", "x", rv), put("a", "y", rv)];
        let previous = reader.head();
        writer
            .commit(batch, VersionAssignment::Exact(Rv(rv)))
            .unwrap();
        trim_as_old(&mut writer);
        if let Ok(cursor) = reader.follow(previous, DEFAULT) {
            assert_eq!(read_available(cursor).len(), 2);
        }
        let from_oldest = read_available(reader.follow(reader.oldest(), DEFAULT).unwrap());
        assert_eq!(from_oldest.len() % 2, 0);
    }
    assert!(reader.oldest() > Rv(1));
}

#[test]
fn lists_finish_beside_a_writer_that_overflows_the_ring() {
    let (mut writer, reader) = store(Bounds { bytes: 0, ..MANY });
    let fill: Vec<_> = (0..200).map(|n| put("a", &n.to_string(), 0)).collect();
    writer.commit(fill, VersionAssignment::Mint).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let worker = std::thread::spawn({
        let done = done.clone();
        move || {
            for n in 1_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let both = vec![put("a", "1", n), put("a", "99", n)];
                writer.commit(both, VersionAssignment::Mint).unwrap();
            }
        }
    });
    for _ in 0..500 {
        let (_, entries) = reader.list(&DEFAULT, ReadVersion::Latest).unwrap();
        let of = |name: &str| {
            let entry = entries.iter().find(|e| &*e.key().name == name).unwrap();
            shown(std::slice::from_ref(entry)).remove(0).2
        };
        assert_eq!(entries.len(), 200);
        assert_eq!(of("1"), of("99"), "a list must not contain half a batch");
    }
    done.store(true, Ordering::Relaxed);
    worker.join().unwrap();
}
