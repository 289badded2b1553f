//! The bounds on the operations that the tracker keeps in memory. An operation counts for each rule
//! set that detects it, from its detection to its end. There are three bounds:
//!
//! - The operations of one rule set on one object.
//! - All operations of one rule set.
//! - The operations of all rule sets together. Each component has a share of this bound for all its
//!   rule sets together.
//!
//! An operation with long texts counts as several operations ([`TEXTS_OF_OPERATION`]). So the
//! bounds on the number of operations also limit their memory.
//!
//! A bound never ends an operation. The tracker only refuses new operations, and longer texts for
//! operations in flight.

use super::retained::RuleSetId;
use crate::component_share::Shares;
use crate::detect::MAX_OPERATIONS_ON_OBJECT;
use crate::rules::{OperationBound, ReachedBound};
use ifo_api::Text;
use litemap::LiteMap;

/// Maximum number of operations of one rule set.
pub const MAX_OPERATIONS_OF_RULE_SET: usize = 10_000;

/// Maximum number of operations of all rule sets together.
pub const MAX_OPERATIONS: usize = 50_000;

/// An operation counts once, and once more for each full 1 KiB of its texts, such as messages and
/// labels. Most operations have less than 500 bytes.
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
#[derive(Debug, Default, PartialEq)]
pub(super) struct ObjectUsage(LiteMap<RuleSetId, usize>);

impl ObjectUsage {
    /// Adds to the usage of a rule set.
    pub fn add(&mut self, rule_set: RuleSetId, count: usize) {
        *self.0.entry(rule_set).or_insert(0) += count;
    }
}

/// The refusal of an operation.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Name of the rule set.
    pub rule_set: Text,
    /// The bound that refused the operation.
    pub reached: ReachedBound,
    /// How often the operation counts for the bounds.
    pub count: usize,
}

/// Counts the operations of all rule sets, and decides whether a new operation is within the
/// bounds.
#[derive(Debug, Default)]
pub(super) struct OperationLimits {
    pub bounds: OperationBounds,
    rule_sets: Shares,
    components: Shares,
    /// The refusals of the current evaluation. The tracker takes them after the evaluation.
    refused: Vec<Refusal>,
}

impl OperationLimits {
    /// Replaces the usage of an object.
    pub fn replace(&mut self, own: &mut ObjectUsage, new: ObjectUsage) {
        if *own == new {
            return;
        }
        for (rule_set, count) in &new.0 {
            self.take(rule_set, *count);
        }
        for ((component, name), count) in &std::mem::replace(own, new).0 {
            self.rule_sets.give_back(name, *count);
            self.components.give_back(component, *count);
        }
    }

    fn take(&mut self, (component, name): &RuleSetId, count: usize) {
        self.rule_sets.take(name, count);
        self.components.take(component, count);
    }

    /// Returns true if an object may have `count` more operations of a rule set, and adds them to
    /// `own`, the usage of the object. Otherwise remembers the refusal.
    pub fn admit(&mut self, rule_set: RuleSetId, own: &mut ObjectUsage, count: usize) -> bool {
        let on_object = own.0.get(&rule_set).copied().unwrap_or_default();
        let Some((bound, maximum)) = self.exceeded(&rule_set, on_object, count) else {
            self.take(&rule_set, count);
            own.add(rule_set, count);
            return true;
        };
        let (_, rule_set) = rule_set;
        let kept = self.rule_sets.used_by(&rule_set);
        self.refused.push(Refusal {
            rule_set,
            reached: ReachedBound {
                bound,
                maximum,
                kept,
            },
            count,
        });
        false
    }

    /// Returns true if `bound` would now admit an operation of the rule set that counts `count`
    /// times. For `OperationBound::Object`, the result is always true, because only the next
    /// evaluation shows whether there is room on the object.
    pub fn has_room(&self, rule_set: &RuleSetId, bound: OperationBound, count: usize) -> bool {
        bound == OperationBound::Object || self.exceeded(rule_set, 0, count).is_none()
    }

    /// Returns the refusals of the current evaluation.
    pub fn take_refused(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the first bound that `count` more operations of the rule set exceed, and the maximum
    /// of this bound. `on_object` is the count of the rule set's operations that the object already
    /// has.
    fn exceeded(
        &self,
        (component, name): &RuleSetId,
        on_object: usize,
        count: usize,
    ) -> Option<(OperationBound, usize)> {
        let bounds = self.bounds;
        if on_object + count > bounds.on_object {
            Some((OperationBound::Object, bounds.on_object))
        } else if self.rule_sets.used_by(name) + count > bounds.of_rule_set {
            Some((OperationBound::RuleSet, bounds.of_rule_set))
        } else if !(self.components).may_take(component, count, bounds.all) {
            Some((OperationBound::AllRuleSets, bounds.all))
        } else {
            None
        }
    }
}
