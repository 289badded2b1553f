//! Finds the owners and the descendants of the object that an operation is about (its subject), for
//! the detail page of `top`.
//!
//! The owners and descendants come from the owner references and the correlation groups (label
//! `ifo.kubevirt.io/correlation-group`) of the operations in `top`. This module sends no
//! requests.

use super::row::TopRow;
use crate::listed_operation::OperationKey;
use crate::ownership::Ownership;
use crate::plain_text::one_line;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Largest number of objects that are shown. Further objects are left out. In a longer chain of
/// owners, the subject and its nearest owners are shown.
const MAX_OBJECTS: usize = 500;

/// An object on the page: the subject of the operation, or an owner or a descendant of the subject.
#[derive(Debug)]
pub(super) struct RelatedObject {
    /// Number of levels below the most distant owner.
    pub(super) depth: usize,
    /// Kind and name.
    pub(super) name: String,
    /// The active operations on the object, and the operation of the page. Empty for an owner that
    /// is only known from an owner reference.
    pub(super) rows: Vec<Arc<TopRow>>,
    /// True for the subject of the operation.
    pub(super) is_subject: bool,
}

/// Returns the subject of the operation `of`, with its owners before it and its descendants after
/// it. The most distant owner comes first.
///
/// An object can have several possible parents. [`Ownership`] finds and orders them, as for
/// `kubectl ifo tree`. Above the subject, only the first parent of an object is shown.
pub(super) fn related_objects<'a>(
    of: &Arc<TopRow>,
    all: impl Iterator<Item = &'a Arc<TopRow>>,
) -> Vec<RelatedObject> {
    let is_it = |row: &TopRow| row.operation.key() == of.operation.key();
    let mut rows: Vec<&Arc<TopRow>> = all.filter(|row| row.operation.active).collect();
    if !rows.iter().any(|row| is_it(row)) {
        rows.push(of);
    }
    let ownership = Ownership::of(rows.iter().map(|row| &row.operation), &[]);
    let by_key: HashMap<OperationKey, &Arc<TopRow>> =
        rows.iter().map(|row| (row.operation.key(), *row)).collect();
    let Some(own) = ownership.of_operation(&of.operation) else {
        return Vec::new();
    };
    let relative = |index: usize, depth: usize| {
        let node = &ownership.nodes[index];
        let rows = node.operations.iter();
        RelatedObject {
            depth,
            name: one_line(&format!("{}/{}", node.identity.kind, node.identity.name)),
            rows: rows
                .filter_map(|operation| by_key.get(&operation.key()).copied().cloned())
                .collect(),
            is_subject: index == own,
        }
    };
    let mut seen = HashSet::from([own]);
    let mut above = Vec::new();
    let mut at = own;
    while above.len() + 1 < MAX_OBJECTS
        && let Some(parent) = ownership.nodes[at].parents.first().copied()
        && seen.insert(parent)
    {
        above.push(parent);
        at = parent;
    }
    let mut relatives: Vec<RelatedObject> = above
        .iter()
        .rev()
        .chain([&own])
        .enumerate()
        .map(|(depth, index)| relative(*index, depth))
        .collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, parent) in ownership.below(&[own]) {
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(index);
        }
    }
    // The descendants are visited depth first. A stack replaces recursion, because a chain of
    // owners can be long.
    let mut stack = vec![(own, above.len())];
    while relatives.len() < MAX_OBJECTS
        && let Some((index, depth)) = stack.pop()
    {
        if index != own {
            if !seen.insert(index) {
                continue;
            }
            relatives.push(relative(index, depth));
        }
        let mut below = children.remove(&index).unwrap_or_default();
        // The children are pushed in reverse order, so that the first child is on top of the stack.
        below.sort_unstable_by(|a, b| b.cmp(a));
        stack.extend(below.into_iter().map(|index| (index, depth + 1)));
    }
    relatives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listed_operation::ListedOperation;
    use ifo_client::short_names::ShortNames;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    /// Creates an operation on a subject whose UID equals its name.
    fn row(name: &str, owner: &str) -> Arc<TopRow> {
        let mut operation = ListedOperation {
            name: name.to_owned(),
            active: true,
            ..ListedOperation::default()
        };
        operation.subject.kind = "Thing".to_owned();
        operation.subject.name = name.to_owned();
        operation.subject.uid = Some(name.to_owned());
        operation.subject.owner_references = vec![OwnerReference {
            kind: "Thing".to_owned(),
            name: owner.to_owned(),
            uid: owner.to_owned(),
            ..OwnerReference::default()
        }];
        Arc::new(TopRow::new(operation, &ShortNames::default()))
    }

    fn drawn(of: &str, pairs: &[(&str, &str)]) -> Vec<String> {
        let rows: Vec<Arc<TopRow>> = pairs.iter().map(|(name, owner)| row(name, owner)).collect();
        let of = rows.iter().find(|row| row.operation.name == of).unwrap();
        related_objects(of, rows.iter())
            .iter()
            .map(|it| {
                let own = if it.is_subject { "*" } else { "" };
                format!("{}{own}{} {}", ".".repeat(it.depth), it.name, it.rows.len())
            })
            .collect()
    }

    #[test]
    fn owners_are_above_and_dependents_below() {
        let pairs = [
            ("b", "a"),
            ("c", "b"),
            ("d", "c"),
            ("e", "d"),
            ("f", "c"),
            ("other", "b"),
        ];
        assert_eq!(
            drawn("c", &pairs),
            [
                "Thing/a 0",
                ".Thing/b 1",
                "..*Thing/c 1",
                "...Thing/d 1",
                "....Thing/e 1",
                "...Thing/f 1"
            ]
        );
    }

    #[test]
    fn members_of_a_group_are_below_its_root_as_in_the_tree() {
        let member = |name: &str, role: &str| {
            let mut operation = row(name, "").operation.clone();
            operation.subject.owner_references.clear();
            Arc::new(TopRow::new(
                operation.group("g", role),
                &ShortNames::default(),
            ))
        };
        let rows = [member("a", "root"), member("b", "child")];
        let seen = |of: usize| -> Vec<(usize, String)> {
            let relatives = related_objects(&rows[of], rows.iter());
            relatives
                .into_iter()
                .map(|it| (it.depth, it.name))
                .collect()
        };
        let both = [(0, "Thing/a".to_owned()), (1, "Thing/b".to_owned())];
        assert_eq!(seen(0), both);
        assert_eq!(seen(1), both);
    }

    #[test]
    fn resources_in_an_ownership_cycle_are_shown_once() {
        assert_eq!(
            drawn("a", &[("a", "b"), ("b", "c"), ("c", "a")]),
            ["Thing/c 1", ".Thing/b 1", "..*Thing/a 1"]
        );
        assert_eq!(drawn("a", &[("a", "a")]), ["*Thing/a 1"]);
    }

    #[test]
    fn a_long_ownership_chain_is_cut() {
        let names: Vec<String> = (0..10_000).map(|it| format!("{it:05}")).collect();
        let pairs: Vec<(&str, &str)> = names
            .windows(2)
            .map(|two| (two[1].as_str(), two[0].as_str()))
            .collect();
        assert_eq!(drawn("00001", &pairs).len(), MAX_OBJECTS);
        assert_eq!(drawn("09999", &pairs).len(), MAX_OBJECTS);
    }
}
