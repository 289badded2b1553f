//! Tests that the scenes of the demo are valid, can be repeated, and show all kinds of operations.

use super::*;
use crate::demo::{ServedObjects, kinds, shipped_rules};
use crate::observe::{Feed as _, Raw};
use futures::StreamExt as _;
use futures::stream::select_all;
use ifo_api::{Gvr, Source};
use ifo_engine::ClockReading;
use ifo_engine::detect::Evaluation;
use ifo_engine::replay::{Replay, ReplayObserver, ReplayedObject};
use ifo_engine::rules::{RuleBook, compile};
use ifo_engine::track::{TrackerSettings, Write};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::timeout_at;

/// An event of a watch, and the time (`at`) since the scenes began to play.
struct WatchEvent {
    at: Duration,
    resource: Gvr,
    is_deleted: bool,
    object: Value,
}

impl WatchEvent {
    fn metadata(&self, field: &str) -> Option<&str> {
        self.object["metadata"][field].as_str()
    }
}

/// Plays the scenes for the time `length`, and watches the resources of all kinds in the demo.
/// Returns the events of these watches.
async fn watch_events(length: Duration) -> Vec<WatchEvent> {
    let scenes = Scenes::open("ifo-system").unwrap();
    let objects = scenes.objects();
    let mut feeds = select_all(kinds::KINDS.iter().map(|kind| {
        let resource = kinds::gvr(kind);
        let source = Source {
            target: resource.clone().into(),
            namespace: None,
        };
        let feed = objects.follow(source);
        feed.map(move |raw| (resource.clone(), raw))
    }));
    let begun = Instant::now();
    let playing = tokio::spawn(scenes.play());
    let mut events = Vec::new();
    while let Ok(Some((resource, raw))) = timeout_at(begun + length, feeds.next()).await {
        let (is_deleted, json) = match raw {
            Raw::Applied(json) => (false, json),
            Raw::Deleted(json) => (true, json),
            Raw::Reset | Raw::Synced => continue,
            gap => panic!("{gap:?}"),
        };
        let object = serde_json::from_slice(&json).unwrap();
        events.push(WatchEvent {
            at: begun.elapsed(),
            resource,
            is_deleted,
            object,
        });
    }
    playing.abort();
    events
}

#[test]
fn the_scenes_are_small_and_use_every_kind() {
    let size: usize = embedded(FILES).iter().map(|(_, text)| text.len()).sum();
    assert!(size < 1 << 20, "{size} bytes");
    let mut used = BTreeSet::new();
    for (name, text) in &embedded(FILES) {
        let scene = Scene::parse(name, text).unwrap();
        used.extend(scene.steps.iter().map(|step| step.id.resource.clone()));
    }
    assert_eq!(used, kinds::KINDS.iter().map(kinds::gvr).collect());
}

#[test]
fn every_change_is_of_an_object_that_exists() {
    for (name, text) in &embedded(FILES) {
        let mut existing = BTreeSet::new();
        for step in Scene::parse(name, text).unwrap().steps {
            let expected = match step.change {
                ChangeType::Added => existing.insert(step.id.clone()),
                ChangeType::Modified => existing.contains(&step.id),
                ChangeType::Deleted => existing.remove(&step.id),
            };
            assert!(expected, "{name}: {:?} of {:?}", step.change, step.id);
        }
    }
}

#[test]
fn an_invalid_line_is_reported() {
    let good = r#"{"t":1,"type":"ADDED","object":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}}"#;
    for (bad, problem) in [
        (good.replace(":1,", ":0.5,"), "earlier"),
        (good.replace(":1,", ":-1,"), "negative"),
        (good.replace("Node", "Nod"), "kind"),
        (good.replace("ADDED", "PUT"), "unknown variant"),
        (good.replace("type", "kind"), "unknown field"),
    ] {
        let error = Scene::parse("test", &format!("{good}\n{bad}")).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("line 2 of the scene test: "), "{error}");
        assert!(error.contains(problem), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_time_is_in_the_future_and_each_round_has_new_uids() {
    let _simulated = clock::simulated::begin("2030-01-01T00:00:00.9Z".parse().unwrap());
    let start = clock::now();
    let events = watch_events(Duration::from_mins(5)).await;
    let mut uids: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for event in &events {
        let now = start + jiff::SignedDuration::try_from(event.at).unwrap();
        each_text(&event.object, &mut |text| {
            if let Ok(time) = text.parse::<Timestamp>() {
                assert!(time <= now, "{text} at {now}: {}", event.object);
            }
        });
        let name = (event.resource.resource.clone(), event.metadata("name"));
        let uid = event.metadata("uid").unwrap().to_owned();
        uids.entry(name).or_default().insert(uid);
    }
    let of = |resource: &str, name| uids[&(resource.to_owned(), Some(name))].len();
    assert_eq!(of("clusterversions", "version"), 1);
    assert!(of("virtualmachines", "ledger") > 1);
}

fn each_text(value: &Value, read: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => read(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, read)),
        Value::Object(fields) => fields.values().for_each(|value| each_text(value, read)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn each_round_restores_the_initial_objects() {
    let _simulated = clock::simulated::begin("2030-01-01T00:00:00Z".parse().unwrap());
    for (name, text) in &embedded(FILES) {
        let store = ObjectStore::default();
        let scene = Scene::parse(name, text).unwrap();
        let names = || {
            let lists = kinds::KINDS
                .iter()
                .map(|kind| store.list(&kinds::gvr(kind), "").1);
            lists
                .flatten()
                .map(|it| it["metadata"]["uid"].to_string())
                .collect::<BTreeSet<_>>()
        };
        scene.set_up(&store, 0);
        let before = names();
        let length = scene.steps.last().unwrap().at + PAUSE_BETWEEN_ROUNDS;
        if scene.has_changes() {
            let round = tokio::time::timeout(length + Duration::from_millis(1), scene.play(&store));
            assert!(round.await.is_err(), "the scene {name} must not end");
        }
        assert_eq!(names(), before, "{name}");
    }
}

/// Collects the operations that a replay shows to clients, as JSON.
#[derive(Default)]
struct ShownOperations(Vec<Value>);

impl ReplayObserver for ShownOperations {
    fn evaluated(&mut self, evaluation: &Evaluation) {
        assert!(evaluation.failures.is_empty(), "{:?}", evaluation.failures);
    }

    fn changed(&mut self, change: Write, _: ClockReading) {
        if let Write::Put { object, .. } = change {
            self.0.extend(object.operation().map(|it| json!(**it)));
        }
    }
}

/// Returns the operations that the shipped rules detect in `events`. If an operation changes, the
/// result contains each of its versions.
fn detect(events: &[WatchEvent], begin: ClockReading) -> Vec<Value> {
    let settings = TrackerSettings {
        debounce: Duration::from_secs(5),
        retain: None,
        max_records: 0,
        cluster_namespace: "ifo-system".into(),
    };
    let resync = Duration::from_secs(30);
    let mut replay = Replay::new(settings, resync, begin, ShownOperations::default());
    for kind in kinds::KINDS {
        let gvr = kinds::gvr(kind);
        let sets = shipped_rules::shipped();
        let sets = sets.iter().filter(|set| set.spec.target.gvr() == gvr);
        let sets = sets.map(|set| {
            let name = set.metadata.name.as_deref().unwrap();
            Arc::new(compile(name, &set.spec).unwrap())
        });
        let book = RuleBook::new(
            1,
            gvr.clone(),
            kind.kind.into(),
            kind.namespaced,
            sets.collect(),
        );
        replay.add_book(&Arc::new(book));
    }
    for event in events {
        replay.advance_to(ClockReading {
            wall: begin.wall + jiff::SignedDuration::try_from(event.at).unwrap(),
            steady: begin.steady + event.at,
        });
        let json = event.object.to_string();
        let object = ReplayedObject {
            target: &event.resource,
            namespace: event.metadata("namespace"),
            name: event.metadata("name").unwrap(),
            json: json.as_bytes(),
        };
        if event.is_deleted {
            replay.deleted(object, false);
        } else {
            replay.applied(object);
        }
    }
    replay.observer.0
}

#[tokio::test(start_paused = true)]
async fn a_user_sees_all_kinds_of_operations_in_the_first_minute() {
    let _simulated = clock::simulated::begin("2030-01-01T00:00:00Z".parse().unwrap());
    let begin = clock::reading();
    let events = watch_events(Duration::from_mins(1)).await;
    let shown = detect(&events, begin);
    let is = |operation: &Value, kind: &str, name: &str| {
        let spec = &operation["spec"];
        spec["subject"]["kind"] == kind && spec["operation"] == name
    };
    for (kind, name) in [
        ("VirtualMachineInstanceMigration", "Running"),
        ("VirtualMachine", "Migrating"),
        ("VirtualMachine", "Starting"),
        ("Deployment", "Rollout"),
        ("Subscription", "InstallPlanPending"),
        ("InstallPlan", "Installing"),
        ("ClusterServiceVersion", "Installing"),
        ("HyperConverged", "Upgrading"),
        ("KubeVirt", "Upgrading"),
        ("CDI", "Upgrading"),
        ("ClusterVersion", "PartialUpdate"),
        ("Node", "Cordoned"),
        ("VirtualMachineSnapshot", "InProgress"),
        ("Namespace", "Terminating"),
        ("DataVolume", "ImportInProgress"),
    ] {
        assert!(
            shown.iter().any(|it| is(it, kind, name)),
            "{kind} {name}: {:#?}",
            names(&shown)
        );
    }
    for state in ["Progressing", "Blocked", "Failing"] {
        let of_state = |it: &&Value| it["status"]["state"] == state;
        assert!(shown.iter().any(|it| of_state(&it)), "{state}");
    }
    let imports = shown
        .iter()
        .filter(|it| is(it, "DataVolume", "ImportInProgress"));
    let progress: BTreeSet<i64> = imports
        .filter_map(|it| it["status"]["progress"].as_i64())
        .collect();
    assert!(progress.len() >= 5, "{progress:?}");
}

fn names(shown: &[Value]) -> BTreeSet<String> {
    let name = |it: &Value| {
        let (spec, status) = (&it["spec"], &it["status"]);
        let (kind, name) = (&spec["subject"]["kind"], &spec["operation"]);
        format!("{kind} {name} {} {}", status["state"], status["progress"])
    };
    shown.iter().map(name).collect()
}

#[test]
fn a_moved_object_keeps_everything_but_times_and_uids() {
    let uid = "694865fd-6025-40e2-829c-f8819199395d";
    let lasting = "04e97877-0064-4c4a-9086-3d56355aab35";
    let moved = RoundAdapter {
        begun: "2030-05-01T12:00:00Z".parse().unwrap(),
        uids: Uuid::NAMESPACE_OID,
        lasting: &BTreeSet::from([lasting.to_owned()]),
    };
    let value = moved.value(&json!({
        "at": "2026-01-01T00:00:07Z", "uid": uid, "owner": lasting,
        "pods": {uid: "node-1"}, "text": "at 2026-01-01T00:00:07Z", "number": 7, "none": null,
    }));
    let new = value["uid"].as_str().unwrap().to_owned();
    assert_ne!(new, uid);
    assert_eq!(
        value,
        json!({
            "at": "2030-05-01T12:00:07Z", "uid": new, "owner": lasting,
            "pods": {new.clone(): "node-1"}, "text": "at 2026-01-01T00:00:07Z", "number": 7,
            "none": null,
        })
    );
}
