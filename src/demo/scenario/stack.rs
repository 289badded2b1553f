//! The virtualization stack: when its operator has been upgraded, HyperConverged
//! brings KubeVirt and CDI to the new version, and KubeVirt then migrates a
//! machine that still runs in an old launcher.

use super::Actor;
use super::conditions;
use super::machine::{Entrance, Machine, remove};
use super::migration::Cause;
use super::olm::{NAMESPACE, Operator};
use super::stage::Stage;
use crate::demo::kinds::{CDI, HYPERCONVERGED, KUBEVIRT, Kind};
use futures::FutureExt;
use futures::future::join;
use serde_json::{Value, json};

const HCO: &str = "kubevirt-hyperconverged";
const KUBEVIRT_NAME: &str = "kubevirt-kubevirt-hyperconverged";
/// Label of an instance that runs in a launcher of an old version.
const OUTDATED: &str = "kubevirt.io/outdatedLauncherImage";
const CDI_NAME: &str = "cdi-kubevirt-hyperconverged";

/// The actors of this file.
pub(super) fn actors(stage: &mut Stage) -> Vec<Actor> {
    let operator = Operator::present(stage.fork());
    let stack = Stack {
        stage: stage.fork(),
    };
    stack.create(&operator.version());
    let entrance = Entrance::Running(600_000);
    let portal = Machine::present(stage.fork(), "team-a", "portal", "worker-1", &entrance);
    vec![upgrades(operator, stack, portal).boxed()]
}

async fn upgrades(mut operator: Operator, mut stack: Stack, mut machine: Machine) {
    stack.stage.wait_seconds(2, 3).await;
    loop {
        let old = operator.version();
        let turn = stack.stage.turn(4).await;
        operator.upgrade().await;
        let new = operator.version();
        stack.stage.wait(300, 900).await;
        stack.begin(&new);
        stack.stage.wait_seconds(1, 2).await;
        let mut data = Stack {
            stage: stack.stage.fork(),
        };
        join(
            stack.update_kubevirt(&old, &new),
            data.update_cdi(&old, &new),
        )
        .await;
        stack.stage.wait_seconds(2, 3).await;
        stack.finish(&new);
        drop(turn);
        stack.stage.wait_seconds(4, 6).await;
        let turn = stack.stage.turn(4).await;
        stack.outdated(1);
        machine.edit_vmi("virt-controller", |vmi, _| {
            vmi["metadata"]["labels"][OUTDATED] = json!("");
        });
        machine.stage.wait(500, 1_500).await;
        let target = if machine.node == "worker-5" {
            "worker-1"
        } else {
            "worker-5"
        };
        machine
            .migrate(&Cause::WorkloadUpdate, target, (8, 12))
            .await;
        machine.edit_vmi("virt-controller", |vmi, _| {
            remove(&mut vmi["metadata"]["labels"], OUTDATED);
        });
        stack.outdated(0);
        drop(turn);
        stack.stage.wait_seconds(50, 60).await;
    }
}

/// HyperConverged, KubeVirt and CDI; one actor writes them all.
struct Stack {
    stage: Stage,
}

impl Stack {
    fn create(&self, version: &str) {
        let created = self.stage.time().ago(80 * 86_400);
        let world = &self.stage.world;
        world.put(
            &HYPERCONVERGED,
            "kubectl-create",
            json!({
                "metadata": {"name": HCO, "namespace": NAMESPACE, "creationTimestamp": created,
                    "finalizers": ["kubevirt.io/hyperconverged"]},
                "spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}},
                "status": {"versions": [{"name": "operator", "version": version}]},
            }),
        );
        let uid = world
            .get(&HYPERCONVERGED, NAMESPACE, HCO)
            .map(|object| object["metadata"]["uid"].clone());
        let labels = json!({"app": HCO, "app.kubernetes.io/managed-by": "hco-operator"});
        world.put(&KUBEVIRT, "hyperconverged-cluster-operator", json!({
            "metadata": {
                "name": KUBEVIRT_NAME, "namespace": NAMESPACE, "creationTimestamp": created,
                "labels": labels, "finalizers": ["foregroundDeleteKubeVirt"],
                "ownerReferences": [{
                    "apiVersion": HYPERCONVERGED.api_version(), "kind": HYPERCONVERGED.kind,
                    "name": HCO, "uid": uid, "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "imagePullPolicy": "IfNotPresent",
                "configuration": {"evictionStrategy": "LiveMigrate", "vmRolloutStrategy": "LiveUpdate"},
                "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
            },
            "status": {
                "phase": "Deployed",
                "observedGeneration": 1,
                "operatorVersion": virt(version),
                "observedKubeVirtVersion": virt(version),
                "targetKubeVirtVersion": virt(version),
                "observedDeploymentID": id(version),
                "targetDeploymentID": id(version),
                "outdatedVirtualMachineInstanceWorkloads": 0,
                "defaultArchitecture": "amd64",
            },
        }));
        self.edit(&KUBEVIRT, NAMESPACE, KUBEVIRT_NAME, |object, now| {
            kubevirt_conditions(object, now, None);
        });
        world.put(
            &CDI,
            "hyperconverged-cluster-operator",
            json!({
                "metadata": {
                    "name": CDI_NAME, "creationTimestamp": created, "labels": labels,
                    "annotations": {"cdi.kubevirt.io/configAuthority": ""},
                    "finalizers": ["operator.cdi.kubevirt.io"],
                },
                "spec": {"imagePullPolicy": "IfNotPresent"},
                "status": {
                    "phase": "Deployed", "operatorVersion": data(version),
                    "observedVersion": data(version), "targetVersion": data(version),
                },
            }),
        );
        self.edit(&CDI, "", CDI_NAME, |object, now| {
            cdi_status(object, now, "Deployed", None);
        });
        self.hco_conditions(
            "False",
            "ReconcileCompleted",
            "Reconcile completed successfully",
            false,
        );
    }

    /// HyperConverged notices that it runs a new version.
    fn begin(&self, new: &str) {
        let message = format!("HCO is now upgrading to version {new}");
        self.hco_conditions("True", "HCOUpgrading", &message, false);
    }

    fn finish(&self, new: &str) {
        self.edit(&HYPERCONVERGED, NAMESPACE, HCO, |object, _| {
            object["status"]["versions"] = json!([{"name": "operator", "version": new}]);
        });
        self.hco_conditions(
            "False",
            "ReconcileCompleted",
            "Reconcile completed successfully",
            false,
        );
    }

    /// KubeVirt's update: all three conditions are True, with one reason.
    async fn update_kubevirt(&mut self, old: &str, new: &str) {
        self.edit(&KUBEVIRT, NAMESPACE, KUBEVIRT_NAME, |object, _| {
            object["status"]["operatorVersion"] = json!(virt(new));
            object["status"]["targetKubeVirtVersion"] = json!(virt(new));
            object["status"]["targetDeploymentID"] = json!(id(new));
        });
        self.stage.wait(20, 60).await;
        let message = format!(
            "Transitioning from version {} to version {}",
            virt(old),
            virt(new)
        );
        self.edit(&KUBEVIRT, NAMESPACE, KUBEVIRT_NAME, |object, now| {
            kubevirt_conditions(object, now, Some(&message));
        });
        self.stage.wait(200, 900).await;
        // A component that is degraded makes the whole degraded.
        let upgrading = format!("HCO is now upgrading to version {new}");
        self.hco_conditions("True", "HCOUpgrading", &upgrading, true);
        self.stage.wait_seconds(24, 32).await;
        // One write: the status is patched once, at the end of a round.
        self.edit(&KUBEVIRT, NAMESPACE, KUBEVIRT_NAME, |object, now| {
            object["status"]["observedKubeVirtVersion"] = json!(virt(new));
            object["status"]["observedDeploymentID"] = json!(id(new));
            kubevirt_conditions(object, now, None);
        });
        self.stage.wait(200, 900).await;
        self.hco_conditions("True", "HCOUpgrading", &upgrading, false);
    }

    /// CDI's update: Available stays True, Degraded is True for a moment.
    async fn update_cdi(&mut self, old: &str, new: &str) {
        self.stage.wait(500, 900).await;
        self.edit(&CDI, "", CDI_NAME, |object, _| {
            object["status"]["operatorVersion"] = json!(data(new));
            object["status"]["targetVersion"] = json!(data(new));
            object["status"]["observedVersion"] = json!(data(old));
        });
        self.stage.wait(4, 8).await;
        self.edit(&CDI, "", CDI_NAME, |object, now| {
            cdi_status(object, now, "Upgrading", Some(new));
        });
        self.stage.wait(250, 350).await;
        self.edit(&CDI, "", CDI_NAME, |object, now| {
            cdi_status(object, now, "Upgrading", None);
        });
        self.stage.wait_seconds(14, 20).await;
        self.edit(&CDI, "", CDI_NAME, |object, now| {
            object["status"]["observedVersion"] = json!(data(new));
            cdi_status(object, now, "Deployed", None);
        });
    }

    /// How many machines still run in a launcher of an old version.
    fn outdated(&self, count: u64) {
        self.edit(&KUBEVIRT, NAMESPACE, KUBEVIRT_NAME, |object, _| {
            object["status"]["outdatedVirtualMachineInstanceWorkloads"] = json!(count);
        });
    }

    fn hco_conditions(&self, progressing: &str, reason: &str, message: &str, degraded: bool) {
        let upgrading = progressing == "True";
        let upgradeable = if upgrading { "False" } else { "True" };
        let (degraded, why, text) = if degraded {
            (
                "True",
                "KubeVirtDegraded",
                "KubeVirt is degraded: KubeVirt is being updated",
            )
        } else {
            (
                "False",
                "ReconcileCompleted",
                "Reconcile completed successfully",
            )
        };
        self.edit(&HYPERCONVERGED, NAMESPACE, HCO, |object, now| {
            let done = "Reconcile completed successfully";
            for (kind, status, reason, message) in [
                ("ReconcileComplete", "True", "ReconcileCompleted", done),
                ("Available", "True", "ReconcileCompleted", done),
                ("Progressing", progressing, reason, message),
                ("Degraded", degraded, why, text),
                ("Upgradeable", upgradeable, reason, message),
            ] {
                conditions::set(
                    object,
                    now,
                    None,
                    json!({
                        "type": kind, "status": status, "reason": reason, "message": message,
                        "observedGeneration": object["metadata"]["generation"],
                    }),
                );
            }
        });
    }

    fn edit(
        &self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value, &str),
    ) {
        let now = self.stage.now();
        let manager = match kind.kind {
            "KubeVirt" => "virt-operator",
            "CDI" => "cdi-operator",
            _ => "hyperconverged-cluster-operator",
        };
        self.stage
            .world
            .edit(kind, namespace, name, manager, |object| {
                change(object, &now);
            });
    }
}

/// KubeVirt's conditions; while it is updated, with what that is.
fn kubevirt_conditions(object: &mut Value, now: &str, updating: Option<&str>) {
    let conditions = if let Some(message) = updating {
        [
            ("Available", "True", "UpdateInProgress", message),
            ("Progressing", "True", "UpdateInProgress", message),
            ("Degraded", "True", "UpdateInProgress", message),
        ]
    } else {
        let ready = "All components are ready.";
        [
            ("Available", "True", "AllComponentsReady", ready),
            ("Progressing", "False", "AllComponentsReady", ready),
            ("Degraded", "False", "AllComponentsReady", ready),
        ]
    };
    let created = (
        "Created",
        "True",
        "AllResourcesCreated",
        "All resources were created.",
    );
    for (kind, status, reason, message) in conditions.into_iter().chain([created]) {
        conditions::set(
            object,
            now,
            Some("lastProbeTime"),
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
            }),
        );
    }
}

/// CDI's phase and conditions; an upgrade to a version begins with Degraded.
fn cdi_status(object: &mut Value, now: &str, phase: &str, begins: Option<&str>) {
    object["status"]["phase"] = json!(phase);
    let (available, progressing) = if phase == "Deployed" {
        let available = json!({
            "type": "Available", "status": "True",
            "reason": "DeployCompleted", "message": "Deployment Completed",
        });
        (available, "False")
    } else {
        (json!({"type": "Available", "status": "True"}), "True")
    };
    let degraded = match begins {
        Some(new) => json!({
            "type": "Degraded", "status": "True", "reason": "UpgradeStarted",
            "message": format!("Started upgrade to version {}", data(new)),
        }),
        None => json!({"type": "Degraded", "status": "False"}),
    };
    for condition in [
        available,
        json!({"type": "Progressing", "status": progressing}),
        degraded,
    ] {
        conditions::set(object, now, Some("lastHeartbeatTime"), condition);
    }
}

/// KubeVirt's version in a release of the stack.
fn virt(version: &str) -> String {
    format!("v1.6.{}", patch(version))
}

/// CDI's version in a release of the stack.
fn data(version: &str) -> String {
    format!("v1.63.{}", patch(version))
}

/// Stands for the hash of KubeVirt's image digests and configuration.
fn id(version: &str) -> String {
    let name = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_DNS, version.as_bytes());
    name.simple().to_string()
}

fn patch(version: &str) -> &str {
    version.rsplit('.').next().unwrap_or_default()
}
