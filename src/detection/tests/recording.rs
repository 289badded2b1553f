//! Recordings of a cluster, and a feed that plays them: the recordings in `tests/fixtures/recorded`, and
//! random ones.

use crate::clock;
use crate::demo;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, future};
use ifo_api::live::SubjectReference;
use ifo_api::{Gvr, Source};
use ifo_client::recorded_watch::{RecordedChange, RecordedEvent};
use ifo_engine::rules::{RuleBook, RuleSet, compile};
use ifo_observe::{Feed, Raw};
use jiff::Timestamp;
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The events of a cluster, and the rule books for the resources in these events.
pub(super) struct ClusterRecording {
    pub(super) books: Vec<Arc<RuleBook>>,
    pub(super) events: Vec<PlayedEvent>,
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
pub(super) struct PlayedEvent {
    pub(super) time_since_start: Duration,
    pub(super) target: Gvr,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) change: RecordedChange,
    pub(super) json: Value,
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
pub(super) struct PlayedFeed {
    pub(super) begin: Instant,
    pub(super) recording: Arc<ClusterRecording>,
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
    fn follow(&self, source: Source, selection: Option<&str>) -> BoxStream<'static, Raw> {
        let mut books = self.recording.books.iter();
        let book = books.find(|book| book.target == *source.target);
        let selector = book.and_then(|book| book.selector());
        assert_eq!(selector.map(ToString::to_string).as_deref(), selection);
        self.watch(&source, selector)
    }

    fn exists<'a>(&'a self, target: &'a Gvr, object: &'a SubjectReference) -> BoxFuture<'a, bool> {
        let passed = clock::since(self.begin);
        let events = self.recording.events.iter();
        let about = |event: &&PlayedEvent| {
            let names = (event.namespace.as_deref(), event.name.as_str());
            event.target == *target && names == (object.namespace.as_deref(), &*object.name)
        };
        let last = events
            .filter(about)
            .rfind(|event| event.time_since_start <= passed);
        let exists = last.is_some_and(|event| {
            let uid = event.json.pointer("/metadata/uid").and_then(Value::as_str);
            event.change == RecordedChange::Applied && uid == object.uid.as_deref()
        });
        future::ready(exists).boxed()
    }
}

/// Returns the shipped rule sets, by target.
pub(super) fn shipped_rules() -> BTreeMap<Gvr, Vec<Arc<RuleSet>>> {
    let mut targets: BTreeMap<Gvr, Vec<Arc<RuleSet>>> = BTreeMap::new();
    for rule_set in demo::shipped_rules::shipped() {
        let name = rule_set
            .metadata
            .name
            .as_deref()
            .expect("shipped rule sets have a name");
        let compiled = compile(name, &rule_set.spec).expect("the shipped rules are valid");
        let of_target = targets.entry(rule_set.spec.target.clone()).or_default();
        of_target.push(Arc::new(compiled));
    }
    targets
}

/// Returns the recording of `events` with the rule books of its targets. Also returns the time of
/// day at which the test must start the recording. Calls [`set_change_time`] for each event.
pub(super) fn recording(
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
    // `wall` is the time of day at the start. This time is so late that no event comes before the
    // creation time of its object.
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
pub(super) fn random_recording(seed: u64, wall: Timestamp) -> ClusterRecording {
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
