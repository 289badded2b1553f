//! The fields of `VirtualMachines` and `VirtualMachineInstances`, as KubeVirt 1.9 writes
//! them.

use super::conditions;
use super::machine::Machine;
use serde_json::{Value, json};

/// A VirtualMachine without status. With `image` its root disk is imported into a
/// DataVolume of its own, else it is a container disk.
pub(super) fn virtual_machine(machine: &mut Machine, strategy: &str, image: Option<&str>) -> Value {
    let (name, namespace) = (machine.name.clone(), machine.namespace);
    let disk = format!("{name}-root");
    let root = if image.is_some() {
        json!({"name": "rootdisk", "dataVolume": {"name": disk}})
    } else {
        json!({"name": "rootdisk", "containerDisk": {"image": "quay.io/containerdisks/fedora:43"}})
    };
    let mut vm = json!({
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": name},
            "annotations": {
                "kubevirt.io/latest-observed-api-version": "v1",
                "kubevirt.io/storage-observed-api-version": "v1",
            },
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"],
        },
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"kubevirt.io/domain": name, "vm.kubevirt.io/name": name}},
                "spec": {
                    "architecture": "amd64",
                    "domain": {
                        "cpu": {"cores": 1, "sockets": 2, "threads": 1},
                        "devices": {
                            "disks": [
                                {"disk": {"bus": "virtio"}, "name": "rootdisk"},
                                {"disk": {"bus": "virtio"}, "name": "cloudinitdisk"},
                            ],
                            "interfaces": [{"masquerade": {}, "name": "default"}],
                            "rng": {},
                        },
                        "firmware": {
                            "serial": machine.stage.dice.uuid(),
                            "uuid": machine.stage.dice.uuid(),
                        },
                        "machine": {"type": "q35"},
                        "memory": {"guest": machine.memory},
                        "resources": {},
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "terminationGracePeriodSeconds": 180,
                    "volumes": [root, {
                        "name": "cloudinitdisk",
                        "cloudInitNoCloud": {"userData": "#cloud-config\nchpasswd: { expire: False }\n"},
                    }],
                },
            },
        },
    });
    if let Some(image) = image {
        vm["spec"]["dataVolumeTemplates"] = json!([{
            "metadata": {"name": disk},
            "spec": {
                "source": {"registry": {"url": image}},
                "storage": {"resources": {"requests": {"storage": "30Gi"}}},
            },
        }]);
    }
    vm
}

/// A VirtualMachineInstance of `vm`, as it is created: the webhook has already given
/// it the phase Pending.
pub(super) fn instance(vm: &Value, memory: &str, now: &str) -> Value {
    let meta = &vm["metadata"];
    let name = &meta["name"];
    let generation = meta["generation"].as_u64().unwrap_or(1);
    let mut spec = vm["spec"]["template"]["spec"].clone();
    spec["evictionStrategy"] = json!("LiveMigrate");
    spec["domain"]["cpu"]["maxSockets"] = json!(8);
    spec["domain"]["cpu"]["model"] = json!("host-model");
    spec["domain"]["memory"]["maxGuest"] = json!("8Gi");
    let uid = meta["uid"].as_str().unwrap_or_default();
    json!({
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {"kubevirt.io/domain": name, "vm.kubevirt.io/name": name},
            "annotations": {
                "kubevirt.io/latest-observed-api-version": "v1",
                "kubevirt.io/storage-observed-api-version": "v1",
                "kubevirt.io/vm-generation": generation.to_string(),
            },
            "finalizers": [
                "kubevirt.io/virtualMachineControllerFinalize",
                "kubevirt.io/foregroundDeleteVirtualMachine",
            ],
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "name": name,
                "uid": meta["uid"],
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
        "status": {
            "currentCPUTopology": {"cores": 1, "sockets": 2, "threads": 1},
            "guestOSInfo": {},
            "memory": {"guestAtBoot": memory, "guestCurrent": memory, "guestRequested": memory},
            "phase": "Pending",
            "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": now}],
            "runtimeUser": 107,
            "virtualMachineRevisionName": format!("revision-start-vm-{uid}-{generation}"),
        },
    })
}

/// Moves an object to a phase and notes when: instances and migrations alike.
pub(super) fn phase(object: &mut Value, now: &str, phase: &str) {
    object["status"]["phase"] = json!(phase);
    let steps = &mut object["status"]["phaseTransitionTimestamps"];
    if !steps.is_array() {
        *steps = json!([]);
    }
    steps
        .as_array_mut()
        .expect("made an array just above")
        .push(json!({"phase": phase, "phaseTransitionTimestamp": now}));
}

/// Sets an instance's Ready condition.
pub(super) fn ready(vmi: &mut Value, now: &str, ready: bool, reason: &str, message: &str) {
    if ready {
        let condition = json!({"type": "Ready", "status": "True", "lastProbeTime": null});
        conditions::set(vmi, now, None, condition);
    } else {
        let condition =
            json!({"type": "Ready", "status": "False", "reason": reason, "message": message});
        conditions::set(vmi, now, Some("lastProbeTime"), condition);
    }
}

/// Whether an instance's Ready condition is True.
pub(super) fn is_ready(vmi: &Value) -> bool {
    let items = vmi["status"]["conditions"].as_array();
    items.is_some_and(|items| {
        items
            .iter()
            .any(|item| item["type"] == "Ready" && item["status"] == "True")
    })
}

/// What virt-handler writes when the guest is up. KubeVirt gives these conditions no
/// transition time.
pub(super) fn running(vmi: &mut Value, now: &str) {
    ready(vmi, now, true, "", "");
    for kind in ["LiveMigratable", "StorageLiveMigratable"] {
        timeless(vmi, kind);
    }
    let status = &mut vmi["status"];
    status["launcherContainerImageVersion"] = json!("quay.io/kubevirt/virt-launcher:v1.9.0");
    status["machine"] = json!({"type": "pc-q35-rhel9.6.0"});
    status["memory"]["memoryOverhead"] = json!("288Mi");
    status["migrationMethod"] = json!("LiveMigration");
    status["migrationTransport"] = json!("Unix");
    status["qosClass"] = json!("Burstable");
    status["interfaces"] = json!([{
        "name": "default", "infoSource": "domain", "linkState": "up",
        "podInterfaceName": "eth0", "queueCount": 1,
    }]);
    status["volumeStatus"] = json!([
        {"name": "cloudinitdisk", "target": "vdb"},
        {"name": "rootdisk", "target": "vda"},
    ]);
}

/// What virt-handler adds once the guest agent answers.
pub(super) fn guest_agent(vmi: &mut Value, now: &str) {
    conditions::set(
        vmi,
        now,
        Some("lastProbeTime"),
        json!({
            "type": "AgentConnected", "status": "True", "lastTransitionTime": null,
        }),
    );
    vmi["status"]["guestOSInfo"] = json!({
        "id": "fedora", "name": "Fedora Linux", "versionId": "43",
        "prettyName": "Fedora Linux 43 (Cloud Edition)", "machine": "x86_64",
    });
}

/// A condition that is True from no known time, as KubeVirt writes several.
pub(super) fn timeless(object: &mut Value, kind: &str) {
    conditions::set(
        object,
        "",
        None,
        json!({
            "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": null,
        }),
    );
}
