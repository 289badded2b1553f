//! The evaluation budgets of rule sets. Input: the steps that each rule set used on earlier
//! objects. Output: the budget of each rule set for the next object. So an expensive rule set is
//! not evaluated completely, and does not affect other rule sets.
//!
//! All rule sets of a target share the steps of one object. The first rule set may use nearly all
//! of them, except a share for each later rule set. A rule set that exhausts its budget on
//! consecutive objects is throttled: it is evaluated only from time to time.

use ifo_cel::STEPS_PER_OBJECT;
use jiff::Timestamp;

/// The share of a rule set if there are few rule sets. A rule takes some ten steps, and one for
/// each element that it reads.
const MIN_SHARE: u64 = 2_000;

/// Number of consecutive objects on which a rule set exhausts its budget before it is throttled.
/// Some objects may be unusually large.
const MAX_EXHAUSTED: u8 = 10;

/// Seconds between two evaluations of a throttled rule set. All rule sets together use at most 30
/// ms for an object, and one of a hundred rule sets a hundredth of this.
const RETRY_SECONDS: i64 = 10;

/// The budgets of the rule sets of one book, by their index in the book.
#[derive(Clone, Debug, Default)]
pub struct RuleSetBudgets(Vec<RuleSetStanding>);

#[derive(Clone, Copy, Debug, Default)]
struct RuleSetStanding {
    /// Number of consecutive objects on which the budget was exhausted.
    strikes: u8,
    /// The time of the last evaluation, in seconds since 1970.
    retry: i64,
}

/// The remaining steps for one object.
pub(super) struct ObjectBudget<'a> {
    allowances: &'a mut RuleSetBudgets,
    now: i64,
    left: u64,
    share: u64,
    /// Number of rule sets that have not been evaluated.
    to_come: u64,
}

impl RuleSetBudgets {
    /// Begins the next object. `rule_sets` is the number of rule sets in the book, and `asked` the
    /// number of those that cover the object.
    pub(super) fn open(
        &mut self,
        rule_sets: usize,
        asked: usize,
        now: Timestamp,
    ) -> ObjectBudget<'_> {
        self.0.resize(rule_sets, RuleSetStanding::default());
        let to_come = u64::try_from(asked).unwrap_or(u64::MAX);
        ObjectBudget {
            allowances: self,
            now: now.as_second(),
            left: STEPS_PER_OBJECT,
            share: MIN_SHARE.min(STEPS_PER_OBJECT / to_come.max(1)),
            to_come,
        }
    }
}

impl RuleSetBudgets {
    /// Returns true if the rule set at `place` is throttled, because it exhausted its budget on ten
    /// consecutive objects.
    pub fn is_throttled(&self, place: usize) -> bool {
        self.0
            .get(place)
            .is_some_and(|standing| standing.strikes >= MAX_EXHAUSTED)
    }
}

impl ObjectBudget<'_> {
    /// The budget of the rule set at `place`. None if it must not be evaluated.
    pub(super) fn take(&mut self, place: usize) -> Option<u64> {
        self.to_come = self.to_come.saturating_sub(1);
        let others = self.to_come.saturating_mul(self.share);
        let may = self.left.saturating_sub(others);
        if let Some(standing) = self.allowances.0.get_mut(place)
            && standing.strikes >= MAX_EXHAUSTED
        {
            if self.now < standing.retry {
                return None;
            }
            standing.retry = self.now.saturating_add(RETRY_SECONDS);
        }
        Some(may)
    }

    /// Returns the steps of `taken` that the rule set did not use.
    pub(super) fn settle(&mut self, place: usize, taken: u64, rest: u64) {
        self.left = self.left.saturating_sub(taken.saturating_sub(rest));
        let Some(standing) = self.allowances.0.get_mut(place) else {
            return;
        };
        if rest == 0 {
            standing.strikes = standing.strikes.saturating_add(1).min(MAX_EXHAUSTED);
            if standing.strikes == MAX_EXHAUSTED {
                standing.retry = self.now.saturating_add(RETRY_SECONDS);
            }
        } else {
            standing.strikes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("it is in range")
    }

    /// The budget of each rule set if the named ones exhaust theirs. 0 for a rule set that is not
    /// evaluated.
    fn round(
        allowances: &mut RuleSetBudgets,
        sets: usize,
        second: i64,
        greedy: &[usize],
    ) -> Vec<u64> {
        let mut budget = allowances.open(sets, sets, at(second));
        let ask = |place| {
            let Some(taken) = budget.take(place) else {
                return 0;
            };
            let rest = if greedy.contains(&place) {
                0
            } else {
                taken - 1
            };
            budget.settle(place, taken, rest);
            taken
        };
        (0..sets).map(ask).collect()
    }

    #[test]
    fn a_single_rule_set_may_use_the_whole_budget() {
        let mut allowances = RuleSetBudgets::default();
        assert_eq!(round(&mut allowances, 1, 0, &[]), [STEPS_PER_OBJECT]);
    }

    #[test]
    fn the_last_rule_set_has_its_share_however_much_the_first_ones_use() {
        let mut allowances = RuleSetBudgets::default();
        let taken = round(&mut allowances, 3, 0, &[0, 1]);
        assert_eq!(
            taken,
            [STEPS_PER_OBJECT - 2 * MIN_SHARE, MIN_SHARE, MIN_SHARE]
        );
        let all: Vec<usize> = (0..500).collect();
        let taken = round(&mut RuleSetBudgets::default(), 500, 0, &all);
        assert_eq!(taken.iter().sum::<u64>(), STEPS_PER_OBJECT);
        assert!(taken.iter().all(|taken| *taken >= STEPS_PER_OBJECT / 500));
    }

    #[test]
    fn a_rule_set_that_exhausts_its_budget_repeatedly_is_throttled() {
        let mut allowances = RuleSetBudgets::default();
        let full = STEPS_PER_OBJECT - MIN_SHARE;
        for _ in 0..MAX_EXHAUSTED {
            assert_eq!(round(&mut allowances, 2, 0, &[0])[0], full);
        }
        for second in 0..RETRY_SECONDS {
            let taken = round(&mut allowances, 2, second, &[0]);
            assert_eq!(taken, [0, STEPS_PER_OBJECT], "{second}");
        }
        // Still too expensive.
        assert_eq!(round(&mut allowances, 2, RETRY_SECONDS, &[0])[0], full);
        assert_eq!(round(&mut allowances, 2, RETRY_SECONDS, &[0])[0], 0);
        // Cheap enough again.
        assert_eq!(round(&mut allowances, 2, 2 * RETRY_SECONDS, &[])[0], full);
        assert_eq!(round(&mut allowances, 2, 2 * RETRY_SECONDS, &[])[0], full);
    }

    #[test]
    fn occasional_large_objects_throttle_no_rule_set() {
        let mut allowances = RuleSetBudgets::default();
        for turn in 0..5 * usize::from(MAX_EXHAUSTED) {
            let greedy: &[usize] = if turn % 5 == 4 { &[] } else { &[0] };
            assert!(round(&mut allowances, 1, 0, greedy)[0] > 0, "{turn}");
        }
    }
}
