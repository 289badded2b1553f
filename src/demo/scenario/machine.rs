//! One virtual machine and what virt-controller and virt-handler write while it is
//! created, started, stopped, restarted and deleted: which fields, in which order,
//! with the short stays in between that real ones show (a new machine is `Stopped`
//! first, a restart passes through `Stopped`, a status is absent for some
//! milliseconds).

use super::conditions;
use super::instance;
use super::stage::Stage;
use crate::demo::kinds::{DATA_VOLUME, VM, VMI, VMIM};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Finished migrations that KubeVirt keeps for each instance
/// (`defaultFinalizedMigrationGarbageCollectionBuffer`).
const KEPT_MIGRATIONS: usize = 5;

/// A virtual machine of the scenario; the only writer of its objects.
pub(super) struct Machine {
    pub stage: Stage,
    pub namespace: &'static str,
    pub name: String,
    /// Where it runs, or will run when it is started next.
    pub node: String,
    /// Guest memory that the template asks for.
    pub memory: String,
    /// Name of the running launcher pod.
    pub pod: String,
    migrations: VecDeque<String>,
}

/// What a machine is like when it enters the world.
pub(super) enum Entrance {
    /// It has been running for that many seconds.
    Running(i64),
    /// It exists, and is off.
    Halted,
}

impl Machine {
    /// A machine that is there when the demo starts.
    pub fn present(
        stage: Stage,
        namespace: &'static str,
        name: &str,
        node: &str,
        entrance: &Entrance,
    ) -> Self {
        let mut machine = Self::named(stage, namespace, name, node);
        let time = machine.stage.time();
        let (strategy, age) = match *entrance {
            Entrance::Running(seconds) => ("Always", seconds + 3_600),
            Entrance::Halted => ("Halted", 86_400),
        };
        machine.put(strategy, Some(time.ago(age)), None);
        if let Entrance::Running(seconds) = *entrance {
            let started = time.ago(seconds);
            machine.put_instance(&started);
            machine.edit_vmi("virt-controller", |vmi, now| {
                instance::phase(vmi, now, "Scheduling");
                instance::phase(vmi, now, "Scheduled");
            });
            machine.place();
            machine.edit_vmi("virt-handler", |vmi, now| {
                instance::phase(vmi, now, "Running");
                instance::running(vmi, now);
                instance::guest_agent(vmi, now);
                for step in vmi["status"]["phaseTransitionTimestamps"]
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                {
                    step["phaseTransitionTimestamp"] = json!(started);
                }
                for condition in vmi["status"]["conditions"]
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                {
                    if !condition["lastTransitionTime"].is_null() {
                        condition["lastTransitionTime"] = json!(started);
                    }
                }
            });
            machine.mirror("Running");
        } else {
            machine.mirror("Stopped");
        }
        machine
    }

    /// A machine that is not in the world yet.
    pub fn named(mut stage: Stage, namespace: &'static str, name: &str, node: &str) -> Self {
        let pod = format!("virt-launcher-{name}-{}", stage.dice.suffix(5));
        Self {
            stage,
            namespace,
            name: name.to_owned(),
            node: node.to_owned(),
            memory: "2Gi".to_owned(),
            pod,
            migrations: VecDeque::new(),
        }
    }

    /// Creates the machine and waits until virt-controller has first seen it:
    /// `Stopped`, whatever the run strategy. With `image` its root disk is a
    /// `DataVolume` of its own, named `<machine>-root`.
    pub async fn create(&mut self, strategy: &str, image: Option<&str>) {
        self.put(strategy, None, image);
        self.stage.wait(6, 69).await;
        self.mirror("Stopped");
        self.stage.wait(50, 400).await;
    }

    /// From the request, or from the run strategy, to `Running`.
    pub async fn start(&mut self) {
        self.schedule().await;
        self.stage.wait(3_000, 6_500).await;
        self.boot().await;
    }

    /// The first half of a start: until a pod exists and waits for a node.
    pub async fn schedule(&mut self) {
        if self.edit_spec("virt-api", |spec| spec["runStrategy"] = json!("Always")) {
            self.stage.wait(35, 57).await;
        }
        self.pod = format!("virt-launcher-{}-{}", self.name, self.stage.dice.suffix(5));
        let now = self.stage.now();
        self.put_instance(&now);
        self.stage.wait(20, 40).await;
        self.mirror("Starting");
        self.stage.wait(60, 140).await;
        self.edit_vmi("virt-controller", |vmi, now| {
            instance::phase(vmi, now, "Scheduling");
            instance::ready(
                vmi,
                now,
                false,
                "GuestNotRunning",
                "Guest VM is not reported as running",
            );
        });
        self.stage.wait(20, 40).await;
        self.mirror("Starting");
    }

    /// The second half of a start: from the moment that the pod runs.
    pub async fn boot(&mut self) {
        self.edit_vmi("virt-controller", |vmi, now| {
            conditions::remove(vmi, "PodScheduled");
            instance::phase(vmi, now, "Scheduled");
        });
        self.place();
        self.stage.wait(20, 40).await;
        self.mirror("Starting");
        self.stage.wait(1_500, 4_000).await;
        self.edit_vmi("virt-handler", |vmi, now| {
            instance::phase(vmi, now, "Running");
            instance::running(vmi, now);
        });
        self.stage.wait(20, 40).await;
        self.mirror("Running");
        self.stage.wait(4_000, 7_000).await;
        self.edit_vmi("virt-handler", instance::guest_agent);
        self.stage.wait(20, 40).await;
        self.mirror("Running");
    }

    /// A stop that a user asked for.
    pub async fn stop(&mut self) {
        self.edit_spec("virt-api", |spec| spec["runStrategy"] = json!("Halted"));
        self.stage.wait(30, 45).await;
        self.shut_down("Stopping").await;
        self.drop_instance();
        self.stage.wait(20, 40).await;
        self.mirror("Stopped");
    }

    /// A restart that a user asked for: the run strategy does not change, the
    /// requests in the status hold it together.
    pub async fn restart(&mut self) {
        let uid = self.uid_of_instance();
        self.edit_vm_status("virt-api", |status| {
            status["stateChangeRequests"] =
                json!([{"action": "Stop", "uid": uid}, {"action": "Start"}]);
        });
        self.stage.wait(30, 46).await;
        self.shut_down("Stopping").await;
        self.drop_instance();
        self.edit_vm_status("virt-controller", |status| {
            status["stateChangeRequests"] = json!([{"action": "Start"}]);
        });
        self.stage.wait(10, 35).await;
        self.edit_vm_status("virt-controller", |status| {
            remove(status, "stateChangeRequests");
        });
        self.start().await;
    }

    /// Deletes the machine with its instance, disks and migrations.
    pub async fn delete(&mut self) {
        let now = self.stage.now();
        self.stage
            .world
            .edit(&VM, self.namespace, &self.name, "kubectl", |vm| {
                vm["metadata"]["deletionTimestamp"] = json!(now);
                vm["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            });
        self.stage.wait(25, 270).await;
        self.shut_down("Terminating").await;
        self.drop_instance();
        self.stage.wait(60, 120).await;
        self.stage.world.delete(&VM, self.namespace, &self.name);
        self.stage.wait(20, 60).await;
        let disk = format!("{}-root", self.name);
        self.stage.world.delete(&DATA_VOLUME, self.namespace, &disk);
    }

    /// From the deletion of the instance until its guest is off.
    async fn shut_down(&mut self, shown: &str) {
        self.edit_vmi("virt-controller", |vmi, now| {
            vmi["metadata"]["deletionTimestamp"] = json!(now);
            vmi["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        });
        self.stage.wait(25, 40).await;
        self.mirror(shown);
        self.stage.wait(30, 80).await;
        self.edit_vmi("virt-controller", |vmi, now| {
            instance::ready(
                vmi,
                now,
                false,
                "PodTerminating",
                "virt-launcher pod is terminating",
            );
        });
        self.stage.wait(20, 40).await;
        self.mirror(shown);
        self.stage.wait(4_000, 9_000).await;
        self.edit_vmi("virt-handler", |vmi, now| {
            conditions::remove(vmi, "AgentConnected");
            instance::phase(vmi, now, "Succeeded");
        });
        self.stage.wait(15, 30).await;
        self.mirror(if shown == "Stopping" {
            "Stopped"
        } else {
            shown
        });
        self.stage.wait(600, 1_400).await;
    }

    /// The instance goes, and its migrations with it.
    fn drop_instance(&mut self) {
        for migration in self.migrations.drain(..) {
            self.stage.world.delete(&VMIM, self.namespace, &migration);
        }
        self.stage.world.delete(&VMI, self.namespace, &self.name);
    }

    /// Remembers a migration; the oldest beyond what KubeVirt keeps is removed.
    pub fn keep_migration(&mut self, name: String) {
        self.migrations.push_back(name);
        while self.migrations.len() > KEPT_MIGRATIONS {
            if let Some(oldest) = self.migrations.pop_front() {
                self.stage.world.delete(&VMIM, self.namespace, &oldest);
            }
        }
    }

    /// Writes on the `VirtualMachine` what it shows of its instance, and the printable
    /// status. The conditions of an instance that is gone stay, stale, but for Ready.
    pub fn mirror(&self, printable: &str) {
        let vmi = self.stage.world.get(&VMI, self.namespace, &self.name);
        self.edit_vm("virt-controller", |vm, now| {
            if let Some(vmi) = vmi {
                let own = vm["status"]["conditions"]
                    .as_array()
                    .and_then(|own| own.iter().find(|c| c["type"] == "RestartRequired"))
                    .cloned();
                let mut copied = vmi["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                copied.extend(own);
                vm["status"]["conditions"] = Value::Array(copied);
                let ready = instance::is_ready(&vmi);
                let has_ready = vm["status"]["conditions"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready"));
                if !has_ready {
                    conditions::set(
                        vm,
                        now,
                        Some("lastProbeTime"),
                        json!({
                            "type": "Ready", "status": "False", "reason": "VMIConditionMissing",
                            "message": "VMI is missing the Ready condition",
                        }),
                    );
                }
                let started_with = vmi["metadata"]["annotations"]["kubevirt.io/vm-generation"]
                    .as_str()
                    .and_then(|generation| generation.parse::<u64>().ok());
                let status = &mut vm["status"];
                status["created"] = json!(true);
                status["observedGeneration"] = json!(started_with);
                // Absent, never false.
                if ready {
                    status["ready"] = json!(true);
                } else {
                    remove(status, "ready");
                }
            } else {
                conditions::set(
                    vm,
                    now,
                    Some("lastProbeTime"),
                    json!({
                        "type": "Ready", "status": "False", "reason": "VMINotExists",
                        "message": "VMI does not exist",
                    }),
                );
                for field in ["created", "ready"] {
                    remove(&mut vm["status"], field);
                }
            }
            vm["status"]["desiredGeneration"] = vm["metadata"]["generation"].clone();
            vm["status"]["runStrategy"] = vm["spec"]["runStrategy"].clone();
            vm["status"]["printableStatus"] = json!(printable);
        });
    }

    /// Changes the `VirtualMachine`'s spec; false if that changed nothing.
    pub fn edit_spec(&self, manager: &str, change: impl FnOnce(&mut Value)) -> bool {
        let before = self.stage.world.get(&VM, self.namespace, &self.name);
        self.edit_vm(manager, |vm, _| change(&mut vm["spec"]));
        let after = self.stage.world.get(&VM, self.namespace, &self.name);
        before.map(|vm| vm["spec"].clone()) != after.map(|vm| vm["spec"].clone())
    }

    /// Changes the `VirtualMachine`'s status.
    pub fn edit_vm_status(&self, manager: &str, change: impl FnOnce(&mut Value)) {
        self.edit_vm(manager, |vm, _| change(&mut vm["status"]));
    }

    /// Changes the `VirtualMachine`; the closure also gets the time.
    pub fn edit_vm(&self, manager: &str, change: impl FnOnce(&mut Value, &str)) {
        let now = self.stage.now();
        self.stage
            .world
            .edit(&VM, self.namespace, &self.name, manager, |vm| {
                change(vm, &now);
            });
    }

    /// Changes the `VirtualMachineInstance`; the closure also gets the time.
    pub fn edit_vmi(&self, manager: &str, change: impl FnOnce(&mut Value, &str)) {
        let now = self.stage.now();
        self.stage
            .world
            .edit(&VMI, self.namespace, &self.name, manager, |vmi| {
                change(vmi, &now);
            });
    }

    fn uid_of_instance(&self) -> Value {
        self.stage
            .world
            .get(&VMI, self.namespace, &self.name)
            .map_or(Value::Null, |vmi| vmi["metadata"]["uid"].clone())
    }

    fn put(&mut self, strategy: &str, created: Option<String>, image: Option<&str>) {
        let mut vm = instance::virtual_machine(self, strategy, image);
        if let Some(created) = created {
            vm["metadata"]["creationTimestamp"] = json!(created);
        }
        self.stage.world.put(&VM, "kubectl-client-side-apply", vm);
    }

    fn put_instance(&mut self, created: &str) {
        let Some(vm) = self.stage.world.get(&VM, self.namespace, &self.name) else {
            return;
        };
        let mut vmi = instance::instance(&vm, &self.memory, created);
        vmi["metadata"]["creationTimestamp"] = json!(created);
        self.stage.world.put(&VMI, "virt-controller", vmi);
    }

    /// The instance's pod has a node.
    fn place(&mut self) {
        let (pod, node) = (self.stage.dice.uuid(), self.node.clone());
        self.edit_vmi("virt-controller", |vmi, _| {
            vmi["metadata"]["labels"]["kubevirt.io/nodeName"] = json!(node);
            vmi["status"]["nodeName"] = json!(node);
            vmi["status"]["activePods"][pod] = json!(node);
        });
    }
}

/// Removes a field, as an omitted one is in JSON.
pub(super) fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}
