//! Tests of the kinds that a typed name matches.

use super::*;
use ifo_client::offline_kinds::plural;
use kube::core::GroupVersionKind;

fn resource(group: &str, kind: &str, short: &str) -> ServedResource {
    let gvk = GroupVersionKind::gvk(group, "v1", kind);
    ServedResource {
        api: ApiResource::from_gvk_with_plural(&gvk, &plural(kind)),
        namespaced: true,
        singular: None,
        short_names: vec![short.to_owned()],
    }
}

fn chosen(text: &str, served: &[ServedResource]) -> ChosenKind {
    let mut kind: ChosenKind = text.parse().unwrap();
    let matching = served.iter().filter(|it| it.has_name(&kind.name));
    let matching = matching.cloned().collect();
    kind.resources = Some(matching).filter(|_| !served.is_empty());
    kind
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
    assert!(!chosen("backups/status", &served).is_served());
}
