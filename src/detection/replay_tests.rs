//! Plays recordings of a cluster in two ways: through the feeds, tracker and index of the ifo
//! server (here in short the server), and through the [`Replay`] of the engine. The server and the
//! replay must make the same visible changes of each operation. All fields are compared, except the
//! resourceVersion.

use super::*;
use crate::index::{self, Bounds, index};
use crate::observe::{ObjectNames, Raw};
use crate::replicate::Leadership;
use crate::tracker_task::{self, ActivityWriter};
use crate::{clock, demo};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, future};
use ifo_api::Key;
use ifo_api::live::InFlightOperation;
use ifo_client::offline_kinds::KnownKinds;
use ifo_client::recorded_watch::{self, RecordedChange, RecordedEvent};
use ifo_engine::ClockReading;
use ifo_engine::detect::Evaluation;
use ifo_engine::replay::{Replay, ReplayObserver, ReplayedObject};
use ifo_engine::rules::{RuleSet, compile};
use ifo_engine::track::{Tracker, TrackerSettings, Write};
use jiff::Timestamp;
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The time between two evaluations of objects whose rules read `now`.
const RESYNC: Duration = Duration::from_secs(30);

/// The time for which the server and the replay continue after the last event. All timers of
/// operations fire within this time.
const TIME_AFTER_LAST_EVENT: Duration = Duration::from_mins(10);

fn settings() -> TrackerSettings {
    TrackerSettings {
        debounce: Duration::from_secs(30),
        retain: None,
        max_records: 0,
        cluster_namespace: "ifo-system".into(),
    }
}

/// A change that a client can see: the key of the operation, and its new state. The state is None if
/// the operation was removed.
type VisibleChange = (Key, Option<Arc<InFlightOperation>>);

/// The events of a cluster, and the rule books for the resources in these events.
struct ClusterRecording {
    books: Vec<Arc<RuleBook>>,
    events: Vec<PlayedEvent>,
}

/// One event with its time.
///
/// The milliseconds of the time are unique among the events, and are neither 0 nor 999. For
/// example, the time 12.345 s has the milliseconds 345. As a result, no timer fires at the time of
/// an event, so the order of events and timers is defined. This is true for all kinds of timers:
///
/// - Some timers fire a whole number of seconds after an event, with the milliseconds of this
///   event.
/// - Some timers fire a whole number of seconds after the start of the feeds, at 0 ms.
/// - Timers that count from a time in `managedFields` fire at a whole second of the time of day.
///   The feeds start 1 ms after a whole second, for example at 12:00:00.001. The next whole second,
///   12:00:01.000, is 999 ms after the start. So these timers fire at 999 ms.
#[derive(Clone)]
struct PlayedEvent {
    time_since_start: Duration,
    target: Gvr,
    namespace: Option<String>,
    name: String,
    change: RecordedChange,
    json: Value,
}

impl PlayedEvent {
    fn bytes(&self) -> Bytes {
        self.json.to_string().into()
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.json.pointer("/metadata/labels").cloned();
        serde_json::from_value(labels.unwrap_or_default()).unwrap_or_default()
    }
}

/// Changes the times so that they meet the requirements of [`PlayedEvent`].
fn make_times_unique(events: &mut [PlayedEvent]) {
    let mut used = BTreeSet::from([0, 999]);
    let mut last = 0;
    for event in events {
        let mut at = last.max(
            u64::try_from(event.time_since_start.as_millis())
                .expect("the milliseconds of a recording fit in 64 bits"),
        );
        while !used.insert(at % 1_000) {
            at += 1;
        }
        last = at;
        event.time_since_start = Duration::from_millis(at);
    }
}

/// A feed that plays the events of a recording, like the watches of a cluster.
struct PlayedFeed {
    begin: Instant,
    recording: Arc<ClusterRecording>,
}

/// The existing objects, by namespace and name.
type Objects = BTreeMap<(Option<String>, String), PlayedEvent>;

impl PlayedFeed {
    /// Returns a list of the existing objects, followed by the later changes, like a watch.
    fn watch(&self, source: &Source, selector: Option<&Selector>) -> BoxStream<'static, Raw> {
        let selects = |event: &PlayedEvent| selector.is_none_or(|it| it.matches(&event.labels()));
        let passed = clock::since(self.begin);
        let mut objects = Objects::new();
        let mut changes = Vec::new();
        let mut listed = None;
        for event in &self.recording.events {
            if event.time_since_start > passed {
                listed.get_or_insert_with(|| objects.clone());
            }
            if !source.covers(&event.target, event.namespace.as_deref()) {
                continue;
            }
            let key = (event.namespace.clone(), event.name.clone());
            let applied = event.change == RecordedChange::Applied;
            let before = if applied {
                objects.insert(key, event.clone())
            } else {
                objects.remove(&key)
            };
            let raw = if applied && selects(event) {
                Some(Raw::Applied(event.bytes()))
            } else if applied {
                let shown = before.filter(&selects);
                shown.map(|before| Raw::Deleted(before.bytes()))
            } else {
                let shown = before.is_none_or(|before| selects(&before));
                shown.then(|| Raw::Deleted(event.bytes()))
            };
            if event.time_since_start > passed {
                changes.extend(raw.map(|raw| (self.begin + event.time_since_start, raw)));
            }
        }
        let listed = listed.unwrap_or(objects);
        let shown = listed.values().filter(|event| selects(event));
        let mut state = vec![Raw::Reset];
        state.extend(shown.map(|event| Raw::Applied(event.bytes())));
        state.push(Raw::Synced);
        let changes = stream::iter(changes).then(|(at, raw)| async move {
            tokio::time::sleep_until(at.into()).await;
            raw
        });
        let watch = stream::iter(state).chain(changes);
        watch.chain(stream::pending()).boxed()
    }
}

impl Feed for PlayedFeed {
    fn follow(&self, source: Source) -> BoxStream<'static, Raw> {
        self.watch(&source, None)
    }

    fn follow_selected(&self, source: Source, selection: &str) -> BoxStream<'static, Raw> {
        let mut books = self.recording.books.iter();
        let book = books.find(|book| book.target == *source.target);
        let selector = book.and_then(|book| book.selector());
        assert_eq!(
            selector.map(ToString::to_string).as_deref(),
            Some(selection)
        );
        self.watch(&source, selector)
    }

    fn exists<'a>(&'a self, target: &'a Gvr, object: ObjectNames<'a>) -> BoxFuture<'a, bool> {
        let passed = clock::since(self.begin);
        let events = self.recording.events.iter();
        let about = |event: &&PlayedEvent| {
            let names = (event.namespace.as_deref(), event.name.as_str());
            event.target == *target && names == (object.namespace, object.name)
        };
        let last = events
            .filter(about)
            .rfind(|event| event.time_since_start <= passed);
        let exists = last.is_some_and(|event| {
            let uid = event.json.pointer("/metadata/uid").and_then(Value::as_str);
            event.change == RecordedChange::Applied && uid == object.uid
        });
        future::ready(exists).boxed()
    }
}

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
    let bounds = Bounds {
        bytes: 1 << 30,
        age: Duration::from_hours(1_000),
    };
    let (mut writer, reader) = index(bounds);
    let mut cursor = reader
        .follow(reader.head(), index::OPERATIONS)
        .expect("the current version is always available");
    let metrics = Arc::new(Metrics::new());
    let (tracker_sender, messages) = mpsc::channel(tracker_task::QUEUE_CAPACITY);
    let (feedback, mut reports) = mpsc::channel(64);
    let (publications, published) = mpsc::channel(64);
    let supervisor = Supervisor {
        feed: Arc::new(PlayedFeed {
            begin,
            recording: recording.clone(),
        }),
        tracker: tracker_sender,
        feedback,
        metrics: metrics.clone(),
        resync: RESYNC,
        stored_bytes: Arc::default(),
        time: Arc::default(),
    };
    let supervisor = tokio::spawn(supervisor.run(published));
    let activity = ActivityWriter::without_gaps(&reader);
    let tracking = tokio::spawn(async move {
        let tracker = Tracker::new(settings(), metrics.clone());
        let leadership = Leadership::alone(writer.head());
        tracker_task::run(
            tracker,
            &mut writer,
            &leadership,
            messages,
            activity,
            metrics,
        )
        .await;
    });
    let reported = tokio::spawn(async move { while reports.recv().await.is_some() {} });
    for book in &recording.books {
        let publication = Publication {
            target: Arc::new(book.target.clone()),
            book: Some(book.clone()),
            removed: false,
        };
        publications
            .send(publication)
            .await
            .expect("the supervisor is running");
    }
    tokio::time::sleep_until(end.into()).await;
    let mut changes = Vec::new();
    while let Some(more) = cursor.next().now_or_never() {
        changes.extend(more.expect("the ring buffer is large enough for all changes"));
    }
    drop(publications);
    for task in [supervisor, tracking, reported] {
        task.await.expect("the task does not panic");
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
            name: &event.name,
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

/// Returns the shipped rule sets, by target.
fn shipped_rules() -> BTreeMap<Gvr, Vec<Arc<RuleSet>>> {
    let mut targets: BTreeMap<Gvr, Vec<Arc<RuleSet>>> = BTreeMap::new();
    for rule_set in demo::shipped_rules::shipped() {
        let name = rule_set
            .metadata
            .name
            .as_deref()
            .expect("shipped rule sets have a name");
        let compiled = compile(name, &rule_set.spec).expect("the shipped rules are valid");
        let of_target = targets.entry(rule_set.spec.target.gvr()).or_default();
        of_target.push(Arc::new(compiled));
    }
    targets
}

/// Returns the recording of `events` with the rule books of its targets. Also returns the time of
/// day at which the test must start the recording. Calls [`set_change_time`] for each event.
fn recording(
    events: Vec<RecordedEvent>,
    rules: &BTreeMap<Gvr, Vec<Arc<RuleSet>>>,
) -> (ClusterRecording, Timestamp) {
    let mut first: BTreeMap<Gvr, RecordedEvent> = BTreeMap::new();
    for event in &events {
        first
            .entry(event.resource.clone())
            .or_insert_with(|| event.clone());
    }
    let books = rules.iter().filter_map(|(target, rule_sets)| {
        let first = &first.get(target)?.object;
        let (kind, namespaced) = (first.kind.clone(), first.namespace.is_some());
        let book = RuleBook::new(1, target.clone(), kind, namespaced, rule_sets.clone());
        Some(Arc::new(book))
    });
    let books = books.collect();
    let begin = events.first().map_or(0.0, |event| event.t);
    let events = events.into_iter().map(|event| PlayedEvent {
        time_since_start: Duration::from_secs_f64(event.t - begin),
        target: event.resource,
        namespace: event.object.namespace,
        name: event.object.name,
        change: event.change,
        json: event.object.json,
    });
    let mut events: Vec<PlayedEvent> = events.collect();
    make_times_unique(&mut events);
    // `wall` is the time of day at the start. It is so late that no event comes before the creation
    // time of its object.
    let created = events.iter().filter_map(|event| {
        let created = event
            .json
            .pointer("/metadata/creationTimestamp")?
            .as_str()?;
        let created: Timestamp = created.parse().ok()?;
        Some(created.as_second() - i64::try_from(event.time_since_start.as_secs()).ok()?)
    });
    let wall = Timestamp::from_second(created.max().unwrap_or(1_800_000_000) + 1);
    let wall = wall.expect("the time is in this century");
    for event in &mut events {
        set_change_time(event, wall);
    }
    (ClusterRecording { books, events }, wall)
}

/// Sets the time of the last change in the managedFields of the object, in whole seconds.
fn set_change_time(event: &mut PlayedEvent, wall: Timestamp) {
    let changed = Timestamp::from_second((wall + event.time_since_start).as_second());
    let time = changed.expect("the time is in this century").to_string();
    event.json["metadata"]["managedFields"] = json!([{"manager": "m", "time": time}]);
}

#[test]
fn no_event_happens_at_the_time_of_a_timer() {
    let wall = Timestamp::UNIX_EPOCH;
    let rules = shipped_rules();
    let kinds = KnownKinds::default().with_targets(rules.keys());
    let recorded = recordings().into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).expect("the file is readable");
        recording(recorded_watch::read(&text, &kinds).0, &rules).0
    });
    for recording in recorded.chain([random_recording(0, wall)]) {
        let milliseconds = recording.events.iter();
        let milliseconds = milliseconds.map(|event| event.time_since_start.subsec_millis());
        let distinct: BTreeSet<u32> = milliseconds.collect();
        assert_eq!(distinct.len(), recording.events.len());
        assert!(!distinct.contains(&0) && !distinct.contains(&999));
    }
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

fn gvr(resource: &str) -> Gvr {
    Gvr {
        group: "things.example".into(),
        version: "v1".into(),
        resource: resource.into(),
    }
}

/// An expression whose cost grows with the third power of the number of values.
const CUBE: &str =
    "object.values.all(a, object.values.all(b, object.values.all(c, a + b + c > 0)))";

/// Returns a rule book with two rule sets. In rule set `a`, one rule reads `now`, one has an
/// outcome, and one fails on some objects. Rule set `b` exhausts its evaluation budget on objects
/// with many values. `selection` has the fields that limit which objects the rule sets cover.
fn random_book(resource: &str, selection: &Value) -> Arc<RuleBook> {
    let target = gvr(resource);
    let rules = json!([
        {
            "operation": "Working", "expression": "object.works",
            "outcome": "object.works ? '' : object.result", "message": "object.result",
            "stateAfter": "10s", "state": "object.state",
        },
        {"operation": "Waiting", "expression": "now - timestamp(object.since) < duration('95s')"},
        {"operation": "Failing", "expression": "object.fails"},
        {
            "operation": "Late", "expression": "object.works && object.fails == true",
            "appearAfter": "20s", "debounce": "1m",
        },
    ]);
    let cubed = json!([{"operation": "Cubing", "expression": CUBE}]);
    let rule_sets = [("a", rules), ("b", cubed)].map(|(name, rules)| {
        let mut spec = selection.clone();
        spec["component"] = "tests".into();
        spec["target"] = serde_json::to_value(&target).expect("a target has only strings");
        spec["rules"] = rules;
        let spec = serde_json::from_value(spec).expect("the JSON has the fields of a rule set");
        Arc::new(compile(name, &spec).expect("the rules are valid"))
    });
    let kind = resource.to_owned();
    Arc::new(RuleBook::new(1, target, kind, true, rule_sets.to_vec()))
}

/// Returns a recording of about 14 minutes in which random objects are created, changed and
/// deleted.
fn random_recording(seed: u64, wall: Timestamp) -> ClusterRecording {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut events: Vec<PlayedEvent> = Vec::new();
    let mut after = Duration::ZERO;
    let mut objects: BTreeMap<(usize, u8), Value> = BTreeMap::new();
    for number in 0..300 {
        // In the first 10 events, the objects have many values, so that rule set `b` fails.
        let has_many = number < 10;
        after += Duration::from_millis(random.u64(0..if number < 60 { 500 } else { 7_000 }));
        let (resource, name) = (random.usize(0..3), random.u8(0..12));
        let namespace = ["x", "y", "z"][usize::from(name) % 3];
        let existing = objects.remove(&(resource, name));
        let is_deleted = existing.is_some() && random.u8(..) < 20;
        let mut json = existing.unwrap_or_else(|| {
            let uid = format!("uid-{number}");
            json!({"metadata": {"name": format!("o{name}"), "namespace": namespace, "uid": uid}})
        });
        if !is_deleted {
            let since = wall + after - Duration::from_secs(random.u64(0..120));
            let watched = if random.u8(..) < 200 { "yes" } else { "no" };
            json["metadata"]["labels"] = json!({"watched": watched});
            json["works"] = random.bool().into();
            json["state"] = ["Progressing", "Blocked", "Failing"][random.usize(0..3)].into();
            json["result"] = ["", "Succeeded", "Failed"][random.usize(0..3)].into();
            json["since"] = since.to_string().into();
            json["fails"] = [json!(true), json!(false), json!("text")][random.usize(0..3)].clone();
            json["values"] = json!(vec![1; if has_many { 60 } else { 1 }]);
            objects.insert((resource, name), json.clone());
        }
        events.push(PlayedEvent {
            time_since_start: after,
            target: gvr(["cars", "boats", "planes"][resource]),
            namespace: Some(namespace.to_owned()),
            name: format!("o{name}"),
            change: if is_deleted {
                RecordedChange::Deleted
            } else {
                RecordedChange::Applied
            },
            json,
        });
    }
    make_times_unique(&mut events);
    for event in &mut events {
        set_change_time(event, wall);
    }
    let selector = json!({"labelSelector": {"matchLabels": {"watched": "yes"}}});
    let books = vec![
        random_book("cars", &json!({})),
        random_book("boats", &selector),
        random_book("planes", &json!({"namespaces": ["x", "y"]})),
    ];
    ClusterRecording { books, events }
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
