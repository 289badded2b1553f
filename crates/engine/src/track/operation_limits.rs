//! The bounds on the operations that the tracker keeps in memory. An operation counts for each rule
//! set that detects it, from its detection to its end. So one rule set cannot use up the own bounds of
//! another rule set. It also uses a part of the bounds that all rule sets share. Of this part, all
//! rule sets of a component have one share together.
//!
//! A bound never ends an operation. The tracker only refuses new operations, and longer texts for
//! operations in flight.

use crate::component_share::has_share;
use crate::detect::MAX_OPERATIONS_ON_OBJECT;
use crate::rules::{OperationBound, ReachedBound, RuleSet};
use ifo_api::Text;
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
}

impl AddAssign for Usage {
    fn add_assign(&mut self, part: Self) {
        self.operations += part.operations;
        self.texts += part.texts;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, part: Self) {
        self.operations -= part.operations;
        self.texts -= part.texts;
    }
}

/// What the operations on one object use, by rule set. The tracker stores this value with the
/// object, so that it can subtract exactly what it has added before.
#[derive(Debug, Default)]
pub(super) struct ObjectUsage(Vec<RuleSetPart>);

/// The part of the usage that belongs to one rule set.
type RuleSetPart = (Arc<RuleSet>, Usage);

impl ObjectUsage {
    /// Adds a part to the usage of a rule set.
    pub fn add(&mut self, rule_set: &Arc<RuleSet>, part: Usage) {
        let own = self.0.iter_mut().find(|(own, _)| is_same(own, rule_set));
        if let Some((_, usage)) = own {
            *usage += part;
        } else {
            self.0.push((rule_set.clone(), part));
        }
    }

    fn of(&self, rule_set: &RuleSet) -> Usage {
        let own = self.0.iter().find(|(own, _)| is_same(own, rule_set));
        own.map_or_else(Usage::default, |(_, usage)| *usage)
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
    /// What each rule set uses. Rule sets without operations have no entry.
    rule_sets: HashMap<Text, Usage>,
    /// What the rule sets of each component use together.
    components: HashMap<Text, Usage>,
    total: Usage,
    /// The bounds that have refused operations during the current evaluation. The tracker takes them
    /// after the evaluation.
    refused: Vec<(Arc<RuleSet>, ReachedBound)>,
}

impl OperationLimits {
    /// Replaces the usage of an object.
    pub fn replace(&mut self, own: &mut ObjectUsage, new: ObjectUsage) {
        // Most events do not change the usage.
        let is_same = |((old_set, old), (new_set, new)): (&RuleSetPart, &RuleSetPart)| {
            Arc::ptr_eq(old_set, new_set) && old == new
        };
        if own.0.len() == new.0.len() && own.0.iter().zip(&new.0).all(is_same) {
            return;
        }
        for (rule_set, part) in &new.0 {
            self.change(rule_set, |usage| *usage += *part);
        }
        for (rule_set, part) in std::mem::replace(own, new).0 {
            self.change(&rule_set, |usage| *usage -= part);
        }
    }

    /// Changes the usage of a rule set, of its component, and of all rule sets together.
    fn change(&mut self, rule_set: &RuleSet, change: impl Fn(&mut Usage)) {
        for (usages, name) in [
            (&mut self.rule_sets, &rule_set.name),
            (&mut self.components, &rule_set.component),
        ] {
            let usage = usages.entry(name.clone()).or_default();
            change(usage);
            if *usage == Usage::default() {
                usages.remove(name);
            }
        }
        change(&mut self.total);
    }

    /// Returns true if an object may use `part` more for a rule set, and adds the part to `own`, the
    /// usage of the object. Otherwise remembers the bound that was reached.
    pub fn admit(&mut self, rule_set: &Arc<RuleSet>, own: &mut ObjectUsage, part: Usage) -> bool {
        let on_object = own.of(rule_set).operations + part.operations;
        let bound = if part.operations > 0 && on_object > self.bounds.on_object {
            Some((OperationBound::Object, self.bounds.on_object))
        } else {
            self.bound_for(rule_set, part)
        };
        let Some((bound, maximum)) = bound else {
            own.add(rule_set, part);
            self.change(rule_set, |usage| *usage += part);
            return true;
        };
        let is_known = |(known, reached): &(Arc<RuleSet>, ReachedBound)| {
            Arc::ptr_eq(known, rule_set) && reached.bound == bound
        };
        if !self.refused.iter().any(is_known) {
            let kept = usage_of(&self.rule_sets, &rule_set.name).operations;
            let reached = ReachedBound {
                bound,
                maximum,
                kept,
            };
            self.refused.push((rule_set.clone(), reached));
        }
        false
    }

    /// The tracker has refused operations of the rule set because of `bound`. Returns true if the
    /// rule set may have another operation now. A small room for texts does not count, because the next
    /// operation would fill it. Whether there is room on an object is not known before its next
    /// evaluation.
    pub fn has_room(&self, rule_set: &RuleSet, bound: OperationBound) -> bool {
        let part = Usage {
            operations: 1,
            texts: self.bounds.texts_of_rule_set / 64,
        };
        bound == OperationBound::Object || self.bound_for(rule_set, part).is_none()
    }

    /// Returns the bounds that have refused operations during the current evaluation.
    pub fn take_refused(&mut self) -> Vec<(Arc<RuleSet>, ReachedBound)> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the bound that `part` exceeds.
    fn bound_for(&self, rule_set: &RuleSet, part: Usage) -> Option<(OperationBound, usize)> {
        let OperationBounds {
            of_rule_set,
            all,
            texts_of_rule_set,
            all_texts,
            ..
        } = self.bounds;
        let with_part = |mut usage: Usage| {
            usage += part;
            usage
        };
        let own = with_part(usage_of(&self.rule_sets, &rule_set.name));
        let component = with_part(usage_of(&self.components, &rule_set.component));
        let total = with_part(self.total);
        let is_full = |of_component: usize, total: usize, of_rule_set: usize, all: usize| {
            !has_share(of_component, of_rule_set / 100, total, all)
        };
        if part.operations > 0 && own.operations > of_rule_set {
            Some((OperationBound::RuleSet, of_rule_set))
        } else if part.operations > 0
            && is_full(component.operations, total.operations, of_rule_set, all)
        {
            Some((OperationBound::AllRuleSets, all))
        } else if own.texts > texts_of_rule_set {
            Some((OperationBound::Texts, texts_of_rule_set))
        } else if is_full(component.texts, total.texts, texts_of_rule_set, all_texts) {
            Some((OperationBound::AllTexts, all_texts))
        } else {
            None
        }
    }
}

fn usage_of(usages: &HashMap<Text, Usage>, name: &str) -> Usage {
    usages.get(name).copied().unwrap_or_default()
}
