//! Tests of the custom resources after a server was killed while operations started and ended.

use super::{Persisting, clear, crs, doubled, identity, traffic::Traffic};
use crate::harness::{World, alone, eventually, migrating, so, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Operations that are active during the whole test, by UID, after they are written.
async fn lasting(world: &World, persisting: &Persisting) -> BTreeMap<String, Value> {
    let namespace = world.namespace("lasting").await;
    world.ready_rule_set(&migrating(namespace)).await;
    for name in ["a", "b", "c"] {
        world.machine(namespace, name, "Migrating").await;
    }
    let own = |it: &Value| text(it, "/spec/subject/namespace") == namespace;
    eventually("they are shown and written", async || {
        persisting.agreed().await;
        let mut shown = persisting.live().await;
        shown.retain(|_, it| own(it));
        so(shown.len() == 3, shown.len())?;
        Ok(shown)
    })
    .await
}

/// Checks that they are unchanged.
fn unchanged(lasting: &BTreeMap<String, Value>, shown: &BTreeMap<String, Value>) {
    for (uid, operation) in lasting {
        let shown = shown.get(uid).expect("it goes on, and is shown");
        assert_eq!(identity(shown), identity(operation));
        assert_eq!(shown["status"]["phase"], "Active");
    }
}

/// Waits until the expected, the shown and the written operations are the same, without duplicates.
/// With `history`, completed operations can also be written.
async fn all_is_right(
    persisting: &Persisting,
    traffic: &Traffic,
    history: bool,
) -> BTreeMap<String, Value> {
    eventually("what is written is what goes on", async || {
        let crs = if history {
            persisting.agreed_but_for_history().await
        } else {
            persisting.agreed().await
        };
        let active = traffic.active(crs.values());
        so(active == traffic.going_on(), (active, traffic.going_on()))?;
        let doubled = doubled(crs.values());
        so(doubled.is_none(), doubled)?;
        Ok(crs)
    })
    .await
}

#[test]
fn after_20_kills_with_history_nothing_is_lost_or_duplicated() {
    alone(async |world| {
        clear(world).await;
        let mut persisting = Persisting::start(world, &[]).await;
        let mut traffic = Traffic::start(world, 20).await;
        let lasting = lasting(world, &persisting).await;
        let mut ever: BTreeSet<String> = BTreeSet::new();
        for _ in 0..20 {
            let wait = Duration::from_millis(fastrand::u64(..1500));
            let kill = async {
                tokio::time::sleep(wait).await;
                persisting.server.kill().await;
            };
            tokio::join!(traffic.steps(40), kill);
            let written = crs(world).await;
            persisting.start_again().await;
            // Its first answer.
            let shown = persisting.live().await;
            unchanged(&lasting, &shown);
            for (uid, cr) in &written {
                let shown = shown.get(uid);
                let shown = shown.unwrap_or_else(|| panic!("{cr} is not shown any more"));
                // Its name can be shortened, but this field is complete.
                let live = text(cr, "/metadata/annotations/ifo.kubevirt.io~1live");
                let metadata = &shown["metadata"];
                let [namespace, name] = ["/namespace", "/name"].map(|it| text(metadata, it));
                assert_eq!(live, format!("{namespace}/{name}"));
                assert_eq!(
                    shown["metadata"]["creationTimestamp"],
                    cr["status"]["started"]
                );
                if cr["status"]["phase"] == "Completed" {
                    assert_eq!(shown["status"]["completed"], cr["status"]["completed"]);
                }
            }
            ever.extend(written.into_keys());
        }
        traffic.repeat().await;
        let crs = all_is_right(&persisting, &traffic, true).await;
        let lost: Vec<&String> = ever.iter().filter(|it| !crs.contains_key(*it)).collect();
        assert!(lost.is_empty(), "{lost:?} of {}", ever.len());
        traffic.statuses.fill("Running");
        traffic.repeat().await;
        let crs = all_is_right(&persisting, &traffic, true).await;
        assert!(ever.iter().all(|uid| crs.contains_key(uid)));
    });
}

#[test]
fn after_kills_without_history_only_active_operations_are_left() {
    alone(async |world| {
        clear(world).await;
        let env = [("RETAIN_COMPLETED_IFOS", "false")];
        let mut persisting = Persisting::start(world, &env).await;
        let mut traffic = Traffic::start(world, 20).await;
        for _ in 0..10 {
            let wait = Duration::from_millis(fastrand::u64(..1500));
            let kill = async {
                tokio::time::sleep(wait).await;
                persisting.server.kill().await;
            };
            tokio::join!(traffic.steps(60), kill);
            persisting.start_again().await;
        }
        traffic.repeat().await;
        all_is_right(&persisting, &traffic, false).await;
        traffic.statuses.fill("Running");
        traffic.repeat().await;
        all_is_right(&persisting, &traffic, false).await;
    });
}
