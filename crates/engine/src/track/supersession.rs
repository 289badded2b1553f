//! Decides which operations on an object are superseded by other operations on the same object.
//!
//! A rule can declare that its operation supersedes other operations. A superseded operation
//! completes. It does not start while the operation that supersedes it is in flight.

use crate::rules::Supersedes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The identity of an operation among all operations on one object (its subject).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationName {
    /// Name of the operation, such as `Migrating`.
    pub operation: Arc<str>,
    /// Key of the element that the operation is about. None for a rule without `forEach`.
    pub item: Option<Arc<str>>,
}

/// An operation that is in flight or could start.
#[derive(Clone, Copy, Debug)]
pub struct OperationCandidate<'a> {
    /// Identity of the operation.
    pub what: &'a OperationName,
    /// True if a rule currently detects the operation. False during the debounce period.
    pub detected: bool,
    /// Name of the rule set that describes the operation, and index of the rule in this rule set.
    pub order: (&'a str, usize),
    /// Operations that the rule declares as superseded.
    pub supersedes: &'a Supersedes,
}

impl OperationCandidate<'_> {
    /// Returns true if the rule declares that this operation supersedes `other`. An operation on
    /// the whole object can supersede operations on elements. An operation on an element can
    /// supersede only operations on the same element.
    fn declares_superseded(&self, other: &Self) -> bool {
        self.what.operation != other.what.operation
            && (self.what.item.is_none() || self.what.item == other.what.item)
            && self.supersedes.includes(&other.what.operation)
    }

    /// Returns true if this operation supersedes `other`. If both rules name each other, a detected
    /// operation wins over an operation that is not detected. If both operations are detected, the
    /// operation of the earlier rule wins.
    fn wins_over(&self, other: &Self) -> bool {
        let stays = self.detected && (!other.detected || self.order < other.order);
        self.declares_superseded(other) && (stays || !other.declares_superseded(self))
    }
}

/// Returns, for each candidate, the index of the candidate that supersedes it. Returns None for a
/// candidate that is not superseded.
///
/// A superseded candidate supersedes no other candidate. If C supersedes B and B supersedes A, then
/// A and C stay. In a cycle, the operation of the earliest rule stays.
pub fn find_superseded(candidates: &[OperationCandidate<'_>]) -> Vec<Option<usize>> {
    let mut lost = vec![None; candidates.len()];
    let nothing = |candidate: &OperationCandidate<'_>| *candidate.supersedes == Supersedes::Nothing;
    if candidates.iter().all(nothing) {
        return lost;
    }
    // Operations on the whole object come first, because an operation on an element never
    // supersedes them. Operations on different elements are compared in separate groups, so that
    // many elements need little time.
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let item = candidate.what.item.as_deref();
        groups.entry(item).or_default().push(index);
    }
    let wins_over = |one: usize, other: usize| candidates[one].wins_over(&candidates[other]);
    let mut whole = Vec::new();
    for (item, mut open) in groups {
        let mut earlier = whole.clone().into_iter();
        loop {
            let is_free = |index: usize| !open.iter().any(|&other| wins_over(other, index));
            let free = || open.iter().copied().find(|&index| is_free(index));
            let first = || open.iter().copied().min_by_key(|&it| candidates[it].order);
            let Some(winner) = earlier.next().or_else(free).or_else(first) else {
                break;
            };
            open.retain(|&index| {
                if wins_over(winner, index) {
                    lost[index] = Some(winner);
                }
                index != winner && lost[index].is_none()
            });
            if item.is_none() {
                whole.push(winner);
            }
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `(operation or operation/item, detected, superseded operations)` for each rule, and
    /// returns `loser<winner` for each superseded operation.
    fn superseded_pairs(rules: &[(&str, bool, &[&str])]) -> Vec<String> {
        let all: Vec<(OperationName, Supersedes)> = rules
            .iter()
            .map(|(name, _, supersedes)| {
                let (operation, item) = match name.split_once('/') {
                    Some((operation, item)) => (operation, Some(item.into())),
                    None => (*name, None),
                };
                let names: Vec<String> = supersedes.iter().map(ToString::to_string).collect();
                let what = OperationName {
                    operation: operation.into(),
                    item,
                };
                (what, Supersedes::new(&names))
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
    fn an_operation_that_is_not_detected_still_supersedes_during_its_debounce_period() {
        let rules = |stopping| {
            [
                ("Migrating", true, &[][..]),
                ("Stopping", stopping, &["Migrating"]),
            ]
        };
        assert_eq!(superseded_pairs(&rules(true)), ["Migrating<Stopping"]);
        assert_eq!(superseded_pairs(&rules(false)), ["Migrating<Stopping"]);
    }

    #[test]
    fn if_two_operations_supersede_each_other_the_detected_operation_stays() {
        let rules = |a, b| [("A", a, &["B"][..]), ("B", b, &["A"][..])];
        assert_eq!(superseded_pairs(&rules(true, false)), ["B<A"]);
        assert_eq!(superseded_pairs(&rules(false, true)), ["A<B"]);
        assert_eq!(
            superseded_pairs(&rules(true, true)),
            ["B<A"],
            "the operation of the first rule must stay"
        );
    }

    #[test]
    fn supersedes_all_does_not_include_the_operation_itself() {
        let rules = [
            ("Starting", true, &[][..]),
            ("Deleting", true, &["*"]),
            ("Moving", false, &[]),
        ];
        assert_eq!(
            superseded_pairs(&rules),
            ["Starting<Deleting", "Moving<Deleting"]
        );
    }

    #[test]
    fn a_superseded_operation_supersedes_no_other() {
        let rules = [
            ("A", true, &[][..]),
            ("B", true, &["A"]),
            ("C", true, &["B"]),
        ];
        assert_eq!(superseded_pairs(&rules), ["B<C"]);
    }

    #[test]
    fn in_a_cycle_of_supersedes_the_operation_of_the_first_rule_stays() {
        let rules = [
            ("A", true, &["B"][..]),
            ("B", true, &["C"]),
            ("C", true, &["A"]),
        ];
        assert_eq!(superseded_pairs(&rules), ["B<A"]);
    }

    #[test]
    fn operations_on_elements_supersede_only_on_the_same_element() {
        let rules = [
            ("Copying/a", true, &[][..]),
            ("Booting/a", true, &["Copying"]),
            ("Copying/b", true, &[]),
            ("Executing", true, &[]),
        ];
        assert_eq!(superseded_pairs(&rules), ["Copying/a<Booting/a"]);
        let rules = [
            ("Copying/a", true, &["Canceling"][..]),
            ("Copying/b", true, &[]),
            ("Canceling", true, &["Copying"]),
        ];
        assert_eq!(
            superseded_pairs(&rules),
            ["Copying/a<Canceling", "Copying/b<Canceling"]
        );
    }
}
