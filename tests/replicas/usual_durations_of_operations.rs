//! Test of the usual durations of operations, and of the records of completed operations. The
//! server computes a usual duration from earlier runs. Durations and records must be the same on
//! all replicas, and must survive a change of the leader.

use crate::TURNS;
use crate::cluster::Replicas;
use crate::harness::{
    Caller, Events, Kind, MANIFEST_FOLDERS, OPERATION, RULE_SET, VM, apart, condition, eventually,
    is_in_gap, migrating, ok_if, same_but_for_gaps, text,
};
use crate::operation_identity::identity;
use futures::future::join_all;
use serde_json::{Value, json};
use std::sync::PoisonError;

/// The kind of the records of completed operations.
const OPERATION_RECORD: Kind = Kind {
    api_version: OPERATION.api_version,
    kind: "OperationRecord",
    plural: "operationrecords",
};

/// The namespace of the VirtualMachines.
const NAMESPACE: &str = "durations";

/// Number of earlier runs after which the server decides whether an operation is `Overdue`.
const ENOUGH_RUNS: u64 = 20;

/// How the test stops the leader.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// SIGTERM. The leader stores the usual durations before it exits.
    Terminate,
    /// SIGKILL. The leader loses the runs that completed after it last stored the usual durations.
    Kill,
}

#[test]
fn records_and_usual_durations_are_the_same_on_all_replicas_and_survive_the_leader() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas-durations", async |control_plane| {
        let mut replicas = Replicas::start(control_plane, &MANIFEST_FOLDERS, &[], 2).await;
        create_rules(&replicas.admin).await;
        let names: Vec<String> = (0..ENOUGH_RUNS).map(|it| format!("run-{it}")).collect();
        join_all(names.iter().map(|name| migrate(&replicas.admin, name))).await;
        wait_for_count(&replicas.admin, &OPERATION, names.len()).await;
        join_all(names.iter().map(|name| finish(&replicas.admin, name))).await;
        wait_for_count(&replicas.admin, &OPERATION_RECORD, names.len()).await;
        wait_for_count(&replicas.admin, &OPERATION, 0).await;

        migrate(&replicas.admin, "long").await;
        let long = wait_for_operation(&replicas.admin, "long").await;
        assert_shows_usual_duration(&long);
        let mut records = wait_until_equal(&replicas).await;
        assert_eq!(records.len(), names.len());

        for stop in [Stop::Terminate, Stop::Kill] {
            let follower = 1 - replicas.leader().await;
            let follower = replicas.all[follower].endpoint.caller.0.clone();
            let path = format!("{}?watch=1", OPERATION.path(Some(NAMESPACE)));
            let watch = Events::of(&follower, &path).await;
            let watch = watch.expect("the follower must accept a watch");
            stop_leader(&mut replicas, stop).await;
            let kept = wait_until_equal(&replicas).await;
            assert_eq!(kept, records, "after {stop:?}\n{}", replicas.logs());
            // The operation `long` keeps its identity.
            let now = wait_for_operation(&replicas.admin, "long").await;
            assert_eq!(identity(&now), identity(&long), "after {stop:?}");
            // A change of the leader must not remove the usual duration from an operation. If the
            // leader's watch of the VirtualMachines was interrupted (a watch gap), the leader has
            // set the condition `Detected` to Unknown. Then the test skips this check.
            watch.inspect(|events| {
                let objects: Vec<&Value> = events.iter().map(|event| &event["object"]).collect();
                if !objects.iter().any(|it| is_in_gap(it)) {
                    objects.into_iter().for_each(assert_shows_usual_duration);
                    assert_shows_usual_duration(&now);
                }
            });

            // The new leader has observed no runs itself, so it must have read the stored
            // durations.
            let name = format!("{stop:?}").to_lowercase();
            wait_until_leader_has_baselines(&replicas).await;
            migrate(&replicas.admin, &name).await;
            assert_shows_usual_duration(&wait_for_operation(&replicas.admin, &name).await);
            // This operation fails. Only successful runs change the usual duration, so the number
            // of runs stays the same.
            set_status(&replicas.admin, &name, "Broken").await;
            wait_for_count(&replicas.admin, &OPERATION_RECORD, records.len() + 1).await;
            records = wait_until_equal(&replicas).await;
            let failed = (records.iter()).filter(|it| it["status"]["outcome"] == "Failed");
            assert!(failed.count() > 0, "{records:?}");
        }
    });
}

/// Stops the leader, waits until the other replica leads, and starts the stopped replica again.
async fn stop_leader(replicas: &mut Replicas<'_>, stop: Stop) {
    let old = replicas.leader().await;
    replicas.all[old].endpoint.disturb();
    let server = &mut replicas.all[old].server;
    match stop {
        Stop::Terminate => {
            let status = server.terminate().await;
            assert!(status.success(), "{status}");
        }
        Stop::Kill => server.kill().await,
    }
    eventually("the other replica leads", async || {
        let leader = replicas.leader().await;
        ok_if(leader != old, leader)
    })
    .await;
    replicas.all[old].start_again().await;
    replicas.wait_until_recovered().await;
}

/// Creates the namespace and a rule set. The rule of this rule set has an `outcome`, which reports
/// the end of an operation. So the server completes the operation without a debounce period.
async fn create_rules(admin: &Caller) {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    admin.post("/api/v1/namespaces", &namespace).await.ok();
    let mut rules = migrating(NAMESPACE);
    let status = "object.status.printableStatus";
    let outcome =
        format!("{status} == 'Running' ? 'Succeeded' : {status} == 'Broken' ? 'Failed' : ''");
    rules["spec"]["rules"][0]["outcome"] = json!(outcome);
    admin.post(&RULE_SET.path(None), &rules).await.ok();
    let path = format!("{}/{NAMESPACE}", RULE_SET.path(None));
    eventually("the rule set is ready", async || {
        let rules = admin.try_get(&path).await?.body;
        ok_if(condition(&rules, "Ready")["status"] == "True", &rules)
    })
    .await;
}

async fn migrate(admin: &Caller, name: &str) {
    let machine = json!({
        "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
        "status": {"printableStatus": "Migrating"},
    });
    admin.post(&VM.path(Some(NAMESPACE)), &machine).await.ok();
}

async fn finish(admin: &Caller, name: &str) {
    set_status(admin, name, "Running").await;
}

async fn set_status(admin: &Caller, name: &str, status: &str) {
    let path = format!("{}/{name}", VM.path(Some(NAMESPACE)));
    let patch = json!({"status": {"printableStatus": status}});
    admin.merge(&path, &patch).await.ok();
}

/// Lists the objects of a kind in the namespace.
async fn list(caller: &Caller, kind: &Kind) -> Result<Vec<Value>, String> {
    let answer = caller.try_get(&kind.path(Some(NAMESPACE))).await?;
    ok_if(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array();
    Ok(items.expect("a list has items").clone())
}

async fn wait_for_count(admin: &Caller, kind: &Kind, want: usize) {
    eventually(&format!("{want} {}", kind.plural), async || {
        let found = list(admin, kind).await?;
        ok_if(found.len() == want, &found)
    })
    .await;
}

/// Waits until the operation of a VirtualMachine is in flight and not in a watch gap. Returns the
/// operation.
async fn wait_for_operation(admin: &Caller, subject: &str) -> Value {
    eventually(&format!("the operation of {subject}"), async || {
        let operations = list(admin, &OPERATION).await?;
        let mut found = operations.into_iter();
        let found = found.find(|it| text(it, "/spec/subject/name") == subject);
        let found = found.ok_or("there is no such operation")?;
        ok_if(!is_in_gap(&found), "there is a watch gap")?;
        Ok(found)
    })
    .await
}

/// Asserts that the operation shows a usual duration that comes from [`ENOUGH_RUNS`] runs.
#[track_caller]
fn assert_shows_usual_duration(operation: &Value) {
    let expected = &operation["status"]["expected"];
    assert_eq!(expected["source"], "History", "{operation}");
    assert_eq!(expected["runs"], ENOUGH_RUNS, "{operation}");
}

/// Waits until all replicas have the same operations, apart from watch gaps, and the same records.
/// Returns the records.
async fn wait_until_equal(replicas: &Replicas<'_>) -> Vec<Value> {
    eventually("the replicas have the same objects", async || {
        let mut same: Option<(Vec<Value>, Vec<Value>)> = None;
        for replica in &replicas.all {
            let caller = &replica.endpoint.caller.0;
            let operations = list(caller, &OPERATION).await?;
            let records = list(caller, &OPERATION_RECORD).await?;
            let Some(first) = &same else {
                same = Some((operations, records));
                continue;
            };
            let pairs = first.0.iter().zip(&operations);
            let is_equal = first.0.len() == operations.len()
                && pairs.into_iter().all(|(one, other)| {
                    same_but_for_gaps(one, other)
                        && one["status"]["expected"] == other["status"]["expected"]
                });
            ok_if(is_equal, (&first.0, &operations))?;
            ok_if(first.1 == records, (&first.1, &records))?;
        }
        let (_, records) = same.expect("there are replicas");
        Ok(records)
    })
    .await
}

/// Waits until the leader has read the stored usual durations (baselines).
async fn wait_until_leader_has_baselines(replicas: &Replicas<'_>) {
    let leader = replicas.leader().await;
    let caller = &replicas.all[leader].endpoint.caller.0;
    eventually("the leader has baselines", async || {
        let metrics = caller.try_get("/metrics").await?.text;
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with("ifo_baselines "));
        ok_if(line.is_some_and(|line| line != "ifo_baselines 0"), line)
    })
    .await;
}
