//! The bounds on the operations that the tracker keeps in memory. An operation counts for each rule
//! set that detects it, from its detection to its end. So one rule set cannot use up the own bounds of
//! another rule set. It also uses a part of the bounds that all rule sets share.
//!
//! A bound never ends an operation. The tracker only refuses new operations, and longer texts for
//! operations in flight.

use crate::detect::MAX_OPERATIONS_ON_OBJECT;
use crate::rules::{OperationBound, ReachedBound, RuleSet};
use std::collections::HashMap;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

/// Maximum number of operations of one rule set.
pub const MAX_OPERATIONS_OF_RULE_SET: usize = 10_000;

/// Maximum number of operations of all rule sets together.
pub const MAX_OPERATIONS: usize = 50_000;

/// Maximum number of bytes of text in the operations of one rule set, such as messages and labels.
/// The tracker and the index each have a copy of these texts.
pub const MAX_TEXTS_OF_RULE_SET: usize = 8 << 20;

/// Maximum number of bytes of text in the operations of all rule sets together.
pub const MAX_TEXTS: usize = 24 << 20;

/// The bounds of a tracker. Only tests and benchmarks use other bounds than the default.
#[derive(Clone, Copy, Debug)]
pub struct OperationBounds {
    /// Maximum number of operations of one rule set on one object.
    pub on_object: usize,
    /// Maximum number of operations of one rule set.
    pub of_rule_set: usize,
    /// Maximum number of operations of all rule sets together.
    pub all: usize,
    /// Maximum number of bytes of text in the operations of one rule set.
    pub texts_of_rule_set: usize,
    /// Maximum number of bytes of text in the operations of all rule sets together.
    pub all_texts: usize,
}

impl Default for OperationBounds {
    fn default() -> Self {
        Self {
            on_object: MAX_OPERATIONS_ON_OBJECT,
            of_rule_set: MAX_OPERATIONS_OF_RULE_SET,
            all: MAX_OPERATIONS,
            texts_of_rule_set: MAX_TEXTS_OF_RULE_SET,
            all_texts: MAX_TEXTS,
        }
    }
}

/// What operations use of the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Number of operations.
    pub operations: usize,
    /// Number of bytes in their texts.
    pub texts: usize,
    /// Number of objects on which the bound for one object refuses operations.
    pub full_objects: usize,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, part: Self) {
        self.operations += part.operations;
        self.texts += part.texts;
        self.full_objects += part.full_objects;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, part: Self) {
        self.operations -= part.operations;
        self.texts -= part.texts;
        self.full_objects -= part.full_objects;
    }
}

/// What the operations on one object use, by rule set. The tracker stores this value with the
/// object, so that it can subtract exactly what it has added before.
#[derive(Debug, Default)]
pub(super) struct ObjectUsage(Vec<(Arc<str>, Usage)>);

impl ObjectUsage {
    /// Adds a part to the usage of a rule set.
    pub fn add(&mut self, rule_set: &Arc<str>, part: Usage) {
        if let Some((_, usage)) = self.0.iter_mut().find(|(name, _)| name == rule_set) {
            *usage += part;
        } else {
            // Most objects have operations of only one rule set.
            self.0.reserve_exact(1);
            self.0.push((rule_set.clone(), part));
        }
    }

    fn of(&self, rule_set: &str) -> Usage {
        let own = self.0.iter().find(|(name, _)| **name == *rule_set);
        own.map_or_else(Usage::default, |(_, usage)| *usage)
    }

    /// Copies from `before`, an earlier usage of the same object, if the object is full. An object
    /// is no longer full if it has fewer operations than the bound allows.
    pub fn full_as(mut self, before: &Self, bounds: &OperationBounds) -> Self {
        for (rule_set, usage) in &mut self.0 {
            if usage.operations >= bounds.on_object {
                usage.full_objects = before.of(rule_set).full_objects;
            }
        }
        self
    }
}

/// Counts the operations of all rule sets, and decides if a new operation is within the bounds.
#[derive(Debug, Default)]
pub(super) struct OperationLimits {
    pub bounds: OperationBounds,
    /// What each rule set uses. Rule sets without operations have no entry.
    rule_sets: HashMap<Arc<str>, Usage>,
    total: Usage,
    /// The bounds that have refused operations during the current evaluation. The tracker takes them
    /// after the evaluation.
    refused: Vec<(Arc<RuleSet>, ReachedBound)>,
}

impl OperationLimits {
    /// Replaces the usage of an object.
    pub fn replace(&mut self, own: &mut ObjectUsage, new: ObjectUsage) {
        for (rule_set, part) in std::mem::replace(own, new).0 {
            self.total -= part;
            if let Some(usage) = self.rule_sets.get_mut(&rule_set) {
                *usage -= part;
                if *usage == Usage::default() {
                    self.rule_sets.remove(&rule_set);
                }
            }
        }
        for (rule_set, part) in &own.0 {
            self.add(rule_set, *part);
        }
    }

    fn add(&mut self, rule_set: &Arc<str>, part: Usage) {
        *self.rule_sets.entry(rule_set.clone()).or_default() += part;
        self.total += part;
    }

    /// Begins an evaluation of an object. Until an operation is refused, the object is not full.
    pub fn begin_evaluation(&mut self, own: &mut ObjectUsage) {
        for (rule_set, usage) in &mut own.0 {
            let full_objects = std::mem::take(&mut usage.full_objects);
            self.total.full_objects -= full_objects;
            if let Some(usage) = self.rule_sets.get_mut(rule_set) {
                usage.full_objects -= full_objects;
            }
        }
    }

    /// Subtracts bytes of text from the usage of a rule set on an object, because the texts of an
    /// operation have become shorter.
    pub fn release_texts(&mut self, rule_set: &str, own: &mut ObjectUsage, texts: usize) {
        let of_object = own.0.iter_mut().find(|(name, _)| **name == *rule_set);
        let of_rule_set = self.rule_sets.get_mut(rule_set);
        if let (Some((_, of_object)), Some(of_rule_set)) = (of_object, of_rule_set) {
            let texts = texts.min(of_object.texts);
            of_object.texts -= texts;
            of_rule_set.texts -= texts;
            self.total.texts -= texts;
        }
    }

    /// Returns true if an object may use `part` more for a rule set, and adds the part to `own`, the
    /// usage of the object. Otherwise remembers the bound that was reached.
    pub fn admit(&mut self, rule_set: &Arc<RuleSet>, own: &mut ObjectUsage, part: Usage) -> bool {
        let on_object = own.of(&rule_set.name).operations + part.operations;
        let bound = if part.operations > 0 && on_object > self.bounds.on_object {
            Some((OperationBound::Object, self.bounds.on_object))
        } else {
            self.bound_for(&rule_set.name, part)
        };
        let Some((bound, maximum)) = bound else {
            own.add(&rule_set.name, part);
            self.add(&rule_set.name, part);
            return true;
        };
        let is_known = |(known, reached): &(Arc<RuleSet>, ReachedBound)| {
            Arc::ptr_eq(known, rule_set) && reached.bound == bound
        };
        if !self.refused.iter().any(is_known) {
            let kept = self.of(&rule_set.name).operations;
            let reached = ReachedBound {
                bound,
                maximum,
                kept,
            };
            self.refused.push((rule_set.clone(), reached));
            if bound == OperationBound::Object {
                let full = Usage {
                    full_objects: 1,
                    ..Usage::default()
                };
                own.add(&rule_set.name, full);
                self.add(&rule_set.name, full);
            }
        }
        false
    }

    /// The tracker has refused operations of the rule set because of `bound`. Returns true if the
    /// rule set may have another operation now. A small room for texts does not count, because the next operation would fill it.
    pub fn has_room(&self, rule_set: &str, bound: OperationBound) -> bool {
        let part = Usage {
            operations: 1,
            texts: self.bounds.texts_of_rule_set / 64,
            full_objects: 0,
        };
        match bound {
            OperationBound::Object => self.of(rule_set).full_objects == 0,
            _ => self.bound_for(rule_set, part).is_none(),
        }
    }

    /// Returns the bounds that have refused operations during the current evaluation.
    pub fn take_refused(&mut self) -> Vec<(Arc<RuleSet>, ReachedBound)> {
        std::mem::take(&mut self.refused)
    }

    fn of(&self, rule_set: &str) -> Usage {
        self.rule_sets.get(rule_set).copied().unwrap_or_default()
    }

    /// Returns the bound that `part` exceeds.
    ///
    /// A tenth of the bounds for all rule sets is reserved for rule sets that use at most a hundredth
    /// of their own bounds. Of the other nine tenths, a greedy rule set can take at most half of what
    /// is still free. Its own bound can stop it earlier. About a dozen greedy rule sets use up the nine
    /// tenths. The reserve stays for small rule sets.
    fn bound_for(&self, rule_set: &str, part: Usage) -> Option<(OperationBound, usize)> {
        let OperationBounds {
            of_rule_set,
            all,
            texts_of_rule_set,
            all_texts,
            ..
        } = self.bounds;
        let own = self.of(rule_set);
        let (operations, texts) = (own.operations + part.operations, own.texts + part.texts);
        let total = self.total.operations + part.operations;
        let total_texts = self.total.texts + part.texts;
        let has_left = |own: usize, maximum: usize, total: usize, all: usize| {
            let is_small = own <= maximum / 100;
            let own_limit = (all - all / 10).saturating_sub(total);
            total <= all && (is_small || own <= own_limit)
        };
        if part.operations > 0 && operations > of_rule_set {
            Some((OperationBound::RuleSet, of_rule_set))
        } else if part.operations > 0 && !has_left(operations, of_rule_set, total, all) {
            Some((OperationBound::AllRuleSets, all))
        } else if texts > texts_of_rule_set {
            Some((OperationBound::Texts, texts_of_rule_set))
        } else if !has_left(texts, texts_of_rule_set, total_texts, all_texts) {
            Some((OperationBound::AllTexts, all_texts))
        } else {
            None
        }
    }
}
