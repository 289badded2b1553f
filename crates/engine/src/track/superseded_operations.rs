//! Decides which operations on an object are superseded by other operations on the same object.
//!
//! A rule can declare that its operation supersedes other operations of its component. A rule never
//! ends an operation of another component, because another team can own that component.
//!
//! A superseded operation in flight completes. A superseded operation that is not in flight does
//! not start before the superseding operation ends.

use ifo_api::Text;
use std::collections::BTreeMap;

/// The identity of an operation among all operations on one object (its subject).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationName {
    /// Component of the rule sets that detect the operation, such as `kubevirt`. If rule sets of
    /// two components detect an operation with the same name, these are two operations.
    pub component: Text,
    /// Name of the operation, such as `Migrating`.
    pub operation: Text,
    /// Key of the `forEach` element that the operation is about. None if the operation is about the
    /// whole object, because its rule has no `forEach`.
    pub item: Option<Text>,
}

/// An operation that is in flight or could start.
#[derive(Clone, Copy, Debug)]
pub struct OperationCandidate<'a> {
    /// Identity of the operation.
    pub what: &'a OperationName,
    /// True if a rule currently detects the operation. False during the debounce period.
    pub detected: bool,
    /// Name of the rule set whose values the operation shows, and index of the rule in this rule
    /// set. The rule with the smaller pair is the earlier rule.
    pub order: (&'a str, usize),
    /// Names of the operations that the rule declares as superseded. `*` stands for all.
    pub supersedes: &'a [String],
}

impl OperationCandidate<'_> {
    /// Returns true if the rule declares that this operation supersedes `other`. Only operations of
    /// the same component can be superseded. An operation on the whole object can supersede
    /// operations on elements. An operation on an element can supersede only operations on the same
    /// element.
    fn declares_superseded(&self, other: &Self) -> bool {
        let mut names = self.supersedes.iter();
        self.what.component == other.what.component
            && self.what.operation != other.what.operation
            && (self.what.item.is_none() || self.what.item == other.what.item)
            && names.any(|name| name == "*" || other.what.operation == *name)
    }

    /// Returns true if this operation wins over `other`. If the object has no further operations,
    /// the winner supersedes `other`.
    ///
    /// If only one of the two rules declares the other operation as superseded, the operation of
    /// this rule wins. If both rules do so, the detections decide:
    ///
    /// - If only one operation is detected, it wins.
    /// - If both operations are detected, the operation of the earlier rule wins.
    /// - If neither operation is detected, neither wins.
    fn wins_over(&self, other: &Self) -> bool {
        let stays = self.detected && (!other.detected || self.order < other.order);
        self.declares_superseded(other) && (stays || !other.declares_superseded(self))
    }
}

/// Returns, for each candidate, the index of the candidate that supersedes it. Returns None for a
/// candidate that stays.
///
/// Of two candidates, one can win over the other (see `wins_over`). A candidate supersedes only
/// candidates over which it wins. A superseded candidate supersedes no candidate. For example, if C
/// wins over B, and B wins over A, then C supersedes B. So B does not supersede A, and A stays.
///
/// In a cycle, each candidate wins over the next candidate, and the last wins over the first. Then
/// the candidate with the earliest rule stays, although another candidate wins over it.
pub fn find_superseded(candidates: &[OperationCandidate<'_>]) -> Vec<Option<usize>> {
    let mut winners = vec![None; candidates.len()];
    let nothing = |candidate: &OperationCandidate<'_>| candidate.supersedes.is_empty();
    if candidates.iter().all(nothing) {
        return winners;
    }
    // The operations on each element form a group of their own, so that an object with many
    // elements takes little time. The group of the operations on the whole object comes first,
    // because an operation on an element never supersedes an operation of this group.
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let item = candidate.what.item.as_deref();
        groups.entry(item).or_default().push(index);
    }
    let wins_over = |one: usize, other: usize| candidates[one].wins_over(&candidates[other]);
    let mut whole = Vec::new();
    for (item, mut open) in groups {
        let mut whole_winners = whole.clone().into_iter();
        loop {
            let is_free = |index: usize| !open.iter().any(|&other| wins_over(other, index));
            let free = || open.iter().copied().find(|&index| is_free(index));
            // If no candidate is free, the open candidates contain a cycle.
            let rank = |it: usize| (nothing(&candidates[it]), candidates[it].order);
            let first = || open.iter().copied().min_by_key(|&it| rank(it));
            let Some(winner) = whole_winners.next().or_else(free).or_else(first) else {
                break;
            };
            open.retain(|&index| {
                if wins_over(winner, index) {
                    winners[index] = Some(winner);
                }
                index != winner && winners[index].is_none()
            });
            if item.is_none() {
                whole.push(winner);
            }
        }
    }
    winners
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name of an operation, true if it is detected, and the operations that its rule supersedes.
    type OperationRule<'a> = (&'a str, bool, &'a [&'a str]);

    /// Takes one tuple for each operation: its name, true if it is detected, and the operations
    /// that its rule names in `supersedes`. The name is `operation` or `operation/item`. The prefix
    /// `component:` is optional. Returns `loser<winner` for each superseded operation.
    fn superseded_pairs(rules: &[OperationRule<'_>]) -> Vec<String> {
        let all: Vec<(OperationName, Vec<String>)> = rules
            .iter()
            .map(|(name, _, supersedes)| {
                let (component, name) = name.split_once(':').unwrap_or(("kubevirt", name));
                let (operation, item) = match name.split_once('/') {
                    Some((operation, item)) => (operation, Some(item.into())),
                    None => (name, None),
                };
                let names: Vec<String> = supersedes.iter().map(ToString::to_string).collect();
                let what = OperationName {
                    component: component.into(),
                    operation: operation.into(),
                    item,
                };
                (what, names)
            })
            .collect();
        let candidates: Vec<OperationCandidate<'_>> = rules
            .iter()
            .zip(&all)
            .enumerate()
            .map(
                |(index, ((_, detected, _), (what, supersedes)))| OperationCandidate {
                    what,
                    detected: *detected,
                    order: ("rules", index),
                    supersedes,
                },
            )
            .collect();
        let winners = find_superseded(&candidates);
        let pairs = winners.iter().enumerate().filter_map(|(index, winner)| {
            let winner = (*winner)?;
            Some(format!("{}<{}", rules[index].0, rules[winner].0))
        });
        pairs.collect()
    }

    #[test]
    fn rules_supersede_operations_of_their_component_and_element() {
        const NONE: &[&str] = &[];
        let mutual = |a, b| vec![("A", a, &["B"][..]), ("B", b, &["A"])];
        let stopping = |stops| {
            vec![
                ("Migrating", true, NONE),
                ("Stopping", stops, &["Migrating"]),
            ]
        };
        let cases: [(&str, Vec<OperationRule<'_>>, &[&str]); 11] = [
            (
                "only operations of the same component are superseded",
                vec![
                    ("kubevirt:Migrating", true, NONE),
                    ("kubevirt:Stopping", true, &["Migrating"]),
                    ("other:Taking", true, &["*"]),
                    ("other:Migrating", true, NONE),
                ],
                &[
                    "kubevirt:Migrating<kubevirt:Stopping",
                    "other:Migrating<other:Taking",
                ],
            ),
            ("detected", stopping(true), &["Migrating<Stopping"]),
            ("debounce period", stopping(false), &["Migrating<Stopping"]),
            ("the detected one stays", mutual(true, false), &["B<A"]),
            ("the detected one stays", mutual(false, true), &["A<B"]),
            ("the first rule stays", mutual(true, true), &["B<A"]),
            (
                "`*` does not include the operation itself",
                vec![
                    ("Starting", true, NONE),
                    ("Deleting", true, &["*"]),
                    ("Moving", false, NONE),
                ],
                &["Starting<Deleting", "Moving<Deleting"],
            ),
            (
                "a superseded operation supersedes no other",
                vec![("A", true, NONE), ("B", true, &["A"]), ("C", true, &["B"])],
                &["B<C"],
            ),
            (
                "in a cycle, the first rule stays, and what the cycle supersedes does not",
                vec![
                    ("X", true, NONE),
                    ("A", true, &["B", "X"]),
                    ("B", true, &["C"]),
                    ("C", true, &["A"]),
                ],
                &["X<A", "B<A"],
            ),
            (
                "an operation on an element supersedes only on the same element",
                vec![
                    ("Copying/a", true, NONE),
                    ("Booting/a", true, &["Copying"]),
                    ("Copying/b", true, NONE),
                    ("Executing", true, NONE),
                ],
                &["Copying/a<Booting/a"],
            ),
            (
                "an operation on the whole object supersedes on all elements",
                vec![
                    ("Copying/a", true, &["Canceling"]),
                    ("Copying/b", true, NONE),
                    ("Canceling", true, &["Copying"]),
                ],
                &["Copying/a<Canceling", "Copying/b<Canceling"],
            ),
        ];
        for (name, rules, expected) in cases {
            assert_eq!(superseded_pairs(&rules), expected, "{name}");
        }
    }
}
