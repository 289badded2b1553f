//! A detection: the result of a rule that detects an operation.

use crate::detect::RuleValues;
use crate::rules::{CompiledRule, RuleSet};
use ifo_api::live::State;
use ifo_api::{Gvr, Text};
use litemap::LiteMap;
use std::sync::Arc;

/// The result of one rule that detects an operation.
#[derive(Clone, Debug)]
pub struct Detection {
    /// Resource that the rule set watches.
    pub target: Arc<Gvr>,
    /// Rule set that contains the rule.
    pub rule_set: Arc<RuleSet>,
    /// Values that the rule yields.
    pub values: RuleValues,
}

/// The detections of one operation, by the name of the rule set. Usually, only one rule set detects
/// an operation.
pub type Detections = LiteMap<Text, Arc<Detection>>;

impl Detection {
    /// Returns the rule that detects the operation. Returns None for a restored detection whose
    /// rule set is known only by name ([`Detection::is_unbound`]).
    pub fn rule(&self) -> Option<&CompiledRule> {
        self.rule_set.rules.get(self.values.rule_index)
    }

    /// Returns the timing hash of the rule: a hash of the fields that affect the duration of the
    /// operation. If the hash changes, the durations of earlier runs are no longer comparable with
    /// later runs. Returns None if the rule set is known only by name.
    pub(super) fn timing_hash(&self) -> Option<&str> {
        let hash = self.rule_set.timing_hashes.get(self.values.rule_index)?;
        Some(hash)
    }

    /// Returns true if clients see the same values with both detections. The states are not
    /// compared, because clients see a new state only after the rule's `stateAfter`.
    pub(super) fn shows_same_values(&self, other: &Self) -> bool {
        self.rule_set.name == other.rule_set.name && self.values.shown == other.values.shown
    }

    /// Returns the state that the rule yields, or `Progressing` if the rule yields no state.
    pub(super) fn state(&self) -> State {
        self.values.state.unwrap_or(State::Progressing)
    }

    /// Returns true for a restored detection whose rule set is known only by name.
    pub fn is_unbound(&self) -> bool {
        self.target.resource.is_empty()
    }
}
