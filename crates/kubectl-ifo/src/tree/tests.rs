//! Tests of the trees that `kubectl ifo tree` prints.

mod ownership;

use super::draw::draw;
use super::forest::Forest;
use super::{ResourceArgument, matching_nodes};
use crate::colors::Paint;
use crate::columns::OperationColumn;
use crate::filter::Filters;
use crate::operation::InFlightOperation;
use crate::operation_source::Objects;
use crate::output::TextStyle;
use crate::ownership::Ownership;
use crate::sort::SortBy;
use crate::test_fixtures::{OperationFixture as _, SubjectFixture as _, now, on, subject};
use crate::test_snapshots::short_names;
use ifo_api::live::SubjectReference;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

fn piped() -> TextStyle {
    TextStyle {
        short_names: short_names(),
        ..TextStyle::default()
    }
}

fn on_screen(columns: usize) -> TextStyle {
    TextStyle {
        screen: Some(columns),
        ..piped()
    }
}

fn drawn(operations: Vec<InFlightOperation>, style: &TextStyle) -> String {
    drawn_with(operations, &[], style)
}

fn drawn_with(
    mut operations: Vec<InFlightOperation>,
    known: &[SubjectReference],
    style: &TextStyle,
) -> String {
    SortBy::default().sort(&mut operations, &Objects::default());
    let ownership = Ownership::of(&operations, known);
    draw(&Forest::all(&ownership, &|_| true), now(), style).to_string()
}

fn drawn_for(
    resource: &str,
    operations: &[InFlightOperation],
    known: &[SubjectReference],
) -> String {
    drawn_for_with_filters(resource, operations, known, &Filters::default())
}

fn drawn_for_with_filters(
    resource: &str,
    operations: &[InFlightOperation],
    known: &[SubjectReference],
    filters: &Filters,
) -> String {
    let resource: ResourceArgument = resource.parse().unwrap();
    let ownership = Ownership::of(operations, known);
    let tops = matching_nodes(&ownership, &resource);
    let forest = Forest::under(&ownership, &tops, &|it| filters.shows(it));
    draw(&forest, now(), &piped()).to_string()
}

#[track_caller]
fn same(drawn: &str, expected: &str) {
    assert_eq!(drawn, expected, "\n{drawn}\n{expected}");
}

/// Returns the operations of the example in `docs/kubectl-ifo.md`.
fn picture() -> Vec<InFlightOperation> {
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
fn the_tree_follows_owner_references() {
    let [hyper, kubevirt, csv] = picture().try_into().unwrap();
    let kubevirt = kubevirt.owned_by("HyperConverged", "kubevirt-hyperconverged");
    same(&drawn(vec![csv, kubevirt, hyper], &piped()), PICTURE);
}

#[test]
fn the_tree_follows_correlation_labels() {
    let [hyper, kubevirt, csv] = picture().try_into().unwrap();
    let hyper = hyper.group("cnv", "root");
    let kubevirt = kubevirt.group("cnv", "child");
    let operations = vec![csv, kubevirt, hyper];
    same(&drawn(operations.clone(), &piped()), PICTURE);
    // The tree fits into 80 columns, so nothing is cut.
    same(&drawn(operations, &on_screen(80)), PICTURE);
}

#[test]
fn each_operation_of_one_subject_has_its_own_line() {
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
        &drawn(operations, &piped()),
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
fn unusual_facts_are_shown_after_the_age() {
    let operations = vec![
        on("a", "VM", "a", "Migrating").state("Progressing", Some(45)),
        on("a", "VM", "b", "Migrating").state("Blocked", None),
        on("a", "VM", "c", "Migrating").state("Failing", Some(100)),
        on("a", "VM", "d", "Migrating"),
        on("a", "VM", "e", "Migrating").state("Succeeded", None),
    ];
    same(
        &drawn(operations.clone(), &piped()),
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
    wide[0].status.message = "to\nnode".into();
    same(
        &drawn(
            wide,
            &TextStyle {
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
fn on_a_narrow_terminal_kinds_are_shortened_before_names_are_cut() {
    let kubevirt = |kind: &str, name: &str, operation: &str| {
        let mut it = on("team-a", kind, name, operation);
        it.spec.subject.api_version = "kubevirt.io/v1".into();
        it
    };
    let migration = "VirtualMachineInstanceMigration";
    let operations = vec![
        kubevirt(migration, "kubevirt-migrate-vm-dhcck", "Running"),
        // The initials of this kind are the short name of another kind.
        kubevirt("VirtualMachineImage", "ubuntu", "Downloading"),
    ];
    let complete = "\
kubevirt
  team-a
    VirtualMachineImage/ubuntu                                 Downloading  0s
    VirtualMachineInstanceMigration/kubevirt-migrate-vm-dhcck  Running      0s
";
    for wide_enough in [piped(), on_screen(120), on_screen(78)] {
        same(&drawn(operations.clone(), &wide_enough), complete);
    }
    for narrow in [60, 77] {
        same(
            &drawn(operations.clone(), &on_screen(narrow)),
            "\
kubevirt
  team-a
    VirtualMachineImage/ubuntu      Downloading  0s
    vmim/kubevirt-migrate-vm-dhcck  Running      0s
",
        );
    }
    let cut = drawn(operations, &on_screen(40));
    assert!(cut.contains("vmim/kubevirt-migr…"), "{cut}");
}

#[test]
fn colors_change_no_column_width() {
    let operations = vec![
        on("a", "VM", "a", "Migrating").state("Failing", Some(45)),
        on("a", "VMI", "b", "Booting").owned_by("VM", "a"),
    ];
    let paint = Paint { on: true };
    let painted = drawn(operations.clone(), &TextStyle { paint, ..piped() });
    let mut bare = String::new();
    let mut rest = painted.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        bare += before;
        rest = after.split_once('m').unwrap().1;
    }
    bare += rest;
    assert_ne!(bare, painted);
    same(&bare, &drawn(operations, &piped()));
}

#[test]
fn columns_use_display_width() {
    let operations = vec![
        on("a", "VM", "日本語", "Migrating"),
        on("a", "VM", "é\u{1b}[31m\n", "移行中"),
        on("a", "VM", "abcdef", "X"),
    ];
    same(
        &drawn(operations.clone(), &piped()),
        "\
kubevirt
  a
    VM/abcdef   X          0s
    VM/é�[31m   移行中     0s
    VM/日本語   Migrating  0s
",
    );
    for columns in 17..30 {
        let narrow = drawn(operations.clone(), &on_screen(columns));
        assert!(
            narrow.lines().all(|line| line.width() <= columns),
            "{narrow}"
        );
        assert_eq!(narrow.contains("日本語"), columns >= 27, "{narrow}");
    }
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
    let drawn_80 = drawn(operations.clone(), &on_screen(80));
    same(&drawn_80, &expected);
    let widest = drawn_80.lines().map(UnicodeWidthStr::width).max();
    assert_eq!(widest, Some(80));
    for columns in [0, 1, 2, 5, 10, 20, 30, 79] {
        let drawn = drawn(operations.clone(), &on_screen(columns));
        let wide = drawn.lines().find(|line| line.width() > columns);
        assert_eq!(wide, None, "{columns}");
    }
    // The output to a pipe is not cut.
    assert!(
        drawn(operations, &piped()).contains(&format!("VirtualMachine/{long}  Migrating  0s\n"))
    );
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
        &drawn(operations, &on_screen(44)),
        "\
kubevirt
  a
    VirtualMa…  ErrorUn…  119s  Blocked 100%
    └── Virtu…  Schedul…  0s
",
    );
}

#[test]
fn on_a_narrow_terminal_states_stay() {
    let on = |name: &str| on("a", "VirtualMachine", name, "ErrorUnschedulable").since(119);
    let operations = vec![
        on("gpu-training").state("Failing", Some(32)),
        on("gpu-inference").state("Blocked", None),
    ];
    for (columns, states) in [
        (30, ["Failing", "Blocked"]),
        (36, ["Failing", "Blocked"]),
        (40, ["Failing 32%", "Blocked"]),
        (60, ["Failing 32%", "Blocked"]),
    ] {
        let text = drawn(operations.clone(), &on_screen(columns));
        for state in states {
            let is_whole = |line: &str| line.ends_with(&format!("  {state}"));
            assert!(text.lines().any(is_whole), "{columns}: {state}\n{text}");
        }
        assert!(text.lines().all(|line| line.width() <= columns), "{text}");
    }
}

/// Returns operations on a chain of objects: each object except the first is owned by the object
/// before it.
fn chain(length: usize) -> Vec<InFlightOperation> {
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
fn ten_thousand_levels_are_shown_with_limited_depth() {
    let operations = chain(10_000);
    let text = drawn(operations.clone(), &piped());
    assert_eq!(text.lines().count(), 2 + 10_000);
    let indent = " ".repeat(4 * 32);
    let last = format!("{indent}    └── VM/09999  Migrating  0s");
    assert_eq!(text.lines().last(), Some(&*last).map(|it| &it[4..]));
    let of_one = drawn_for("VM/00000", &operations, &[]);
    assert_eq!(of_one.lines().count(), 2 + 10_000);
    let ownership = Ownership::of(&operations, &[]);
    let json = serde_json::to_string(&Forest::all(&ownership, &|_| true)).unwrap();
    // serde_json accepts at most 128 levels.
    let value: Value = serde_json::from_str(&json).unwrap();
    assert!(value["components"][0]["namespaces"][0]["resources"][0]["children"].is_array());
    assert_eq!(json.matches("Migrating").count(), 10_000);
}

#[test]
fn the_tree_can_be_printed_as_json() {
    let mut child = on("a", "VMI", "web", "Migrating")
        .owned_by("VM", "web")
        .state("Failing", Some(45));
    child.status.message = "no room".into();
    let node = on("", "Node", "n", "Draining").of("kubernetes");
    let operations = vec![on("a", "VM", "web", "Migrating").item("1"), child, node];
    let ownership = Ownership::of(&operations, &[]);
    let data = serde_json::to_value(Forest::all(&ownership, &|_| true)).unwrap();
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
fn siblings_are_in_the_requested_order() {
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
    SortBy::Column(OperationColumn::Age).sort(&mut operations, &Objects::default());
    let ownership = Ownership::of(&operations, &[]);
    same(
        &draw(&Forest::all(&ownership, &|_| true), now(), &piped()),
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
