//! `DataVolumes`: images that are imported, with the phases, the progress and the
//! restarts that CDI shows.

use super::Actor;
use super::conditions;
use super::machine::Machine;
use super::stage::Stage;
use crate::demo::kinds::{DATA_VOLUME, VM};
use futures::FutureExt;
use serde_json::{Value, json};

const IMAGES: &str = "openshift-virtualization-os-images";
/// What the boot sources' import crons fetch, one after the other.
const SOURCES: [(&str, &str); 3] = [
    ("fedora", "docker://quay.io/containerdisks/fedora:latest"),
    (
        "centos-stream10",
        "docker://quay.io/containerdisks/centos-stream:10",
    ),
    (
        "rhel10",
        "docker://registry.redhat.io/rhel10/rhel-guest-image:latest",
    ),
];
/// Termination message of an importer whose source breaks off.
const BROKEN: &str =
    "Unable to process data: unable to transfer source data to target file: unexpected EOF";

/// The actors of this file.
pub(super) fn actors(stage: &mut Stage) -> Vec<Actor> {
    let mut failing = Import {
        stage: stage.fork(),
        namespace: "team-b",
        name: "legacy-import".to_owned(),
    };
    // It has been failing for a while when the demo starts.
    let created = failing.stage.time().ago(1_500);
    failing.create(
        &json!({"http": {"url": "http://archive.example.com/images/legacy.qcow2"}}),
        Some(created),
        None,
    );
    failing.accepted();
    failing.bound("ImportScheduled");
    failing.transfers(1_019, 3);
    vec![images(stage.fork()).boxed(), retries(failing).boxed()]
}

/// A fresh image every now and then; the one before the last is removed.
async fn images(stage: Stage) {
    let mut import = Import {
        stage,
        namespace: IMAGES,
        name: String::new(),
    };
    let mut previous: Option<String> = None;
    import.stage.wait(100, 200).await;
    for (source, url) in SOURCES.into_iter().cycle() {
        let turn = import.stage.turn(1).await;
        import.name = format!("{source}-{}", import.stage.dice.suffix(12));
        import.create(
            &json!({"registry": {"url": url, "pullMethod": "node"}}),
            None,
            None,
        );
        import.complete((34, 40)).await;
        drop(turn);
        if let Some(old) = previous.replace(import.name.clone()) {
            import.stage.world.delete(&DATA_VOLUME, IMAGES, &old);
        }
        import.stage.wait_seconds(45, 55).await;
    }
}

/// An import whose source breaks off each time: it stays `ImportInProgress`, with a
/// rising restartCount, until its user deletes it and tries once more.
async fn retries(mut import: Import) {
    let mut restarts = 3;
    loop {
        let mut progress = 1_019;
        let breaks_at = import.stage.dice.between(3_000, 6_000);
        while progress < breaks_at {
            import.stage.wait(1_950, 2_050).await;
            progress += import.stage.dice.between(300, 700);
            import.transfers(progress, restarts);
        }
        import.stage.wait(200, 900).await;
        import.crashed();
        // Back-off of the importer's container.
        import.stage.wait_seconds(6, 10).await;
        restarts += 1;
        if restarts > 12 {
            import
                .stage
                .world
                .delete(&DATA_VOLUME, import.namespace, &import.name);
            import.stage.wait_seconds(2, 3).await;
            import.create(
                &json!({"http": {"url": "http://archive.example.com/images/legacy.qcow2"}}),
                None,
                None,
            );
            import.schedule().await;
            restarts = 0;
        }
        let first = import.stage.dice.between(100, 400);
        import.transfers(first, restarts);
    }
}

/// Imports the root disk of a machine that has been created with an image; returns
/// when it is there.
pub(super) async fn root_disk(machine: &mut Machine) {
    let vm = machine
        .stage
        .world
        .get(&VM, machine.namespace, &machine.name);
    let Some(vm) = vm else { return };
    let mut import = Import {
        stage: machine.stage.fork(),
        namespace: machine.namespace,
        name: format!("{}-root", machine.name),
    };
    let source = vm["spec"]["dataVolumeTemplates"][0]["spec"]["source"].clone();
    let owner = json!([{
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "name": machine.name,
        "uid": vm["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    import.create(&source, None, Some(owner));
    import.complete((10, 14)).await;
}

/// One DataVolume that is imported.
struct Import {
    stage: Stage,
    namespace: &'static str,
    name: String,
}

impl Import {
    fn create(&mut self, source: &Value, created: Option<String>, owner: Option<Value>) {
        let manager = if owner.is_some() {
            "virt-controller"
        } else {
            "cdi-controller"
        };
        let mut object = json!({
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "annotations": {"cdi.kubevirt.io/storage.usePopulator": "true"},
            },
            "spec": {
                "source": source,
                "storage": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "30Gi"}},
                },
            },
        });
        if let Some(created) = created {
            object["metadata"]["creationTimestamp"] = json!(created);
        }
        if let Some(owner) = owner {
            object["metadata"]["ownerReferences"] = owner;
        }
        self.stage.world.put(&DATA_VOLUME, manager, object);
    }

    /// From creation to Succeeded; the transfer takes `seconds`.
    async fn complete(&mut self, seconds: (u64, u64)) {
        self.schedule().await;
        let steps = self.stage.dice.between(seconds.0, seconds.1) / 2;
        for step in 1..=steps {
            let jitter = self.stage.dice.between(0, 6_000 / steps.max(1));
            self.transfers((step * 10_000 / (steps + 1) + jitter).min(9_990), 0);
            // CDI reads the importer's progress every 2 s.
            self.stage.wait(1_950, 2_050).await;
        }
        self.edit(|object, now| {
            phase(object, "Succeeded");
            object["status"]["progress"] = json!("100.0%");
            condition(
                object,
                now,
                "Running",
                "False",
                "Completed",
                "Import Complete",
            );
            condition(object, now, "Ready", "True", "", "");
        });
    }

    /// From creation to the first bytes.
    async fn schedule(&mut self) {
        self.stage.wait(40, 90).await;
        self.accepted();
        self.stage.wait(400, 900).await;
        self.bound("PVCBound");
        self.stage.wait(23, 150).await;
        self.bound("ImportScheduled");
        self.stage.wait(30, 60).await;
        let name = self.name.clone();
        self.edit(|object, now| {
            let message = format!("Waiting for pod importer-{name} to start");
            condition(
                object,
                now,
                "Running",
                "False",
                "ContainerCreating",
                &message,
            );
        });
        self.stage.wait(1_500, 3_000).await;
    }

    fn accepted(&self) {
        self.edit(|object, now| {
            phase(object, "Pending");
            object["status"]["progress"] = json!("N/A");
            object["status"]["claimName"] = object["metadata"]["name"].clone();
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            condition(
                object,
                now,
                "Bound",
                "False",
                "Pending",
                &format!("PVC {name} Pending"),
            );
            condition(object, now, "Ready", "False", "", "");
            condition(object, now, "Running", "False", "", "");
        });
    }

    fn bound(&self, next: &str) {
        self.edit(|object, now| {
            phase(object, next);
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            condition(
                object,
                now,
                "Bound",
                "True",
                "Bound",
                &format!("PVC {name} Bound"),
            );
        });
    }

    /// `progress` is in hundredths of a percent.
    fn transfers(&self, progress: u64, restarts: u64) {
        self.edit(|object, now| {
            phase(object, "ImportInProgress");
            object["status"]["progress"] =
                json!(format!("{}.{:02}%", progress / 100, progress % 100));
            // Absent when 0.
            if restarts > 0 {
                object["status"]["restartCount"] = json!(restarts);
            }
            condition(object, now, "Ready", "False", "TransferRunning", "");
            condition(object, now, "Running", "True", "Pod is running", "");
        });
    }

    fn crashed(&self) {
        self.edit(|object, now| {
            condition(object, now, "Ready", "False", "", "");
            condition(object, now, "Running", "False", "Error", BROKEN);
        });
    }

    fn edit(&self, change: impl FnOnce(&mut Value, &str)) {
        let now = self.stage.now();
        let world = &self.stage.world;
        world.edit(
            &DATA_VOLUME,
            self.namespace,
            &self.name,
            "cdi-controller",
            |object| {
                change(object, &now);
            },
        );
    }
}

fn phase(object: &mut Value, phase: &str) {
    object["status"]["phase"] = json!(phase);
}

/// CDI leaves out an empty reason and message.
fn condition(object: &mut Value, now: &str, kind: &str, status: &str, reason: &str, message: &str) {
    let mut condition = json!({"type": kind, "status": status});
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
    }
    if !message.is_empty() {
        condition["message"] = json!(message);
    }
    conditions::set(object, now, Some("lastHeartbeatTime"), condition);
}
