//! What always holds of the objects of a real cluster.

use super::rules::reason;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_machine_shows_migrating_only_while_its_memory_is_copied() {
    let (_, events) = play(2, 1.0, seconds(600)).await;
    // By machine: when its instance's migration started and ended, and what it shows.
    let mut copying: BTreeMap<String, bool> = BTreeMap::new();
    let mut ended: BTreeMap<String, Duration> = BTreeMap::new();
    let mut shows: BTreeMap<String, bool> = BTreeMap::new();
    let mut migrations = 0;
    for event in &events {
        let machine = event.id().split_once(' ').unwrap().1.to_owned();
        match event.kind {
            "VirtualMachineInstance" => {
                let state = &event.object["status"]["migrationState"];
                let on = !state["startTimestamp"].is_null() && state["endTimestamp"].is_null();
                if copying.insert(machine.clone(), on) == Some(true) && !on {
                    ended.insert(machine.clone(), event.at);
                }
            }
            "VirtualMachine" => {
                let on = event.status("printableStatus") == "Migrating";
                let was = shows.insert(machine.clone(), on).unwrap_or(false);
                if on && !was {
                    migrations += 1;
                    assert!(copying[&machine], "{machine} at {:?}", event.at);
                }
                if was && !on {
                    let late = event.at.checked_sub(ended[&machine]).unwrap();
                    assert!(late < Duration::from_millis(170), "{machine} {late:?} late");
                }
            }
            _ => {}
        }
    }
    assert!(migrations > 10, "{migrations}");
}

#[tokio::test(start_paused = true)]
async fn migrations_go_through_their_phases_in_order() {
    const ORDER: [&str; 7] = [
        "",
        "Pending",
        "Scheduling",
        "Scheduled",
        "PreparingTarget",
        "TargetReady",
        "Running",
    ];
    let (_, events) = play(2, 1.0, seconds(600)).await;
    let mut phases: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in &events {
        if event.kind == "VirtualMachineInstanceMigration" && !event.deleted {
            let seen = phases.entry(event.id()).or_default();
            if seen.last().is_none_or(|last| last != event.status("phase")) {
                seen.push(event.status("phase").to_owned());
            }
        }
    }
    assert!(phases.len() > 10);
    for (name, mut seen) in phases {
        let finished = seen.pop_if(|last| last == "Succeeded" || last == "Failed");
        assert_eq!(seen, ORDER[..seen.len()], "{name}");
        match finished.as_deref() {
            Some("Succeeded") => assert_eq!(seen.len(), ORDER.len(), "{name}"),
            Some(_) => assert!([3, ORDER.len()].contains(&seen.len()), "{name}: {seen:?}"),
            None => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_created_is_without_status_and_then_stopped_before_it_starts() {
    let (_, events) = play(1, 1.0, seconds(180)).await;
    let mut shown: Vec<&str> = Vec::new();
    for event in &events {
        if event.id() == "VirtualMachine team-a/ci-runner-1" && !event.deleted {
            let status = event.status("printableStatus");
            if shown.last() != Some(&status) {
                shown.push(status);
            }
        }
    }
    let expected = [
        "",
        "Stopped",
        "Provisioning",
        "Stopped",
        "Starting",
        "Running",
        "Terminating",
    ];
    assert_eq!(shown, expected);
}

#[tokio::test(start_paused = true)]
async fn the_old_operator_goes_once_the_new_one_has_succeeded() {
    let (_, events) = play(1, 1.0, seconds(600)).await;
    let mut live: BTreeMap<String, String> = BTreeMap::new();
    let mut both_done: Option<Duration> = None;
    let mut gone = 0;
    for event in events.iter().filter(|e| e.kind == "ClusterServiceVersion") {
        if event.deleted {
            assert_eq!(event.status("phase"), "Deleting");
            live.remove(&event.id());
            both_done = None;
            gone += 1;
        } else {
            live.insert(event.id(), event.status("phase").to_owned());
        }
        assert!(live.len() <= 2, "{live:?}");
        let done = live.values().filter(|phase| *phase == "Succeeded").count();
        let waits = live
            .values()
            .any(|phase| phase == "Replacing" || phase == "Deleting");
        if done == 1 && waits {
            let since = *both_done.get_or_insert(event.at);
            assert!(
                event.at.checked_sub(since).unwrap() < seconds(1),
                "{live:?}"
            );
        }
        assert!(
            event.object["status"]["conditions"]
                .as_array()
                .is_none_or(|h| h.len() <= 20)
        );
    }
    assert!(gone >= 2, "{gone}");
}

#[tokio::test(start_paused = true)]
async fn an_import_only_moves_forward_unless_it_restarts() {
    let (_, events) = play(1, 1.0, seconds(600)).await;
    let percent = |event: &Event| -> Option<f64> {
        event.status("progress").trim_end_matches('%').parse().ok()
    };
    let mut last: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    let mut finished = 0;
    for event in events
        .iter()
        .filter(|e| e.kind == "DataVolume" && !e.deleted)
    {
        let Some(now) = percent(event) else { continue };
        let restarts = event.object["status"]["restartCount"].as_u64().unwrap_or(0);
        let uid = event.object["metadata"]["uid"].to_string();
        if let Some((before, progress)) = last.insert(uid, (restarts, now)) {
            assert!(restarts >= before);
            assert!(
                now >= progress || restarts > before,
                "{progress} then {now}"
            );
        }
        if event.status("phase") == "Succeeded" {
            assert_eq!(event.status("progress"), "100.0%");
            finished += 1;
        } else {
            assert!(now < 100.0);
        }
    }
    assert!(finished >= 5, "{finished}");
}

#[tokio::test(start_paused = true)]
async fn a_deployments_counters_stay_within_its_surge() {
    let (_, events) = play(1, 1.0, seconds(600)).await;
    let mut complete = 0;
    for event in events.iter().filter(|e| e.kind == "Deployment") {
        let status = &event.object["status"];
        let count = |field: &str| status[field].as_u64().unwrap_or(0);
        assert!(count("replicas") <= 5);
        assert!(
            count("updatedReplicas") <= 4.min(count("replicas")),
            "{status}"
        );
        assert!(count("availableReplicas") <= count("readyReplicas"));
        for field in ["replicas", "updatedReplicas", "unavailableReplicas"] {
            assert_ne!(status[field], 0, "{field} is absent when it is 0");
        }
        complete += usize::from(reason(&event.object, "Progressing") == "NewReplicaSetAvailable");
    }
    assert!(complete > 5);
}

#[tokio::test(start_paused = true)]
async fn subjects_have_owners_that_exist_and_all_namespaces_do() {
    let (_, events) = play(1, 1.0, seconds(180)).await;
    let namespaces: BTreeSet<&str> = NAMESPACES.into_iter().collect();
    let mut uids = BTreeSet::new();
    for event in &events {
        let meta = &event.object["metadata"];
        uids.insert(meta["uid"].as_str().unwrap());
        if let Some(namespace) = meta["namespace"].as_str() {
            assert!(namespaces.contains(namespace), "{}", event.id());
        }
        let kind: &&Kind = kinds::ALL
            .iter()
            .find(|kind| kind.kind == event.kind)
            .unwrap();
        assert_eq!(
            meta["namespace"].is_string(),
            kind.namespaced,
            "{}",
            event.id()
        );
    }
    for event in &events {
        for owner in event.object["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert!(
                uids.contains(owner["uid"].as_str().unwrap()),
                "{}: {owner}",
                event.id()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn versions_only_rise() {
    let (_, events) = play(1, 1.0, seconds(180)).await;
    let mut versions: BTreeMap<String, u64> = BTreeMap::new();
    for event in &events {
        let text = event.object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap();
        let version: u64 = text.parse().unwrap();
        let before = versions.insert(event.kind.to_owned(), version);
        // The state at the start comes by name.
        assert!(
            event.at < Duration::from_millis(1) || before < Some(version),
            "{}",
            event.id()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_tells_the_same_story_at_any_time_and_another_seed_another() {
    async fn story(seed: u64, at: &str) -> Vec<(Duration, String)> {
        let scenario = Scenario::starting(seed, 1.0, at.parse().unwrap());
        let (_, events) = listen(scenario, seconds(120)).await;
        let line = |e: &Event| (e.at, format!("{} {}", e.id(), e.object["metadata"]["uid"]));
        let mut lines: Vec<_> = events.iter().map(line).collect();
        lines.sort();
        lines
    }
    let told = story(3, "2026-01-01T00:00:00Z").await;
    for again in [
        "2026-01-01T00:00:00Z",
        // Here a second would end between two writes that differ in their time alone.
        "2026-01-01T00:00:00.16Z",
        "2028-02-29T23:59:59.999999999Z",
    ] {
        assert_eq!(told, story(3, again).await, "at {again}");
    }
    assert_ne!(told, story(10, "2026-01-01T00:00:00Z").await);
}

#[tokio::test(start_paused = true)]
async fn a_higher_speed_tells_more_in_the_same_time() {
    let (_, slow) = play(1, 1.0, seconds(60)).await;
    let (_, fast) = play(1, 10.0, seconds(60)).await;
    assert!(fast.len() > 5 * slow.len(), "{} {}", slow.len(), fast.len());
    let (_, odd) = play(1, f64::NAN, seconds(60)).await;
    assert_eq!(odd.len(), slow.len());
}
