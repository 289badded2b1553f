//! The bounds on the operations that the tracker keeps in memory. An operation counts for each rule
//! set that detects it, from its detection to its end. Each rule set has a bound of its own, so it
//! cannot use up the bound of another rule set. In addition, all rule sets share one bound. Each
//! component has a share of this bound for all its rule sets together.
//!
//! An operation with long texts counts as several operations ([`TEXTS_OF_OPERATION`]). So the bounds
//! on the number of operations also limit their memory.
//!
//! A bound never ends an operation. The tracker only refuses new operations, and longer texts for
//! operations in flight.

use crate::component_share::Shares;
use crate::detect::MAX_OPERATIONS_ON_OBJECT;
use crate::rules::{OperationBound, ReachedBound, RuleSet};
use std::sync::Arc;

/// Maximum number of operations of one rule set.
pub const MAX_OPERATIONS_OF_RULE_SET: usize = 10_000;

/// Maximum number of operations of all rule sets together.
pub const MAX_OPERATIONS: usize = 50_000;

/// Bytes of text, such as messages and labels. An operation counts once, and once more for each full
/// multiple of this size. Most operations have less than 500 bytes.
pub(super) const TEXTS_OF_OPERATION: usize = 1 << 10;

/// The bounds of a tracker. Only tests and benchmarks use other bounds than the default.
#[derive(Clone, Copy, Debug)]
pub struct OperationBounds {
    /// Maximum number of operations of one rule set on one object.
    pub on_object: usize,
    /// Maximum number of operations of one rule set.
    pub of_rule_set: usize,
    /// Maximum number of operations of all rule sets together.
    pub all: usize,
}

impl Default for OperationBounds {
    fn default() -> Self {
        Self {
            on_object: MAX_OPERATIONS_ON_OBJECT,
            of_rule_set: MAX_OPERATIONS_OF_RULE_SET,
            all: MAX_OPERATIONS,
        }
    }
}

/// What the operations on one object use of the bounds, by rule set. The tracker stores this value
/// with the object, so that it can subtract exactly what it has added before.
#[derive(Debug, Default)]
pub(super) struct ObjectUsage(Vec<(Arc<RuleSet>, usize)>);

impl ObjectUsage {
    /// Adds to the usage of a rule set.
    pub fn add(&mut self, rule_set: &Arc<RuleSet>, count: usize) {
        let own = self.0.iter_mut().find(|(own, _)| is_same(own, rule_set));
        if let Some((_, used)) = own {
            *used += count;
        } else {
            self.0.push((rule_set.clone(), count));
        }
    }

    fn of(&self, rule_set: &RuleSet) -> usize {
        let own = self.0.iter().find(|(own, _)| is_same(own, rule_set));
        own.map_or(0, |(_, used)| *used)
    }
}

/// Returns true if both values are versions of the same rule set in the same component.
fn is_same(one: &RuleSet, other: &RuleSet) -> bool {
    one.name == other.name && one.component == other.component
}

/// Counts the operations of all rule sets, and decides if a new operation is within the bounds.
#[derive(Debug, Default)]
pub(super) struct OperationLimits {
    pub bounds: OperationBounds,
    rule_sets: Shares,
    components: Shares,
    /// The bounds that have refused operations during the current evaluation. The tracker takes them
    /// after the evaluation.
    refused: Vec<(Arc<RuleSet>, ReachedBound)>,
}

impl OperationLimits {
    /// Replaces the usage of an object.
    pub fn replace(&mut self, own: &mut ObjectUsage, new: ObjectUsage) {
        for (rule_set, count) in &new.0 {
            self.take(rule_set, *count);
        }
        for (rule_set, count) in std::mem::replace(own, new).0 {
            self.rule_sets.give_back(&rule_set.name, count);
            self.components.give_back(&rule_set.component, count);
        }
    }

    fn take(&mut self, rule_set: &RuleSet, count: usize) {
        self.rule_sets.take(&rule_set.name, count);
        self.components.take(&rule_set.component, count);
    }

    /// Returns true if an object may have `count` more operations of a rule set, and adds them to
    /// `own`, the usage of the object. Otherwise remembers the bound that was reached.
    pub fn admit(&mut self, rule_set: &Arc<RuleSet>, own: &mut ObjectUsage, count: usize) -> bool {
        let Some((bound, maximum)) = self.exceeded(rule_set, own.of(rule_set), count) else {
            own.add(rule_set, count);
            self.take(rule_set, count);
            return true;
        };
        let is_known = |(known, reached): &(Arc<RuleSet>, ReachedBound)| {
            Arc::ptr_eq(known, rule_set) && reached.bound == bound
        };
        if !self.refused.iter().any(is_known) {
            let reached = ReachedBound {
                bound,
                maximum,
                kept: self.rule_sets.used_by(&rule_set.name),
            };
            self.refused.push((rule_set.clone(), reached));
        }
        false
    }

    /// Returns true if the rule set may have another operation now, after `bound` has refused some.
    /// Only the next evaluation shows whether there is room on an object. So for
    /// `OperationBound::Object`, the result is always true.
    pub fn has_room(&self, rule_set: &RuleSet, bound: OperationBound) -> bool {
        bound == OperationBound::Object || self.exceeded(rule_set, 0, 1).is_none()
    }

    /// Returns the bounds that have refused operations during the current evaluation.
    pub fn take_refused(&mut self) -> Vec<(Arc<RuleSet>, ReachedBound)> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the bound that `count` more operations exceed on an object that has `on_object`.
    fn exceeded(
        &self,
        rule_set: &RuleSet,
        on_object: usize,
        count: usize,
    ) -> Option<(OperationBound, usize)> {
        let bounds = self.bounds;
        if on_object + count > bounds.on_object {
            Some((OperationBound::Object, bounds.on_object))
        } else if self.rule_sets.used_by(&rule_set.name) + count > bounds.of_rule_set {
            Some((OperationBound::RuleSet, bounds.of_rule_set))
        } else if !(self.components).may_take(&rule_set.component, count, bounds.all) {
            Some((OperationBound::AllRuleSets, bounds.all))
        } else {
            None
        }
    }
}
