//! Limits the evaluation steps (the unit of the cost of expressions) of each rule set. So an
//! expensive rule set does not affect the other rule sets of the same rule book, which contains all
//! rule sets of one resource.
//!
//! All rule sets share the evaluation steps that are available for one object. A rule set may use
//! all remaining steps, except a reserved share for each later rule set.
//!
//! A rule set is throttled if its evaluations take too much time ([`EvaluationTime`]).

#[cfg(test)]
mod tests;

use crate::rules::{EvaluationInstant, EvaluationTime, RuleSet};
use ifo_cel::STEPS_PER_OBJECT;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of steps that are reserved for each later rule set. If more than 50 rule sets
/// cover an object, fewer steps are reserved, because all shares must fit into
/// [`STEPS_PER_OBJECT`]. A rule takes about ten steps, and one step for each list element that the
/// rule reads.
const MAX_SHARE: u64 = 2_000;

/// The evaluation budgets of the rule sets of one rule book. The default value does not measure
/// time.
#[derive(Debug, Default)]
pub struct RuleSetBudgets {
    time: Arc<EvaluationTime>,
    /// Time that evaluations have taken. Zero without a clock.
    pub spent: Duration,
}

/// The remaining steps for the evaluations on one object.
pub(super) struct ObjectBudget<'a> {
    budgets: &'a mut RuleSetBudgets,
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

    /// Begins the evaluations on the next object. `covering` is the number of rule sets that cover the
    /// object.
    pub(super) fn begin_object(&mut self, covering: usize) -> ObjectBudget<'_> {
        let remaining = u64::try_from(covering).unwrap_or(u64::MAX);
        ObjectBudget {
            clock: self.time.now(),
            free_time: EvaluationTime::free_time(covering),
            budgets: self,
            left: STEPS_PER_OBJECT,
            share: MAX_SHARE.min(STEPS_PER_OBJECT / remaining.max(1)),
            remaining_rule_sets: remaining,
        }
    }

    /// Returns true if the rule set is throttled, because its evaluations took too much time.
    pub fn is_throttled(&self, rule_set: &RuleSet) -> bool {
        let account = rule_set.activity.time();
        if account.is_exhausted()
            && let Some(now) = self.time.now()
        {
            // This call notices that the account is full again.
            self.time.may_evaluate(account, now.at);
        }
        account.is_exhausted()
    }
}

impl ObjectBudget<'_> {
    /// Returns the number of steps that the next rule set may use. Returns None if the rule set is
    /// throttled and must not be evaluated now.
    pub(super) fn steps_for(&mut self, rule_set: &RuleSet) -> Option<u64> {
        self.remaining_rule_sets = self.remaining_rule_sets.saturating_sub(1);
        let has_time = self.clock.is_none_or(|now| {
            let time = &self.budgets.time;
            time.may_evaluate(rule_set.activity.time(), now.at)
        });
        let reserved = self.remaining_rule_sets.saturating_mul(self.share);
        has_time.then(|| self.left.saturating_sub(reserved))
    }

    /// Records that the rule set has used this number of steps. Also charges the time since the last
    /// evaluation to the rule set.
    pub(super) fn charge(&mut self, rule_set: &RuleSet, steps: u64) {
        self.charge_time(rule_set);
        self.left = self.left.saturating_sub(steps);
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
