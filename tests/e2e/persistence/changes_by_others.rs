//! Tests of persistence mode, in which the server writes each operation as a custom resource. In
//! these tests, other clients change the custom resources. The server must continue to write them,
//! and must keep labels and annotations of other clients.

use super::{CR, Persisting, crs, persisting, within};
use crate::harness::{eventually, ok_if, text};
use http::Method;
use serde_json::{Value, json};

/// Creates an operation, and waits until the server has written its custom resource. Returns the
/// namespace, the custom resource and its path.
async fn create_written(persisting: &Persisting) -> (&'static str, Value, String) {
    let (namespace, _) = persisting.cluster.migrations("foreign", &["a"]).await;
    let cr = eventually("the operation is written", async || {
        persisting.wait_until_equal().await;
        custom_resource_in(persisting, namespace).await
    })
    .await;
    let path = CR.one(None, text(&cr, "/metadata/name"));
    (namespace, cr, path)
}

/// Returns the custom resource of the operation in this namespace, or an error if there is none.
async fn custom_resource_in(persisting: &Persisting, namespace: &str) -> Result<Value, String> {
    let own = within(namespace, crs(persisting.cluster).await);
    let own = own.into_values().next();
    own.ok_or_else(|| "there is no custom resource".to_owned())
}

#[test]
fn an_edited_custom_resource_is_corrected_and_a_deleted_one_is_created_again() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let (namespace, cr, path) = create_written(persisting).await;
        let edit = json!({"status": {"reason": "Edited"}});
        cluster.admin.merge(&path, &edit).await.ok();
        eventually("the reason is corrected", async || {
            let now = custom_resource_in(persisting, namespace).await?;
            ok_if(now["status"]["reason"] == cr["status"]["reason"], &now)
        })
        .await;
        cluster.admin.delete(&path).await.ok();
        eventually("the custom resource is created again", async || {
            let now = custom_resource_in(persisting, namespace).await?;
            ok_if(now["metadata"]["uid"] != cr["metadata"]["uid"], &now)
        })
        .await;
        cluster.set_status(namespace, "a", "Running").await;
        eventually("the end of the operation is written", async || {
            let now = custom_resource_in(persisting, namespace).await?;
            ok_if(now["status"]["phase"] == "Completed", &now["status"])
        })
        .await;
        let log = persisting.server.log();
        assert!(!log.contains("an operation cannot be written"), "{log}");
    });
}

#[test]
fn objects_of_server_side_apply_are_updated_without_their_old_labels_and_fields() {
    persisting(async |persisting| {
        let admin = &persisting.cluster.admin;
        let (_, cr, path) = create_written(persisting).await;
        persisting.server.kill().await;
        admin.delete(&path).await.ok();
        // managedFields then has an entry with the operation `Apply`.
        let mut applied = cr.clone();
        applied["metadata"] = json!({
            "name": cr["metadata"]["name"], "labels": cr["metadata"]["labels"],
            "annotations": cr["metadata"]["annotations"],
        });
        applied["metadata"]["labels"]["old"] = json!("a");
        applied["status"]["progress"] = json!(50);
        let apply = format!("{path}?fieldManager=ifo-persistence&force=true");
        let kind = "application/apply-patch+yaml";
        let answer = admin.send(Method::PATCH, &apply, kind, applied.to_string());
        answer.await.ok();
        let theirs = json!({"metadata": {"labels": {"team": "a"}}});
        admin.merge(&path, &theirs).await.ok();
        persisting.server.start_again().await;
        // The server restores the operation with its old label from the custom resource. At the
        // first evaluation of the rule, the server removes the label.
        let mut want = cr["metadata"]["labels"].clone();
        want["team"] = json!("a");
        let is_clean =
            |it: &Value| it["status"]["progress"].is_null() && it["metadata"]["labels"] == want;
        let what = "the old field and the old label are removed";
        admin.until_object(what, &path, is_clean).await;
    });
}
