//! A test of persistence mode, in which the server writes each operation as a custom resource: it
//! updates the custom resources that older versions wrote with server-side apply.

use super::{CR, persisting, within};
use crate::harness::{eventually, text};
use http::Method;
use serde_json::{Value, json};

#[test]
fn objects_of_server_side_apply_are_updated_without_their_old_labels_and_fields() {
    persisting(async |persisting| {
        let admin = &persisting.cluster.admin;
        let (namespace, _) = persisting.cluster.migrations("foreign", &["a"]).await;
        let cr = eventually("the operation is written", async || {
            let all = persisting.wait_until_equal().await;
            let own = within(namespace, all).into_values().next();
            own.ok_or_else(|| "there is no custom resource".to_owned())
        })
        .await;
        let path = CR.one(None, text(&cr, "/metadata/name"));
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
