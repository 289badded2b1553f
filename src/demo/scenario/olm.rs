//! An operator that the Operator Lifecycle Manager keeps up to date: Subscription,
//! InstallPlan and `ClusterServiceVersions`.

use super::conditions;
use super::machine::remove;
use super::stage::Stage;
use crate::demo::kinds::{INSTALL_PLAN, Kind, SUBSCRIPTION};
use serde_json::{Value, json};
use std::collections::VecDeque;

pub(super) const PACKAGE: &str = "kubevirt-hyperconverged";
/// The namespace of the operator and of what it installs.
pub(super) const NAMESPACE: &str = "openshift-cnv";
/// Finished `InstallPlans` that stay (OLM keeps 5).
const KEPT_PLANS: usize = 5;
/// The Deployment that an upgrade waits for.
pub(super) const DEPLOYMENT: &str = "hco-operator";

/// The operator of the virtualization stack, at version 4.20.`patch`.
pub(super) struct Operator {
    pub stage: Stage,
    patch: u64,
    plans: VecDeque<String>,
    generation: u64,
}

impl Operator {
    /// An operator that is installed.
    pub fn present(stage: Stage) -> Self {
        let operator = Self {
            stage,
            patch: 3,
            plans: VecDeque::new(),
            generation: 7,
        };
        let time = operator.stage.time();
        operator.stage.world.put(
            &SUBSCRIPTION,
            "kubectl-create",
            json!({
                "metadata": {
                    "name": PACKAGE,
                    "namespace": NAMESPACE,
                    "creationTimestamp": time.ago(80 * 86_400),
                    "labels": {format!("operators.coreos.com/{PACKAGE}.{NAMESPACE}"): ""},
                },
                "spec": {
                    "channel": "stable",
                    "installPlanApproval": "Automatic",
                    "name": PACKAGE,
                    "source": "redhat-operators",
                    "sourceNamespace": "openshift-marketplace",
                },
            }),
        );
        let name = operator.csv();
        operator.put_csv(None);
        operator.csv_phase(
            &name,
            "Succeeded",
            "InstallSucceeded",
            "install strategy completed with no errors",
        );
        operator.edit(&SUBSCRIPTION, PACKAGE, "catalog", |object, now| {
            object["status"] = json!({
                "currentCSV": name,
                "installedCSV": name,
                "state": "AtLatestKnown",
                "lastUpdated": now,
            });
            conditions::set(
                object,
                now,
                None,
                json!({
                    "type": "CatalogSourcesUnhealthy", "status": "False",
                    "reason": "AllCatalogSourcesHealthy",
                    "message": "all available catalogsources are healthy",
                }),
            );
        });
        operator
    }

    /// The version that is installed, or being installed.
    pub fn version(&self) -> String {
        format!("4.20.{}", self.patch)
    }

    /// The catalog has a newer version: from the unpacking of its bundle until the
    /// old ClusterServiceVersion is gone.
    pub async fn upgrade(&mut self) {
        let old = self.csv();
        self.patch += 1;
        let new = self.csv();
        self.unpack().await;
        let plan = self.plan(&old, &new).await;
        self.stage.wait(200, 600).await;
        self.replace(&old, &new).await;
        self.edit(&SUBSCRIPTION, PACKAGE, "catalog", |object, now| {
            // All that this says is that the new ClusterServiceVersion exists.
            object["status"]["state"] = json!("AtLatestKnown");
            object["status"]["installedCSV"] = json!(new);
            object["status"]["lastUpdated"] = json!(now);
        });
        self.stage.wait(2_000, 3_500).await;
        self.finish_plan(&plan).await;
        self.stage.wait_seconds(9, 14).await;
        self.csv_phase(
            &new,
            "Succeeded",
            "InstallSucceeded",
            "install strategy completed with no errors",
        );
        self.stage.wait(20, 60).await;
        self.remove_csv(&old).await;
    }

    /// Unpacking happens before the InstallPlan exists, and shows only here. The
    /// condition has no transition time, and is removed, not set to False.
    async fn unpack(&mut self) {
        self.edit(&SUBSCRIPTION, PACKAGE, "catalog", |object, now| {
            conditions::set(
                object,
                now,
                None,
                json!({"type": "BundleUnpacking", "status": "True", "reason": "JobIncomplete"}),
            );
            let items = object["status"]["conditions"].as_array_mut();
            for item in items
                .into_iter()
                .flatten()
                .filter(|item| item["type"] == "BundleUnpacking")
            {
                remove(item, "lastTransitionTime");
            }
            object["status"]["lastUpdated"] = json!(now);
        });
        // A shorter unpacking of an upgrade is not shown (rules/olm/subscriptions-upgrade.yaml).
        self.stage.wait_seconds(14, 18).await;
    }

    async fn plan(&mut self, old: &str, new: &str) -> String {
        let name = format!("install-{}", self.stage.dice.suffix(5));
        let subscription = self.stage.world.get(&SUBSCRIPTION, NAMESPACE, PACKAGE);
        let uid = subscription.map(|object| object["metadata"]["uid"].clone());
        self.generation += 1;
        self.stage.world.put(
            &INSTALL_PLAN,
            "catalog",
            json!({
                "metadata": {
                    "name": name,
                    "generateName": "install-",
                    "namespace": NAMESPACE,
                    "labels": {format!("operators.coreos.com/{PACKAGE}.{NAMESPACE}"): ""},
                    "ownerReferences": [{
                        "apiVersion": SUBSCRIPTION.api_version(),
                        "kind": SUBSCRIPTION.kind,
                        "name": PACKAGE,
                        "uid": uid,
                        "controller": false,
                        "blockOwnerDeletion": false,
                    }],
                },
                "spec": {
                    "approval": "Automatic",
                    "approved": true,
                    "clusterServiceVersionNames": [new],
                    "generation": self.generation,
                },
            }),
        );
        self.plans.push_back(name.clone());
        while self.plans.len() > KEPT_PLANS {
            if let Some(oldest) = self.plans.pop_front() {
                self.stage.world.delete(&INSTALL_PLAN, NAMESPACE, &oldest);
            }
        }
        self.stage.wait(8, 900).await;
        let steps = steps(new, "Unknown");
        self.edit(&INSTALL_PLAN, &name, "catalog", |object, _| {
            object["status"] = json!({
                "catalogSources": ["redhat-operators"], "phase": "Installing", "plan": steps,
            });
        });
        self.stage.wait(100, 300).await;
        let plan = self.stage.world.get(&INSTALL_PLAN, NAMESPACE, &name);
        let plan_uid = plan.map(|object| object["metadata"]["uid"].clone());
        let generation = self.generation;
        self.edit(&SUBSCRIPTION, PACKAGE, "catalog", |object, now| {
            conditions::remove(object, "BundleUnpacking");
            let status = &mut object["status"];
            status["currentCSV"] = json!(new);
            status["installedCSV"] = json!(old);
            status["state"] = json!("UpgradePending");
            status["installPlanGeneration"] = json!(generation);
            status["installPlanRef"] = json!({
                "apiVersion": INSTALL_PLAN.api_version(), "kind": INSTALL_PLAN.kind,
                "name": name, "namespace": NAMESPACE, "uid": plan_uid,
            });
            status["lastUpdated"] = json!(now);
        });
        self.stage.wait(200, 500).await;
        self.install_plan_pending(true);
        name
    }

    /// The plan is complete as soon as all steps are applied, which says nothing of
    /// the operator. The Subscription's condition comes back twice afterwards.
    async fn finish_plan(&mut self, plan: &str) {
        self.edit(&INSTALL_PLAN, plan, "catalog", |object, now| {
            let name = object["spec"]["clusterServiceVersionNames"][0]
                .as_str()
                .unwrap_or_default();
            object["status"]["plan"] = steps(name, "Present");
            object["status"]["phase"] = json!("Complete");
            object["status"]["startTime"] = json!(now);
            object["status"]["conditions"] = json!([{
                "type": "Installed", "status": "True",
                "lastTransitionTime": now, "lastUpdateTime": now,
            }]);
        });
        self.stage.wait(400, 1_000).await;
        self.install_plan_pending(false);
        for _ in 0..2 {
            self.stage.wait(1_000, 1_300).await;
            self.install_plan_pending(true);
            self.stage.wait(200, 600).await;
            self.install_plan_pending(false);
        }
    }

    fn install_plan_pending(&self, pending: bool) {
        self.edit(&SUBSCRIPTION, PACKAGE, "catalog", |object, now| {
            if pending {
                conditions::set(
                    object,
                    now,
                    None,
                    json!({
                        "type": "InstallPlanPending", "status": "True", "reason": "Installing",
                    }),
                );
            } else {
                conditions::remove(object, "InstallPlanPending");
            }
            object["status"]["lastUpdated"] = json!(now);
        });
    }

    /// Name of the ClusterServiceVersion of that version.
    pub fn csv(&self) -> String {
        format!("{PACKAGE}-operator.v{}", self.version())
    }

    /// Changes an object of the operator; the closure also gets the time.
    pub fn edit(
        &self,
        kind: &'static Kind,
        name: &str,
        manager: &str,
        change: impl FnOnce(&mut Value, &str),
    ) {
        let now = self.stage.now();
        let world = &self.stage.world;
        world.edit(kind, NAMESPACE, name, manager, |object| {
            change(object, &now);
        });
    }
}

/// The steps of an InstallPlan, all in one state: they change together, at the end.
fn steps(csv: &str, status: &str) -> Value {
    let step = |group: &str, version: &str, kind: &str, name: &str| {
        json!({
            "resolving": csv,
            "resource": {
                "group": group, "version": version, "kind": kind, "name": name,
                "sourceName": "redhat-operators", "sourceNamespace": "openshift-marketplace",
            },
            "status": status,
        })
    };
    json!([
        step(
            "operators.coreos.com",
            "v1alpha1",
            "ClusterServiceVersion",
            csv
        ),
        step(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "hyperconvergeds.hco.kubevirt.io"
        ),
        step("", "v1", "ServiceAccount", DEPLOYMENT),
        step(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
            &format!("{csv}-{DEPLOYMENT}")
        ),
        step(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRoleBinding",
            &format!("{csv}-{DEPLOYMENT}")
        ),
    ])
}
