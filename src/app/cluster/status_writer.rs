//! Writes the status of rule sets to the cluster.

use crate::rules::{StatusAnswer, StatusSink, StatusWrite};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::ruleset::OperationRuleSet;
use ifo_client::error_text::chain;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// Writes the status subresource of rule sets. Each write names the UID and the resourceVersion of
/// the rule set from which the status was computed. If the rule set has changed since then, the
/// kube-apiserver refuses the write.
///
/// For example, a write of the previous leader arrives after the new leader has written a status.
/// The write of the new leader has changed the resourceVersion, so the late write is refused.
pub(super) struct StatusWriter(Api<OperationRuleSet>);

impl StatusWriter {
    pub(super) fn new(client: Client) -> Self {
        Self(Api::all(client))
    }
}

impl StatusSink for StatusWriter {
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer> {
        async move {
            let patch = Patch::Merge(json!({
                "metadata": {"uid": write.uid, "resourceVersion": write.version},
                "status": write.status,
            }));
            match self
                .0
                .patch_status(&write.name, &PatchParams::default(), &patch)
                .await
            {
                Ok(written) => StatusAnswer::Written(written.metadata.resource_version),
                // The rule set was deleted in the meantime, so it needs no status.
                Err(kube::Error::Api(status)) if status.code == 404 => StatusAnswer::Written(None),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    tracing::debug!(
                        name = %write.name,
                        "a status was not written because the rule set has changed"
                    );
                    StatusAnswer::Failed
                }
                Err(error) => {
                    tracing::warn!(name = %write.name, error = chain(&error), "a status could not be written");
                    StatusAnswer::Failed
                }
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::auth::testing::Cluster;
    use http::Method;
    use ifo_api::ruleset::OperationRuleSetStatus;

    const PATH: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets/a/status";

    /// Returns a cluster that stores the rule set `a`, and the resourceVersion of `a`.
    fn cluster() -> (Cluster, Option<String>) {
        let cluster = Cluster::new();
        let rule_set = json!({
            "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
            "metadata": {"uid": "uid-a"},
            "spec": {
                "component": "tests",
                "target": {"group": "", "version": "v1", "resource": "pods"},
                "rules": [{"operation": "Working", "expression": "true"}],
            },
        });
        cluster.put(PATH, rule_set);
        let version = version(&cluster);
        (cluster, version)
    }

    fn version(cluster: &Cluster) -> Option<String> {
        let stored = cluster.get(PATH)?;
        let version = stored["metadata"]["resourceVersion"].as_str();
        version.map(str::to_owned)
    }

    async fn write(cluster: &Cluster, version: Option<String>) -> StatusAnswer {
        let write = StatusWrite {
            name: "a".to_owned(),
            uid: Some("uid-a".to_owned()),
            version,
            status: OperationRuleSetStatus {
                watch_active: true,
                ..OperationRuleSetStatus::default()
            },
        };
        StatusWriter::new(cluster.client()).write(&write).await
    }

    #[tokio::test]
    async fn a_status_write_sends_uid_and_version_and_returns_the_new_version() {
        let (cluster, before) = cluster();
        let answer = write(&cluster, before.clone()).await;
        let after = version(&cluster);
        assert_ne!(after, before);
        assert_eq!(answer, StatusAnswer::Written(after));
        let sent = cluster.seen(&Method::PATCH).remove(0);
        assert_eq!(sent.path, PATH);
        let condition = json!({"uid": "uid-a", "resourceVersion": before});
        assert_eq!(sent.body["metadata"], condition);
        let stored = cluster.get(PATH).expect("the rule set is stored");
        assert_eq!(stored["status"]["watchActive"], true);
    }

    #[tokio::test]
    async fn an_answer_tells_if_the_write_must_be_repeated() {
        let (cluster, before) = cluster();
        cluster.refuse(Method::PATCH, "/status", 403);
        assert_eq!(write(&cluster, before.clone()).await, StatusAnswer::Failed);
        let changed = cluster.get(PATH).expect("the rule set is stored");
        cluster.put(PATH, changed);
        let newer = version(&cluster);
        assert_eq!(write(&cluster, before.clone()).await, StatusAnswer::Failed);
        assert_eq!(version(&cluster), newer);
        cluster.delete(PATH);
        assert_eq!(write(&cluster, before).await, StatusAnswer::Written(None));
    }
}
