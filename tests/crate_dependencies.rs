//! Checks the dependencies of the crates in this workspace:
//!
//! - The dependencies between the crates are those in the table of `docs/architecture.md`.
//! - The server (package `ifo`) links no library that only the kubectl plugin or the tests need.
//! - The plugin (package `kubectl-ifo`) links no library that only the server needs.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Returns the names of the packages that are linked into `package`, without the package itself.
/// `depth` is the largest distance.
fn linked(package: &str, depth: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges=normal"])
        .args(["--prefix=none", "--package", package, "--depth", depth])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo must start");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let tree = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let others = names.filter(|name| *name != package);
    others.map(str::to_owned).collect()
}

/// Returns the packages in the table of `docs/architecture.md`. The first column of the table names
/// the package, and the last column names its dependencies.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = include_str!("../docs/architecture.md");
    let lines = text.lines();
    let rows = lines.skip_while(|line| !line.starts_with("| package |"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let row = |row: &str| {
        let quoted = |cell: &str| {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        let cells: Vec<BTreeSet<String>> = row.trim_matches('|').split('|').map(quoted).collect();
        let package = cells[0].first().expect("the first cell names a package");
        (package.clone(), cells[cells.len() - 1].clone())
    };
    rows.map(row).collect()
}

#[test]
fn dependencies_between_the_crates_are_those_in_the_docs() {
    let documented = documented();
    let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/crates"));
    // The root package is a member, too.
    let members = crates.expect("the folder must exist").count() + 1;
    assert_eq!(documented.len(), members, "{documented:?}");
    for (package, expected) in &documented {
        let linked = linked(package, "1").into_iter();
        let own: BTreeSet<String> = linked.filter(|it| documented.contains_key(it)).collect();
        assert_eq!(own, *expected, "{package}");
    }
}

#[test]
fn server_and_plugin_do_not_link_each_others_libraries() {
    for (package, own, foreign) in [
        ("ifo", "axum", "ratatui crossterm clap_complete kubectl-ifo"),
        (
            "kubectl-ifo",
            "ratatui",
            "axum x509-parser prometheus-client ifo",
        ),
    ] {
        let linked = linked(package, "100");
        assert!(
            linked.contains(own),
            "{package} no longer links {own}: update the list in this test"
        );
        for name in foreign.split(' ') {
            assert!(!linked.contains(name), "{package} links {name}");
        }
    }
}
