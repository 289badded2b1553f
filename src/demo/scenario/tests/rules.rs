//! What rules of the usual kind find in an object: enough to count by.

use serde_json::Value;

fn is(object: &Value, condition: &str) -> bool {
    object["status"]["conditions"]
        .as_array()
        .is_some_and(|all| {
            all.iter()
                .any(|c| c["type"] == condition && c["status"] == "True")
        })
}

pub(super) fn reason<'a>(object: &'a Value, condition: &str) -> &'a str {
    object["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["type"] == condition))
        .and_then(|c| c["reason"].as_str())
        .unwrap_or("")
}

/// What rules of the usual kind find in an object: enough to count by.
pub(super) fn operations(kind: &str, object: &Value) -> Vec<String> {
    let status = &object["status"];
    let phase = status["phase"].as_str().unwrap_or("");
    let mut found: Vec<String> = Vec::new();
    let mut when = |there: bool, name: &str| {
        if there {
            found.push(name.to_owned());
        }
    };
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    match kind {
        "VirtualMachine" => {
            let printable = status["printableStatus"].as_str().unwrap_or("");
            let busy = [
                "Starting",
                "Stopping",
                "Migrating",
                "Provisioning",
                "Terminating",
                "ErrorUnschedulable",
            ];
            when(busy.contains(&printable), printable);
            when(!status["snapshotInProgress"].is_null(), "Snapshotting");
            when(!status["stateChangeRequests"].is_null(), "Restarting");
        }
        "VirtualMachineInstance" => {
            when(
                ["Pending", "Scheduling", "Scheduled"].contains(&phase),
                phase,
            );
            let migration = &status["migrationState"];
            when(
                !migration["startTimestamp"].is_null() && migration["endTimestamp"].is_null(),
                "LiveMigrating",
            );
            when(is(object, "HotMemoryChange"), "MemoryChange");
            when(is(object, "EvictionRequested"), "Evicting");
        }
        "VirtualMachineInstanceMigration" => {
            when(!["", "Succeeded", "Failed"].contains(&phase), phase);
        }
        "DataVolume" => {
            when(!["", "Succeeded", "Failed"].contains(&phase), phase);
            when(status["restartCount"].as_u64() > Some(2), "Retrying");
        }
        "KubeVirt" => {
            when(
                status["observedKubeVirtVersion"] != status["targetKubeVirtVersion"],
                "Upgrading",
            );
            when(
                !status["outdatedVirtualMachineInstanceWorkloads"].is_null(),
                "UpdateRollingOut",
            );
        }
        "CDI" => when(phase == "Upgrading", phase),
        "HyperConverged" => {
            when(reason(object, "Progressing") == "HCOUpgrading", "Upgrading");
            when(
                is(object, "Progressing") && is(object, "Degraded"),
                "ReconcilingDegraded",
            );
        }
        "ClusterServiceVersion" => when(phase != "Succeeded", phase),
        "InstallPlan" => when(!["", "Complete", "Failed"].contains(&phase), phase),
        "Subscription" => {
            when(is(object, "BundleUnpacking"), "Unpacking");
            when(is(object, "InstallPlanPending"), "InstallPlanPending");
        }
        "Deployment" => {
            let why = reason(object, "Progressing");
            when(
                ["NewReplicaSetCreated", "ReplicaSetUpdated"].contains(&why),
                "Rollout",
            );
            when(why == "ProgressDeadlineExceeded", "RolloutStalled");
        }
        "ClusterVersion" => when(status["history"][0]["state"] == "Partial", "PartialUpdate"),
        "Node" => {
            let annotations = &object["metadata"]["annotations"];
            when(
                annotations["machineconfiguration.openshift.io/state"] != "Done",
                "ConfigUpdating",
            );
            when(object["spec"]["unschedulable"] == true, "Cordoned");
            when(!is(object, "Ready"), "NotReady");
        }
        "VirtualMachineSnapshot" => when(phase == "InProgress", phase),
        "Namespace" => when(phase == "Terminating", phase),
        other => panic!("no rules for {other}"),
    }
    when(deleted && dies_slowly(kind), "Deleting");
    found
}

/// Kinds whose deletion takes a while and is not told by a phase.
fn dies_slowly(kind: &str) -> bool {
    kind == "VirtualMachineInstance"
}
