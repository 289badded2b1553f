//! Supersession: which operations of a subject end or wait because of other operations of the
//! subject.
//!
//! A rule can declare that its operation supersedes others of the same subject. A superseded
//! operation ends, and does not start while the other operation is active.

use crate::rules::Supersedes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The identity of an operation within its subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationName {
    /// The name of the operation.
    pub operation: Arc<str>,
    /// The element of the subject that it is about, for rules with `forEach`.
    pub item: Option<Arc<str>>,
}

/// An operation that is active or could start.
#[derive(Clone, Copy, Debug)]
pub struct OperationCandidate<'a> {
    /// Its identity.
    pub what: &'a OperationName,
    /// True if a rule currently detects it. False if it is settling.
    pub detected: bool,
    /// The rule set that describes the operation, and the index of its rule.
    pub order: (&'a str, usize),
    /// The operations that its rule supersedes.
    pub supersedes: &'a Supersedes,
}

impl OperationCandidate<'_> {
    /// Returns true if its rule names the other operation. An operation on the whole subject also
    /// supersedes operations on its elements. An operation on an element supersedes none on another
    /// element.
    fn names(&self, other: &Self) -> bool {
        self.what.operation != other.what.operation
            && (self.what.item.is_none() || self.what.item == other.what.item)
            && self.supersedes.names(&other.what.operation)
    }

    /// Returns true if the other operation ends or waits because of this one. If each names the
    /// other one, as phases of one state machine do, the detected operation wins. If both are
    /// detected, the first one in the list of rules wins.
    fn beats(&self, other: &Self) -> bool {
        let stays = self.detected && (!other.detected || self.order < other.order);
        self.names(other) && (stays || !other.names(self))
    }
}

/// Returns, for each superseded contender, the index of the contender that supersedes it.
///
/// A superseded contender supersedes no other one. In a chain of three, the first and the last one
/// stay. In a cycle, the first one in the list of rules stays.
pub fn losers(contenders: &[OperationCandidate<'_>]) -> Vec<Option<usize>> {
    let mut lost = vec![None; contenders.len()];
    let nothing = |contender: &OperationCandidate<'_>| *contender.supersedes == Supersedes::Nothing;
    if contenders.iter().all(nothing) {
        return lost;
    }
    // Operations on the whole subject come first, because an operation on an element never
    // supersedes them. Elements are independent of each other, so many elements stay cheap.
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (place, contender) in contenders.iter().enumerate() {
        let item = contender.what.item.as_deref();
        groups.entry(item).or_default().push(place);
    }
    let beats = |one: usize, other: usize| contenders[one].beats(&contenders[other]);
    let mut whole = Vec::new();
    for (item, mut open) in groups {
        let mut earlier = whole.clone().into_iter();
        loop {
            let is_free = |place: usize| !open.iter().any(|&other| beats(other, place));
            let free = || open.iter().copied().find(|&place| is_free(place));
            let first = || open.iter().copied().min_by_key(|&it| contenders[it].order);
            let Some(winner) = earlier.next().or_else(free).or_else(first) else {
                break;
            };
            open.retain(|&place| {
                if beats(winner, place) {
                    lost[place] = Some(winner);
                }
                place != winner && lost[place].is_none()
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

    /// `(operation or operation/item, detected, what it supersedes)`, in the order of
    /// the rules. Yields `loser<winner` for each that gives way.
    fn verdict(rules: &[(&str, bool, &[&str])]) -> Vec<String> {
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
        let contenders: Vec<OperationCandidate<'_>> = rules
            .iter()
            .zip(&all)
            .enumerate()
            .map(
                |(place, ((_, detected, _), (what, supersedes)))| OperationCandidate {
                    what,
                    detected: *detected,
                    order: ("rules", place),
                    supersedes,
                },
            )
            .collect();
        let lost = losers(&contenders);
        let told = lost.iter().enumerate().filter_map(|(place, winner)| {
            let winner = (*winner)?;
            Some(format!("{}<{}", rules[place].0, rules[winner].0))
        });
        told.collect()
    }

    #[test]
    fn a_superseded_operation_ends_also_for_a_settling_successor() {
        let rules = |stopping| {
            [
                ("Migrating", true, &[][..]),
                ("Stopping", stopping, &["Migrating"]),
            ]
        };
        assert_eq!(verdict(&rules(true)), ["Migrating<Stopping"]);
        assert_eq!(verdict(&rules(false)), ["Migrating<Stopping"]);
    }

    #[test]
    fn of_two_operations_that_supersede_each_other_the_detected_one_stays() {
        let rules = |a, b| [("A", a, &["B"][..]), ("B", b, &["A"][..])];
        assert_eq!(verdict(&rules(true, false)), ["B<A"]);
        assert_eq!(verdict(&rules(false, true)), ["A<B"]);
        assert_eq!(
            verdict(&rules(true, true)),
            ["B<A"],
            "the first in the list"
        );
    }

    #[test]
    fn supersedes_all_does_not_include_the_operation_itself() {
        let rules = [
            ("Starting", true, &[][..]),
            ("Deleting", true, &["*"]),
            ("Moving", false, &[]),
        ];
        assert_eq!(verdict(&rules), ["Starting<Deleting", "Moving<Deleting"]);
    }

    #[test]
    fn a_superseded_operation_supersedes_no_other() {
        let rules = [
            ("A", true, &[][..]),
            ("B", true, &["A"]),
            ("C", true, &["B"]),
        ];
        assert_eq!(verdict(&rules), ["B<C"]);
    }

    #[test]
    fn in_a_cycle_of_supersedes_the_first_rule_stays() {
        let rules = [
            ("A", true, &["B"][..]),
            ("B", true, &["C"]),
            ("C", true, &["A"]),
        ];
        assert_eq!(verdict(&rules), ["B<A"]);
    }

    #[test]
    fn an_element_supersedes_within_itself_and_the_subject_supersedes_all_elements() {
        let rules = [
            ("Copying/a", true, &[][..]),
            ("Booting/a", true, &["Copying"]),
            ("Copying/b", true, &[]),
            ("Executing", true, &[]),
        ];
        assert_eq!(verdict(&rules), ["Copying/a<Booting/a"]);
        let rules = [
            ("Copying/a", true, &["Canceling"][..]),
            ("Copying/b", true, &[]),
            ("Canceling", true, &["Copying"]),
        ];
        assert_eq!(
            verdict(&rules),
            ["Copying/a<Canceling", "Copying/b<Canceling"]
        );
    }
}
