//! Stories of single virtual machines.

use super::conditions;
use super::instance;
use super::machine::{Entrance, Machine, remove};
use super::migration::Cause;
use super::stage::Stage;
use super::{Actor, imports};
use crate::demo::kinds::VM_SNAPSHOT;
use futures::FutureExt;
use serde_json::json;

/// Nodes of these machines; `platform` drains the others.
const NODES: [&str; 3] = ["worker-1", "worker-4", "worker-5"];

/// The actors of this file.
pub(super) fn actors(stage: &mut Stage) -> Vec<Actor> {
    let mut machine = |namespace, name, node, entrance| {
        Machine::present(stage.fork(), namespace, name, node, &entrance)
    };
    let frontend = machine("team-a", "shop-frontend", NODES[0], Entrance::Halted);
    let backend = machine(
        "team-a",
        "shop-backend",
        NODES[1],
        Entrance::Running(40_000),
    );
    let batch = machine("team-a", "batch-7", NODES[2], Entrance::Running(9_000));
    let ledger = machine("team-b", "ledger", NODES[0], Entrance::Running(200_000));
    let reports = machine("team-b", "reports", NODES[1], Entrance::Running(70_000));
    let cache = machine("team-b", "cache", NODES[2], Entrance::Running(50_000));
    let training = Machine::named(stage.fork(), "team-b", "gpu-training", NODES[1]);
    vec![
        on_and_off(frontend).boxed(),
        migrates(backend).boxed(),
        stuck(batch).boxed(),
        two_at_once(ledger).boxed(),
        more_memory(reports).boxed(),
        migration_fails(cache).boxed(),
        no_room(training).boxed(),
        from_image(stage.fork()).boxed(),
    ]
}

/// Another node than the one that a machine is on.
fn elsewhere(machine: &mut Machine) -> &'static str {
    let here = NODES
        .iter()
        .position(|node| *node == machine.node)
        .unwrap_or(0);
    let step = usize::try_from(machine.stage.dice.between(1, 2)).unwrap_or(1);
    NODES[(here + step) % NODES.len()]
}

/// Started, restarted and stopped by its users.
async fn on_and_off(mut machine: Machine) {
    machine.stage.wait(400, 500).await;
    loop {
        let turn = machine.stage.turn(2).await;
        machine.start().await;
        drop(turn);
        machine.stage.wait_seconds(45, 50).await;
        let turn = machine.stage.turn(3).await;
        machine.restart().await;
        drop(turn);
        machine.stage.wait_seconds(30, 35).await;
        let turn = machine.stage.turn(2).await;
        machine.stop().await;
        drop(turn);
        machine.stage.wait_seconds(25, 35).await;
    }
}

/// Moved from node to node without harm.
async fn migrates(mut machine: Machine) {
    machine.stage.wait_seconds(12, 14).await;
    loop {
        let target = elsewhere(&mut machine);
        let turn = machine.stage.turn(3).await;
        machine.migrate(&Cause::User, target, (10, 18)).await;
        drop(turn);
        machine.stage.wait_seconds(95, 110).await;
    }
}

/// Migrates for as long as memory changes faster than it can be copied, and then
/// once more with success.
async fn migration_fails(mut machine: Machine) {
    machine.stage.wait_seconds(50, 52).await;
    loop {
        let target = elsewhere(&mut machine);
        let turn = machine.stage.turn(3).await;
        let migration = machine.request_migration(&Cause::User, target).await;
        machine.stage.wait(2_500, 6_000).await;
        machine.begin_migration(&migration).await;
        machine.stage.wait_seconds(12, 16).await;
        machine.fail_migration(migration).await;
        drop(turn);
        machine.stage.wait_seconds(50, 55).await;
        let turn = machine.stage.turn(3).await;
        machine.migrate(&Cause::User, target, (8, 12)).await;
        drop(turn);
        machine.stage.wait_seconds(50, 60).await;
    }
}

/// A migration whose target pod finds no node. KubeVirt gives up after 5 minutes
/// (its default for unschedulable target pods); its user asks again at once.
async fn stuck(mut machine: Machine) {
    loop {
        let target = elsewhere(&mut machine);
        let migration = machine.request_migration(&Cause::User, target).await;
        machine.stage.wait_seconds(300, 300).await;
        machine.give_up_migration(migration).await;
        machine.stage.wait_seconds(4, 6).await;
    }
}

/// Gets more memory while it runs, and later less again: a condition at once, then
/// a migration that applies it.
async fn more_memory(mut machine: Machine) {
    machine.stage.wait_seconds(30, 32).await;
    for wanted in ["4Gi", "2Gi"].into_iter().cycle() {
        let turn = machine.stage.turn(4).await;
        machine.memory = wanted.to_owned();
        machine.edit_spec("kubectl-edit", |spec| {
            spec["template"]["spec"]["domain"]["memory"]["guest"] = json!(wanted);
        });
        machine.stage.wait(70, 120).await;
        machine.edit_vmi("virt-controller", |vmi, _| {
            vmi["spec"]["domain"]["memory"]["guest"] = json!(wanted);
            vmi["status"]["memory"]["guestRequested"] = json!(wanted);
            instance::timeless(vmi, "HotMemoryChange");
        });
        machine.stage.wait(20, 40).await;
        machine.mirror("Running");
        // The workload updater looks every 5 s.
        machine.stage.wait(800, 5_200).await;
        let target = elsewhere(&mut machine);
        machine
            .migrate(&Cause::WorkloadUpdate, target, (9, 14))
            .await;
        machine.edit_vmi("virt-handler", |vmi, _| {
            vmi["status"]["memory"]["guestCurrent"] = json!(wanted);
        });
        drop(turn);
        machine.stage.wait_seconds(95, 105).await;
    }
}

/// Migrates while a snapshot of it is taken.
async fn two_at_once(mut machine: Machine) {
    machine.stage.wait_seconds(85, 90).await;
    loop {
        let target = elsewhere(&mut machine);
        let turn = machine.stage.turn(5).await;
        let migration = machine.request_migration(&Cause::User, target).await;
        machine.stage.wait(2_500, 6_000).await;
        machine.begin_migration(&migration).await;
        machine.stage.wait_seconds(2, 3).await;
        let name = take_snapshot(&mut machine).await;
        machine.stage.wait_seconds(2, 3).await;
        machine.finish_migration(migration).await;
        drop(turn);
        machine.stage.wait_seconds(110, 120).await;
        machine
            .stage
            .world
            .delete(&VM_SNAPSHOT, machine.namespace, &name);
        machine.stage.wait_seconds(1, 2).await;
    }
}

/// Takes a snapshot of a running machine and returns its name. The machine is free
/// again (`snapshotInProgress` goes) before the snapshot is ready to use.
async fn take_snapshot(machine: &mut Machine) -> String {
    let name = format!("{}-{}", machine.name, machine.stage.dice.suffix(5));
    let (world, namespace) = (machine.stage.world.clone(), machine.namespace);
    world.put(&VM_SNAPSHOT, "kubectl-create", json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine.name},
            "failureDeadline": "5m0s",
        },
    }));
    let edit = |now: String, change: &dyn Fn(&mut serde_json::Value, &str)| {
        world.edit(
            &VM_SNAPSHOT,
            namespace,
            &name,
            "virt-controller",
            |object| {
                change(object, &now);
            },
        );
    };
    let progressing = |object: &mut serde_json::Value, now: &str, status: &str, reason: &str| {
        let condition = json!({"type": "Progressing", "status": status, "reason": reason});
        conditions::set(object, now, Some("lastProbeTime"), condition);
    };
    machine.stage.wait(10, 20).await;
    edit(machine.stage.now(), &|object, now| {
        object["status"] = json!({"phase": "InProgress", "readyToUse": false});
        progressing(object, now, "False", "Source not locked");
    });
    machine.edit_vm_status("virt-controller", |status| {
        status["snapshotInProgress"] = json!(name);
    });
    machine.stage.wait(30, 130).await;
    edit(machine.stage.now(), &|object, now| {
        progressing(
            object,
            now,
            "True",
            "Source locked and operation in progress",
        );
    });
    machine.edit_vmi("virt-handler", |vmi, _| {
        vmi["status"]["fsFreezeStatus"] = json!("frozen");
    });
    machine.stage.wait(4_000, 6_000).await;
    edit(machine.stage.now(), &|object, now| {
        object["status"]["phase"] = json!("Succeeded");
        progressing(object, now, "False", "Operation complete");
    });
    machine.edit_vmi("virt-handler", |vmi, _| {
        remove(&mut vmi["status"], "fsFreezeStatus");
    });
    machine.edit_vm_status("virt-controller", |status| {
        remove(status, "snapshotInProgress");
    });
    machine.stage.wait(2_600, 7_000).await;
    edit(machine.stage.now(), &|object, now| {
        object["status"]["readyToUse"] = json!(true);
        object["status"]["creationTime"] = json!(now);
        let ready = json!({"type": "Ready", "status": "True", "reason": "Operation complete"});
        conditions::set(object, now, Some("lastProbeTime"), ready);
    });
    name
}

/// A machine for which no node has room until another one is done.
async fn no_room(mut machine: Machine) {
    loop {
        machine.create("Always", None).await;
        machine.schedule().await;
        machine.stage.wait(40, 90).await;
        machine.edit_vmi("virt-controller", |vmi, now| {
            conditions::set(vmi, now, None, json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "lastProbeTime": null,
                "message": "0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod.",
            }));
        });
        machine.stage.wait(20, 30).await;
        machine.mirror("ErrorUnschedulable");
        machine.stage.wait_seconds(100, 120).await;
        machine.boot().await;
        machine.stage.wait_seconds(35, 45).await;
        machine.delete().await;
        machine.stage.wait_seconds(8, 12).await;
    }
}

/// Machines that are created from an image, live a while, and are deleted.
async fn from_image(mut stage: Stage) {
    stage.wait_seconds(8, 9).await;
    for number in 1_u64.. {
        let mut machine = Machine::named(
            stage.fork(),
            "team-a",
            &format!("ci-runner-{number}"),
            NODES[0],
        );
        let turn = machine.stage.turn(2).await;
        machine
            .create("Always", Some("docker://quay.io/containerdisks/fedora:43"))
            .await;
        machine.mirror("Provisioning");
        imports::root_disk(&mut machine).await;
        machine.stage.wait(20, 40).await;
        machine.mirror("Stopped");
        machine.stage.wait(20, 50).await;
        machine.start().await;
        drop(turn);
        machine.stage.wait_seconds(30, 35).await;
        machine.delete().await;
        stage.wait_seconds(60, 70).await;
    }
}
