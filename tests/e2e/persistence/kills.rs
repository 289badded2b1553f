//! Tests that kill the server repeatedly while operations start and end. At the end, each operation
//! must have exactly one custom resource with the same content.

use super::{
    Persisting, crs, delete_custom_resources, find_duplicate, immutable_fields,
    random_status_changes::Traffic,
};
use crate::harness::{
    TestCluster, alone_in_persistence_cluster, eventually, full_size, migrating, ok_if, text,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Creates operations that stay active during the whole test, and waits until their custom
/// resources are written. Returns the operations by UID.
async fn create_lasting(cluster: &TestCluster, persisting: &Persisting) -> BTreeMap<String, Value> {
    let namespace = cluster.namespace("lasting").await;
    cluster.ready_rule_set(&migrating(namespace)).await;
    for name in ["a", "b", "c"] {
        cluster.machine(namespace, name, "Migrating").await;
    }
    let own = |it: &Value| text(it, "/spec/subject/namespace") == namespace;
    eventually("the operations are listed and written", async || {
        persisting.wait_until_equal().await;
        let mut listed = persisting.live().await;
        listed.retain(|_, it| own(it));
        ok_if(listed.len() == 3, listed.len())?;
        Ok(listed)
    })
    .await
}

/// Asserts that the operations of [`create_lasting`] are still listed and active, with the same
/// name, UID and start.
fn assert_unchanged(lasting: &BTreeMap<String, Value>, listed: &BTreeMap<String, Value>) {
    for (uid, operation) in lasting {
        let listed = listed
            .get(uid)
            .expect("an operation in flight must be listed");
        assert_eq!(immutable_fields(listed), immutable_fields(operation));
        assert_eq!(listed["status"]["phase"], "Active");
    }
}

/// Waits until the custom resources equal the operations that the server lists. The active
/// operations in the namespace of `traffic` must be its expected operations. No operation may have
/// two custom resources.
///
/// Custom resources of completed operations that the server does not list are allowed. Returns the
/// custom resources by the UID of their operation.
async fn wait_until_right(persisting: &Persisting, traffic: &Traffic) -> BTreeMap<String, Value> {
    eventually(
        "the custom resources equal the expected operations",
        async || {
            let crs = persisting.wait_until_equal_except_history().await;
            let active = traffic.active(crs.values());
            ok_if(
                active == traffic.expected_active(),
                (active, traffic.expected_active()),
            )?;
            let doubled = find_duplicate(crs.values());
            ok_if(doubled.is_none(), doubled)?;
            Ok(crs)
        },
    )
    .await
}

#[test]
fn after_kills_with_history_nothing_is_lost_or_duplicated() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let mut persisting = Persisting::start(cluster, &[]).await;
        let mut traffic = Traffic::start(cluster, 20).await;
        let lasting = create_lasting(cluster, &persisting).await;
        let mut ever: BTreeSet<String> = BTreeSet::new();
        let kills = if full_size() { 20 } else { 5 };
        for _ in 0..kills {
            let wait = Duration::from_millis(fastrand::u64(..1500));
            let kill = async {
                tokio::time::sleep(wait).await;
                persisting.server.kill().await;
            };
            tokio::join!(traffic.steps(40), kill);
            let written = crs(cluster).await;
            persisting.start_again().await;
            // The restarted server restores the operations from their custom resources. So its
            // first list must contain every operation that has a custom resource.
            let listed = persisting.live().await;
            assert_unchanged(&lasting, &listed);
            for (uid, cr) in &written {
                let listed = listed.get(uid);
                let listed = listed.unwrap_or_else(|| panic!("{cr} is not listed any more"));
                // The name of a custom resource can contain a shortened name of the operation. This
                // annotation contains the namespace and the complete name of the operation.
                let live = text(cr, "/metadata/annotations/ifo.kubevirt.io~1live");
                let metadata = &listed["metadata"];
                let [namespace, name] = ["/namespace", "/name"].map(|it| text(metadata, it));
                assert_eq!(live, format!("{namespace}/{name}"));
                assert_eq!(
                    listed["metadata"]["creationTimestamp"],
                    cr["status"]["started"]
                );
                if cr["status"]["phase"] == "Completed" {
                    assert_eq!(listed["status"]["completed"], cr["status"]["completed"]);
                }
            }
            ever.extend(written.into_keys());
        }
        traffic.repeat().await;
        let crs = wait_until_right(&persisting, &traffic).await;
        let lost: Vec<&String> = ever.iter().filter(|it| !crs.contains_key(*it)).collect();
        assert!(lost.is_empty(), "{lost:?} of {} were lost", ever.len());
        traffic.statuses.fill("Running");
        traffic.repeat().await;
        let crs = wait_until_right(&persisting, &traffic).await;
        assert!(ever.iter().all(|uid| crs.contains_key(uid)));
    });
}
