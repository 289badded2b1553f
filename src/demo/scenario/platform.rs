//! The cluster itself: its version and its nodes.

use super::Actor;
use super::conditions;
use super::machine::{Entrance, Machine, remove};
use super::migration::Cause;
use super::stage::Stage;
use crate::demo::kinds::{CLUSTER_VERSION, NODE};
use futures::FutureExt;
use serde_json::{Value, json};

/// All nodes; the two that are drained in turn are the second and the third.
const NODES: [&str; 5] = ["worker-1", "worker-2", "worker-3", "worker-4", "worker-5"];
/// Manifests that the cluster's version operator applies in an upgrade.
const MANIFESTS: u64 = 929;
/// Versions that a ClusterVersion's history keeps here (the real one keeps 100).
const HISTORY: usize = 5;

/// The actors of this file.
pub(super) fn actors(stage: &mut Stage) -> Vec<Actor> {
    for name in NODES {
        put_node(stage, name);
    }
    let mut cluster = Cluster {
        stage: stage.fork(),
        patch: 6,
    };
    cluster.create();
    cluster.begin();
    let entrance = Entrance::Running(300_000);
    let mail = Machine::present(stage.fork(), "team-b", "mail", NODES[1], &entrance);
    vec![
        upgrades(cluster).boxed(),
        drains(stage.fork(), mail).boxed(),
    ]
}

fn put_node(stage: &mut Stage, name: &str) {
    let time = stage.time();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time.stamp(), "lastTransitionTime": time.ago(2_000_000),
        })
    };
    stage.world.put(&NODE, "kubelet", json!({
        "metadata": {
            "name": name,
            "creationTimestamp": time.ago(90 * 86_400),
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubevirt.io/schedulable": "true",
                "node-role.kubernetes.io/worker": "",
            },
            "annotations": {
                "machineconfiguration.openshift.io/currentConfig": "rendered-worker-5f2a",
                "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-5f2a",
                "machineconfiguration.openshift.io/state": "Done",
            },
        },
        "spec": {},
        "status": {
            "capacity": {"cpu": "32", "memory": "131072Mi", "pods": "250", "devices.kubevirt.io/kvm": "1k"},
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "nodeInfo": {"kubeletVersion": "v1.34.2", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }));
}

/// The machine config operator takes a node out of service, gives it a new
/// configuration, and brings it back: first one node, then the other, for ever.
async fn drains(mut stage: Stage, mut machine: Machine) {
    stage.wait_seconds(60, 65).await;
    for (node, target) in [(NODES[1], NODES[2]), (NODES[2], NODES[1])]
        .into_iter()
        .cycle()
    {
        let turn = stage.turn(5).await;
        let config = format!("rendered-worker-{}", stage.dice.suffix(5));
        annotate(
            &stage,
            node,
            &[("desiredConfig", &config), ("state", "Working")],
        );
        stage.wait(300, 600).await;
        edit_node(&stage, node, "machine-config-controller", |object, _| {
            object["spec"]["unschedulable"] = json!(true);
        });
        stage.wait(6, 12).await;
        edit_node(&stage, node, "kube-controller-manager", |object, now| {
            object["spec"]["taints"] = json!([{
                "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": now,
            }]);
        });
        stage.wait_seconds(1, 2).await;
        evict(&mut machine, target).await;
        drop(turn);
        stage.wait_seconds(1, 2).await;
        reboot(&mut stage, node).await;
        annotate(
            &stage,
            node,
            &[("currentConfig", &config), ("state", "Done")],
        );
        stage.wait(200, 400).await;
        edit_node(&stage, node, "machine-config-controller", |object, _| {
            remove(&mut object["spec"], "unschedulable");
        });
        stage.wait(15, 25).await;
        edit_node(&stage, node, "kube-controller-manager", |object, _| {
            remove(&mut object["spec"], "taints");
        });
        stage.wait_seconds(90, 100).await;
    }
}

/// Moves a machine away from a node that is drained.
async fn evict(machine: &mut Machine, target: &str) {
    let node = machine.node.clone();
    machine.edit_vmi("virt-api", |vmi, _| {
        vmi["status"]["evacuationNodeName"] = json!(node);
    });
    machine.stage.wait(60, 110).await;
    machine.edit_vmi("virt-controller", |vmi, now| {
        conditions::set(
            vmi,
            now,
            None,
            json!({
                "type": "EvictionRequested", "status": "True", "reason": "EvictionRequested",
                "message": "VMI eviction was requested", "lastProbeTime": null,
            }),
        );
    });
    machine.stage.wait(20, 40).await;
    machine.mirror("Running");
    machine.migrate(&Cause::Eviction, target, (9, 16)).await;
}

async fn reboot(stage: &mut Stage, node: &str) {
    let ready = |status: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "message": message,
        });
        edit_node(stage, node, "kubelet", |object, now| {
            conditions::set(object, now, Some("lastHeartbeatTime"), condition);
        });
    };
    ready("False", "KubeletNotReady", "node is shutting down");
    stage.wait_seconds(14, 18).await;
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
    });
    edit_node(stage, node, "kubelet", |object, now| {
        conditions::set(object, now, Some("lastHeartbeatTime"), ready);
    });
    stage.wait_seconds(2, 3).await;
}

fn annotate(stage: &Stage, node: &str, values: &[(&str, &str)]) {
    edit_node(stage, node, "machine-config-controller", |object, _| {
        for (key, value) in values {
            let key = format!("machineconfiguration.openshift.io/{key}");
            object["metadata"]["annotations"][key] = json!(value);
        }
    });
}

fn edit_node(stage: &Stage, node: &str, manager: &str, change: impl FnOnce(&mut Value, &str)) {
    let now = stage.now();
    stage
        .world
        .edit(&NODE, "", node, manager, |object| change(object, &now));
}

/// The cluster's version: 4.20.`patch`.
struct Cluster {
    stage: Stage,
    patch: u64,
}

/// One patch release after the other.
async fn upgrades(mut cluster: Cluster) {
    loop {
        let mut done = 84;
        while done < MANIFESTS {
            cluster.stage.wait(2_500, 3_500).await;
            done = (done + cluster.stage.dice.between(20, 42)).min(MANIFESTS);
            cluster.advance(done);
        }
        cluster.stage.wait_seconds(2, 3).await;
        cluster.finish();
        cluster.stage.wait_seconds(55, 65).await;
        cluster.begin();
    }
}

impl Cluster {
    fn version(&self) -> String {
        format!("4.20.{}", self.patch)
    }

    fn create(&mut self) {
        let (version, uuid, time) = (self.version(), self.stage.dice.uuid(), self.stage.time());
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": time.ago(900_000),
            })
        };
        self.stage.world.put(&CLUSTER_VERSION, "cluster-version-operator", json!({
            "metadata": {"name": "version", "creationTimestamp": time.ago(90 * 86_400)},
            "spec": {"channel": "stable-4.20", "clusterID": uuid},
            "status": {
                "availableUpdates": null,
                "observedGeneration": 1,
                "desired": {"version": version, "image": image(&version)},
                "history": [{
                    "state": "Completed", "version": version, "image": image(&version),
                    "startedTime": time.ago(904_000), "completionTime": time.ago(900_000),
                    "verified": true,
                }],
                "conditions": [
                    condition("Available", "True", "", &format!("Done applying {version}")),
                    condition("Failing", "False", "", ""),
                    condition("Progressing", "False", "", &format!("Cluster version is {version}")),
                    condition("Upgradeable", "True", "AsExpected", ""),
                ],
            },
        }));
    }

    /// An administrator asked for the next patch release.
    fn begin(&mut self) {
        self.patch += 1;
        let version = self.version();
        let now = self.stage.now();
        self.stage
            .world
            .edit(&CLUSTER_VERSION, "", "version", "oc", |object| {
                object["spec"]["desiredUpdate"] =
                    json!({"version": version, "image": image(&version)});
            });
        self.edit(|object, _| {
            let generation = object["metadata"]["generation"].clone();
            let status = &mut object["status"];
            status["desired"] = json!({"version": version, "image": image(&version)});
            status["observedGeneration"] = generation;
            let entry = json!({
                "state": "Partial", "version": version, "image": image(&version),
                "startedTime": now, "completionTime": null, "verified": true,
            });
            if let Some(history) = status["history"].as_array_mut() {
                history.insert(0, entry);
                history.truncate(HISTORY);
            }
        });
        self.advance(84);
    }

    fn advance(&self, done: u64) {
        const ORDER: [&str; 6] = [
            "etcd, kube-apiserver",
            "kube-controller-manager, kube-scheduler",
            "authentication, openshift-apiserver",
            "console, ingress, monitoring",
            "dns, network",
            "machine-config",
        ];
        let percent = done * 100 / MANIFESTS;
        let waiting = ORDER[usize::try_from(done * 6 / (MANIFESTS + 1))
            .unwrap_or(0)
            .min(5)];
        let version = self.version();
        let message = format!(
            "Working towards {version}: {done} of {MANIFESTS} done ({percent}% complete), waiting on {waiting}"
        );
        self.edit(|object, now| {
            conditions::set(
                object,
                now,
                None,
                json!({
                    "type": "Progressing", "status": "True", "reason": "ClusterOperatorsUpdating",
                    "message": message,
                }),
            );
        });
    }

    fn finish(&self) {
        let version = self.version();
        self.edit(|object, now| {
            object["status"]["history"][0]["state"] = json!("Completed");
            object["status"]["history"][0]["completionTime"] = json!(now);
            conditions::set(object, now, None, json!({
                "type": "Available", "status": "True", "message": format!("Done applying {version}"),
            }));
            conditions::set(object, now, None, json!({
                "type": "Progressing", "status": "False",
                "message": format!("Cluster version is {version}"),
            }));
        });
    }

    fn edit(&self, change: impl FnOnce(&mut Value, &str)) {
        let now = self.stage.now();
        let world = &self.stage.world;
        world.edit(
            &CLUSTER_VERSION,
            "",
            "version",
            "cluster-version-operator",
            |object| {
                change(object, &now);
            },
        );
    }
}

fn image(version: &str) -> String {
    format!("quay.io/openshift-release-dev/ocp-release:{version}-x86_64")
}
