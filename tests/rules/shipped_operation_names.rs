//! Checks that the shipped rule sets keep the names of operations, such as `Migrating`, that users'
//! dashboards and scripts contain.

use crate::read_shipped_rule_sets::Shipped;
use std::collections::BTreeSet;

/// The names that must not disappear. Each line has the name of a rule set, the target of the rule
/// set (the resource that the server watches), and the names of operations. If the line begins with
/// `-`, each operation may be in any rule set with this target.
const PROMISED: &str = "
vm-lifecycle-rules kubevirt.io/v1/virtualmachines Migrating Starting Stopping Provisioning Terminating WaitingForReceiver
vmi-rules kubevirt.io/v1/virtualmachineinstances Pending Scheduling Scheduled WaitingForSync Provisioning VCPUChange MemoryChange LiveMigrating Stopping DiskHotplug
vmi-running-rules kubevirt.io/v1/virtualmachineinstances Running
vmim-rules kubevirt.io/v1/virtualmachineinstancemigrations Pending Scheduling Scheduled Running PreparingTarget
kubevirt-rules kubevirt.io/v1/kubevirts Deploying Reconciling ReconcilingDegraded Healing Failing Deleting Upgrading UpdateRollingOut
hco-rules hco.kubevirt.io/v1beta1/hyperconvergeds Deploying Reconciling ReconcilingDegraded Healing Failing
cdi-rules cdi.kubevirt.io/v1beta1/cdis Deploying Reconciling ReconcilingDegraded Healing Failing Deleting Upgrading
datavolume-rules cdi.kubevirt.io/v1beta1/datavolumes Pending PVCBound ImportScheduled ImportInProgress CloneScheduled CloneInProgress SnapshotForSmartCloneInProgress CloneFromSnapshotSourceInProgress SmartClonePVCInProgress CSICloneInProgress ExpansionInProgress NamespaceTransferInProgress UploadScheduled UploadReady WaitForFirstConsumer PendingPopulation PrepClaimInProgress RebindInProgress
ssp-rules ssp.kubevirt.io/v1beta3/ssps Deploying Reconciling ReconcilingDegraded Healing Failing Paused Deleting Upgrading
cnao-rules networkaddonsoperator.network.kubevirt.io/v1/networkaddonsconfigs Deploying Reconciling ReconcilingDegraded Healing Failing
hpp-rules hostpathprovisioner.kubevirt.io/v1beta1/hostpathprovisioners Deploying Reconciling ReconcilingDegraded Healing Failing
aaq-rules aaq.kubevirt.io/v1alpha1/aaqs Deploying Reconciling ReconcilingDegraded Healing Failing Deleting Upgrading
vm-snapshot-rules snapshot.kubevirt.io/v1beta1/virtualmachinesnapshots InProgress Failed
vm-restore-rules snapshot.kubevirt.io/v1beta1/virtualmachinerestores InProgress Failed
vm-clone-rules clone.kubevirt.io/v1beta1/virtualmachineclones SnapshotInProgress CreatingTargetVM RestoreInProgress Failed
vm-export-rules export.kubevirt.io/v1beta1/virtualmachineexports Pending
csv-rules operators.coreos.com/v1alpha1/clusterserviceversions Pending Installing Replacing Deleting Failing
installplan-rules operators.coreos.com/v1alpha1/installplans Planning Installing RequiresApproval
subscription-rules operators.coreos.com/v1alpha1/subscriptions Unpacking InstallPlanPending
clusterversion-rules config.openshift.io/v1/clusterversions Deploying Reconciling ReconcilingDegraded Healing Failing NotUpgradeable PartialUpdate
clusteroperator-rules config.openshift.io/v1/clusteroperators Deploying Reconciling ReconcilingDegraded Healing Failing NotUpgradeable
machineconfigpool-rules machineconfiguration.openshift.io/v1/machineconfigpools Updating UpdatingDegraded Degraded NodeDegraded RenderDegraded Paused Building BuildFailed
machine-rules machine.openshift.io/v1beta1/machines Provisioning Provisioned Deleting Failed
machineset-rules machine.openshift.io/v1beta1/machinesets ScalingUp ScalingDown
- build.openshift.io/v1/builds Pending Running
- migration.k8s.io/v1alpha1/storageversionmigrations Migrating
deployment-rules apps/v1/deployments Rollout
pvc-rules v1/persistentvolumeclaims Pending Lost Resizing FilesystemResizePending
- apps/v1/statefulsets Rollout Scaling
- apps/v1/daemonsets Rollout
- batch/v1/jobs Running
- v1/nodes Cordoned NotReady
- v1/namespaces Terminating
- autoscaling/v2/horizontalpodautoscalers Scaling
- cert-manager.io/v1/certificates Issuing
- argoproj.io/v1alpha1/applications Syncing Progressing OutOfSync
- kustomize.toolkit.fluxcd.io/v1/kustomizations Reconciling
- helm.toolkit.fluxcd.io/v2/helmreleases Reconciling
- cluster.x-k8s.io/*/machines Provisioning Provisioned Deleting Failed
- cluster.x-k8s.io/*/clusters Provisioning Deleting Failed
- forklift.konveyor.io/v1beta1/plans Executing
- forklift.konveyor.io/v1beta1/migrations Running Canceling
- virtualization.deckhouse.io/v1alpha2/virtualmachineoperations Starting Stopping Restarting Migrating Evicting Restoring Cloning
- snapshot.storage.k8s.io/v1/volumesnapshots Provisioning Failing
- velero.io/v1/backups InProgress
- velero.io/v1/restores InProgress
- velero.io/v2alpha1/datauploads InProgress Canceling
- velero.io/v2alpha1/datadownloads InProgress Canceling
- nmstate.io/v1/nodenetworkconfigurationpolicies Configuring
- nmstate.io/v1beta1/nodenetworkconfigurationenactments Configuring
- nodemaintenance.medik8s.io/v1beta1/nodemaintenances Draining
- fence-agents-remediation.medik8s.io/v1alpha1/fenceagentsremediations Remediating
";

/// Returns the target of a rule set, such as `kubevirt.io/v1/virtualmachines` or, in the core
/// group, `v1/nodes`.
fn target(shipped: &Shipped) -> String {
    let target = &shipped.spec.target;
    let group = Some(target.group.as_str()).filter(|group| !group.is_empty());
    let parts = group
        .into_iter()
        .chain([&*target.version, &*target.resource]);
    parts.collect::<Vec<_>>().join("/")
}

/// Returns true if the target matches the pattern. In a pattern such as
/// `cluster.x-k8s.io/*/machines`, the `*` stands for any version.
fn matches(pattern: &str, target: &str) -> bool {
    match pattern.split_once('*') {
        Some((group, resource)) => target.starts_with(group) && target.ends_with(resource),
        None => pattern == target,
    }
}

#[test]
fn every_promised_operation_exists() {
    let all = Shipped::all();
    let mut wrong = Vec::new();
    for line in PROMISED.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let name = words.next().expect("each line has a name");
        let pattern = words.next().expect("each line has a resource");
        let promised: BTreeSet<&str> = words.collect();
        let known: BTreeSet<&str> = all
            .iter()
            .filter(|set| matches(pattern, &target(set)) && (name == "-" || set.name == name))
            .flat_map(|set| set.spec.rules.iter().map(|rule| rule.operation.as_str()))
            .collect();
        let missing: Vec<&&str> = promised.difference(&known).collect();
        if !missing.is_empty() {
            wrong.push(format!("{name} {pattern}: {missing:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
