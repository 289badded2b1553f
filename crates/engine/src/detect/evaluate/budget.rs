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

#[cfg(test)]
mod tests;

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
