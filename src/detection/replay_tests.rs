//! Compares the server's feed tasks, tracker and index with the engine's [`Replay`] on recordings.
//! Each visible change of each operation must be the same, in every field.

use super::*;
use crate::index::{Bounds, ListScope, index};
use crate::observe::{ObjectNames, Raw};
use crate::replicate::Leadership;
use crate::{clock, demo, tracking};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, future};
use ifo_api::Key;
use ifo_client::kinds::KnownKinds;
use ifo_client::recording::{self, RecordedChange, RecordedEvent};
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

/// Interval at which rules that read `now` are evaluated again.
const RESYNC: Duration = Duration::from_secs(30);

/// Time for which both continue after the last event. It is longer than all timers of operations.
const REST: Duration = Duration::from_mins(10);

fn settings() -> TrackerSettings {
    TrackerSettings {
        debounce: Duration::from_secs(30),
        retain: None,
        cluster_namespace: "ifo-system".into(),
    }
}

/// A visible change: the operation, with its content unless it was removed.
type VisibleChange = (Key, Option<Value>);

/// The events in a cluster.
struct Recording {
    books: Vec<Arc<RuleBook>>,
    events: Vec<PlayedEvent>,
}

/// One event with its time. No two events have the same milliseconds within a second, and none has
/// 0 or 1. All timers fire whole seconds after an event or after the beginning, so the order of all
/// steps is defined.
#[derive(Clone)]
struct PlayedEvent {
    after: Duration,
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

/// Gives each event a unique time, as [`PlayedEvent`] requires.
fn spread(events: &mut [PlayedEvent]) {
    let mut taken = BTreeSet::from([0, 1]);
    let mut last = 0;
    for event in events {
        let mut at = last.max(u64::try_from(event.after.as_millis()).expect("a few hours"));
        while !taken.insert(at % 1_000) {
            at += 1;
        }
        last = at;
        event.after = Duration::from_millis(at);
    }
}

/// Plays the events of a recording in the way of a cluster's watches.
struct PlayedFeed {
    begin: Instant,
    recording: Arc<Recording>,
}

/// The objects that exist, by namespace and name.
type Objects = BTreeMap<(Option<String>, String), PlayedEvent>;

impl PlayedFeed {
    /// The existing objects, and later changes, as in a watch.
    fn watch(&self, source: &Source, selector: Option<&Selector>) -> BoxStream<'static, Raw> {
        let selects = |event: &PlayedEvent| selector.is_none_or(|it| it.matches(&event.labels()));
        let passed = clock::since(self.begin);
        let mut objects = Objects::new();
        let mut changes = Vec::new();
        let mut listed = None;
        for event in &self.recording.events {
            if event.after > passed {
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
            if event.after > passed {
                changes.extend(raw.map(|raw| (self.begin + event.after, raw)));
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

    fn is_there<'a>(&'a self, target: &'a Gvr, object: ObjectNames<'a>) -> BoxFuture<'a, bool> {
        let passed = clock::since(self.begin);
        let events = self.recording.events.iter();
        let about = |event: &&PlayedEvent| {
            let names = (event.namespace.as_deref(), event.name.as_str());
            event.target == *target && names == (object.namespace, object.name)
        };
        let last = events.filter(about).rfind(|event| event.after <= passed);
        let exists = last.is_some_and(|event| {
            let uid = event.json.pointer("/metadata/uid").and_then(Value::as_str);
            event.change == RecordedChange::Applied && uid == object.uid
        });
        future::ready(exists).boxed()
    }
}

/// Records the visible changes of operations in a replay.
#[derive(Default)]
struct Watcher {
    objects: BTreeMap<Key, Value>,
    changes: Vec<VisibleChange>,
    /// Number of evaluations in which a throttled rule set was skipped.
    throttled: usize,
}

impl ReplayObserver for Watcher {
    fn evaluated(&mut self, evaluation: &Evaluation) {
        if evaluation.failures.is_empty() && !evaluation.unknown.is_empty() {
            self.throttled += 1;
        }
    }

    fn changed(&mut self, change: Write, _: ClockReading) {
        match change {
            Write::Put { key, .. } => panic!("the tracker has encoded {key}"),
            Write::Show { key, operation } => {
                let object = without_version(&operation.json);
                let before = self.objects.insert(key.clone(), object.clone());
                // A watch sends no event for an unchanged object.
                if before.as_ref() != Some(&object) {
                    self.changes.push((key, Some(object)));
                }
            }
            Write::Delete { key } => {
                if self.objects.remove(&key).is_some() {
                    self.changes.push((key, None));
                }
            }
        }
    }
}

fn without_version(json: &[u8]) -> Value {
    let mut object: Value = serde_json::from_slice(json).expect("JSON");
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.remove("resourceVersion");
    object
}

/// All visible changes that the server commits, from `begin` to `end`.
async fn served(recording: Arc<Recording>, begin: Instant, end: Instant) -> Vec<VisibleChange> {
    let bounds = Bounds {
        bytes: 1 << 30,
        age: Duration::from_hours(1_000),
    };
    let (mut writer, reader) = index(bounds);
    let mut cursor = reader
        .follow(reader.head(), ListScope::All)
        .expect("the head is there");
    let metrics = Arc::new(Metrics::new());
    let (tracker, messages) = mpsc::channel(tracking::QUEUE_CAPACITY);
    let (feedback, mut reports) = mpsc::channel(64);
    let (publications, published) = mpsc::channel(64);
    let supervisor = Supervisor {
        feed: Arc::new(PlayedFeed {
            begin,
            recording: recording.clone(),
        }),
        tracker,
        feedback,
        metrics: metrics.clone(),
        resync: RESYNC,
    };
    let supervisor = tokio::spawn(supervisor.run(published));
    let tracking = tokio::spawn(async move {
        let tracker = Tracker::new(settings(), metrics.clone());
        let leadership = Leadership::alone(writer.head());
        tracking::run(tracker, &mut writer, &leadership, messages, metrics).await;
    });
    let reported = tokio::spawn(async move { while reports.recv().await.is_some() {} });
    for book in &recording.books {
        let publication = Publication {
            target: Arc::new(book.target.clone()),
            book: Some(book.clone()),
            removed: false,
        };
        publications.send(publication).await.expect("it runs");
    }
    tokio::time::sleep_until(end.into()).await;
    let mut changes = Vec::new();
    while let Some(more) = cursor.next().now_or_never() {
        changes.extend(more.expect("the ring has all changes"));
    }
    drop(publications);
    for task in [supervisor, tracking, reported] {
        task.await.expect("it ends without a panic");
    }
    let visible = changes.into_iter().map(|change| {
        let key = change.key().expect("a change of an object").clone();
        let after = change.after.map(|entry| without_version(&entry.json()));
        (key, after)
    });
    visible.collect()
}

/// All visible changes of a replay.
fn replayed(recording: &Recording, begin: ClockReading, end: Instant) -> Watcher {
    let at = |steady: Instant| ClockReading {
        wall: begin.wall + (steady - begin.steady),
        steady,
    };
    let mut replay = Replay::new(settings(), RESYNC, begin, Watcher::default());
    for book in &recording.books {
        replay.add_book(book);
    }
    for event in &recording.events {
        replay.advance_to(at(begin.steady + event.after));
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

/// Runs a recording through both, and compares them. `wall` is the time of day at the beginning.
async fn compare(name: &str, recording: Recording, wall: Timestamp) -> Watcher {
    let simulated = clock::simulated::begin(wall);
    // The intervals of the feeds begin now, so no timer of an operation fires at the same time.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let begin = clock::reading();
    let recording = Arc::new(recording);
    let last = recording
        .events
        .last()
        .map_or(Duration::ZERO, |it| it.after);
    let end = begin.steady + last + REST;
    let served = served(recording.clone(), begin.steady, end).await;
    let replay = replayed(&recording, begin, end);
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
            "changes in {feed:?} of {name}"
        );
    }
    assert_eq!(served.len(), replayed.len(), "feeds of {name}");
    replay
}

/// Groups the changes by kind and namespace of the subject. The order between feeds that evaluate
/// objects at the same time is not defined.
fn by_feed(changes: &[VisibleChange]) -> BTreeMap<(String, String), Vec<&VisibleChange>> {
    let mut kinds: BTreeMap<&Key, String> = BTreeMap::new();
    let mut feeds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for change in changes {
        let (key, operation) = change;
        if let Some(operation) = operation {
            kinds.insert(key, operation["spec"]["subject"]["kind"].to_string());
        }
        let feed = (kinds[key].clone(), key.namespace.to_string());
        feeds.entry(feed).or_default().push(change);
    }
    feeds
}

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recorded");
    let files = std::fs::read_dir(folder).expect("the folder of the recordings");
    let paths = files.map(|file| file.expect("it can be read").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "jsonl"))
        .collect();
    paths.sort();
    paths
}

/// The shipped rule sets, by target.
fn shipped() -> BTreeMap<Gvr, Vec<Arc<RuleSet>>> {
    let mut targets: BTreeMap<Gvr, Vec<Arc<RuleSet>>> = BTreeMap::new();
    for rule_set in demo::shipped_rules::shipped() {
        let name = rule_set.metadata.name.as_deref().expect("a name");
        let compiled = compile(name, &rule_set.spec).expect("valid rules");
        let of_target = targets.entry(rule_set.spec.target.gvr()).or_default();
        of_target.push(Arc::new(compiled));
    }
    targets
}

/// A recording with the rule sets for its targets. Each object contains the time of its last
/// change.
fn recording(
    events: Vec<RecordedEvent>,
    rules: &BTreeMap<Gvr, Vec<Arc<RuleSet>>>,
) -> (Recording, Timestamp) {
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
        after: Duration::from_secs_f64(event.t - begin),
        target: event.resource,
        namespace: event.object.namespace,
        name: event.object.name,
        change: event.change,
        json: event.object.json,
    });
    let mut events: Vec<PlayedEvent> = events.collect();
    spread(&mut events);
    // No object is from the future.
    let created = events.iter().filter_map(|event| {
        let created = event
            .json
            .pointer("/metadata/creationTimestamp")?
            .as_str()?;
        let created: Timestamp = created.parse().ok()?;
        Some(created.as_second() - i64::try_from(event.after.as_secs()).ok()?)
    });
    let wall = Timestamp::from_second(created.max().unwrap_or(1_800_000_000) + 1);
    let wall = wall.expect("it is in range");
    for event in &mut events {
        stamp(event, wall);
    }
    (Recording { books, events }, wall)
}

/// Sets the time of the last change in the object, in whole seconds.
fn stamp(event: &mut PlayedEvent, wall: Timestamp) {
    let changed = Timestamp::from_second((wall + event.after).as_second());
    let time = changed.expect("it is in range").to_string();
    event.json["metadata"]["managedFields"] = json!([{"manager": "m", "time": time}]);
}

#[tokio::test(start_paused = true)]
async fn recordings_give_the_same_operations_in_server_and_replay() {
    let rules = shipped();
    let kinds = KnownKinds::default().with_targets(rules.keys());
    let mut changes = 0;
    for path in recordings() {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let (events, faults) = recording::read(&text, &kinds);
        assert!(faults.is_empty(), "{faults:?}");
        let (recording, wall) = recording(events, &rules);
        let replay = compare(&name, recording, wall).await;
        changes += replay.changes.len();
    }
    assert!(changes > 1_000, "{changes}");
}

fn gvr(resource: &str) -> Gvr {
    Gvr {
        group: "things.example".into(),
        version: "v1".into(),
        resource: resource.into(),
    }
}

/// An expression whose cost grows with the cube of the number of values.
const CUBE: &str =
    "object.values.all(a, object.values.all(b, object.values.all(c, a + b + c > 0)))";

/// A rule book with two rule sets. The rules of the first read `now`, have an outcome or fail. The
/// second exhausts its budget on objects with many values.
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
        spec["target"] = serde_json::to_value(&target).expect("a target");
        spec["rules"] = rules;
        let spec = serde_json::from_value(spec).expect("a rule set");
        Arc::new(compile(name, &spec).expect("valid"))
    });
    let kind = resource.to_owned();
    Arc::new(RuleBook::new(1, target, kind, true, rule_sets.to_vec()))
}

/// Random objects that are created, changed and deleted for half an hour.
fn random_recording(seed: u64, wall: Timestamp) -> Recording {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut events: Vec<PlayedEvent> = Vec::new();
    let mut after = Duration::ZERO;
    let mut objects: BTreeMap<(usize, u8), Value> = BTreeMap::new();
    for number in 0..300 {
        // At first, all objects have many values, so their rule set is throttled.
        let has_many = number < 60;
        after += Duration::from_millis(random.u64(0..if has_many { 500 } else { 7_000 }));
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
            after,
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
    spread(&mut events);
    for event in &mut events {
        stamp(event, wall);
    }
    let selector = json!({"labelSelector": {"matchLabels": {"watched": "yes"}}});
    let books = vec![
        random_book("cars", &json!({})),
        random_book("boats", &selector),
        random_book("planes", &json!({"namespaces": ["x", "y"]})),
    ];
    Recording { books, events }
}

#[tokio::test(start_paused = true)]
async fn random_objects_give_the_same_operations_in_server_and_replay() {
    let wall = Timestamp::from_second(1_800_000_000).expect("it is in range");
    for seed in 0..2 {
        let name = format!("seed {seed}");
        let replay = compare(&name, random_recording(seed, wall), wall).await;
        assert!(replay.throttled > 0, "{name}");
        let changes = replay.changes.iter().filter_map(|(_, it)| it.as_ref());
        let seen: BTreeSet<&str> = changes
            .flat_map(|it| [&it["spec"]["operation"], &it["status"]["state"]])
            .chain(
                replay
                    .changes
                    .iter()
                    .filter_map(|(_, it)| Some(&it.as_ref()?["status"]["reason"])),
            )
            .filter_map(Value::as_str)
            .collect();
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
            assert!(seen.contains(expected), "{expected} of {name}: {seen:?}");
        }
    }
}
