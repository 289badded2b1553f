//! Test of the usual durations of operations: a new leader must read those that the earlier leader has
//! stored.

use crate::TURNS;
use crate::cluster::Replicas;
use crate::harness::{MANIFEST_FOLDERS, apart, eventually, migrating, ok_if, with_rule_fields};
use serde_json::json;
use std::sync::PoisonError;

/// Number of runs after which an operation has a usual duration.
const RUNS: usize = 20;

#[test]
fn a_new_leader_knows_the_usual_durations() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas-durations", async |cluster| {
        let mut replicas = Replicas::start(cluster, &MANIFEST_FOLDERS, &[], 2).await;
        let namespace = cluster.new_namespace("durations").await;
        let outcome = "object.status.printableStatus == 'Running' ? 'Succeeded' : ''";
        let rules = with_rule_fields(migrating(namespace), json!({"outcome": outcome}));
        cluster.ready_rule_set(&rules).await;
        let until_count = async |count| {
            eventually("all operations are listed", async || {
                let operations = cluster.operations(namespace).await;
                ok_if(operations.len() == count, &operations)
            })
            .await;
        };
        for run in 0..RUNS {
            cluster
                .machine(namespace, &format!("run-{run}"), "Migrating")
                .await;
        }
        until_count(RUNS).await;
        for run in 0..RUNS {
            cluster
                .set_status(namespace, &format!("run-{run}"), "Running")
                .await;
        }
        until_count(0).await;

        let old = replicas.leader().await;
        replicas.all[old].endpoint.disturb();
        replicas.all[old].server.terminate().await;
        eventually(
            "the other replica leads and has read the durations",
            async || {
                let leader = replicas.leader().await;
                ok_if(leader != old, leader)?;
                let metrics = &replicas.all[leader].endpoint.caller.0;
                let metrics = metrics.try_get("/metrics").await?.text;
                let line = metrics.lines().find(|it| it.starts_with("ifo_baselines "));
                ok_if(line.is_some_and(|it| it != "ifo_baselines 0"), line)
            },
        )
        .await;
        replicas.all[old].start_again().await;
        replicas.wait_until_recovered().await;
        cluster.machine(namespace, "next", "Migrating").await;
        until_count(1).await;
        let operations = cluster.operations(namespace).await;
        let expected = &operations[0]["status"]["expected"];
        assert_eq!(expected["source"], "History", "{operations:?}");
        assert_eq!(expected["runs"], RUNS, "{operations:?}");
    });
}
