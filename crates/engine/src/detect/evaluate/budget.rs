//! Limits the evaluation steps (the unit of the cost of expressions) of each rule set. So an
//! expensive rule set does not affect the other rule sets of the same rule book, which contains all
//! rule sets of one resource.
//!
//! All rule sets share the evaluation steps that are available for one object. A rule set may use
//! all remaining steps, except a reserved share for each later rule set. If a rule set exhausts its
//! budget on ten consecutive objects, it is throttled: the server evaluates it on only one object
//! every ten seconds.
//!
//! A rule set is also throttled if its evaluations take too much time ([`EvaluationTime`]).

use crate::rules::{EvaluationInstant, EvaluationTime, RuleSet};
use ifo_cel::STEPS_PER_OBJECT;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of steps that are reserved for each later rule set. If more than 50 rule sets
/// cover an object, fewer steps are reserved, because all shares must fit into
/// [`STEPS_PER_OBJECT`]. A rule takes about ten steps, and one step for each list element that the
/// rule reads.
const MAX_SHARE: u64 = 2_000;

/// Number of consecutive objects on which a rule set must exhaust its budget to be throttled. One
/// object is not enough, because a single object can be unusually large.
const MAX_EXHAUSTED: u8 = 10;

/// Time in seconds between two evaluations of a throttled rule set. An evaluation of
/// [`STEPS_PER_OBJECT`] steps takes at most about 30 ms, so one evaluation in ten seconds costs
/// little.
const RETRY_SECONDS: i64 = 10;

/// The evaluation budgets of the rule sets of one rule book. The default value does not measure
/// time.
#[derive(Debug, Default)]
pub struct RuleSetBudgets {
    /// The use of each rule set, in the order of the rule book.
    usage: Vec<RuleSetUsage>,
    time: Arc<EvaluationTime>,
    /// Time that evaluations have taken since the last [`RuleSetBudgets::reset_spent`].
    spent: Duration,
}

/// The budget use of one rule set on earlier objects.
#[derive(Clone, Copy, Debug, Default)]
struct RuleSetUsage {
    /// Number of consecutive objects on which the rule set exhausted its budget, up to
    /// [`MAX_EXHAUSTED`].
    exhausted: u8,
    /// Time from which a throttled rule set may be evaluated again, in seconds since 1970.
    retry: i64,
}

/// The remaining steps for the evaluations on one object.
pub(super) struct ObjectBudget<'a> {
    budgets: &'a mut RuleSetBudgets,
    now: i64,
    left: u64,
    share: u64,
    /// Number of rule sets that cover the object and have not been evaluated yet.
    remaining_rule_sets: u64,
    /// End of the last evaluation, or the beginning of the first one. None without a clock.
    clock: Option<EvaluationInstant>,
    /// Time of each evaluation that is not charged to the rule set.
    free_time: Duration,
}

impl RuleSetBudgets {
    /// Creates budgets that measure evaluations with the clock of `time`.
    pub fn new(time: Arc<EvaluationTime>) -> Self {
        Self {
            time,
            ..Self::default()
        }
    }

    /// Begins the evaluations on the next object. `rule_sets` is the number of rule sets in the
    /// rule book. `covering` is the number of rule sets that cover the object.
    pub(super) fn begin_object(
        &mut self,
        rule_sets: usize,
        covering: usize,
        now: Timestamp,
    ) -> ObjectBudget<'_> {
        self.usage.resize(rule_sets, RuleSetUsage::default());
        let remaining = u64::try_from(covering).unwrap_or(u64::MAX);
        ObjectBudget {
            clock: self.time.now(),
            free_time: EvaluationTime::free_time(covering),
            budgets: self,
            now: now.as_second(),
            left: STEPS_PER_OBJECT,
            share: MAX_SHARE.min(STEPS_PER_OBJECT / remaining.max(1)),
            remaining_rule_sets: remaining,
        }
    }
}

impl RuleSetBudgets {
    /// Returns true if the rule set at `index` is throttled, because it exhausted its budget on ten
    /// consecutive objects, or because its evaluations took too much time.
    pub fn is_throttled(&self, index: usize, rule_set: &RuleSet) -> bool {
        let usage = self.usage.get(index);
        usage.is_some_and(|usage| usage.exhausted >= MAX_EXHAUSTED) || self.exceeds_time(rule_set)
    }

    fn exceeds_time(&self, rule_set: &RuleSet) -> bool {
        let account = rule_set.activity.time();
        if account.is_exhausted()
            && let Some(now) = self.time.now()
        {
            // This call notices that the account is full again.
            self.time.may_evaluate(account, now.at);
        }
        account.is_exhausted()
    }

    /// Returns the time that evaluations have taken since the last
    /// [`RuleSetBudgets::reset_spent`]. Zero without a clock.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Resets the result of [`RuleSetBudgets::spent`] to zero.
    pub fn reset_spent(&mut self) {
        self.spent = Duration::ZERO;
    }
}

impl ObjectBudget<'_> {
    /// Returns the number of steps that the rule set at `index` may use. Returns None if the rule
    /// set is throttled and must not be evaluated now.
    pub(super) fn steps_for(&mut self, index: usize, rule_set: &RuleSet) -> Option<u64> {
        let has_time = self.clock.is_none_or(|now| {
            let time = &self.budgets.time;
            time.may_evaluate(rule_set.activity.time(), now.at)
        });
        self.remaining_rule_sets = self.remaining_rule_sets.saturating_sub(1);
        if has_time {
            self.steps_left_for(index)
        } else {
            None
        }
    }

    fn steps_left_for(&mut self, index: usize) -> Option<u64> {
        let reserved = self.remaining_rule_sets.saturating_mul(self.share);
        let allowed = self.left.saturating_sub(reserved);
        if let Some(usage) = self.budgets.usage.get_mut(index)
            && usage.exhausted >= MAX_EXHAUSTED
        {
            // If `wait` is longer than `RETRY_SECONDS`, the clock was set back. In this case, the
            // server evaluates the rule set at once.
            let wait = usage.retry.saturating_sub(self.now);
            if (1..=RETRY_SECONDS).contains(&wait) {
                return None;
            }
            usage.retry = self.now.saturating_add(RETRY_SECONDS);
        }
        Some(allowed)
    }

    /// Records that the rule set at `index` was allowed to use `taken` steps and did not use `rest`
    /// of them. If `rest` is 0, the rule set has exhausted its budget. Also charges the time since
    /// the last evaluation to the rule set.
    pub(super) fn give_back(&mut self, index: usize, rule_set: &RuleSet, taken: u64, rest: u64) {
        self.charge_time(rule_set);
        self.left = self.left.saturating_sub(taken.saturating_sub(rest));
        let Some(usage) = self.budgets.usage.get_mut(index) else {
            return;
        };
        if rest == 0 {
            usage.exhausted = usage.exhausted.saturating_add(1).min(MAX_EXHAUSTED);
            if usage.exhausted == MAX_EXHAUSTED {
                usage.retry = self.now.saturating_add(RETRY_SECONDS);
            }
        } else {
            usage.exhausted = 0;
        }
    }

    /// Charges the time since the last call, or since the beginning, to a rule set.
    pub(super) fn charge_time(&mut self, rule_set: &RuleSet) {
        let (Some(began), Some(ended)) = (self.clock, self.budgets.time.now()) else {
            return;
        };
        self.clock = Some(ended);
        let spent = ended.used_since(began);
        self.budgets.spent += spent;
        let charge = spent.saturating_sub(self.free_time);
        if !charge.is_zero() {
            let account = rule_set.activity.time();
            self.budgets.time.charge(account, charge, ended.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::compile;
    use std::sync::Mutex;
    use std::time::Instant;

    fn rule_set() -> RuleSet {
        let spec = serde_json::json!({
            "component": "c",
            "target": {"group": "g.io", "version": "v1", "resource": "things"},
            "rules": [{"operation": "Working", "expression": "true"}],
        });
        let spec = serde_json::from_value(spec).expect("the test's rule set is valid");
        compile("a", &spec).expect("the test's rule set compiles")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("the test's time is in range")
    }

    /// Simulates the evaluations on one object at `second`. The rule sets in `greedy` use their
    /// whole budgets, and the others use one step. Returns the budget of each rule set, or 0 if the
    /// rule set is not evaluated now because it is throttled.
    fn evaluate_object(
        budgets: &mut RuleSetBudgets,
        sets: usize,
        second: i64,
        greedy: &[usize],
    ) -> Vec<u64> {
        let rule_set = rule_set();
        let mut budget = budgets.begin_object(sets, sets, at(second));
        let evaluate_rule_set = |index| {
            let Some(taken) = budget.steps_for(index, &rule_set) else {
                return 0;
            };
            let rest = if greedy.contains(&index) {
                0
            } else {
                taken - 1
            };
            budget.give_back(index, &rule_set, taken, rest);
            taken
        };
        (0..sets).map(evaluate_rule_set).collect()
    }

    #[test]
    fn a_single_rule_set_may_use_the_whole_budget() {
        let mut budgets = RuleSetBudgets::default();
        assert_eq!(evaluate_object(&mut budgets, 1, 0, &[]), [STEPS_PER_OBJECT]);
    }

    #[test]
    fn each_rule_set_has_a_reserved_share_even_if_earlier_rule_sets_exhaust_their_budgets() {
        let mut budgets = RuleSetBudgets::default();
        let taken = evaluate_object(&mut budgets, 3, 0, &[0, 1]);
        assert_eq!(
            taken,
            [STEPS_PER_OBJECT - 2 * MAX_SHARE, MAX_SHARE, MAX_SHARE]
        );
        let all: Vec<usize> = (0..500).collect();
        let taken = evaluate_object(&mut RuleSetBudgets::default(), 500, 0, &all);
        assert_eq!(taken.iter().sum::<u64>(), STEPS_PER_OBJECT);
        assert!(taken.iter().all(|taken| *taken >= STEPS_PER_OBJECT / 500));
    }

    #[test]
    fn a_rule_set_that_exhausts_its_budget_repeatedly_is_throttled() {
        let mut budgets = RuleSetBudgets::default();
        let full = STEPS_PER_OBJECT - MAX_SHARE;
        for _ in 0..MAX_EXHAUSTED {
            assert_eq!(evaluate_object(&mut budgets, 2, 0, &[0])[0], full);
        }
        for second in 0..RETRY_SECONDS {
            let taken = evaluate_object(&mut budgets, 2, second, &[0]);
            assert_eq!(taken, [0, STEPS_PER_OBJECT], "{second}");
        }
        // After `RETRY_SECONDS`, the rule set is evaluated again. It is still too expensive, so it
        // stays throttled.
        assert_eq!(
            evaluate_object(&mut budgets, 2, RETRY_SECONDS, &[0])[0],
            full
        );
        assert_eq!(evaluate_object(&mut budgets, 2, RETRY_SECONDS, &[0])[0], 0);
        // In the next evaluation, the rule set is cheap enough, so it is no longer throttled.
        assert_eq!(
            evaluate_object(&mut budgets, 2, 2 * RETRY_SECONDS, &[])[0],
            full
        );
        assert_eq!(
            evaluate_object(&mut budgets, 2, 2 * RETRY_SECONDS, &[])[0],
            full
        );
    }

    #[test]
    fn a_throttled_rule_set_is_evaluated_again_if_the_clock_is_set_back() {
        let mut budgets = RuleSetBudgets::default();
        for _ in 0..MAX_EXHAUSTED {
            evaluate_object(&mut budgets, 1, 3_600, &[0]);
        }
        assert_eq!(evaluate_object(&mut budgets, 1, 3_600, &[0]), [0]);
        assert_eq!(
            evaluate_object(&mut budgets, 1, 0, &[0]),
            [STEPS_PER_OBJECT]
        );
        // The next evaluation is `RETRY_SECONDS` later.
        assert_eq!(
            evaluate_object(&mut budgets, 1, RETRY_SECONDS - 1, &[0]),
            [0]
        );
        assert_eq!(
            evaluate_object(&mut budgets, 1, RETRY_SECONDS, &[]),
            [STEPS_PER_OBJECT]
        );
    }

    #[test]
    fn occasional_large_objects_throttle_no_rule_set() {
        let mut budgets = RuleSetBudgets::default();
        for turn in 0..5 * usize::from(MAX_EXHAUSTED) {
            let greedy: &[usize] = if turn % 5 == 4 { &[] } else { &[0] };
            assert!(evaluate_object(&mut budgets, 1, 0, greedy)[0] > 0, "{turn}");
        }
    }

    /// Budgets whose clock advances only when the test advances it.
    struct TimedBudgets {
        budgets: RuleSetBudgets,
        clock: Arc<Mutex<Instant>>,
        rule_sets: Vec<RuleSet>,
    }

    impl TimedBudgets {
        fn new(rule_sets: usize) -> Self {
            let clock = Arc::new(Mutex::new(Instant::now()));
            let own = clock.clone();
            let read = move || *own.lock().expect("no test panics with the lock");
            Self {
                budgets: RuleSetBudgets::new(Arc::new(EvaluationTime::new(read))),
                clock,
                rule_sets: (0..rule_sets).map(|_| rule_set()).collect(),
            }
        }

        fn advance(&self, time: Duration) {
            *self.clock.lock().expect("no test panics with the lock") += time;
        }

        /// Simulates the evaluations on one object. Each rule set takes its time in `times`. Returns
        /// for each rule set whether it was evaluated.
        fn evaluate_object(&mut self, times: &[Duration]) -> Vec<bool> {
            let count = self.rule_sets.len();
            let clock = self.clock.clone();
            let mut budget = self.budgets.begin_object(count, count, at(0));
            let evaluate = |(index, time): (usize, &Duration)| {
                let rule_set = &self.rule_sets[index];
                let Some(taken) = budget.steps_for(index, rule_set) else {
                    return false;
                };
                *clock.lock().expect("no test panics with the lock") += *time;
                budget.give_back(index, rule_set, taken, taken - 1);
                true
            };
            times.iter().enumerate().map(evaluate).collect()
        }
    }

    #[test]
    fn the_time_of_an_evaluation_is_charged_to_the_rule_set_that_used_it() {
        let mut timed = TimedBudgets::new(3);
        let (cheap, slow) = (Duration::from_micros(50), Duration::from_millis(14));
        let mut evaluated = 0;
        for _ in 0..1_000 {
            let done = timed.evaluate_object(&[cheap, slow, cheap]);
            assert!(
                done[0] && done[2],
                "the cheap rule sets are always evaluated"
            );
            evaluated += usize::from(done[1]);
        }
        // The rule set can use one second in advance, and its share of the time until then.
        assert!((71..90).contains(&evaluated), "{evaluated} evaluations");
        let throttled = |timed: &TimedBudgets| {
            let sets = timed.rule_sets.iter().enumerate();
            sets.map(|(index, it)| timed.budgets.is_throttled(index, it))
                .collect::<Vec<_>>()
        };
        assert_eq!(throttled(&timed), [false, true, false]);
        // Without a use, the account becomes full, and the rule set is no longer throttled.
        timed.advance(Duration::from_secs(11));
        assert_eq!(throttled(&timed), [false, false, false]);
        assert_eq!(timed.evaluate_object(&[cheap; 3]), [true, true, true]);
    }

    #[test]
    fn a_long_list_throttles_no_cheap_rule_set() {
        let mut timed = TimedBudgets::new(2);
        for object in 0..100_000 {
            let done = timed.evaluate_object(&[Duration::from_micros(400); 2]);
            assert_eq!(done, [true, true], "object {object}");
        }
    }
}
