//! `roles`: the rights that rule sets need.

use super::rules;

const ROLE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  labels:
    ifo.kubevirt.io/aggregate-to-targets: \"true\"
  name: ifo-rules-example
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
fn the_role_has_what_the_targets_need_and_no_more() {
    let said = rules(&["roles", "rules"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, ROLE);
    let said = rules(&["roles", "rules", "rules/optional.yaml", "--name", "mine"]);
    let expected = ROLE.replace("ifo-rules-example", "mine");
    let expected = expected.replace("  - widgets\n", "  - gadgets\n  - widgets\n");
    assert_eq!((said.code, said.out), (0, expected));
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
