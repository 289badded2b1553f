//! Where an operation belongs. Enters: one operation and all others. Leaves: its subject
//! below its owners and above what it owns, as far as operations tell of them.

use super::row::Row;
use crate::cli::columns::one_line;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Subjects that are shown: more than anybody reads, and a bound for owners that own each
/// other in a long chain.
const MOST: usize = 500;

/// A subject among those around it.
#[derive(Debug)]
pub(super) struct Relative {
    /// How far below the first owner.
    pub(super) depth: usize,
    /// Kind and name.
    pub(super) name: String,
    /// What is under way on it; nothing on an owner that is known by its name only.
    pub(super) rows: Vec<Arc<Row>>,
    /// Whether it is the one that was asked for.
    pub(super) own: bool,
}

/// The subject of `of` with its owners and descendants, the farthest owner first.
pub(super) fn family<'a>(of: &Arc<Row>, all: impl Iterator<Item = &'a Arc<Row>>) -> Vec<Relative> {
    let mut subjects: HashMap<&str, Vec<&Arc<Row>>> = HashMap::new();
    let mut children: HashMap<&str, Vec<&str>> = HashMap::new();
    for row in all.filter(|row| row.operation.active) {
        let subject = &row.operation.subject;
        let Some(uid) = &subject.uid else { continue };
        let rows = subjects.entry(uid).or_default();
        rows.push(row);
        if rows.len() == 1 {
            for owner in &subject.owner_references {
                children.entry(&owner.uid).or_default().push(uid);
            }
        }
    }
    let subject = &of.operation.subject;
    let mut seen: HashSet<&str> = subject.uid.as_deref().into_iter().collect();
    let mut owners = Vec::new();
    let mut references = &subject.owner_references;
    // One owner at most is the controller; where none is, the first one stands for all.
    while owners.len() < MOST
        && let Some(owner) = references
            .iter()
            .find(|it| it.controller == Some(true))
            .or_else(|| references.first())
        && seen.insert(&owner.uid)
    {
        owners.push(owner);
        let Some(rows) = subjects.get(owner.uid.as_str()) else {
            break;
        };
        references = &rows[0].operation.subject.owner_references;
    }
    let mut relatives: Vec<Relative> = owners
        .iter()
        .rev()
        .enumerate()
        .map(|(depth, owner)| Relative {
            depth,
            name: one_line(&format!("{}/{}", owner.kind, owner.name)),
            rows: rows_of(&subjects, &owner.uid),
            own: false,
        })
        .collect();
    let uid = subject.uid.as_deref().unwrap_or_default();
    let mut rows = rows_of(&subjects, uid);
    if rows
        .iter()
        .all(|row| row.operation.key() != of.operation.key())
    {
        rows.push(Arc::clone(of));
    }
    relatives.push(Relative {
        depth: owners.len(),
        name: one_line(&format!("{}/{}", subject.kind, subject.name)),
        rows,
        own: true,
    });
    // Depth first, with a stack of our own: a chain may be long.
    let mut stack = below(&children, uid, owners.len() + 1);
    while relatives.len() < MOST
        && let Some((uid, depth)) = stack.pop()
    {
        if !seen.insert(uid) {
            continue;
        }
        let rows = rows_of(&subjects, uid);
        let subject = &rows[0].operation.subject;
        relatives.push(Relative {
            depth,
            name: one_line(&format!("{}/{}", subject.kind, subject.name)),
            rows,
            own: false,
        });
        stack.extend(below(&children, uid, depth + 1));
    }
    relatives
}

fn rows_of(subjects: &HashMap<&str, Vec<&Arc<Row>>>, uid: &str) -> Vec<Arc<Row>> {
    let rows = subjects.get(uid).into_iter().flatten();
    rows.map(|row| Arc::clone(row)).collect()
}

/// What hangs right below, the last first.
fn below<'a>(
    children: &HashMap<&'a str, Vec<&'a str>>,
    uid: &str,
    depth: usize,
) -> Vec<(&'a str, usize)> {
    let children = children.get(uid).into_iter().flatten();
    children.rev().map(|uid| (*uid, depth)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::operation::Operation;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    /// An operation on a subject whose UID is its name.
    fn row(name: &str, owner: &str) -> Arc<Row> {
        let mut operation = Operation {
            name: name.to_owned(),
            active: true,
            ..Operation::default()
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
        Arc::new(Row::new(operation))
    }

    fn drawn(of: &str, pairs: &[(&str, &str)]) -> Vec<String> {
        let rows: Vec<Arc<Row>> = pairs.iter().map(|(name, owner)| row(name, owner)).collect();
        let of = rows.iter().find(|row| row.operation.name == of).unwrap();
        family(of, rows.iter())
            .iter()
            .map(|it| {
                let own = if it.own { "*" } else { "" };
                format!("{}{own}{} {}", ".".repeat(it.depth), it.name, it.rows.len())
            })
            .collect()
    }

    #[test]
    fn owners_stand_above_and_what_is_owned_below() {
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
    fn things_that_own_each_other_are_shown_once() {
        assert_eq!(
            drawn("a", &[("a", "b"), ("b", "c"), ("c", "a")]),
            ["Thing/c 1", ".Thing/b 1", "..*Thing/a 1"]
        );
        assert_eq!(drawn("a", &[("a", "a")]), ["*Thing/a 1"]);
    }

    #[test]
    fn a_long_chain_ends_somewhere() {
        let names: Vec<String> = (0..10_000).map(|it| format!("{it:05}")).collect();
        let pairs: Vec<(&str, &str)> = names
            .windows(2)
            .map(|two| (two[1].as_str(), two[0].as_str()))
            .collect();
        assert_eq!(drawn("00001", &pairs).len(), MOST);
        assert_eq!(drawn("09999", &pairs).len(), MOST + 1);
    }
}
