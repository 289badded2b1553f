//! Tests of persistence mode, in which the server writes each operation as a custom resource. In
//! these tests, other clients change the custom resources. The server must continue to write them,
//! and must keep labels and annotations of other clients.

use super::{CR, Persisting, crs, delete_custom_resources};
use crate::harness::{
    TestCluster, alone_in_persistence_cluster, eventually, migrating, ok_if, text,
};
use serde_json::{Value, json};

/// Creates an operation, and waits until the server has written its custom resource. Returns the
/// namespace and the custom resource.
async fn create_written(cluster: &TestCluster, persisting: &Persisting) -> (&'static str, Value) {
    let namespace = cluster.namespace("foreign").await;
    cluster.ready_rule_set(&migrating(namespace)).await;
    cluster.machine(namespace, "a", "Migrating").await;
    let cr = eventually("the operation is written", async || {
        persisting.wait_until_equal().await;
        custom_resource_in(cluster, namespace).await
    })
    .await;
    (namespace, cr)
}

/// Returns the custom resource of the operation in this namespace, or an error if there is none.
async fn custom_resource_in(cluster: &TestCluster, namespace: &str) -> Result<Value, String> {
    let mut all = crs(cluster).await.into_values();
    let own = all.find(|cr| text(cr, "/spec/subject/namespace") == namespace);
    own.ok_or_else(|| "there is no custom resource".to_owned())
}

#[test]
fn a_recreated_custom_resource_is_adopted_at_its_next_change() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let persisting = Persisting::start(cluster, &[]).await;
        let (namespace, cr) = create_written(cluster, &persisting).await;
        let path = format!("{}/{}", CR.path(None), text(&cr, "/metadata/name"));
        // A backup tool restores an object in this way: it deletes the object, and creates it again
        // with the same content.
        let mut copy = cr.clone();
        for field in [
            "uid",
            "resourceVersion",
            "managedFields",
            "creationTimestamp",
        ] {
            let metadata = copy["metadata"].as_object_mut();
            metadata.expect("an object has metadata").remove(field);
        }
        cluster.admin.delete(&path).await.ok();
        let made = cluster.create(&CR, None, &copy).await;
        assert_ne!(made["metadata"]["uid"], cr["metadata"]["uid"]);
        cluster.set_status(namespace, "a", "Running").await;
        eventually("the end of the operation is written", async || {
            let cr = custom_resource_in(cluster, namespace).await?;
            ok_if(cr["status"]["phase"] == "Completed", &cr["status"])?;
            ok_if(cr["metadata"]["uid"] == made["metadata"]["uid"], &cr)
        })
        .await;
        // The new object has another UID, so the server's next write must get a conflict. After the
        // conflict, the server must write again at once. The regular comparison of all custom
        // resources with the operations, every ten minutes, would be too late.
        let log = persisting.log();
        assert!(!log.contains("an operation cannot be written"), "{log}");
        let conflicts = persisting.metric("ifo_persistence_failures_total").await;
        assert!((conflicts - 1.0).abs() < 0.5, "{conflicts}");
    });
}

#[test]
fn objects_of_server_side_apply_are_updated_without_their_old_labels_and_fields() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let mut persisting = Persisting::start(cluster, &[]).await;
        let (_, cr) = create_written(cluster, &persisting).await;
        let path = format!("{}/{}", CR.path(None), text(&cr, "/metadata/name"));
        persisting.server.kill().await;
        cluster.admin.delete(&path).await.ok();
        // managedFields then has an entry with the operation `Apply`.
        let mut applied = json!({
            "apiVersion": cr["apiVersion"], "kind": cr["kind"],
            "metadata": {"name": cr["metadata"]["name"], "labels": cr["metadata"]["labels"],
                "annotations": cr["metadata"]["annotations"]},
            "spec": cr["spec"], "status": cr["status"],
        });
        applied["metadata"]["labels"]["old"] = json!("a");
        applied["status"]["progress"] = json!(50);
        let apply = format!("{path}?fieldManager=ifo-persistence&force=true");
        let kind = "application/apply-patch+yaml";
        let answer = cluster
            .admin
            .send(http::Method::PATCH, &apply, kind, applied.to_string())
            .await;
        answer.ok();
        let theirs = json!({"metadata": {"labels": {"team": "a"}}});
        cluster.admin.merge(&path, &theirs).await.ok();
        persisting.start_again().await;
        let labels = eventually("the field progress is removed", async || {
            let after = cluster.admin.get(&path).await.ok();
            ok_if(after["status"]["progress"].is_null(), &after["status"])?;
            Ok(after["metadata"]["labels"].clone())
        })
        .await;
        let mut want = cr["metadata"]["labels"].clone();
        want["team"] = json!("a");
        // The server restores the operation with its old label from the custom resource. At the
        // first evaluation of the rule, the server removes the label.
        eventually("the old label is removed", async || {
            let after = cluster.admin.get(&path).await.ok();
            ok_if(
                after["metadata"]["labels"] == want,
                (&labels, &after["metadata"]["labels"]),
            )
        })
        .await;
    });
}
