//! Tests of the kinds that a typed name matches.

use super::*;
use ifo_client::offline_kinds::plural;

fn resource(group: &str, kind: &str, short: &str) -> ServedResource {
    ServedResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural(kind),
        namespaced: true,
        names: [kind.to_lowercase(), plural(kind), short.to_owned()].to_vec(),
    }
}

fn target(group: &str, resource: &str) -> Gvr {
    Gvr {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
    }
}

fn chosen(text: &str, served: &[ServedResource]) -> ChosenKind {
    let mut kind: ChosenKind = text.parse().unwrap();
    kind.is_certain = !served.is_empty();
    let matching = served.iter().filter(|it| it.has_name(&kind.name));
    kind.resources = matching.cloned().collect();
    kind
}

#[test]
fn kind_names_are_resolved_by_discovery_within_their_group() {
    let served = [
        resource("apps", "Deployment", "deploy"),
        resource("kubevirt.io", "VirtualMachine", "vm"),
    ];
    for text in [
        "deploy",
        "Deployments",
        "DEPLOYMENT",
        "deployments.apps",
        "deploy.v1.apps",
    ] {
        let kind = chosen(text, &served);
        assert!(kind.matches_object("Deployment", "apps/v1"), "{text}");
        assert!(!kind.matches_object("Deployment", "example.io/v1"));
        assert!(
            kind.matches_resource(&target("apps", "deployments")),
            "{text}"
        );
        assert!(!kind.matches_resource(&target("kubevirt.io", "virtualmachines")));
        assert!(!kind.certainly_does_not_exist());
    }
    assert!(chosen("typo", &served).certainly_does_not_exist());
    assert!(chosen("deploy.kubevirt.io", &served).certainly_does_not_exist());
}

#[test]
fn without_discovery_names_are_compared() {
    for text in ["vm", "VirtualMachine", "virtualmachines.kubevirt.io"] {
        let kind = chosen(text, &[]);
        assert!(kind.matches_object("VirtualMachine", "kubevirt.io/v1"));
        assert!(!kind.matches_object("VirtualMachineInstance", "kubevirt.io/v1"));
        assert!(!kind.certainly_does_not_exist());
    }
    let kind = chosen("VirtualMachine", &[]);
    assert!(kind.matches_resource(&target("kubevirt.io", "virtualmachines")));
    assert!(!chosen("Typo", &[]).matches_resource(&target("kubevirt.io", "virtualmachines")));
}

#[test]
fn a_name_without_a_group_means_the_kinds_of_all_groups() {
    let served = [
        resource("velero.io", "Backup", "bu"),
        resource("example.io", "Backup", "bu"),
    ];
    let all = chosen("backups", &served);
    assert!(
        all.matches_object("Backup", "velero.io/v1")
            && all.matches_object("Backup", "example.io/v1")
    );
    let one = chosen("backups.velero.io", &served);
    assert!(
        one.matches_object("Backup", "velero.io/v1")
            && !one.matches_object("Backup", "example.io/v1")
    );
    assert!(chosen("backups/status", &served).certainly_does_not_exist());
}
