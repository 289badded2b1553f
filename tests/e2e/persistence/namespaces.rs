//! Tests of operations whose namespace is deleted, in persistence mode. The server must no longer
//! list these operations, and must delete their custom resources. This must also happen if the
//! namespace is created again.

use super::{Persisting, crs, delete_custom_resources, immutable_fields};
use crate::harness::{
    TestCluster, alone_in_persistence_cluster, eventually, migrating, ok_if, text,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the operations or custom resources whose subject is in this namespace.
fn within(namespace: &str, mut all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    all.retain(|_, it| text(it, "/spec/subject/namespace") == namespace);
    all
}

/// Creates a namespace with one active and one completed operation. Waits until both operations are
/// listed and have custom resources. Returns the namespace and the custom resources.
async fn populated(
    cluster: &TestCluster,
    persisting: &Persisting,
) -> (&'static str, BTreeMap<String, Value>) {
    let namespace = cluster.namespace("tenant").await;
    cluster.ready_rule_set(&migrating(namespace)).await;
    for name in ["active", "completed"] {
        cluster.machine(namespace, name, "Migrating").await;
    }
    eventually("both operations are listed", async || {
        let listed = within(namespace, persisting.live().await);
        ok_if(listed.len() == 2, listed.len())
    })
    .await;
    cluster.set_status(namespace, "completed", "Running").await;
    let written = eventually("one operation has completed", async || {
        let written = within(namespace, persisting.wait_until_equal().await);
        let mut phases: Vec<&str> = written
            .values()
            .map(|it| text(it, "/status/phase"))
            .collect();
        phases.sort_unstable();
        ok_if(phases == ["Active", "Completed"], &phases)?;
        Ok(written)
    })
    .await;
    (namespace, written)
}

async fn delete(cluster: &TestCluster, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}");
    cluster.admin.delete(&path).await.ok();
    eventually("the namespace is gone", async || {
        let answer = cluster.admin.get(&path).await;
        ok_if(answer.code == 404, answer.code)
    })
    .await;
}

#[test]
fn a_namespace_recreated_while_no_server_runs_has_no_operations_of_the_old_namespace() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let mut persisting = Persisting::start(cluster, &[]).await;
        let (again, old) = populated(cluster, &persisting).await;
        let (gone, _) = populated(cluster, &persisting).await;
        persisting.server.kill().await;
        delete(cluster, again).await;
        delete(cluster, gone).await;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": again},
        });
        cluster
            .admin
            .post("/api/v1/namespaces", &namespace)
            .await
            .ok();
        cluster.machine(again, "active", "Migrating").await;
        let mut written = within(again, crs(cluster).await);
        written.extend(within(gone, crs(cluster).await));
        assert_eq!(
            written.len(),
            4,
            "without a server, the custom resources must still exist"
        );

        persisting.start_again().await;
        let left = eventually("the old custom resources are deleted", async || {
            // The server must never list an operation of the old namespace.
            let live = persisting.live().await;
            let listed = within(again, live.clone());
            assert!(
                listed.keys().all(|uid| !old.contains_key(uid)),
                "{listed:?}"
            );
            assert_eq!(within(gone, live), BTreeMap::new());
            let all = crs(cluster).await;
            let left = within(gone, all.clone());
            ok_if(left.is_empty(), left)?;
            let left = within(again, all);
            ok_if(left.keys().all(|uid| !old.contains_key(uid)), &left)?;
            ok_if(left.len() == 1, &left)?;
            Ok(left)
        })
        .await;
        let listed = within(again, persisting.live().await);
        let listed = listed
            .values()
            .next()
            .expect("the new operation must be listed");
        assert!(left.contains_key(immutable_fields(listed)[1]), "{listed}");
    });
}
