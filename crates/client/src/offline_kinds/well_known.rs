//! Short names and scopes of widely used kinds, from the table `well_known.txt`. Two programs use
//! the table for kinds that discovery does not contain:
//!
//! - The demo of `ifo-apiserver` reads objects from a folder, which may lack the CRDs of their
//!   kinds.
//! - The plugin `kubectl-ifo` reads short names from aggregated discovery, which a kube-apiserver
//!   before 1.26 does not have.

use super::plural;
use std::sync::LazyLock;

/// A row of the table.
struct WellKnownKind {
    short_name: &'static str,
    group: &'static str,
    /// The kind, or `*` for all other kinds of the group.
    kind: &'static str,
    scope: &'static str,
}

static ALL: LazyLock<Vec<WellKnownKind>> = LazyLock::new(|| {
    let lines = include_str!("well_known.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_default();
        WellKnownKind {
            short_name: next(),
            group: next().trim_start_matches('-'),
            kind: next(),
            scope: next(),
        }
    });
    rows.collect()
});

/// Returns true if a kind is namespaced. Returns None if the table contains neither the kind nor its
/// group.
pub(super) fn is_namespaced(group: &str, kind: &str) -> Option<bool> {
    let mut rows = ALL.iter().filter(|row| row.group == group);
    let row = rows.find(|row| row.kind == kind || row.kind == "*")?;
    Some(row.scope == "Namespaced")
}

/// Returns the short names of `resource` in `group`. `resource` is a plural, such as `deployments`.
pub fn short_names(group: &str, resource: &str) -> Vec<&'static str> {
    let rows = ALL.iter().filter(|row| row.group == group);
    let rows = rows.filter(|row| row.short_name != "-" && plural(row.kind) == resource);
    rows.map(|row| row.short_name).collect()
}

/// Returns true if `name` is a short name of the resource `resource` in `group`. A short name with an
/// added `s`, such as `vms`, is accepted, too. `name` must be in lower case.
pub(super) fn is_short_name(name: &str, group: &str, resource: &str) -> bool {
    let singular = name.strip_suffix('s').unwrap_or(name);
    let short_names = short_names(group, resource);
    short_names.contains(&name) || short_names.contains(&singular)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_belongs_to_one_group() {
        assert!(is_short_name("deploy", "apps", "deployments"));
        assert!(is_short_name("vms", "kubevirt.io", "virtualmachines"));
        assert!(!is_short_name("deploy", "example.io", "deployments"));
        assert!(!is_short_name("deploy", "apps", "daemonsets"));
        assert!(!is_short_name("-", "storage.k8s.io", "csinodes"));
    }

    #[test]
    fn each_row_of_the_table_is_valid() {
        for row in &*ALL {
            assert!(
                ["Namespaced", "Cluster"].contains(&row.scope),
                "{}",
                row.kind
            );
            let all = ALL
                .iter()
                .filter(|it| (it.group, it.kind) == (row.group, row.kind));
            assert_eq!(all.count(), 1, "{}", row.kind);
        }
    }
}
