//! Tests that the scenes of the demo are valid, can be repeated, and show all kinds of operations.

use super::*;
use crate::clock;
use crate::demo::shipped_rules;
use crate::detection::tests::pipeline::{TestPipeline, settings};
use crate::index::{self, IndexReader, ReadVersion, Scope};
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::{RuleBook, RuleSet, compile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[test]
fn the_scenes_are_small_and_their_kinds_are_as_in_a_cluster() {
    let size: usize = embedded(FILES).iter().map(|(_, text)| text.len()).sum();
    assert!(size < 1 << 20, "{size} bytes");
    let kinds = open("ifo-system").0.served_kinds();
    for (plural, namespaced, short_name) in [
        ("operationrulesets", false, "ors"),
        ("nodes", false, "no"),
        ("virtualmachines", true, "vm"),
        ("poddisruptionbudgets", true, "pdb"),
        ("cdis", false, "cdi"),
        ("clusterversions", false, ""),
    ] {
        let kind = kinds.iter().find(|it| it.plural == plural).expect(plural);
        let short_names = kind.short_names.concat();
        assert_eq!((kind.namespaced, &*short_names), (namespaced, short_name));
    }
}

#[test]
fn the_steps_are_in_order_and_every_change_is_of_an_object_that_exists() {
    for (name, text) in &embedded(FILES) {
        let mut existing = BTreeSet::new();
        let scene = Scene::parse(text);
        assert!(scene.steps().is_sorted_by_key(SceneStep::at), "{name}");
        for step in scene.steps() {
            let expected = match step.change {
                ChangeType::Added => existing.insert(step.key()),
                ChangeType::Modified => existing.contains(&step.key()),
                ChangeType::Deleted => existing.remove(&step.key()),
            };
            assert!(expected, "{name}: {step:?}");
        }
    }
}

#[test]
fn no_time_is_after_its_step() {
    for (name, text) in &embedded(FILES) {
        for step in Scene::parse(text).steps() {
            let now = ORIGIN + step.at();
            each_text(&step.object, &mut |text| {
                if let Ok(time) = text.parse::<Timestamp>() {
                    assert!(time <= now, "{name}: {text} at {now}: {}", step.object);
                }
            });
        }
    }
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
        let store = ObjectStore::new(Kinds::default());
        let scene = Scene::parse(text);
        let names = || {
            let (entries, _) = store.reader.list_and_follow(Scope::Everything);
            let uids = entries
                .iter()
                .map(|it| it.object().metadata.uid.clone().unwrap());
            uids.collect::<BTreeSet<_>>()
        };
        scene.set_up(&store);
        let before = names();
        let length = scene.length() + PAUSE_BETWEEN_ROUNDS;
        if !scene.later.is_empty() {
            let round = tokio::time::timeout(length + Duration::from_millis(1), scene.play(&store));
            assert!(round.await.is_err(), "the scene {name} must not end");
        }
        assert_eq!(names(), before, "{name}");
    }
}

#[test]
fn the_objects_of_a_round_have_new_uids_in_the_next_round() {
    for (name, text) in &embedded(FILES) {
        let first = Scene::parse(text);
        let second = first.next_round();
        let third = second.next_round();
        let uids = |steps: &[SceneStep]| -> Vec<String> {
            let uids = steps.iter().filter_map(SceneStep::added_uid);
            uids.map(|uid| uid.to_string()).collect()
        };
        assert_eq!(uids(&first.initial), uids(&third.initial), "{name}");
        let mut known = BTreeSet::new();
        for round in [&first, &second, &third] {
            let uids = uids(&round.later);
            // The other objects of the round also have the new UIDs, for example in their labels.
            assert!(
                known.iter().all(|uid: &String| !round.text.contains(uid)),
                "{name}"
            );
            assert!(uids.iter().all(|uid| round.text.contains(uid)), "{name}");
            known.extend(uids);
        }
        assert_eq!(known.len(), 3 * uids(&first.later).len(), "{name}");
    }
}

#[test]
fn the_target_pod_of_a_migration_has_the_label_of_kubevirt() {
    let mut count = 0;
    for (name, text) in &embedded(FILES) {
        let scene = Scene::parse(text);
        for step in scene.steps() {
            let migration = &step.object["status"]["migrationState"];
            let (Value::String(target), Value::String(uid)) =
                (&migration["targetPod"], &migration["migrationUid"])
            else {
                continue;
            };
            let mut steps = scene.steps();
            let pod = steps.find(|it| *it.key().name == **target).unwrap();
            let label = &pod.object["metadata"]["labels"]["kubevirt.io/migrationJobUID"];
            assert_eq!(label, uid, "{name}: {target}");
            count += 1;
        }
    }
    assert!(count >= 10, "{count} changes with a target Pod");
}

/// Runs the demo for the time `age`, and returns its operations and its records. No evaluation of the
/// shipped rules may fail. The caller must have paused tokio's clock.
pub(in crate::demo) async fn run_demo(age: Duration) -> [Vec<(Key, Value)>; 2] {
    let (store, play) = open("ifo-system");
    let settings = settings(Duration::from_secs(5), 1_000);
    let resync = Duration::from_secs(30);
    let pipeline = TestPipeline::start(Arc::new(store.clone()), settings, resync);
    for book in rule_books(&store) {
        pipeline.publish(Arc::new(book)).await;
    }
    tokio::spawn(play);
    tokio::time::sleep(age).await;
    let metrics = pipeline.metrics.render();
    assert!(
        !metrics.contains("ifo_evaluation_failures_total{"),
        "{metrics}"
    );
    [index::OPERATIONS, index::RECORDS].map(|scope| objects(&pipeline.operations, &scope))
}

/// Returns the shipped rules for the resources of the demo.
fn rule_books(objects: &ObjectStore) -> Vec<RuleBook> {
    let mut by_target = BTreeMap::<Gvr, Vec<Arc<RuleSet>>>::new();
    for rule_set in shipped_rules::shipped() {
        let name = rule_set
            .metadata
            .name
            .expect("shipped rule sets have a name");
        let compiled = compile(&name, &rule_set.spec).expect("the shipped rules are valid");
        let target = rule_set.spec.target.clone();
        by_target
            .entry(target)
            .or_default()
            .push(Arc::new(compiled));
    }
    let books = by_target.into_iter().filter_map(|(target, compiled)| {
        let Resolution::Served { kind, namespaced } = objects.kind_of(&target) else {
            return None;
        };
        Some(RuleBook::new(1, target, kind, namespaced, compiled))
    });
    books.collect()
}

/// Returns the objects in a part of the index.
fn objects(reader: &IndexReader, scope: &Scope) -> Vec<(Key, Value)> {
    let listed = reader.list(scope, ReadVersion::Latest);
    let (_, entries) = listed.expect("the latest version is always available");
    let decoded = entries.iter().map(|entry| {
        let json = serde_json::from_slice(&entry.json()).expect("the index contains JSON");
        (entry.key().clone(), json)
    });
    decoded.collect()
}

/// The operations that each scene shows, as in `scenes/README.md`, and the outcome of each
/// operation.
const ENDS: &str = "\
migration: VirtualMachine ledger Starting Succeeded
migration: VirtualMachineInstance ledger LiveMigrating Succeeded
migration: VirtualMachineInstanceMigration ledger-1 Running Succeeded
migration: VirtualMachineInstanceMigration ledger-4 Running Failed
migration: VirtualMachine ledger Stopping Succeeded
migration-fails: VirtualMachineInstanceMigration batch-7-f1 Running Failed
migration-fails: VirtualMachineInstanceMigration batch-7-f2 Running Failed
migration-fails: VirtualMachineInstanceMigration batch-7-f3 Running Succeeded
unschedulable: VirtualMachine reports ErrorUnschedulable Superseded
unschedulable: VirtualMachine reports Starting Succeeded
unschedulable: VirtualMachine kiosk Starting Succeeded
hotplug: VirtualMachineInstance cache VCPUChange Succeeded
hotplug: VirtualMachineInstance cache MemoryChange Succeeded
hotplug: VirtualMachineInstance cache LiveMigrating Succeeded
snapshot: VirtualMachineSnapshot snap-online InProgress Succeeded
snapshot: VirtualMachineSnapshot snap-offline InProgress Succeeded
snapshot: VirtualMachineRestore restore1 InProgress Succeeded
import: DataVolume portal-root ImportInProgress Succeeded
import: VirtualMachine portal Provisioning Succeeded
import-retries: DataVolume golden-image Retrying Succeeded
import-retries: DataVolume golden-image ImportInProgress Succeeded
rollout: Deployment shop Rollout Succeeded
rollout-stuck: Deployment payments Rollout Failed
rollout-stuck: Deployment payments RolloutStalled Ended
rollout-stuck: Deployment payments Rollout Succeeded
namespace-deletion: Namespace preview-42 Terminating Succeeded
upgrade: Subscription kubevirt-hyperconverged InstallPlanPending Succeeded
upgrade: InstallPlan install-6c9b2 Installing Succeeded
upgrade: ClusterServiceVersion kubevirt-hyperconverged-operator.v4.20.4 Installing Succeeded
upgrade: HyperConverged kubevirt-hyperconverged Upgrading Succeeded
upgrade: KubeVirt kubevirt-kubevirt-hyperconverged Upgrading Succeeded
upgrade: CDI cdi-kubevirt-hyperconverged Upgrading Succeeded
cluster-upgrade: ClusterVersion version PartialUpdate Succeeded
drain: Node worker-2 Cordoned Ended
drain: Node worker-2 ConfigUpdating Succeeded
drain: VirtualMachineInstance mail Evicting Ended
drain: VirtualMachineInstance mail LiveMigrating Succeeded";

#[tokio::test(start_paused = true)]
async fn each_scene_leads_to_its_operations_and_their_ends() {
    let _simulated = clock::simulated::begin("2030-01-01T00:00:00Z".parse().unwrap());
    let files = embedded(FILES);
    let scenes = files
        .iter()
        .map(|(name, text)| (&**name, Scene::parse(text)));
    let scenes: BTreeMap<&str, Scene> = scenes.collect();
    let length = scenes.values().map(Scene::length).max();
    // At this time, the debounce period of all operations is over.
    let [_, records] = run_demo(length.unwrap() + PAUSE_BETWEEN_ROUNDS).await;
    let ends = records.iter().map(|(_, object)| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let subject = &spec["subject"];
        let texts = [
            &subject["kind"],
            &subject["name"],
            &spec["operation"],
            &status["outcome"],
        ];
        texts
            .map(|text| text.as_str().unwrap_or_default())
            .join(" ")
    });
    let ends: BTreeSet<String> = ends.collect();
    let mut shown = BTreeSet::new();
    for line in ENDS.lines() {
        let (name, end) = line.split_once(": ").unwrap();
        let subject = end.split(' ').nth(1).unwrap();
        let mut steps = scenes[name].steps();
        let has_subject = steps.any(|it| *it.key().name == *subject);
        assert!(has_subject && ends.contains(end), "{line}: {ends:#?}");
        shown.insert(name);
    }
    let with_changes = scenes.iter().filter(|(_, it)| !it.later.is_empty());
    assert_eq!(shown, with_changes.map(|(name, _)| *name).collect());
}

#[test]
fn a_moved_object_keeps_everything_but_times() {
    let mut value = json!({
        "at": "2026-01-01T00:00:07Z", "text": "at 2026-01-01T00:00:07Z", "number": 7,
        "list": ["2025-12-31T23:59:59Z", null],
    });
    move_times(&mut value, "2030-05-01T12:00:00Z".parse().unwrap());
    let expected = json!({
        "at": "2030-05-01T12:00:07Z", "text": "at 2026-01-01T00:00:07Z", "number": 7,
        "list": ["2030-05-01T11:59:59Z", null],
    });
    assert_eq!(value, expected);
}
