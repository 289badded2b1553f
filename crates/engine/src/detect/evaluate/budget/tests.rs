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

#[test]
fn the_rule_sets_of_a_component_divide_its_share_of_the_steps() {
    let mut budgets = RuleSetBudgets::default();
    let [a, b] = ["a", "b"].map(Text::from);
    let alone = budgets.begin_object([&a].into_iter());
    assert_eq!(alone.share("a").steps, STEPS_PER_OBJECT);
    let shared = budgets.begin_object([&a, &b, &b, &b].into_iter());
    assert_eq!(shared.share("a").steps, STEPS_PER_OBJECT / 2);
    assert_eq!(shared.share("b").steps, STEPS_PER_OBJECT / 6);
}

/// Budgets whose clock advances only when the test advances it.
struct TimedBudgets {
    budgets: RuleSetBudgets,
    clock: Arc<Mutex<Instant>>,
    rule_sets: Vec<RuleSet>,
}

impl TimedBudgets {
    fn new(rule_sets: usize) -> Self {
        let begin = Instant::now();
        let clock = Arc::new(Mutex::new(begin));
        let own = clock.clone();
        let read = move || {
            let at = *own.lock().expect("no test panics with the lock");
            let used = at - begin;
            EvaluationInstant { at, used }
        };
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
        let component = Text::from("c");
        let covering = std::iter::repeat_n(&component, count);
        let mut budget = self.budgets.begin_object(covering);
        let evaluate = |(index, time): (usize, &Duration)| {
            let rule_set = &self.rule_sets[index];
            if !budget.may_evaluate(rule_set) {
                return false;
            }
            *clock.lock().expect("no test panics with the lock") += *time;
            budget.charge(rule_set);
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
        let sets = timed.rule_sets.iter();
        let throttled = sets.map(|it| {
            timed.budgets.fill_account(it);
            it.activity.is_throttled()
        });
        throttled.collect::<Vec<_>>()
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

#[test]
fn filling_an_account_throttles_no_idle_rule_set() {
    let timed = TimedBudgets::new(2);
    let now = *timed.clock.lock().expect("no test panics with the lock");
    let time = &timed.budgets.time;
    let charge = |index: usize, used: Duration| {
        time.charge(timed.rule_sets[index].activity.time(), used, now);
    };
    charge(0, Duration::from_millis(150));
    // The other rule set uses up the account of all rule sets together.
    charge(1, Duration::from_secs(2));
    let idle = &timed.rule_sets[0];
    assert!(!idle.activity.is_throttled());
    timed.budgets.fill_account(idle);
    assert!(!idle.activity.is_throttled());
}
