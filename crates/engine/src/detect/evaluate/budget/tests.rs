//! Tests of the module `budget`.

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
