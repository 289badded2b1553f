//! Tests of the command `rules roles`, which prints the `ClusterRole` that rule sets need.

use super::run_rules;

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
    let output = run_rules(&["roles", "rules"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(output.stdout, ROLE);
    let output = run_rules(&["roles", "rules", "rules/optional.yaml", "--name", "mine"]);
    let expected = ROLE.replace("ifo-rule-set-widget-rules", "mine");
    let expected = expected.replace("  - widgets\n", "  - gadgets\n  - widgets\n");
    assert_eq!((output.code, output.stdout), (0, expected));
}

/// A rule pack (a folder of shipped rule sets) has a ClusterRole that is named after the folder. If
/// a printed ClusterRole had the same name, a user who applies the output would replace the
/// ClusterRole of the pack.
#[test]
fn the_role_does_not_replace_the_role_of_a_rule_pack() {
    let pack = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules/kubevirt/");
    let output = run_rules(&["roles", &format!("{pack}/virtualmachines.yaml")]);
    output.prints("  name: ifo-rule-set-vm-lifecycle-rules\n");
    let shipped = std::fs::read_to_string(format!("{pack}/clusterrole.yaml")).unwrap();
    assert!(
        shipped.contains("  name: ifo-rules-kubevirt\n"),
        "{shipped}"
    );
}

#[test]
fn the_role_can_be_json() {
    let role = run_rules(&["roles", "rules", "-O", "json"]).json();
    assert_eq!(role["kind"], "ClusterRole");
    assert_eq!(role["rules"][0]["resources"][0], "widgets");
}

#[test]
fn without_a_rule_set_there_is_no_role() {
    let output = run_rules(&["roles", "wrong.yaml"]);
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
}
