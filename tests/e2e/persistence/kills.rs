//! Tests that kill the server repeatedly while operations start and end. At the end, each operation
//! must have exactly one custom resource with the same content.

use super::{
    Persisting, crs, find_duplicate, immutable_fields, persisting, random_status_changes::Traffic,
};
use crate::harness::{eventually, full_size, ok_if, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Waits until the custom resources equal the operations that the server lists. The active
/// operations in the namespace of `traffic` must be its expected operations. No operation may have
/// two custom resources.
///
/// Custom resources of completed operations that the server does not list are allowed. Returns the
/// custom resources by the UID of their operation.
async fn until_right(persisting: &Persisting, traffic: &Traffic) -> BTreeMap<String, Value> {
    eventually(
        "the custom resources equal the expected operations",
        async || {
            let crs = persisting.wait_until_equal_except_history().await;
            let (active, expected) = (traffic.active(crs.values()), traffic.expected_active());
            ok_if(active == expected, (active, expected))?;
            let doubled = find_duplicate(crs.values());
            ok_if(doubled.is_none(), doubled)?;
            Ok(crs)
        },
    )
    .await
}

#[test]
fn after_kills_with_history_nothing_is_lost_or_duplicated() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let mut traffic = Traffic::start(cluster, 20).await;
        // These operations stay active during the whole test.
        let (namespace, _) = cluster.migrations("lasting", &["a", "b", "c"]).await;
        let lasting = eventually("the operations are listed and written", async || {
            persisting.wait_until_equal().await;
            let listed = persisting.live_in(namespace).await;
            ok_if(listed.len() == 3, listed.len())?;
            Ok(listed)
        })
        .await;
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
            persisting.server.start_again().await;
            // The restarted server restores the operations from their custom resources. So its
            // first list must contain every operation that has a custom resource.
            let listed = persisting.live().await;
            for (uid, operation) in &lasting {
                let found = listed
                    .get(uid)
                    .expect("an operation in flight must be listed");
                assert_eq!(immutable_fields(found), immutable_fields(operation));
                assert_eq!(found["status"]["phase"], "Active");
            }
            for (uid, cr) in &written {
                let listed = listed.get(uid);
                let listed = listed.unwrap_or_else(|| panic!("{cr} is not listed any more"));
                // The name of a custom resource can contain a shortened name of the operation. This
                // annotation contains the namespace and the complete name of the operation.
                let live = text(cr, "/metadata/annotations/ifo.kubevirt.io~1live");
                let names = ["/metadata/namespace", "/metadata/name"].map(|it| text(listed, it));
                assert_eq!(live, names.join("/"));
                let started = text(listed, "/metadata/creationTimestamp");
                assert_eq!(started, text(cr, "/status/started"));
                if cr["status"]["phase"] == "Completed" {
                    assert_eq!(listed["status"]["completed"], cr["status"]["completed"]);
                }
            }
            ever.extend(written.into_keys());
        }
        traffic.repeat().await;
        for _ in 0..2 {
            let crs = until_right(persisting, &traffic).await;
            let lost: Vec<&String> = ever.iter().filter(|it| !crs.contains_key(*it)).collect();
            assert!(lost.is_empty(), "{lost:?} of {} were lost", ever.len());
            // In the second round, all operations end.
            traffic.statuses.fill("Running");
            traffic.repeat().await;
        }
    });
}
