//! Limits the evaluation of each rule set. So an expensive rule set does not affect the other rule
//! sets of the same rule book. A rule book contains all rule sets of one resource.
//!
//! - On one object, each rule set may use an equal share of the evaluation steps (the unit of the
//!   cost of expressions).
//! - A rule set is throttled if its evaluations take too much time ([`EvaluationTime`]).

#[cfg(test)]
mod tests;

use crate::rules::{EvaluationInstant, EvaluationTime, FREE_TIME_PER_OBJECT, RuleSet};
use ifo_cel::STEPS_PER_OBJECT;
use std::sync::Arc;
use std::time::Duration;

/// The evaluation budgets of the rule sets of one rule book. The default value does not measure
/// time, so it throttles no rule set.
#[derive(Debug, Default)]
pub struct RuleSetBudgets {
    time: Arc<EvaluationTime>,
    /// Time that evaluations have taken. Zero without a clock.
    pub spent: Duration,
}

/// The budgets for the evaluations on one object.
pub(super) struct ObjectBudget<'a> {
    budgets: &'a mut RuleSetBudgets,
    /// Number of steps that each rule set may use.
    pub(super) steps: u64,
    /// The part of the time of each evaluation that is not charged to the rule set.
    free_time: Duration,
    /// End of the last evaluation, or the beginning of the first one. None without a clock.
    clock: Option<EvaluationInstant>,
}

impl RuleSetBudgets {
    /// Creates budgets that measure evaluations with the clock of `time`.
    pub fn new(time: Arc<EvaluationTime>) -> Self {
        Self {
            time,
            ..Self::default()
        }
    }

    /// Begins the evaluations on the next object. `covering` is the number of rule sets that cover
    /// the object.
    pub(super) fn begin_object(&mut self, covering: usize) -> ObjectBudget<'_> {
        let covering = u32::try_from(covering.max(1)).unwrap_or(u32::MAX);
        ObjectBudget {
            clock: self.time.now(),
            budgets: self,
            steps: STEPS_PER_OBJECT / u64::from(covering),
            free_time: FREE_TIME_PER_OBJECT / covering,
        }
    }

    /// Adds the time that has passed to the time account of a throttled rule set. If the account is
    /// then full, the rule set is no longer throttled.
    ///
    /// Evaluations also fill accounts, but only those of the rule sets that cover the object. If a
    /// throttled rule set covers no changed object, its account is filled only at the next resync.
    /// This delay is acceptable, because an empty account needs 10 s or longer to become full.
    pub fn fill_account(&self, rule_set: &RuleSet) {
        let account = rule_set.activity.time();
        // `may_evaluate` fills the account. It must not be called for other rule sets: while the
        // account of all rule sets together is empty, it would throttle a rule set that has used
        // more than its reduced allowance.
        if account.is_exhausted()
            && let Some(now) = self.time.now()
        {
            self.time.may_evaluate(account, now.at);
        }
    }
}

impl ObjectBudget<'_> {
    /// Returns false if the rule set is throttled and must not be evaluated now.
    pub(super) fn may_evaluate(&self, rule_set: &RuleSet) -> bool {
        let (time, account) = (&self.budgets.time, rule_set.activity.time());
        self.clock
            .is_none_or(|now| time.may_evaluate(account, now.at))
    }

    /// Charges a rule set for the time since the previous call. The first call charges the time
    /// since `begin_object`.
    pub(super) fn charge(&mut self, rule_set: &RuleSet) {
        let (Some(began), Some(ended)) = (self.clock, self.budgets.time.now()) else {
            return;
        };
        self.clock = Some(ended);
        let spent = ended.used.saturating_sub(began.used);
        self.budgets.spent += spent;
        let charge = spent.saturating_sub(self.free_time);
        if !charge.is_zero() {
            let account = rule_set.activity.time();
            self.budgets.time.charge(account, charge, ended.at);
        }
    }
}
