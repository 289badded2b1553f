//! Tests cursors: when they wake up, how many changes they deliver at once, and what happens if
//! they are too slow.

use crate::store::tests::Numbers;
use crate::store::*;
use futures::FutureExt;
use std::time::{Duration, Instant};

const BOUNDS: Bounds = Bounds {
    bytes: 1 << 20,
    age: Duration::from_mins(1),
};

fn put(namespace: &str, name: &str, n: u64) -> Write<Numbers> {
    Write::Put {
        key: Key::new(namespace, name),
        object: n,
    }
}

fn commit(writer: &mut Writer<Numbers>, namespace: &str, n: u64) -> Rv {
    let write = put(namespace, "x", n);
    writer.commit(vec![write], VersionAssignment::Mint).unwrap()
}

#[tokio::test]
async fn a_waiting_cursor_is_woken_only_by_changes_in_its_scope() {
    let (mut writer, reader) = open(BOUNDS);
    let mut cursor = reader
        .follow(reader.head(), Scope::Namespace("a".into()))
        .unwrap();
    let waiting = tokio::spawn(async move { (cursor.next().await, cursor) });
    tokio::task::yield_now().await;
    let other = commit(&mut writer, "b", 1);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let ours = commit(&mut writer, "a", 1);
    let (changes, cursor) = waiting.await.unwrap();
    let changes = changes.unwrap();
    assert_eq!((changes.len(), changes[0].rv), (1, ours));
    assert_eq!(cursor.rv(), ours);
    assert!(ours > other);
}

#[tokio::test]
async fn a_cursor_reports_the_version_it_has_read_outside_its_scope() {
    let (mut writer, reader) = open(BOUNDS);
    let head = reader.head();
    let mut cursor = reader.follow(head, Scope::Namespace("a".into())).unwrap();
    let other = commit(&mut writer, "b", 1);
    assert_eq!(cursor.rv(), head);
    assert!(cursor.next().now_or_never().is_none());
    assert_eq!(cursor.rv(), other);
    let both = vec![put("a", "x", 1), put("b", "x", 2)];
    let last = writer.commit(both, VersionAssignment::Mint).unwrap();
    let changes = cursor.next().await.unwrap();
    assert_eq!(changes.len(), 1);
    assert!(cursor.rv() == last && last > changes[0].rv);
}

#[tokio::test]
async fn a_cancelled_wait_loses_no_changes() {
    let (mut writer, reader) = open(BOUNDS);
    let mut cursor = reader
        .follow(reader.head(), Scope::Collection(Collection::DEFAULT))
        .unwrap();
    let mut seen = Vec::new();
    let mut made = Vec::new();
    for n in 0..50 {
        // Each future is polled once and then dropped. The first future returns the previous
        // change, if there is one. The future `cut` still waits when the next change is committed,
        // so `cut` returns nothing. The cursor must deliver this change later.
        if let Some(changes) = cursor.next().now_or_never() {
            seen.extend(changes.unwrap().iter().map(|change| change.rv));
        }
        {
            let cut = cursor.next();
            tokio::pin!(cut);
            assert!(futures::poll!(&mut cut).is_pending());
            made.push(commit(&mut writer, "a", n));
        }
    }
    seen.extend(cursor.next().await.unwrap().iter().map(|change| change.rv));
    assert_eq!(seen, made);
}

#[tokio::test]
async fn a_cursor_behind_the_ring_gets_an_error_each_time() {
    let (mut writer, reader) = open(BOUNDS);
    let start = reader.head();
    let mut slow = reader.follow(start, Scope::Namespace("b".into())).unwrap();
    let mut quick = reader.follow(start, Scope::Namespace("b".into())).unwrap();
    let oldest = commit(&mut writer, "a", 1);
    for n in (2..).take(Bounds::MIN_CHANGES) {
        commit(&mut writer, "a", n);
    }
    assert!(quick.next().now_or_never().is_none());
    writer.trim(Instant::now() + BOUNDS.age * 2);
    let gone = VersionUnavailable {
        asked: start,
        oldest,
    };
    // The quick cursor has read the changes up to a version above `oldest`, so it misses no change.
    assert!(quick.next().now_or_never().is_none());
    assert_eq!(slow.next().await.unwrap_err(), gone);
    commit(&mut writer, "b", 1);
    assert_eq!(slow.next().await.unwrap_err(), gone);
    assert_eq!(quick.next().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cursor_delivers_the_remaining_changes_after_the_writer_is_dropped() {
    let (mut writer, reader) = open(BOUNDS);
    let mut cursor = reader
        .follow(reader.head(), Scope::Collection(Collection::DEFAULT))
        .unwrap();
    commit(&mut writer, "a", 1);
    drop(writer);
    assert_eq!(cursor.next().await.unwrap().len(), 1);
    assert!(cursor.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_future_version_is_awaited_until_the_time_limit() {
    let (mut writer, reader) = open(BOUNDS);
    let limit = Duration::from_secs(3);
    assert!(reader.wait_until_reached(reader.head(), limit).await);
    assert!(
        !reader
            .wait_until_reached(Rv(reader.head().0 + 1), limit)
            .await
    );
    let next = Rv(reader.head().0 + 1);
    let waiting = tokio::spawn({
        let reader = reader.clone();
        async move { reader.wait_until_reached(next, limit).await }
    });
    tokio::task::yield_now().await;
    commit(&mut writer, "a", 1);
    assert!(waiting.await.unwrap());
    drop(writer);
    assert!(!reader.wait_until_reached(Rv(u64::MAX), limit).await);
}

#[tokio::test]
async fn a_backlog_is_delivered_in_small_batches_of_whole_versions() {
    let (mut writer, reader) = open(BOUNDS);
    let mut cursor = reader
        .follow(reader.head(), Scope::Collection(Collection::DEFAULT))
        .unwrap();
    let mut made: Vec<_> = (0..20).map(|n| commit(&mut writer, "a", n)).collect();
    // A follower replica can write several changes with one version.
    let rv = Rv(made.last().unwrap().0 + 1);
    let names: Vec<_> = (0..50).map(|n| format!("n{n}")).collect();
    let batch: Vec<Write<Numbers>> = names.iter().map(|name| put("a", name, 1)).collect();
    writer.commit(batch, VersionAssignment::Exact(rv)).unwrap();
    made.extend(vec![rv; 50]);
    made.push(commit(&mut writer, "a", 1000));
    let mut seen = Vec::new();
    let mut sizes = Vec::new();
    while let Some(changes) = cursor.next().now_or_never() {
        let changes: Vec<_> = changes.unwrap().iter().map(|change| change.rv).collect();
        assert_eq!(cursor.rv(), *changes.last().unwrap());
        sizes.push(changes.len());
        seen.extend(changes);
    }
    assert_eq!(seen, made);
    assert_eq!(sizes, [16, 54, 1]);
}
