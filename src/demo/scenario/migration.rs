//! Live migrations: the VirtualMachineInstanceMigration's phases, and what happens
//! to the instance and the machine meanwhile.
//!
//! `Migrating` shows on the machine only between `startTimestamp` and `endTimestamp`;
//! before it, while the target pod is made, only the migration object tells. The
//! last `migrationState` stays on the instance.

use super::conditions;
use super::instance;
use super::machine::{Machine, remove};
use crate::demo::kinds::VMIM;
use serde_json::{Value, json};

/// Launcher pods of one instance, finished ones included, that are listed at most.
const LISTED_PODS: usize = 5;

/// Who asked for a migration.
pub(super) enum Cause {
    /// A user, through the `migrate` subresource.
    User,
    /// The eviction of its pod from a node.
    Eviction,
    /// A change that takes a migration to be applied.
    WorkloadUpdate,
}

/// A migration whose object exists.
pub(super) struct Migration {
    pub name: String,
    uid: Value,
    target: String,
    source: String,
    target_pod: String,
}

impl Machine {
    /// A migration from beginning to end; `seconds` is how long memory is copied.
    pub async fn migrate(&mut self, cause: &Cause, target: &str, seconds: (u64, u64)) {
        let migration = self.request_migration(cause, target).await;
        self.stage.wait(2_500, 6_000).await;
        self.begin_migration(&migration).await;
        self.stage.wait_seconds(seconds.0, seconds.1).await;
        self.finish_migration(migration).await;
    }

    /// Creates the migration and goes on until its target pod waits for a node:
    /// phases absent, Pending, Scheduling.
    pub async fn request_migration(&mut self, cause: &Cause, target: &str) -> Migration {
        let (prefix, annotation) = match cause {
            Cause::User => ("kubevirt-migrate-vm-", None),
            Cause::Eviction => (
                "kubevirt-evacuation-",
                Some(("kubevirt.io/evacuationMigration", self.node.clone())),
            ),
            Cause::WorkloadUpdate => (
                "kubevirt-workload-update-",
                Some(("kubevirt.io/workloadUpdateMigration", String::new())),
            ),
        };
        let name = format!("{prefix}{}", self.stage.dice.suffix(5));
        let mut object = json!({
            "metadata": {
                "name": name,
                "generateName": prefix,
                "namespace": self.namespace,
                "labels": {"kubevirt.io/vmi-name": self.name},
                "annotations": {
                    "kubevirt.io/latest-observed-api-version": "v1",
                    "kubevirt.io/storage-observed-api-version": "v1",
                },
                "finalizers": ["kubevirt.io/migrationJobFinalize"],
            },
            "spec": {"vmiName": self.name},
        });
        if let Some((key, value)) = annotation {
            object["metadata"]["annotations"][key] = json!(value);
        }
        let manager = match cause {
            Cause::User => "virt-api",
            Cause::Eviction | Cause::WorkloadUpdate => "virt-controller",
        };
        self.stage.world.put(&VMIM, manager, object);
        self.keep_migration(name.clone());
        let created = self.stage.world.get(&VMIM, self.namespace, &name);
        let migration = Migration {
            name,
            uid: created.map_or(Value::Null, |object| object["metadata"]["uid"].clone()),
            target: target.to_owned(),
            source: self.node.clone(),
            target_pod: format!("virt-launcher-{}-{}", self.name, self.stage.dice.suffix(5)),
        };
        self.stage.wait(10, 80).await;
        self.migration_phase(&migration, "Pending");
        self.stage.wait(20, 70).await;
        self.migration_phase(&migration, "Scheduling");
        let (pod, node) = (self.stage.dice.uuid(), self.node.clone());
        self.edit_vmi("virt-controller", |vmi, _| {
            let pods = &mut vmi["status"]["activePods"];
            // Pods of earlier migrations stay listed until the garbage collector takes
            // them.
            if let Some(pods) = pods.as_object_mut()
                && pods.len() >= LISTED_PODS
            {
                let mut running = false;
                pods.retain(|_, on| *on == node && !std::mem::replace(&mut running, true));
            }
            // An unscheduled pod is listed without a node.
            pods[pod] = json!("");
        });
        migration
    }

    /// The target pod runs: phases Scheduled, `PreparingTarget`, `TargetReady`, Running.
    /// When it returns, memory is being copied and the machine shows Migrating.
    pub async fn begin_migration(&mut self, migration: &Migration) {
        self.edit_vmi("virt-controller", |vmi, _| {
            for node in vmi["status"]["activePods"]
                .as_object_mut()
                .into_iter()
                .flatten()
            {
                if node.1 == "" {
                    *node.1 = json!(migration.target);
                }
            }
        });
        self.migration_phase(migration, "Scheduled");
        self.stage.wait(25, 60).await;
        let source_pod = self.pod.clone();
        self.edit_vmi("virt-controller", |vmi, _| {
            vmi["metadata"]["labels"]["kubevirt.io/migrationTargetNodeName"] =
                json!(migration.target);
            vmi["status"]["migrationState"] = json!({
                "migrationUid": migration.uid,
                "sourceNode": migration.source,
                "sourcePod": source_pod,
                "targetNode": migration.target,
                "targetPod": migration.target_pod,
                "migrationConfiguration": configuration(),
            });
        });
        self.stage.wait(5, 15).await;
        self.migration_phase(migration, "PreparingTarget");
        self.edit_migration(migration, |object, _| {
            object["status"]["migrationState"] = json!({"sourcePod": source_pod});
        });
        self.stage.wait(550, 1_100).await;
        self.edit_vmi("virt-handler", |vmi, _| {
            let state = &mut vmi["status"]["migrationState"];
            state["targetNodeAddress"] = json!("192.168.10.13");
            state["targetNodeDomainDetected"] = json!(true);
        });
        self.stage.wait(15, 30).await;
        self.migration_phase(migration, "TargetReady");
        self.stage.wait(300, 700).await;
        self.edit_vmi("virt-handler", |vmi, now| {
            let state = &mut vmi["status"]["migrationState"];
            state["mode"] = json!("PreCopy");
            state["startTimestamp"] = json!(now);
        });
        self.stage.wait(8, 15).await;
        self.migration_phase(migration, "Running");
        self.stage.wait(5, 20).await;
        self.mirror("Migrating");
    }

    /// The guest runs on the target. What waited for the migration (hot-plugged
    /// memory, an eviction) is done with it.
    pub async fn finish_migration(&mut self, migration: Migration) {
        self.edit_vmi("virt-handler", |vmi, now| {
            vmi["metadata"]["labels"]["kubevirt.io/nodeName"] = json!(migration.target);
            vmi["status"]["nodeName"] = json!(migration.target);
            remove(&mut vmi["status"], "evacuationNodeName");
            let state = &mut vmi["status"]["migrationState"];
            state["endTimestamp"] = json!(now);
            state["targetNodeDomainReadyTimestamp"] = json!(now);
        });
        self.node.clone_from(&migration.target);
        self.pod.clone_from(&migration.target_pod);
        self.stage.wait(10, 60).await;
        self.mirror("Running");
        // The target pod's readiness gate is set only after the hand-over.
        self.edit_vmi("virt-controller", |vmi, now| {
            let message = "virt-launcher pod's readiness gates are not ready";
            instance::ready(vmi, now, false, "ReadinessGatesNotReady", message);
        });
        self.stage.wait(15, 30).await;
        self.mirror("Running");
        self.stage.wait(80, 300).await;
        self.edit_vmi("virt-controller", |vmi, now| {
            instance::ready(vmi, now, true, "", "");
            conditions::remove(vmi, "EvictionRequested");
        });
        self.stage.wait(15, 30).await;
        self.mirror("Running");
        self.stage.wait(200, 450).await;
        self.edit_vmi("virt-handler", |vmi, _| {
            vmi["status"]["migrationState"]["completed"] = json!(true);
            conditions::remove(vmi, "HotMemoryChange");
        });
        self.stage.wait(5, 20).await;
        self.mirror("Running");
        self.end_migration(&migration, "Succeeded").await;
    }

    /// Memory changed faster than it could be copied: the guest stays where it is.
    pub async fn fail_migration(&mut self, migration: Migration) {
        self.edit_vmi("virt-handler", |vmi, now| {
            let state = &mut vmi["status"]["migrationState"];
            state["endTimestamp"] = json!(now);
            state["completed"] = json!(true);
            state["failed"] = json!(true);
            state["failureReason"] = json!("Live migration stuck for 150s without any progress");
        });
        self.stage.wait(10, 40).await;
        self.mirror("Running");
        self.end_migration(&migration, "Failed").await;
    }

    /// A migration whose target pod never got a node is given up.
    pub async fn give_up_migration(&mut self, migration: Migration) {
        // The instance's migrationState was never touched.
        self.migration_phase(&migration, "Failed");
        self.stage.wait(30, 100).await;
        self.edit_migration(&migration, |object, _| {
            object["metadata"]["finalizers"] = json!([]);
        });
    }

    async fn end_migration(&mut self, migration: &Migration, phase: &str) {
        self.migration_phase(migration, phase);
        self.stage.wait(7, 25).await;
        let state = self
            .stage
            .world
            .get(&crate::demo::kinds::VMI, self.namespace, &self.name)
            .map(|vmi| vmi["status"]["migrationState"].clone());
        self.edit_migration(migration, |object, _| {
            object["status"]["migrationState"] = state.unwrap_or_default();
        });
        self.stage.wait(30, 60).await;
        self.edit_vmi("virt-controller", |vmi, _| {
            remove(
                &mut vmi["metadata"]["labels"],
                "kubevirt.io/migrationTargetNodeName",
            );
        });
        self.edit_migration(migration, |object, _| {
            object["metadata"]["finalizers"] = json!([]);
        });
    }

    fn migration_phase(&self, migration: &Migration, phase: &str) {
        self.edit_migration(migration, |object, now| instance::phase(object, now, phase));
    }

    /// Changes the migration object; the closure also gets the time.
    pub fn edit_migration(&self, migration: &Migration, change: impl FnOnce(&mut Value, &str)) {
        let now = self.stage.now();
        let (world, namespace) = (&self.stage.world, self.namespace);
        world.edit(
            &VMIM,
            namespace,
            &migration.name,
            "virt-controller",
            |object| {
                change(object, &now);
            },
        );
    }
}

/// KubeVirt's defaults, which it copies into each migration's state.
fn configuration() -> Value {
    json!({
        "allowAutoConverge": false,
        "allowPostCopy": false,
        "bandwidthPerMigration": "0",
        "completionTimeoutPerGiB": 150,
        "nodeDrainTaintKey": "kubevirt.io/drain",
        "parallelMigrationsPerCluster": 5,
        "parallelOutboundMigrationsPerNode": 2,
        "progressTimeout": 150,
        "unsafeMigrationOverride": false,
    })
}
