//! Tests of the limits of the ring buffer, which has the recent changes.

use super::*;
use std::time::Instant;

/// Returns the number of bytes that one replaced object takes in the ring buffer.
fn replaced_weight() -> usize {
    let (mut writer, reader) = store(MANY);
    let empty = reader.ring_bytes();
    mint(&mut writer, [put("w", "w", 1)]);
    let added = reader.ring_bytes();
    mint(&mut writer, [put("w", "w", 2)]);
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
        mint(&mut writer, [put("w", "w", n % 9)]);
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
    let first = mint(&mut writer, [put("a", "x", 1)]);
    let second = mint(&mut writer, [put("a", "x", 2)]);
    assert!(reader.ring_age() > Duration::ZERO);

    writer.trim(Instant::now());
    assert!(reader.list(&DEFAULT, ReadVersion::Exact(first)).is_ok());
    let later = Instant::now() + age + Duration::from_secs(1);
    writer.trim(later);
    assert!(
        reader.list(&DEFAULT, ReadVersion::Exact(first)).is_ok(),
        "the ring must keep `MIN_CHANGES` changes even if they are old"
    );
    let numbers = (3..).take(Bounds::MIN_CHANGES);
    let newest = numbers.map(|number| mint(&mut writer, [put("a", "x", number)]));
    let newest = newest.last().unwrap();
    writer.trim(later);
    assert_eq!((reader.oldest(), reader.head()), (second, newest));
    assert!(reader.list(&DEFAULT, ReadVersion::Exact(first)).is_err());
    let (rv, entries) = reader.list(&DEFAULT, ReadVersion::Exact(second)).unwrap();
    assert_eq!(summaries(&entries), [("a/x".into(), rv, "2".into())]);
    let kept = reader.follow(second, DEFAULT).unwrap();
    assert_eq!(read_available(kept).len(), Bounds::MIN_CHANGES);
}

/// The limits that the server uses.
const SERVER_BOUNDS: Bounds = Bounds {
    bytes: 8 << 20,
    age: Duration::from_mins(5),
};
/// The number of operations (objects of the ifo server) for which its limits are chosen.
const OPERATIONS: usize = 10_000;

/// Returns the write that puts the operation number `n`.
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
    let before = mint(writer, begin);
    let ends = (0..OPERATIONS).flat_map(|n| {
        let completed = operation(n, true);
        let Write::Put { key, .. } = &completed else {
            unreachable!("an operation is put")
        };
        let delete = Write::Delete { key: key.clone() };
        [completed, delete]
    });
    mint(writer, ends);
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

#[tokio::test(start_paused = true)]
async fn a_replacement_of_all_objects_keeps_the_one_trim_timer() {
    let timers = || {
        let runtime = tokio::runtime::Handle::current();
        runtime.metrics().num_alive_tasks()
    };
    let (mut writer, reader) = store(SERVER_BOUNDS);
    end_all(&mut writer);
    assert_eq!(timers(), 1);
    let head = writer.head();
    writer.replace(head, []);
    end_all(&mut writer);
    assert_eq!(timers(), 1);
    tokio::time::sleep(2 * Bounds::MIN_AGE).await;
    assert!(reader.ring_bytes() <= SERVER_BOUNDS.bytes);
    assert_eq!(timers(), 0);
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
        mint(&mut writer, batch);
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
fn changes_of_one_version_are_visible_atomically() {
    // The limit is reached in the middle of a batch of two changes.
    let bytes = 3 * replaced_weight();
    let (mut writer, reader) = open_from(Bounds { bytes, ..MANY }, Rv(1));
    for rv in 2..9 {
        let batch = vec![put("a", "x", rv), put("a", "y", rv)];
        let previous = reader.head();
        exact(&mut writer, Rv(rv), batch);
        trim_as_old(&mut writer);
        if let Ok(cursor) = reader.follow(previous, DEFAULT) {
            assert_eq!(read_available(cursor).len(), 2);
        }
        let from_oldest = read_available(reader.follow(reader.oldest(), DEFAULT).unwrap());
        assert_eq!(from_oldest.len() % 2, 0);
    }
    assert!(reader.oldest() > Rv(1));
}
