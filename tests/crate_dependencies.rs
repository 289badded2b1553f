//! Checks the dependencies of the crates in this workspace:
//!
//! - The dependencies between the crates are those in the table of `docs/architecture.md`.
//! - The server (package `ifo`) links no library that only the kubectl plugin or the tests need.
//! - The plugin (package `kubectl-ifo`) links no library that only the server needs.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The output of `cargo metadata` for the workspace and its dependencies.
struct Workspace(Value);

impl Workspace {
    fn read() -> Self {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--offline", "--format-version=1"])
            // Without this filter, the command fails if dependencies for other platforms have not
            // been downloaded.
            .args(["--filter-platform", &host()])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo must start");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        Self(serde_json::from_slice(&output.stdout).expect("cargo must print JSON"))
    }

    fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
        value[field].as_array().expect("the field must be a list")
    }

    /// Returns the names of all packages, by package id.
    fn names(&self) -> BTreeMap<&str, &str> {
        let packages = Self::list(&self.0, "packages").iter();
        packages
            .map(|it| {
                (
                    it["id"].as_str().expect("a package has an id"),
                    it["name"].as_str().expect("a package has a name"),
                )
            })
            .collect()
    }

    /// Returns the names of the workspace's members, each with the names of the members that it
    /// depends on. Leaves out dependencies that only tests or build scripts need.
    fn members(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let names = self.names();
        let ids = Self::list(&self.0, "workspace_members").iter();
        let members: BTreeSet<&str> = ids
            .map(|id| names[id.as_str().expect("a member is an id")])
            .collect();
        let packages = Self::list(&self.0, "packages").iter();
        let own = packages
            .filter(|it| members.contains(it["name"].as_str().expect("a package has a name")));
        own.map(|package| {
            let dependencies = Self::list(package, "dependencies").iter();
            let normal = dependencies.filter(|it| it["kind"].is_null());
            let needed = normal.map(|it| it["name"].as_str().expect("a dependency has a name"));
            let needed = needed.filter(|name| members.contains(name)).collect();
            (
                package["name"].as_str().expect("a package has a name"),
                needed,
            )
        })
        .collect()
    }

    /// Returns the names of all packages that are linked into the binaries of `package`.
    fn linked(&self, package: &str) -> BTreeSet<&str> {
        let names = self.names();
        let nodes = Self::list(&self.0["resolve"], "nodes").iter();
        let nodes: BTreeMap<&str, &Value> = nodes
            .map(|node| (node["id"].as_str().expect("a node has an id"), node))
            .collect();
        let first = names.iter().find(|(_, name)| **name == package);
        let mut open = vec![*first.expect("the package must exist").0];
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            for dependency in Self::list(nodes[id], "deps") {
                let kinds = Self::list(dependency, "dep_kinds");
                if kinds.iter().any(|kind| kind["kind"].is_null()) {
                    open.push(dependency["pkg"].as_str().expect("a dependency has an id"));
                }
            }
        }
        seen.into_iter().map(|id| names[id]).collect()
    }
}

/// Returns the platform of this machine, such as `x86_64-unknown-linux-gnu`.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output();
    let output = output.expect("rustc must start").stdout;
    let text = String::from_utf8(output).expect("rustc prints UTF-8");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc must print its platform").to_owned()
}

/// Returns the texts between backquotes in a table cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the packages in the table of `docs/architecture.md`. The first column of the table names
/// the package, and the last column names its dependencies.
fn documented(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| package |"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|');
        let package = cells.next().and_then(|cell| quoted(cell).next());
        let needed = cells.next_back().expect("a row has cells");
        (
            package.expect("the first cell must name a package"),
            quoted(needed).collect(),
        )
    })
    .collect()
}

#[test]
fn dependencies_between_the_crates_are_those_in_the_docs() {
    let text = include_str!("../docs/architecture.md");
    let documented = documented(text);
    assert_eq!(
        documented.len(),
        8,
        "the table must have 8 packages: {documented:?}"
    );
    assert_eq!(Workspace::read().members(), documented);
}

#[test]
fn server_and_plugin_do_not_link_each_others_libraries() {
    let workspace = Workspace::read();
    for (package, own, foreign) in [
        (
            "ifo",
            "axum",
            &[
                "ratatui",
                "crossterm",
                "clap_complete",
                "kubectl-ifo",
                "openssl",
            ][..],
        ),
        (
            "kubectl-ifo",
            "ratatui",
            &["axum", "x509-parser", "dashmap", "prometheus-client", "ifo"],
        ),
    ] {
        let linked = workspace.linked(package);
        assert!(
            linked.contains(own),
            "{package} no longer links {own}: update the list in this test"
        );
        for name in foreign {
            assert!(!linked.contains(name), "{package} links {name}");
        }
    }
}
