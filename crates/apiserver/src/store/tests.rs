//! Tests of the store: the versions, and the replacement of the whole state.

mod lists;
mod ring;

use super::*;
use futures::FutureExt;

const MANY: Bounds = Bounds {
    bytes: 64 << 20,
    age: Duration::from_hours(1),
};

/// A model whose objects are numbers. Each object counts as 1,500 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Numbers;

impl Model for Numbers {
    type Object = u64;
    type Context = ();

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

/// Commits these writes with new versions. Returns the last version.
fn mint(writer: &mut Writer, writes: impl IntoIterator<Item = Write>) -> Rv {
    let writes: Vec<_> = writes.into_iter().collect();
    writer.commit(writes, VersionAssignment::Mint).unwrap()
}

/// Commits these writes with the version `rv`.
fn exact(writer: &mut Writer, rv: Rv, writes: impl IntoIterator<Item = Write>) -> Rv {
    let writes: Vec<_> = writes.into_iter().collect();
    writer.commit(writes, VersionAssignment::Exact(rv)).unwrap()
}

#[test]
fn the_json_is_encoded_once() {
    let (mut writer, reader) = store(MANY);
    let rv = mint(&mut writer, [put("a", "x", 7)]);
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
fn summaries(entries: &[Arc<Entry>]) -> Vec<(String, Rv, String)> {
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
fn an_empty_store_is_listed_and_followed_from_its_first_version() {
    let (mut writer, reader) = open_from(MANY, Rv(7));
    assert_eq!((reader.head(), reader.oldest()), (Rv(7), Rv(7)));
    for at in [ReadVersion::Latest, ReadVersion::Exact(Rv(7))] {
        let (rv, entries) = reader.list(&DEFAULT, at).unwrap();
        assert_eq!((rv, entries.len()), (Rv(7), 0));
    }
    let cursor = reader.follow(Rv(7), DEFAULT).unwrap();
    exact(&mut writer, Rv(9), [put("a", "x", 1)]);
    let changes = read_available(cursor);
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].rv, changes[0].before.is_none()), (Rv(9), true));
}

#[test]
fn a_version_that_no_change_had_is_unavailable() {
    let (mut writer, reader) = open_from(MANY, Rv(10));
    for rv in [20, 30] {
        exact(&mut writer, Rv(rv), [put("a", "x", rv)]);
    }
    let listed = |rv| {
        let listed = reader.list(&DEFAULT, ReadVersion::Exact(Rv(rv)));
        listed.map(|(_, entries)| summaries(&entries).len())
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
    let rv = mint(&mut writer, [put("a", "x", 1)]);
    let last = mint(
        &mut writer,
        [
            delete("a", "x"),
            put("a", "x", 2),
            delete("a", "x"),
            put("a", "x", 1),
        ],
    );
    let (_, then) = reader.list(&DEFAULT, ReadVersion::Exact(rv)).unwrap();
    assert_eq!(summaries(&then), [("a/x".into(), rv, "1".into())]);
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
    let head = mint(&mut writer, [put("a", "x", 1)]);
    let there = reader.get(&Key::new("a", "x")).1.unwrap();
    let again = Write::Put {
        key: there.key().clone(),
        object: *there.object(),
    };
    let bytes = reader.ring_bytes();
    let nothing = vec![put("a", "x", 1), delete("a", "y"), delete("b", "x"), again];
    assert_eq!(mint(&mut writer, nothing.clone()), head);
    writer.reserve(Rv(0));
    assert_eq!(mint(&mut writer, nothing), head);
    assert_eq!(exact(&mut writer, Rv(head.0 + 1), []), head);
    assert_eq!((reader.head(), reader.ring_bytes()), (head, bytes));
}

#[tokio::test(start_paused = true)]
async fn versions_follow_the_monotonic_clock_from_the_start_of_the_term() {
    let before = Rv::of_clock(clock::now());
    let (writer, _) = store(MANY);
    assert!(writer.head() >= before);

    let _time = clock::simulated::begin(Timestamp::from_microsecond(1_000).unwrap());
    let (mut writer, _) = open_from(MANY, Rv(1_000));
    tokio::time::advance(Duration::from_millis(5)).await;
    let two = vec![put("a", "x", 1), put("a", "y", 1)];
    assert_eq!(mint(&mut writer, two), Rv(6_001));
    // No time has passed since the last commit, so the version is the previous version plus one.
    let next = mint(&mut writer, [delete("a", "x")]);
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
    assert_eq!(mint(&mut writer, ahead), Rv(1_000_002));

    // A time before 1970 or after [`Rv::MAX`] yields version 0.
    let before_1970 = Timestamp::UNIX_EPOCH - Duration::from_secs(1);
    assert_eq!(Rv::of_clock(before_1970), Rv(0));
    assert_eq!(Rv::of_clock(Timestamp::MAX), Rv(0));
}

#[tokio::test(start_paused = true)]
async fn a_term_begins_with_an_empty_change_and_issues_only_reserved_versions() {
    let _time = clock::simulated::begin(Timestamp::UNIX_EPOCH);
    let (mut writer, reader) = open_from(MANY, Rv(10));
    exact(&mut writer, Rv(20), [put("a", "x", 1)]);
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
    assert_eq!(mint(&mut writer, change()), Rv(1_002));
    writer.reserve(Rv(0));
    assert!(refused(
        writer.commit(vec![delete("a", "x")], VersionAssignment::Mint)
    ));
}

#[tokio::test]
async fn replacing_the_state_drops_the_history_and_notifies_every_cursor() {
    let (mut writer, reader) = open_from(MANY, Rv(10));
    for rv in [20, 30] {
        exact(&mut writer, Rv(rv), [put("a", "x", rv)]);
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

    let new = [("x", 5), ("y", 21)];
    writer.replace(
        Rv(25),
        new.map(|(name, rv)| (Key::new("b", name), Rv(rv), rv)),
    );
    assert_eq!((reader.oldest(), reader.head()), (Rv(25), Rv(25)));
    let (rv, entries) = reader.list(&DEFAULT, ReadVersion::Latest).unwrap();
    let x = ("b/x".to_owned(), Rv(5), "5".to_owned());
    let y = ("b/y".to_owned(), Rv(21), "21".to_owned());
    assert_eq!((rv, summaries(&entries)), (Rv(25), vec![x, y]));
    assert_eq!(reader.len(), 2);

    let (first, second) = waiting.await.unwrap();
    assert!(first.is_err() && second.is_err());
    assert!(behind.next().await.is_err());
    for gone in [10, 20, 30] {
        assert!(reader.follow(Rv(gone), DEFAULT).is_err());
    }
    assert!(!reached.is_finished());
    let mut after = reader.follow(Rv(25), DEFAULT).unwrap();
    exact(&mut writer, Rv(40), [delete("b", "x")]);
    assert_eq!(after.next().await.unwrap()[0].rv, Rv(40));
    assert!(reached.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn versions_stay_below_2_to_the_53() {
    let _time = clock::simulated::begin(Timestamp::UNIX_EPOCH);
    let (mut writer, reader) = open_from(MANY, Rv(Rv::MAX.0 - 2));
    let last = mint(&mut writer, [put("a", "x", 1)]);
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
    let (mut writer, reader) = open_from(MANY, Rv(1));
    for rv in [5, 6] {
        exact(&mut writer, Rv(rv), [put("a", "x", 1)]);
    }
    let (rv, entry) = reader.get(&Key::new("a", "x"));
    assert_eq!((rv, entry.unwrap().rv()), (Rv(6), Rv(6)));
}
