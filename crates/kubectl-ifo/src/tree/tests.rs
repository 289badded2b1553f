//! Tests of the trees that `kubectl ifo tree` prints: which parent an object has, and how a tree is
//! drawn. The function `group` sets the labels that put an operation into a correlation group,
//! which connects objects that do not own each other.

use super::ResourceArgument;
use super::draw::draw;
use super::forest::{Forest, forest, json};
use super::graph::OwnerGraph;
use crate::operations::operation::InFlightOperation;
use crate::output::colors::Paint;
use crate::output::print::TextStyle;
use crate::output::sort::SortBy;
use crate::test_fixtures::{OperationFixture as _, SubjectFixture as _, now, on, subject};
use ifo_api::live::SubjectReference;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

fn on_screen(columns: Option<usize>) -> TextStyle {
    TextStyle {
        screen: columns,
        ..TextStyle::default()
    }
}

fn drawn(operations: &[InFlightOperation], style: &TextStyle) -> String {
    let mut operations = operations.to_vec();
    SortBy::default().sort(&mut operations);
    let graph = OwnerGraph::of(&operations, |_| true, &[]);
    draw(&forest(&graph, None), now(), style).to_string()
}

/// Returns the namespaces and the objects of trees with their bars, without the other columns.
fn shape(forest: &Forest<'_>) -> String {
    let text = draw(forest, now(), &on_screen(None)).to_string();
    let lines = text.lines().skip(1).map(|line| {
        let line = line.strip_prefix("    ").unwrap_or(line.trim());
        let name = line.find('/').unwrap_or_default();
        let end = line[name..].find("  ").map_or(line.len(), |it| name + it);
        line[..end].to_owned()
    });
    lines.collect::<Vec<_>>().join(" | ")
}

fn all(operations: &[InFlightOperation]) -> String {
    all_with(operations, &[])
}

/// Draws all trees. `known` are owners that were looked up in the cluster.
fn all_with(operations: &[InFlightOperation], known: &[SubjectReference]) -> String {
    let mut operations = operations.to_vec();
    SortBy::default().sort(&mut operations);
    let graph = OwnerGraph::of(&operations, |_| true, known);
    shape(&forest(&graph, None))
}

/// Draws the tree of one object, with the operations for which `is_included` returns true.
fn below(
    resource: &str,
    operations: &[InFlightOperation],
    known: &[SubjectReference],
    is_included: &dyn Fn(&InFlightOperation) -> bool,
) -> String {
    let resource: ResourceArgument = resource.parse().unwrap();
    let graph = OwnerGraph::of(operations, is_included, known);
    shape(&forest(&graph, Some(&resource)))
}

#[test]
fn each_operation_has_a_line_with_its_unusual_facts() {
    let mut web = on("a", "VM", "web", "Migrating").state("Progressing", Some(45));
    web.status.message = "to\nnode".into();
    let operations = [
        web,
        on("a", "VM", "web", "Resizing")
            .since(60)
            .state("Blocked", None),
        on("a", "Disk", "d", "Growing").owned_by("VM", "web"),
        on("a", "Disk", "d", "Moving")
            .item("1")
            .owned_by("VM", "web"),
        on("a", "Disk", "e", "Moving")
            .owned_by("VM", "web")
            .state("Failing", Some(100)),
        on("a", "Part", "p", "Moving")
            .owned_by("Disk", "d")
            .state("Succeeded", None),
    ];
    let expected = "\
kubevirt
  a
    VM/web          Migrating  0s   45%
    VM/web          Resizing   60s  Blocked
    ├── Disk/d      Growing    0s
    │   Disk/d/1    Moving     0s
    │   └── Part/p  Moving     0s   Succeeded
    └── Disk/e      Moving     0s   Failing 100%
";
    assert_eq!(drawn(&operations, &on_screen(None)), expected);
    let wide = TextStyle {
        wide: true,
        ..on_screen(None)
    };
    let text = drawn(&operations[..1], &wide);
    let row = "    VM/web  Migrating  0s  Progressing 45%  web-migrating  to node\n";
    assert!(text.ends_with(row), "{text}");
    // Colours change no column.
    let paint = Paint { on: true };
    let painted = drawn(
        &operations,
        &TextStyle {
            paint,
            ..on_screen(None)
        },
    );
    let mut parts = painted.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    let plain = parts.fold(first, |text, it| text + it.split_once('m').unwrap().1);
    assert_eq!(plain, expected);
}

#[test]
fn on_a_narrow_terminal_lines_are_cut() {
    let long = "x".repeat(100);
    let operations = [
        on("a", "VM", "日本語", "Running"),
        on(&long, "Disk", &long, "\u{1b}[31m").of(&long),
    ];
    for columns in [0, 1, 5, 10, 30, 79] {
        let text = drawn(&operations, &on_screen(Some(columns)));
        assert!(
            text.lines().all(|it| it.width() <= columns),
            "{columns}: {text}"
        );
    }
    let piped = drawn(&operations, &on_screen(None));
    assert!(piped.contains(&format!("Disk/{long}  �[31m")), "{piped}");
}

#[test]
fn an_object_is_below_its_controller_or_the_root_of_its_group() {
    let operations = [
        on("a", "Plan", "p", "Executing").group("g", "root"),
        on("a", "VM", "w", "Migrating").group("g", "child"),
        on("a", "VM", "x", "Migrating").group("g", "child"),
        on("a", "VMI", "w", "Migrating")
            .group("g", "child")
            .owned_by("VM", "x")
            .owned_by("VM", "w")
            .controlled(),
        // The owner `unknown` has no operation.
        on("a", "VMI", "z", "Migrating")
            .group("g", "child")
            .owned_by("VM", "unknown"),
    ];
    let tree = "a | Plan/p | ├── VM/w | │   └── VMI/w | ├── VM/x | └── VMI/z";
    assert_eq!(all(&operations), tree);
}

#[test]
fn the_root_of_a_group_is_in_the_same_namespace_or_cluster_scoped() {
    let root = |namespace: &str, name: &str| on(namespace, "Plan", name, "Up").group("g", "root");
    let child = |namespace: &str| on(namespace, "Run", "r", "Running").group("g", "child");
    for (operations, tree) in [
        (
            vec![root("b", "p"), child("b"), child("c")],
            "b | Plan/p | └── Run/r | c | Run/r",
        ),
        (
            vec![root("", "v"), child("m")],
            "(cluster) | Plan/v | └── Run/r (m)",
        ),
        (
            vec![root("b", "p"), root("", "v"), child("b")],
            "(cluster) | Plan/v | b | Plan/p | └── Run/r",
        ),
    ] {
        assert_eq!(all(&operations), tree);
    }
}

#[test]
fn an_owner_without_operations_is_shown_if_it_joins_several_subjects() {
    let pod = |namespace: &str, name: &str| on(namespace, "Pod", name, "Evicting");
    let owned = |name: &str, owner: &str| pod("a", name).owned_by("Set", owner);
    let pods = [owned("x", "one"), owned("y", "two"), owned("z", "two")];
    assert_eq!(all(&pods), "a | Pod/x | Set/two | ├── Pod/y | └── Pod/z");
    // The Deployment owns the Set, so it is above its Pod.
    let set = subject("a", "Set", "one").owned_by("a", "Deployment", "web");
    let operations = [
        on("a", "Deployment", "web", "RollingOut"),
        owned("x", "one"),
    ];
    assert_eq!(
        all_with(&operations, &[set]),
        "a | Deployment/web | └── Pod/x"
    );
    assert_eq!(all(&operations), "a | Deployment/web | Pod/x");
    // A Node without an operation does not take Pods out of their namespaces.
    let pod = |namespace| pod(namespace, "p").owned_in("", "Node", "n");
    let mut operations = vec![pod("a"), pod("b")];
    assert_eq!(all(&operations), "a | Pod/p | b | Pod/p");
    operations.push(on("", "Node", "n", "Draining"));
    let tree = "(cluster) | Node/n | ├── Pod/p (a) | └── Pod/p (b)";
    assert_eq!(all(&operations), tree);
}

#[test]
fn owners_are_matched_by_name() {
    let mut owner = on("a", "VM", "web", "Migrating");
    let owned = on("a", "VMI", "web", "Migrating").owned_by("VM", "web");
    owner.spec.subject.uid = None;
    assert_eq!(all(&[owner, owned]), "a | VM/web | └── VMI/web");
}

#[test]
fn owners_in_a_cycle_are_each_shown_once() {
    let operations = [
        on("a", "VM", "x", "Migrating").owned_by("VM", "z"),
        on("a", "VM", "y", "Migrating").owned_by("VM", "x"),
        on("a", "VM", "z", "Migrating").owned_by("VM", "y"),
        on("a", "VM", "self", "Migrating").owned_by("VM", "self"),
    ];
    let tree = "a | VM/self | VM/x | VM/y | VM/z";
    assert_eq!(all(&operations), tree);
    assert_eq!(below("VM/y", &operations, &[], &|_| true), "a | VM/y");
}

#[test]
fn ten_thousand_levels_are_shown_with_limited_depth() {
    let operations: Vec<_> = (0..10_000)
        .map(|number| {
            let it = on("a", "VM", &format!("{number:05}"), "Migrating");
            match number {
                0 => it,
                _ => it.owned_by("VM", &format!("{:05}", number - 1)),
            }
        })
        .collect();
    let text = drawn(&operations, &on_screen(None));
    assert_eq!(text.lines().count(), 2 + 10_000);
    let deepest = format!("{}└── VM/00032  Migrating", " ".repeat(4 * 32));
    assert!(text.contains(&deepest), "{text}");
    let graph = OwnerGraph::of(&operations, |_| true, &[]);
    let json = json(&forest(&graph, None)).to_string();
    // serde_json accepts at most 128 levels.
    serde_json::from_str::<Value>(&json).unwrap();
    assert_eq!(json.matches("Migrating").count(), 10_000);
}

#[test]
fn one_resource_is_shown_with_its_descendants_even_below_excluded_operations() {
    let operations = [
        on("a", "VM", "web", "Restarting").owned_by("Pool", "p"),
        on("a", "Pod", "launcher", "Starting").owned_by("VMI", "web"),
        on("b", "Pod", "launcher", "Starting").owned_by("VMI", "web"),
        on("a", "VM", "db", "Migrating"),
    ];
    let known = [
        subject("a", "VMI", "web").owned_by("a", "VM", "web"),
        subject("b", "VMI", "web").owned_by("b", "VM", "web"),
    ];
    let tree = "a | VM/web | └── VMI/web |     └── Pod/launcher \
                | b | VM/web | └── VMI/web |     └── Pod/launcher";
    let below = |resource, operation: Option<&str>| {
        let is_included =
            |it: &InFlightOperation| operation.is_none_or(|name| *it.spec.operation == *name);
        below(resource, &operations, &known, &is_included)
    };
    assert_eq!(below("vm/web", None), tree);
    assert_eq!(below("VM/web", Some("Starting")), tree);
    assert_eq!(below("VM/web", Some("Booting")), "");
    assert_eq!(below("VM/none", None), "");
}

#[test]
fn the_names_are_cut_so_that_the_states_stay() {
    let operations = [
        on("a", "VM", &"w".repeat(100), "Migrating").state("Failing", Some(45)),
        on("a", "VM", "x", "Migrating"),
    ];
    let text = drawn(&operations, &on_screen(Some(80)));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|it| it.width() <= 80), "{text}");
    assert!(lines[2].contains("w…  Migrating"), "{text}");
    assert!(lines[2].ends_with("Failing 45%"), "{text}");
    assert!(lines[3].contains(" VM/x  "), "{text}");
}
