//! Tests which parent an object has in a tree. A parent is an owner of the object, or the root of
//! the correlation group of the object. A correlation group connects objects that do not own each
//! other. The function `group` sets the labels that put an operation into a group.

use super::*;

#[test]
fn cluster_scoped_resources_come_first_and_join_the_only_root_of_their_group() {
    let root = |namespace: &str| on(namespace, "Plan", "p", "Executing").group("g", "root");
    let node = on("", "Node", "n", "Draining").group("g", "child");
    let other = on("", "Node", "other", "Draining");
    same(
        &drawn(vec![root("b"), node.clone(), other.clone()], &piped()),
        "\
kubevirt
  (cluster)
    Node/other  Draining   0s
  b
    Plan/p      Executing  0s
    └── Node/n  Draining   0s
",
    );
    same(
        &drawn(vec![root("b"), root("c"), node.clone()], &piped()),
        "\
kubevirt
  (cluster)
    Node/n  Draining   0s
  b
    Plan/p  Executing  0s
  c
    Plan/p  Executing  0s
",
    );
    // If a correlation group has a cluster-scoped root and a root in a namespace, the
    // cluster-scoped root is the parent.
    let version = on("", "Version", "v", "Upgrading").group("g", "root");
    same(
        &drawn(vec![root("b"), node.clone(), version.clone()], &piped()),
        "\
kubevirt
  (cluster)
    Version/v   Upgrading  0s
    └── Node/n  Draining   0s
  b
    Plan/p      Executing  0s
",
    );
    // With two cluster-scoped roots, the Node has no parent, even if only one root in a namespace
    // exists.
    let second = on("", "Version", "w", "Upgrading").group("g", "root");
    same(
        &drawn(vec![root("b"), node, version, second], &piped()),
        "\
kubevirt
  (cluster)
    Node/n     Draining   0s
    Version/v  Upgrading  0s
    Version/w  Upgrading  0s
  b
    Plan/p     Executing  0s
",
    );
}

#[test]
fn a_group_is_limited_to_its_namespace() {
    let operations = ["a", "b"].map(|namespace| {
        [
            on(namespace, "Plan", "p", "Executing").group("g", "root"),
            on(namespace, "Migration", "m", "Running").group("g", "child"),
        ]
    });
    let alone = on("c", "Migration", "m", "Running").group("g", "child");
    let mut operations = operations.concat();
    operations.push(alone);
    same(
        &drawn(operations, &piped()),
        "\
kubevirt
  a
    Plan/p           Executing  0s
    └── Migration/m  Running    0s
  b
    Plan/p           Executing  0s
    └── Migration/m  Running    0s
  c
    Migration/m      Running    0s
",
    );
}

#[test]
fn members_below_a_cluster_scoped_root_show_their_namespace() {
    let operations = vec![
        on("", "Node", "n", "Draining").group("node.n", "root"),
        on("machines", "Machine", "m", "Deleting").group("node.n", "child"),
    ];
    same(
        &drawn(operations, &piped()),
        "\
kubevirt
  (cluster)
    Node/n                    Draining  0s
    └── Machine/m (machines)  Deleting  0s
",
    );
}

#[test]
fn with_several_roots_a_member_needs_an_owner_reference() {
    let operations = vec![
        on("a", "Plan", "p", "Executing").group("g", "root"),
        on("a", "Plan", "q", "Executing").group("g", "root"),
        on("a", "Run", "r", "Running").group("g", "child"),
        on("a", "Run", "s", "Running")
            .group("g", "child")
            .owned_by("Plan", "q"),
    ];
    same(
        &drawn(operations, &piped()),
        "\
kubevirt
  a
    Plan/p     Executing  0s
    Plan/q     Executing  0s
    └── Run/s  Running    0s
    Run/r      Running    0s
",
    );
}

#[test]
fn the_preferred_parent_is_the_controller_then_an_owner_in_flight_then_the_group_root() {
    let operations = vec![
        on("a", "Plan", "p", "Executing").group("g", "root"),
        on("a", "VM", "w", "Migrating").group("g", "child"),
        on("a", "VM", "x", "Migrating").group("g", "child"),
        on("a", "VMI", "w", "Migrating")
            .group("g", "child")
            .owned_by("VM", "x")
            .owned_by("VM", "w")
            .controlled(),
        // The owner `unknown` has no operation and no known owners, so the root of the group is the
        // preferred parent.
        on("a", "VMI", "z", "Migrating")
            .group("g", "child")
            .owned_by("VM", "unknown"),
    ];
    same(
        &drawn(operations, &piped()),
        "\
kubevirt
  a
    Plan/p         Executing  0s
    ├── VM/w       Migrating  0s
    │   └── VMI/w  Migrating  0s
    ├── VM/x       Migrating  0s
    └── VMI/z      Migrating  0s
",
    );
}

#[test]
fn an_owner_without_operations_is_shown_if_it_joins_several_subjects() {
    let pod = |name: &str, owner: &str| on("a", "Pod", name, "Evicting").owned_by("Set", owner);
    same(
        &drawn(
            vec![pod("x", "one"), pod("y", "two"), pod("z", "two")],
            &piped(),
        ),
        "\
kubevirt
  a
    Pod/x      Evicting  0s
    Set/two
    ├── Pod/y  Evicting  0s
    └── Pod/z  Evicting  0s
",
    );
}

#[test]
fn an_owner_between_two_operations_joins_them() {
    let operations = vec![
        on("a", "Deployment", "web", "RollingOut"),
        on("a", "Pod", "x", "Evicting").owned_by("Set", "web-1"),
    ];
    let set = subject("a", "Set", "web-1").owned_by("a", "Deployment", "web");
    same(
        &drawn_with(operations.clone(), &[set], &piped()),
        "\
kubevirt
  a
    Deployment/web  RollingOut  0s
    └── Pod/x       Evicting    0s
",
    );
    // If the Set is not looked up, its owner is unknown.
    same(
        &drawn(operations, &piped()),
        "\
kubevirt
  a
    Deployment/web  RollingOut  0s
    Pod/x           Evicting    0s
",
    );
}

#[test]
fn a_node_does_not_take_pods_out_of_their_namespaces() {
    let pod = |namespace: &str| on(namespace, "Pod", "p", "Evicting").owned_in("", "Node", "n");
    let alone = "\
kubevirt
  a
    Pod/p  Evicting  0s
  b
    Pod/p  Evicting  0s
";
    same(&drawn(vec![pod("a"), pod("b")], &piped()), alone);
    // A Node with an operation in flight is shown, with its Pods below it.
    let node = on("", "Node", "n", "Draining");
    same(
        &drawn(vec![pod("a"), pod("b"), node], &piped()),
        "\
kubevirt
  (cluster)
    Node/n         Draining  0s
    ├── Pod/p (a)  Evicting  0s
    └── Pod/p (b)  Evicting  0s
",
    );
}

#[test]
fn owners_are_matched_by_uid_and_not_by_name() {
    let mut before = on("a", "VM", "web", "Migrating");
    let instance = on("a", "VMI", "web", "Migrating").owned_by("VM", "web");
    before.spec.subject.uid = Some("another".into());
    same(
        &drawn(vec![before.clone(), instance.clone()], &piped()),
        "\
kubevirt
  a
    VM/web   Migrating  0s
    VMI/web  Migrating  0s
",
    );
    // Without a UID the name decides.
    before.spec.subject.uid = None;
    same(
        &drawn(vec![before, instance], &piped()),
        "\
kubevirt
  a
    VM/web       Migrating  0s
    └── VMI/web  Migrating  0s
",
    );
}

#[test]
fn owners_in_a_cycle_are_each_shown_once() {
    let operations = vec![
        on("a", "VM", "x", "Migrating").owned_by("VM", "z"),
        on("a", "VM", "y", "Migrating").owned_by("VM", "x"),
        on("a", "VM", "z", "Migrating").owned_by("VM", "y"),
        on("a", "VM", "self", "Migrating").owned_by("VM", "self"),
        on("a", "VMI", "w", "Migrating").owned_by("VM", "z"),
    ];
    let circle = "\
kubevirt
  a
    VM/self            Migrating  0s
    VM/x               Migrating  0s
    └── VM/y           Migrating  0s
        └── VM/z       Migrating  0s
            └── VMI/w  Migrating  0s
";
    same(&drawn(operations.clone(), &piped()), circle);
    same(
        &drawn_for("VM/y", &operations, &[]),
        "\
kubevirt
  a
    VM/y           Migrating  0s
    └── VM/z       Migrating  0s
        ├── VM/x   Migrating  0s
        └── VMI/w  Migrating  0s
",
    );
}

#[test]
fn a_cycle_above_the_target_is_entered_by_the_shortest_path() {
    let operations = vec![
        on("a", "VM", "a", "Migrating"),
        on("a", "VM", "b", "Migrating")
            .owned_by("VM", "a")
            .owned_by("VM", "c")
            .controlled(),
        on("a", "VM", "c", "Migrating")
            .owned_by("VM", "b")
            .controlled(),
    ];
    same(
        &drawn_for("VM/a", &operations, &[]),
        "\
kubevirt
  a
    VM/a          Migrating  0s
    └── VM/b      Migrating  0s
        └── VM/c  Migrating  0s
",
    );
}

#[test]
fn one_resource_is_shown_with_its_descendants_and_intermediate_owners() {
    let operations = vec![
        on("a", "VM", "web", "Migrating").owned_by("Pool", "p"),
        on("a", "Pod", "launcher", "Starting").owned_by("VMI", "web"),
        on("b", "Pod", "launcher", "Starting").owned_by("VMI", "web"),
        on("a", "VM", "db", "Migrating"),
    ];
    let known = [
        subject("a", "VMI", "web").owned_by("a", "VM", "web"),
        subject("b", "VMI", "web").owned_by("b", "VM", "web"),
    ];
    let expected = "\
kubevirt
  a
    VM/web                Migrating  0s
    └── VMI/web
        └── Pod/launcher  Starting   0s
  b
    VM/web
    └── VMI/web
        └── Pod/launcher  Starting   0s
";
    same(&drawn_for("vm/web", &operations, &known), expected);
    assert_eq!(drawn_for("VM/none", &operations, &known), "");
}

#[test]
fn filtered_out_resources_still_connect_their_descendants() {
    let operations = vec![
        on("a", "VM", "web", "Restarting"),
        on("a", "VMI", "web", "Booting")
            .owned_by("VM", "web")
            .state("Succeeded", None),
        on("a", "Pod", "p", "Starting").owned_by("VMI", "web"),
    ];
    let filters = Filters {
        operation: vec!["Starting".to_owned()],
        ..Filters::default()
    };
    same(
        &drawn_for_with_filters("VM/web", &operations, &[], &filters),
        "\
kubevirt
  a
    VM/web
    └── VMI/web
        └── Pod/p  Starting  0s
",
    );
    let filters = Filters {
        operation: vec!["Booting".to_owned()],
        ..Filters::default()
    };
    assert_eq!(
        drawn_for_with_filters("VM/web", &operations, &[], &filters),
        "",
        "it is over"
    );
}
