//! Tests of `roles`: the rights that rule sets need.

use super::rules;

const ROLE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  labels:
    ifo.kubevirt.io/aggregate-to-targets: \"true\"
  name: ifo-rule-set-widget-rules
rules:
- apiGroups:
  - example.io
  resources:
  - widgets
  verbs:
  - get
  - list
  - watch
";

#[test]
fn the_role_grants_exactly_what_the_targets_need() {
    let said = rules(&["roles", "rules"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, ROLE);
    let said = rules(&["roles", "rules", "rules/optional.yaml", "--name", "mine"]);
    let expected = ROLE.replace("ifo-rule-set-widget-rules", "mine");
    let expected = expected.replace("  - widgets\n", "  - gadgets\n  - widgets\n");
    assert_eq!((said.code, said.out), (0, expected));
}

/// A rule pack has a role with the name of its component. A role with the same name would replace
/// its rights.
#[test]
fn the_role_does_not_replace_the_role_of_a_rule_pack() {
    let pack = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules/kubevirt/");
    let said = rules(&["roles", &format!("{pack}/virtualmachines.yaml")]);
    assert!(
        said.out
            .contains("  name: ifo-rule-set-vm-lifecycle-rules\n"),
        "{}",
        said.out
    );
    let shipped = std::fs::read_to_string(format!("{pack}/clusterrole.yaml")).unwrap();
    assert!(
        shipped.contains("  name: ifo-rules-kubevirt\n"),
        "{shipped}"
    );
}

#[test]
fn the_role_can_be_json() {
    let role = rules(&["roles", "rules", "-O", "json"]).json();
    assert_eq!(role["kind"], "ClusterRole");
    assert_eq!(role["rules"][0]["resources"][0], "widgets");
}

#[test]
fn without_a_rule_set_there_is_no_role() {
    let said = rules(&["roles", "wrong.yaml"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
}
