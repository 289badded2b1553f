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
fn an_edited_custom_resource_is_corrected_and_a_deleted_one_is_created_again() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let persisting = Persisting::start(cluster, &[]).await;
        let (namespace, cr) = create_written(cluster, &persisting).await;
        let path = format!("{}/{}", CR.path(None), text(&cr, "/metadata/name"));
        let edit = json!({"status": {"reason": "Edited"}});
        cluster.admin.merge(&path, &edit).await.ok();
        eventually("the reason is corrected", async || {
            let now = custom_resource_in(cluster, namespace).await?;
            ok_if(now["status"]["reason"] == cr["status"]["reason"], &now)
        })
        .await;
        cluster.admin.delete(&path).await.ok();
        eventually("the custom resource is created again", async || {
            let now = custom_resource_in(cluster, namespace).await?;
            ok_if(now["metadata"]["uid"] != cr["metadata"]["uid"], &now)
        })
        .await;
        cluster.set_status(namespace, "a", "Running").await;
        eventually("the end of the operation is written", async || {
            let now = custom_resource_in(cluster, namespace).await?;
            ok_if(now["status"]["phase"] == "Completed", &now["status"])
        })
        .await;
        let log = persisting.log();
        assert!(!log.contains("an operation cannot be written"), "{log}");
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
