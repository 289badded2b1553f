//! Limits the evaluation of each rule set. So an expensive rule set does not affect the other rule
//! sets of the same rule book. A rule book contains all rule sets of one resource.
//!
//! - On one object, each component may use an equal share of the evaluation steps (the unit of the
//!   cost of expressions). The rule sets of a component may use equal parts of its share.
//! - A rule set is throttled if its evaluations take too much time ([`EvaluationTime`]).

#[cfg(test)]
mod tests;

use crate::rules::{EvaluationInstant, EvaluationTime, FREE_TIME_PER_OBJECT, RuleSet, StepShare};
use ifo_api::Text;
use ifo_cel::STEPS_PER_OBJECT;
use std::collections::BTreeMap;
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
    /// Number of rule sets of each component that cover the object.
    components: BTreeMap<&'a str, u32>,
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

    /// Begins the evaluations on the next object. `covering` has the component of each rule set that
    /// covers the object.
    pub(super) fn begin_object<'a>(
        &'a mut self,
        covering: impl Iterator<Item = &'a Text>,
    ) -> ObjectBudget<'a> {
        let mut components = BTreeMap::new();
        for component in covering {
            *components.entry(&**component).or_default() += 1;
        }
        let covering = components.values().sum::<u32>().max(1);
        ObjectBudget {
            clock: self.time.now(),
            budgets: self,
            components,
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
    /// Returns the share of a rule set of this component.
    pub(super) fn share(&self, component: &str) -> StepShare {
        let rule_sets = self.components.get(component).copied().unwrap_or(1);
        let components = u32::try_from(self.components.len()).unwrap_or(u32::MAX);
        StepShare {
            steps: STEPS_PER_OBJECT / u64::from(components.max(1)) / u64::from(rule_sets),
            rule_sets,
            components,
        }
    }

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
