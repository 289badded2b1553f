//! Plays recordings of a cluster in two ways: through the [`Replay`] of the engine, and through the
//! server. Of the server, the test runs the feeds, the tracker and the index. The server and the
//! replay must make the same visible changes of each operation. All fields are compared, except the
//! resourceVersion.

use super::pipeline::{self, TestPipeline};
use super::recording::{ClusterRecording, PlayedFeed, random_recording, recording, shipped_rules};
use crate::{clock, index};
use futures::FutureExt as _;
use ifo_api::Key;
use ifo_api::live::InFlightOperation;
use ifo_client::offline_kinds::KnownKinds;
use ifo_client::recorded_watch::{self, RecordedChange};
use ifo_engine::ClockReading;
use ifo_engine::detect::Evaluation;
use ifo_engine::replay::{Replay, ReplayObserver, ReplayedObject};
use ifo_engine::track::{TrackerSettings, Write};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time between two evaluations of objects whose rules read `now`.
const RESYNC: Duration = Duration::from_secs(30);

/// The time for which the server and the replay continue after the last event. All timers of
/// operations fire within this time.
const TIME_AFTER_LAST_EVENT: Duration = Duration::from_mins(10);

fn settings() -> TrackerSettings {
    pipeline::settings(Duration::from_secs(30), 0)
}

/// A change that a client can see: the key of the operation, and its new state. The state is None if
/// the operation was removed.
type VisibleChange = (Key, Option<Arc<InFlightOperation>>);

/// Records the visible changes of operations in the replay.
#[derive(Default)]
struct ChangeRecorder {
    operations: BTreeMap<Key, Arc<InFlightOperation>>,
    changes: Vec<VisibleChange>,
}

impl ReplayObserver for ChangeRecorder {
    fn evaluated(&mut self, _: &Evaluation) {}

    fn changed(&mut self, change: Write, _: ClockReading) {
        match change {
            Write::Put { key, object } => {
                let operation = object.operation().expect("`max_records` is 0").clone();
                let before = self.operations.insert(key.clone(), operation.clone());
                // A watch sends no event for an unchanged object.
                if before.as_ref() != Some(&operation) {
                    self.changes.push((key, Some(operation)));
                }
            }
            Write::Delete { key } => {
                if self.operations.remove(&key).is_some() {
                    self.changes.push((key, None));
                }
            }
        }
    }
}

/// Returns all visible changes that the server commits from `begin` to `end`.
async fn changes_of_server(
    recording: Arc<ClusterRecording>,
    begin: Instant,
    end: Instant,
) -> Vec<VisibleChange> {
    let feed = Arc::new(PlayedFeed {
        begin,
        recording: recording.clone(),
    });
    let mut pipeline = TestPipeline::start(feed, settings(), RESYNC);
    for book in &recording.books {
        pipeline.publish(book.clone()).await;
    }
    tokio::time::sleep_until(end.into()).await;
    let mut changes = Vec::new();
    while let Some(more) = pipeline.changes.next().now_or_never() {
        changes.extend(more.expect("the ring buffer is large enough for all changes"));
    }
    drop(pipeline.publications);
    while let Some(ended) = pipeline.tasks.join_next().await {
        ended.expect("the task does not panic");
    }
    let visible = changes.into_iter().map(|change| {
        let key = change
            .key()
            .expect("each change has an object, because no leader is elected");
        let key = index::engine_key(key);
        let after = change.after;
        (key, after.and_then(|it| it.object().operation().cloned()))
    });
    visible.collect()
}

/// Replays the recording with the engine. Returns the recorder, which has all visible changes.
fn replay_recording(
    recording: &ClusterRecording,
    begin: ClockReading,
    end: Instant,
) -> ChangeRecorder {
    let at = |steady: Instant| ClockReading {
        wall: begin.wall + (steady - begin.steady),
        steady,
    };
    let mut replay = Replay::new(settings(), RESYNC, begin, ChangeRecorder::default());
    for book in &recording.books {
        replay.add_book(book);
    }
    for event in &recording.events {
        replay.advance_to(at(begin.steady + event.time_since_start));
        let json = event.json.to_string();
        let object = ReplayedObject {
            target: &event.target,
            namespace: event.namespace.as_deref(),
            json: json.as_bytes(),
        };
        match event.change {
            RecordedChange::Applied => replay.applied(object),
            RecordedChange::Deleted => replay.deleted(object, false),
        }
    }
    replay.advance_to(at(end));
    replay.observer
}

/// Plays a recording through the server and through the replay, and compares the visible changes.
/// `wall` is the time of day at the start. Returns the changes of the replay.
async fn compare(name: &str, recording: ClusterRecording, wall: Timestamp) -> ChangeRecorder {
    let simulated = clock::simulated::begin(wall);
    // The feeds start 1 ms after a whole second of the time of day. So a feed evaluates objects
    // again 1 ms after a whole second. Timers that count from a time in `managedFields` fire at a
    // whole second, and so never at the same time.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let begin = clock::reading();
    let milliseconds = recording.events.iter();
    let milliseconds: BTreeSet<u32> = milliseconds
        .map(|event| event.time_since_start.subsec_millis())
        .chain([0, 999])
        .collect();
    assert_eq!(
        milliseconds.len(),
        recording.events.len() + 2,
        "no event at the time of a timer"
    );
    let recording = Arc::new(recording);
    let last = recording
        .events
        .last()
        .map_or(Duration::ZERO, |it| it.time_since_start);
    let end = begin.steady + last + TIME_AFTER_LAST_EVENT;
    let served = changes_of_server(recording.clone(), begin.steady, end).await;
    let replay = replay_recording(&recording, begin, end);
    drop(simulated);
    let (served, replayed) = (by_feed(&served), by_feed(&replay.changes));
    for (feed, served) in &served {
        let replayed = replayed.get(feed).map_or(&[][..], Vec::as_slice);
        for (place, (served, replayed)) in served.iter().zip(replayed).enumerate() {
            assert_eq!(served, replayed, "change {place} in {feed:?} of {name}");
        }
        assert_eq!(
            served.len(),
            replayed.len(),
            "the number of changes in {feed:?} of {name}"
        );
    }
    assert_eq!(
        served.len(),
        replayed.len(),
        "the number of feeds in {name}"
    );
    replay
}

/// Groups the changes by kind and namespace of the subject. All changes of a group come from one
/// feed, so the order within a group is defined. If two feeds evaluate objects at the same time,
/// the order of the changes of these feeds is not defined.
fn by_feed(changes: &[VisibleChange]) -> BTreeMap<(String, String), Vec<&VisibleChange>> {
    let mut kinds: BTreeMap<&Key, String> = BTreeMap::new();
    let mut feeds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for change in changes {
        let (key, operation) = change;
        if let Some(operation) = operation {
            kinds.insert(key, operation.spec.subject.kind.to_string());
        }
        let feed = (kinds[key].clone(), key.namespace.to_string());
        feeds.entry(feed).or_default().push(change);
    }
    feeds
}

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recorded");
    let files = std::fs::read_dir(folder).expect("the repository contains the folder");
    let paths = files.map(|file| file.expect("the file is readable").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "jsonl"))
        .collect();
    paths.sort();
    paths
}

#[tokio::test(start_paused = true)]
async fn recordings_cause_the_same_changes_in_server_and_replay() {
    let rules = shipped_rules();
    let kinds = KnownKinds::default().with_targets(rules.keys());
    let mut changes = 0;
    for path in recordings() {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).expect("the file is readable");
        let (events, faults) = recorded_watch::read(&text, &kinds);
        assert!(faults.is_empty(), "{faults:?}");
        let (recording, wall) = recording(events, &rules);
        let replay = compare(&name, recording, wall).await;
        changes += replay.changes.len();
    }
    assert!(
        changes > 1_000,
        "the recordings have only {changes} changes"
    );
}

#[tokio::test(start_paused = true)]
async fn random_objects_cause_the_same_changes_in_server_and_replay() {
    let wall = Timestamp::from_second(1_800_000_000).expect("the time is in this century");
    for seed in 0..2 {
        let name = format!("seed {seed}");
        let replay = compare(&name, random_recording(seed, wall), wall).await;
        let changes = replay.changes.iter().filter_map(|(_, it)| it.as_ref());
        let texts = changes.flat_map(|it| {
            let (spec, status) = (&it.spec, &it.status);
            [&*spec.operation, status.state.name(), &*status.reason]
        });
        let seen: BTreeSet<&str> = texts.collect();
        for expected in [
            "Working",
            "Waiting",
            "Failing",
            "Late",
            "Cubing",
            "Succeeded",
            "Failed",
            "Blocked",
            "Ended",
            "SubjectDeleted",
        ] {
            assert!(
                seen.contains(expected),
                "{expected} is missing in {name}: {seen:?}"
            );
        }
    }
}
