//! `ClusterServiceVersions`: the phases of one that is installed and of the one that it
//! replaces.

use super::olm::{DEPLOYMENT, NAMESPACE, Operator, PACKAGE};
use crate::demo::kinds::CSV;
use serde_json::json;

/// Items that a ClusterServiceVersion's history keeps (the API type's limit).
const HISTORY: usize = 20;

impl Operator {
    /// Creates the ClusterServiceVersion of the current version, without status.
    pub fn put_csv(&self, replaces: Option<&str>) {
        let version = self.version();
        let mut object = json!({
            "metadata": {
                "name": self.csv(),
                "namespace": NAMESPACE,
                "labels": {
                    "olm.managed": "true",
                    format!("operators.coreos.com/{PACKAGE}.{NAMESPACE}"): "",
                },
                "annotations": {
                    "capabilities": "Deep Insights",
                    "olm.operatorGroup": "openshift-cnv-group",
                    "olm.operatorNamespace": NAMESPACE,
                    "olm.targetNamespaces": "",
                },
                "finalizers": ["operators.coreos.com/csv-cleanup"],
            },
            "spec": {
                "displayName": "OpenShift Virtualization",
                "version": version,
                "provider": {"name": "Red Hat"},
                "installModes": [{"type": "OwnNamespace", "supported": true}],
                "customresourcedefinitions": {"owned": [{
                    "kind": "HyperConverged", "name": "hyperconvergeds.hco.kubevirt.io", "version": "v1beta1",
                }]},
                "install": {"strategy": "deployment", "spec": {"deployments": [{
                    "name": DEPLOYMENT,
                    "spec": {
                        "replicas": 1,
                        "selector": {"matchLabels": {"name": DEPLOYMENT}},
                        "template": {
                            "metadata": {"labels": {"name": DEPLOYMENT}},
                            "spec": {"containers": [{
                                "name": DEPLOYMENT,
                                "image": format!("registry.redhat.io/container-native-virtualization/hco-operator:v{version}"),
                            }]},
                        },
                    },
                }]}},
            },
        });
        if let Some(replaces) = replaces {
            object["spec"]["replaces"] = json!(replaces);
        }
        self.stage.world.put(&CSV, "catalog", object);
    }

    /// A phase, and with it one more entry of the history that a
    /// ClusterServiceVersion calls conditions.
    pub fn csv_phase(&self, name: &str, phase: &str, reason: &str, message: &str) {
        self.edit(&CSV, name, "olm", |object, now| {
            let status = &mut object["status"];
            let started = if status["phase"] == phase {
                status["lastTransitionTime"].clone()
            } else {
                json!(now)
            };
            let entry = json!({
                "phase": phase, "reason": reason, "message": message,
                "lastTransitionTime": started, "lastUpdateTime": now,
            });
            for (field, value) in entry.as_object().into_iter().flatten() {
                status[field] = value.clone();
            }
            status["cleanup"] = json!({});
            if !status["conditions"].is_array() {
                status["conditions"] = json!([]);
            }
            let history = status["conditions"]
                .as_array_mut()
                .expect("made an array just above");
            history.push(entry);
            let surplus = history.len().saturating_sub(HISTORY);
            history.drain(..surplus);
        });
    }

    /// The new version is installed while the old one waits to be replaced.
    pub async fn replace(&mut self, old: &str, new: &str) {
        self.put_csv(Some(old));
        // No status at all for a moment.
        self.stage.wait(34, 330).await;
        self.csv_phase(
            new,
            "Pending",
            "RequirementsUnknown",
            "requirements not yet checked",
        );
        self.stage.wait(12, 120).await;
        self.csv_phase(
            old,
            "Replacing",
            "BeingReplaced",
            &format!("being replaced by csv: {new}"),
        );
        self.csv_phase(
            new,
            "Pending",
            "RequirementsNotMet",
            "one or more requirements couldn't be found",
        );
        self.stage.wait(900, 2_500).await;
        self.csv_phase(
            new,
            "InstallReady",
            "AllRequirementsMet",
            "all requirements found, attempting install",
        );
        self.stage.wait(15, 225).await;
        self.csv_phase(
            new,
            "Installing",
            "InstallSucceeded",
            "waiting for install components to report healthy",
        );
        self.stage.wait(44, 216).await;
        let message = format!(
            "installing: waiting for deployment {DEPLOYMENT} to become ready: deployment \"{DEPLOYMENT}\" not available: Deployment does not have minimum availability."
        );
        self.csv_phase(new, "Installing", "InstallWaiting", &message);
    }

    /// The old version is marked, and goes.
    pub async fn remove_csv(&mut self, old: &str) {
        self.csv_phase(old, "Deleting", "Replaced", &format!("has been replaced by a newer ClusterServiceVersion that has successfully installed: {}", self.csv()));
        self.stage.wait(11, 117).await;
        self.edit(&CSV, old, "olm", |object, now| {
            object["metadata"]["deletionTimestamp"] = json!(now);
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        });
        self.stage.wait(47, 306).await;
        self.stage.world.delete(&CSV, NAMESPACE, old);
    }
}
