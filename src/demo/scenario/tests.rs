//! The scenario, played in paused time and seen through its feed alone.

mod invariants;
mod rules;

use super::*;
use crate::demo::kinds::{self, Kind};
use crate::observe::{Feed, Raw};
use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use ifo_api::Source;
use rules::operations;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// One change of one object; `object` is its last state if it is gone.
struct Event {
    at: Duration,
    kind: &'static str,
    deleted: bool,
    object: Value,
}

impl Event {
    fn id(&self) -> String {
        id(self.kind, &self.object)
    }

    fn status(&self, field: &str) -> &str {
        self.object["status"][field].as_str().unwrap_or("")
    }
}

fn id(kind: &str, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or("");
    format!("{kind} {}/{}", text("namespace"), text("name"))
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Everything that happens in `length`, the state at the start first.
async fn play(seed: u64, speed: f64, length: Duration) -> (World, Vec<Event>) {
    listen(Scenario::new(seed, speed), length).await
}

async fn listen(scenario: Scenario, length: Duration) -> (World, Vec<Event>) {
    let world = scenario.world();
    let mut feeds = follow_all(&world);
    let start = Instant::now();
    let actors = tokio::spawn(scenario.run());
    let mut events = Vec::new();
    while let Ok(Some((kind, step))) = timeout_at(start + length, feeds.next()).await {
        let (deleted, json) = match step {
            Raw::Applied(json) => (false, json),
            Raw::Deleted(json) => (true, json),
            Raw::Reset | Raw::Synced => continue,
            Raw::TooLarge { .. } | Raw::Lost(_) => panic!("the demo's feed has no gaps"),
        };
        events.push(Event {
            at: start.elapsed(),
            kind,
            deleted,
            object: serde_json::from_slice(&json).unwrap(),
        });
    }
    assert!(!actors.is_finished(), "an actor panicked");
    actors.abort();
    (world, events)
}

type Feeds = futures::stream::SelectAll<BoxStream<'static, (&'static str, Raw)>>;

fn follow_all(world: &World) -> Feeds {
    select_all(kinds::ALL.iter().map(|kind| {
        let source = Source {
            target: kind.gvr().into(),
            namespace: None,
        };
        let name = kind.kind;
        world.follow(source).map(move |step| (name, step)).boxed()
    }))
}

/// The state of the world at the end of these events.
fn state<'a>(events: impl IntoIterator<Item = &'a Event>) -> BTreeMap<String, &'a Value> {
    let mut state = BTreeMap::new();
    for event in events {
        if event.deleted {
            state.remove(&event.id());
        } else {
            state.insert(event.id(), &event.object);
        }
    }
    state
}

#[tokio::test(start_paused = true)]
async fn every_story_is_told_within_three_minutes_and_nothing_else() {
    for seed in 1..=3 {
        let (_, events) = play(seed, 1.0, seconds(180)).await;
        let seen: BTreeSet<String> = events
            .iter()
            .flat_map(|event| {
                let found = operations(event.kind, &event.object);
                found
                    .into_iter()
                    .map(|operation| format!("{} {operation}", event.kind))
            })
            .collect();
        let migrations = [
            "Pending",
            "Scheduling",
            "Scheduled",
            "PreparingTarget",
            "TargetReady",
            "Running",
        ];
        let mut told = BTreeSet::new();
        for (kind, operations) in [
            (
                "VirtualMachine",
                &[
                    "Starting",
                    "Stopping",
                    "Restarting",
                    "Migrating",
                    "Provisioning",
                    "Terminating",
                    "Snapshotting",
                    "ErrorUnschedulable",
                ][..],
            ),
            (
                "VirtualMachineInstance",
                &[
                    "Pending",
                    "Scheduling",
                    "Scheduled",
                    "LiveMigrating",
                    "MemoryChange",
                    "Evicting",
                    "Stopping",
                ],
            ),
            ("VirtualMachineInstanceMigration", &migrations),
            (
                "DataVolume",
                &[
                    "Pending",
                    "PVCBound",
                    "ImportScheduled",
                    "ImportInProgress",
                    "Retrying",
                ],
            ),
            ("KubeVirt", &["Upgrading", "UpdateRollingOut"]),
            ("CDI", &["Upgrading"]),
            ("HyperConverged", &["Upgrading"]),
            (
                "ClusterServiceVersion",
                &["Pending", "Installing", "Replacing", "Deleting"],
            ),
            ("InstallPlan", &["Installing"]),
            ("Subscription", &["Unpacking", "InstallPlanPending"]),
            ("Deployment", &["Rollout", "RolloutStalled"]),
            ("ClusterVersion", &["PartialUpdate", "Reconciling"]),
            ("Node", &["ConfigUpdating", "Cordoned", "NotReady"]),
            ("Namespace", &["Terminating"]),
            ("VirtualMachineSnapshot", &["InProgress"]),
        ] {
            told.extend(operations.iter().map(|name| format!("{kind} {name}")));
        }
        assert_eq!(seen, told, "seed {seed}");
        let ends = |phase: &str| {
            let kind = "VirtualMachineInstanceMigration";
            events
                .iter()
                .any(|e| e.kind == kind && e.status("phase") == phase)
        };
        assert!(ends("Succeeded") && ends("Failed"));
    }
}

#[tokio::test(start_paused = true)]
async fn at_all_times_some_operations_are_under_way_but_not_a_crowd() {
    for seed in 1..=3 {
        let (_, events) = play(seed, 1.0, seconds(600)).await;
        let mut now: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut at = Duration::ZERO;
        let mut counts = Vec::new();
        for event in &events {
            if event.at != at {
                // What is true for less than this is a flap, not a crowd.
                if event.at.checked_sub(at).unwrap() > Duration::from_millis(100) {
                    counts.push((at, now.values().map(Vec::len).sum::<usize>(), now.clone()));
                }
                at = event.at;
            }
            now.remove(&event.id());
            let found = operations(event.kind, &event.object);
            if !event.deleted && !found.is_empty() {
                now.insert(event.id(), found);
            }
        }
        for (at, count, which) in &counts {
            assert!(*count >= 3, "{count} at {at:?}: {which:#?}");
            assert!(
                *at > seconds(2) || *count >= 4,
                "{count} at {at:?}: {which:#?}"
            );
            assert!(*count <= 20, "{count} at {at:?}: {which:#?}");
        }
        let mean = counts.iter().map(|(_, count, _)| count).sum::<usize>() / counts.len();
        assert!((5..=15).contains(&mean), "{mean}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_machine_has_two_operations_at_once() {
    let (_, events) = play(1, 1.0, seconds(180)).await;
    let two = events.iter().find(|event| {
        let found = operations(event.kind, &event.object);
        event.kind == "VirtualMachine"
            && found.contains(&"Migrating".to_owned())
            && found.contains(&"Snapshotting".to_owned())
    });
    assert_eq!(two.unwrap().object["metadata"]["name"], "ledger");
}

#[tokio::test(start_paused = true)]
async fn one_migration_is_stuck_for_minutes_and_then_given_up() {
    let (_, events) = play(1, 1.0, seconds(600)).await;
    let name = "VirtualMachineInstanceMigration team-a/";
    let phases: Vec<(Duration, &str)> = events
        .iter()
        .filter(|e| e.id().starts_with(name) && e.object["spec"]["vmiName"] == "batch-7")
        .map(|e| (e.at, e.status("phase")))
        .collect();
    let scheduling = phases
        .iter()
        .find(|(_, phase)| *phase == "Scheduling")
        .unwrap()
        .0;
    let failed = phases
        .iter()
        .find(|(_, phase)| *phase == "Failed")
        .unwrap()
        .0;
    assert!(scheduling < seconds(1));
    assert!(failed.checked_sub(scheduling).unwrap() >= seconds(300));
    assert!(
        phases
            .iter()
            .any(|(at, phase)| *at > failed && *phase == "Scheduling")
    );
    assert!(phases.iter().all(|(_, phase)| *phase != "Running"));
}

/// Five migrations for each of 11 machines, and some 60 other objects.
const MOST_OBJECTS: usize = 120;

#[tokio::test(start_paused = true)]
async fn the_world_does_not_grow() {
    let (world, events) = play(3, 1.0, seconds(1_800)).await;
    let mut sizes = BTreeMap::new();
    let mut live = BTreeSet::new();
    for event in &events {
        if event.deleted {
            live.remove(&event.id());
        } else {
            live.insert(event.id());
        }
        assert!(
            live.len() <= MOST_OBJECTS,
            "{} objects at {:?}: {live:#?}",
            live.len(),
            event.at
        );
        let size = serde_json::to_vec(&event.object).unwrap().len();
        let largest = sizes.entry(event.kind).or_insert(0);
        *largest = size.max(*largest);
    }
    assert_eq!(world.count(), live.len());
    for (kind, size) in sizes {
        assert!(size <= 12_000, "a {kind} has {size} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_joins_late_sees_the_exact_state() {
    let scenario = Scenario::new(4, 1.0);
    let world = scenario.world();
    let mut early = follow_all(&world);
    let start = Instant::now();
    let actors = tokio::spawn(scenario.run());
    let mut events = Vec::new();
    for stop in [1, 30, 31, 90, 240, 600] {
        while let Ok(Some((kind, step))) = timeout_at(start + seconds(stop), early.next()).await {
            if let Raw::Applied(json) | Raw::Deleted(json) = &step {
                events.push(Event {
                    at: start.elapsed(),
                    kind,
                    deleted: matches!(step, Raw::Deleted(_)),
                    object: serde_json::from_slice(json).unwrap(),
                });
            }
        }
        let mut late = follow_all(&world);
        let mut seen = BTreeMap::new();
        let mut synced = 0;
        while synced < kinds::ALL.len() {
            match late.next().await.unwrap() {
                (kind, Raw::Applied(json)) => {
                    let object: Value = serde_json::from_slice(&json).unwrap();
                    seen.insert(id(kind, &object), object);
                }
                (_, Raw::Synced) => synced += 1,
                (_, Raw::Reset) => {}
                (kind, step) => panic!("{kind}: {step:?}"),
            }
        }
        let seen: BTreeMap<String, &Value> = seen.iter().map(|(id, o)| (id.clone(), o)).collect();
        assert_eq!(seen, state(&events), "at {stop} s");
    }
    actors.abort();
}
