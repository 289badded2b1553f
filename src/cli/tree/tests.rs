use super::draw::{Style, draw};
use super::forest::Forest;
use super::{Target, data, found};
use crate::cli::filter::Filters;
use crate::cli::kin::Kin;
use crate::cli::operation::{Operation, Subject};
use crate::cli::paint::Paint;
use crate::cli::sample::{now, on, subject};
use crate::cli::sort::SortBy;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

const PIPED: Style = Style {
    screen: None,
    wide: false,
    paint: Paint { on: false },
};

fn on_screen(columns: usize) -> Style {
    Style {
        screen: Some(columns),
        ..PIPED
    }
}

fn drawn(operations: Vec<Operation>, style: Style) -> String {
    drawn_with(operations, &[], style)
}

fn drawn_with(mut operations: Vec<Operation>, known: &[Subject], style: Style) -> String {
    SortBy::Subject.sort(&mut operations).unwrap();
    let kin = Kin::of(&operations, known);
    draw(&Forest::all(&kin), now(), style)
}

fn drawn_for(target: &str, operations: &[Operation], known: &[Subject]) -> String {
    drawn_for_meant(target, operations, known, &Filters::default())
}

fn drawn_for_meant(
    target: &str,
    operations: &[Operation],
    known: &[Subject],
    filters: &Filters,
) -> String {
    let target: Target = target.parse().unwrap();
    let kin = Kin::of(operations, known);
    let tops = found(&kin, &target);
    let forest = Forest::under(&kin, &tops, &|it| filters.shows(it));
    draw(&forest, now(), PIPED)
}

#[track_caller]
fn same(drawn: &str, expected: &str) {
    assert_eq!(drawn, expected, "\n{drawn}\n{expected}");
}

/// The operations of the picture in the documentation.
fn picture() -> Vec<Operation> {
    let place = "openshift-cnv";
    let hyper = "HyperConverged";
    vec![
        on(place, hyper, "kubevirt-hyperconverged", "Reconciling").since(180),
        on(place, "KubeVirt", "kubevirt-kubevirt", "Upgrading").since(120),
        on(
            "openshift-operator-lifecycle-manager",
            "ClusterServiceVersion",
            "my-operator.v2.0",
            "Installing",
        )
        .of("olm")
        .since(45),
    ]
}

const PICTURE: &str = "\
kubevirt
  openshift-cnv
    HyperConverged/kubevirt-hyperconverged  Reconciling  3m
    └── KubeVirt/kubevirt-kubevirt          Upgrading    2m
olm
  openshift-operator-lifecycle-manager
    ClusterServiceVersion/my-operator.v2.0  Installing   45s
";

#[test]
fn the_picture_is_drawn_by_owner_references() {
    let [hyper, kubevirt, csv] = picture().try_into().unwrap();
    let kubevirt = kubevirt.owned_by("HyperConverged", "kubevirt-hyperconverged");
    same(&drawn(vec![csv, kubevirt, hyper], PIPED), PICTURE);
}

#[test]
fn the_picture_is_drawn_by_the_labels_of_correlation() {
    let [hyper, kubevirt, csv] = picture().try_into().unwrap();
    let hyper = hyper.group("cnv", "root");
    let kubevirt = kubevirt.group("cnv", "child");
    let operations = vec![csv, kubevirt, hyper];
    same(&drawn(operations.clone(), PIPED), PICTURE);
    // It fits into 80 columns, where nothing is cut.
    same(&drawn(operations, on_screen(80)), PICTURE);
}

#[test]
fn several_operations_of_one_subject_have_a_line_each() {
    let operations = vec![
        on("a", "VM", "web", "Migrating"),
        on("a", "VM", "web", "Resizing").since(60),
        on("a", "Disk", "d", "Growing").owned_by("VM", "web"),
        on("a", "Disk", "d", "Moving")
            .item("1")
            .owned_by("VM", "web"),
        on("a", "Disk", "e", "Moving").owned_by("VM", "web"),
        on("a", "Part", "p", "Moving").owned_by("Disk", "d"),
    ];
    same(
        &drawn(operations, PIPED),
        "\
kubevirt
  a
    VM/web          Migrating  0s
    VM/web          Resizing   60s
    ├── Disk/d      Growing    0s
    │   Disk/d/1    Moving     0s
    │   └── Part/p  Moving     0s
    └── Disk/e      Moving     0s
",
    );
}

#[test]
fn what_is_not_as_usual_is_told_behind_the_age() {
    let operations = vec![
        on("a", "VM", "a", "Migrating").state("Progressing", Some(45)),
        on("a", "VM", "b", "Migrating").state("Blocked", None),
        on("a", "VM", "c", "Migrating").state("Failing", Some(100)),
        on("a", "VM", "d", "Migrating"),
        on("a", "VM", "e", "Migrating").state("Succeeded", None),
    ];
    same(
        &drawn(operations.clone(), PIPED),
        "\
kubevirt
  a
    VM/a  Migrating  0s  45%
    VM/b  Migrating  0s  Blocked
    VM/c  Migrating  0s  Failing 100%
    VM/d  Migrating  0s
    VM/e  Migrating  0s  Succeeded
",
    );
    let mut wide = operations;
    wide.truncate(2);
    wide[0].message = "to\nnode".to_owned();
    same(
        &drawn(
            wide,
            Style {
                wide: true,
                ..on_screen(20)
            },
        ),
        "\
kubevirt
  a
    VM/a  Migrating  0s  Progressing 45%  a-migrating  to node
    VM/b  Migrating  0s  Blocked          b-migrating
",
    );
}

#[test]
fn colour_changes_no_column() {
    let operations = vec![
        on("a", "VM", "a", "Migrating").state("Failing", Some(45)),
        on("a", "VMI", "b", "Booting").owned_by("VM", "a"),
    ];
    let paint = Paint { on: true };
    let painted = drawn(operations.clone(), Style { paint, ..PIPED });
    let mut bare = String::new();
    let mut rest = painted.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        bare += before;
        rest = after.split_once('m').unwrap().1;
    }
    bare += rest;
    assert_ne!(bare, painted);
    same(&bare, &drawn(operations, PIPED));
}

#[test]
fn cluster_scoped_resources_come_first_and_join_the_only_root_of_their_group() {
    let root = |namespace: &str| on(namespace, "Plan", "p", "Executing").group("g", "root");
    let node = on("", "Node", "n", "Draining").group("g", "child");
    let other = on("", "Node", "other", "Draining");
    same(
        &drawn(vec![root("b"), node.clone(), other.clone()], PIPED),
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
        &drawn(vec![root("b"), root("c"), node.clone()], PIPED),
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
    // A root of its own kind is nearer.
    let version = on("", "Version", "v", "Upgrading").group("g", "root");
    same(
        &drawn(vec![root("b"), node, version], PIPED),
        "\
kubevirt
  (cluster)
    Version/v   Upgrading  0s
    └── Node/n  Draining   0s
  b
    Plan/p      Executing  0s
",
    );
}

#[test]
fn a_group_is_one_of_its_namespace() {
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
        &drawn(operations, PIPED),
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
fn members_of_a_group_whose_root_is_in_no_namespace_hang_there_and_tell_theirs() {
    let operations = vec![
        on("", "Node", "n", "Draining").group("node.n", "root"),
        on("machines", "Machine", "m", "Deleting").group("node.n", "child"),
    ];
    same(
        &drawn(operations, PIPED),
        "\
kubevirt
  (cluster)
    Node/n                    Draining  0s
    └── Machine/m (machines)  Deleting  0s
",
    );
}

#[test]
fn nobody_can_tell_which_of_several_roots_a_member_has_unless_it_is_owned() {
    let operations = vec![
        on("a", "Plan", "p", "Executing").group("g", "root"),
        on("a", "Plan", "q", "Executing").group("g", "root"),
        on("a", "Run", "r", "Running").group("g", "child"),
        on("a", "Run", "s", "Running")
            .group("g", "child")
            .owned_by("Plan", "q"),
    ];
    same(
        &drawn(operations, PIPED),
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
fn an_owner_in_flight_is_nearer_than_the_root_of_the_group_and_the_controller_nearest() {
    let operations = vec![
        on("a", "Plan", "p", "Executing").group("g", "root"),
        on("a", "VM", "w", "Migrating").group("g", "child"),
        on("a", "VM", "x", "Migrating").group("g", "child"),
        on("a", "VMI", "w", "Migrating")
            .group("g", "child")
            .owned_by("VM", "x")
            .owned_by("VM", "w")
            .controlled(),
        // Nobody knows this owner.
        on("a", "VMI", "z", "Migrating")
            .group("g", "child")
            .owned_by("VM", "unknown"),
    ];
    same(
        &drawn(operations, PIPED),
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
fn an_owner_without_operations_is_shown_where_it_joins_several() {
    let pod = |name: &str, owner: &str| on("a", "Pod", name, "Evicting").owned_by("Set", owner);
    same(
        &drawn(
            vec![pod("x", "one"), pod("y", "two"), pod("z", "two")],
            PIPED,
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
        &drawn_with(operations.clone(), &[set], PIPED),
        "\
kubevirt
  a
    Deployment/web  RollingOut  0s
    └── Pod/x       Evicting    0s
",
    );
    // Nobody told what is above the Set.
    same(
        &drawn(operations, PIPED),
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
    same(&drawn(vec![pod("a"), pod("b")], PIPED), alone);
    // Unless something is in flight on it.
    let node = on("", "Node", "n", "Draining");
    same(
        &drawn(vec![pod("a"), pod("b"), node], PIPED),
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
fn an_owner_is_the_object_with_its_uid_and_not_one_with_its_name() {
    let mut before = on("a", "VM", "web", "Migrating");
    let instance = on("a", "VMI", "web", "Migrating").owned_by("VM", "web");
    before.subject.uid = Some("another".to_owned());
    same(
        &drawn(vec![before.clone(), instance.clone()], PIPED),
        "\
kubevirt
  a
    VM/web   Migrating  0s
    VMI/web  Migrating  0s
",
    );
    // Without a UID the name must do.
    before.subject.uid = None;
    same(
        &drawn(vec![before, instance], PIPED),
        "\
kubevirt
  a
    VM/web       Migrating  0s
    └── VMI/web  Migrating  0s
",
    );
}

#[test]
fn owners_in_a_circle_are_shown_once_each() {
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
    same(&drawn(operations.clone(), PIPED), circle);
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
fn a_circle_that_the_target_is_not_in_is_entered_by_the_nearest_way() {
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
fn one_resource_is_shown_with_all_below_and_what_is_between() {
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
fn what_is_filtered_out_still_leads_to_what_is_not() {
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
        &drawn_for_meant("VM/web", &operations, &[], &filters),
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
        drawn_for_meant("VM/web", &operations, &[], &filters),
        "",
        "it is over"
    );
}

#[test]
fn columns_are_as_wide_as_they_look() {
    let operations = vec![
        on("a", "VM", "日本語", "Migrating"),
        on("a", "VM", "é\u{1b}[31m\n", "移行中"),
        on("a", "VM", "abcdef", "X"),
    ];
    same(
        &drawn(operations.clone(), PIPED),
        "\
kubevirt
  a
    VM/abcdef   X          0s
    VM/é [31m   移行中     0s
    VM/日本語   Migrating  0s
",
    );
    let narrow = drawn(operations, on_screen(17));
    assert!(narrow.lines().all(|line| line.width() <= 17), "{narrow}");
    assert!(narrow.contains("日本語"), "{narrow}");
}

#[test]
fn long_names_are_cut_to_the_terminal_and_the_columns_stay() {
    let long = "x".repeat(100);
    let operations = vec![
        on(&long, "VirtualMachine", &long, "Migrating").of(&long),
        on(&long, "Disk", "d", "Growing")
            .of(&long)
            .owned_by("VirtualMachine", &long)
            .state("Failing", Some(3)),
    ];
    let expected = format!(
        "\
{}…
  {}…
    VirtualMachine/{}…  Migrating  0s
    └── Disk/d{}  Growing    0s  Failing 3%
",
        "x".repeat(79),
        "x".repeat(77),
        "x".repeat(33),
        " ".repeat(39),
    );
    let drawn_80 = drawn(operations.clone(), on_screen(80));
    same(&drawn_80, &expected);
    let widest = drawn_80.lines().map(UnicodeWidthStr::width).max();
    assert_eq!(widest, Some(80));
    for columns in [0, 1, 2, 5, 10, 20, 30, 79] {
        let drawn = drawn(operations.clone(), on_screen(columns));
        let wide = drawn.lines().find(|line| line.width() > columns);
        assert_eq!(wide, None, "{columns}");
    }
    // A pipe gets it all.
    assert!(drawn(operations, PIPED).contains(&format!("VirtualMachine/{long}  Migrating  0s\n")));
}

#[test]
fn on_a_narrow_terminal_ages_stay() {
    let operations = vec![
        on("a", "VirtualMachine", "gpu-training", "ErrorUnschedulable")
            .since(119)
            .state("Blocked", Some(100)),
        on("a", "VirtualMachineInstance", "gpu", "Scheduling")
            .owned_by("VirtualMachine", "gpu-training"),
    ];
    same(
        &drawn(operations, on_screen(44)),
        "\
kubevirt
  a
    VirtualMachine/…  ErrorUn…  119s  Block…
    └── VirtualMach…  Schedul…  0s
",
    );
}

#[test]
fn three_hundred_operations_have_a_line_each() {
    let operations: Vec<Operation> = (0..300)
        .map(|number| {
            let namespace = format!("ns-{:02}", number % 30);
            let it = on(&namespace, "VM", &format!("vm-{number:03}"), "Migrating");
            match number / 30 {
                0 => it,
                _ => it.owned_by("VM", &format!("vm-{:03}", number % 30)),
            }
        })
        .collect();
    let text = drawn(operations, PIPED);
    assert_eq!(text.lines().count(), 1 + 30 + 300);
    let namespace: Vec<&str> = text.lines().skip(1 + 11).take(11).collect();
    let mut expected = vec![
        "  ns-01".to_owned(),
        "    VM/vm-001      Migrating  0s".to_owned(),
    ];
    for child in 1..10 {
        let bar = if child < 9 { "├" } else { "└" };
        let number = child * 30 + 1;
        expected.push(format!("    {bar}── VM/vm-{number:03}  Migrating  0s"));
    }
    assert_eq!(namespace, expected);
}

/// One below the other.
fn chain(length: usize) -> Vec<Operation> {
    (0..length)
        .map(|number| {
            let it = on("a", "VM", &format!("{number:05}"), "Migrating");
            match number {
                0 => it,
                _ => it.owned_by("VM", &format!("{:05}", number - 1)),
            }
        })
        .collect()
}

#[test]
fn ten_thousand_levels_are_drawn_within_bounds() {
    let operations = chain(10_000);
    let text = drawn(operations.clone(), PIPED);
    assert_eq!(text.lines().count(), 2 + 10_000);
    let last = text.lines().last().unwrap();
    let indent = " ".repeat(4 * 31);
    assert_eq!(last, format!("  … {indent}└── VM/09999  Migrating  0s"));
    assert_eq!(
        drawn_for("VM/00000", &operations, &[]).lines().count(),
        10_002
    );
    let narrow = drawn(operations, on_screen(80));
    assert!(narrow.lines().all(|line| line.width() <= 80));
    let indent = " ".repeat(4 * 9);
    let last = format!("  … {indent}└── VM/09999  Migrating  0s");
    assert_eq!(narrow.lines().last(), Some(&*last));
}

#[test]
fn as_data_ten_thousand_levels_can_be_read_by_any_parser() {
    let operations = chain(10_000);
    let kin = Kin::of(&operations, &[]);
    let text = serde_json::to_string(&data::Trees::of(&Forest::all(&kin))).unwrap();
    // serde_json's own limit is 128.
    let value: Value = serde_json::from_str(&text).unwrap();
    let mut resources = &value["components"][0]["namespaces"][0]["resources"];
    let mut levels = 0;
    while let Some([only]) = resources.as_array().map(Vec::as_slice) {
        levels += 1;
        resources = &only["children"];
    }
    let deeper = resources.as_array().unwrap();
    assert_eq!(levels + deeper.len(), 10_000);
    assert_eq!(deeper[0]["name"], "00050");
    assert_eq!(deeper[0]["depth"], Value::Null);
    assert_eq!(deeper[9_949]["name"], "09999");
    assert_eq!(deeper[9_949]["depth"], 9_999);
}

#[test]
fn the_tree_is_data_too() {
    let mut child = on("a", "VMI", "web", "Migrating")
        .owned_by("VM", "web")
        .state("Failing", Some(45));
    child.message = "no room".to_owned();
    let node = on("", "Node", "n", "Draining").of("kubernetes");
    let operations = vec![on("a", "VM", "web", "Migrating").item("1"), child, node];
    let kin = Kin::of(&operations, &[]);
    let data = serde_json::to_value(data::Trees::of(&Forest::all(&kin))).unwrap();
    let started = "2026-01-01T12:00:00Z";
    assert_eq!(
        data,
        json!({"components": [
            {"component": "kubernetes", "namespaces": [{"namespace": null, "resources": [{
                "apiVersion": "example.io/v1", "kind": "Node", "name": "n", "uid": "Node..n",
                "operations": [{
                    "operation": "Draining", "name": "n-draining", "namespace": "ifo-system",
                    "component": "kubernetes", "ruleSet": "rules",
                    "phase": "Active", "state": "Progressing", "started": started,
                }],
            }]}]},
            {"component": "kubevirt", "namespaces": [{"namespace": "a", "resources": [{
                "apiVersion": "example.io/v1", "kind": "VM", "name": "web", "namespace": "a",
                "uid": "VM.a.web",
                "operations": [{
                    "operation": "Migrating", "item": "1", "name": "web-migrating",
                    "namespace": "a", "component": "kubevirt", "ruleSet": "rules",
                    "phase": "Active", "state": "Progressing", "started": started,
                }],
                "children": [{
                    "apiVersion": "example.io/v1", "kind": "VMI", "name": "web", "namespace": "a",
                    "uid": "VMI.a.web",
                    "operations": [{
                        "operation": "Migrating", "name": "web-migrating", "namespace": "a",
                        "component": "kubevirt", "ruleSet": "rules", "phase": "Active",
                        "state": "Failing", "message": "no room", "progress": 45,
                        "started": started,
                    }],
                }],
            }]}]},
        ]})
    );
}

#[test]
fn siblings_are_in_the_order_that_was_asked_for() {
    let mut operations = vec![
        on("a", "VM", "a", "Migrating").since(10),
        on("a", "VM", "b", "Migrating").since(30),
        on("a", "VMI", "c", "Migrating")
            .owned_by("VM", "b")
            .since(20),
        on("a", "VMI", "d", "Migrating")
            .owned_by("VM", "b")
            .since(40),
    ];
    SortBy::Age.sort(&mut operations).unwrap();
    let kin = Kin::of(&operations, &[]);
    same(
        &draw(&Forest::all(&kin), now(), PIPED),
        "\
kubevirt
  a
    VM/b       Migrating  30s
    ├── VMI/d  Migrating  40s
    └── VMI/c  Migrating  20s
    VM/a       Migrating  10s
",
    );
}
