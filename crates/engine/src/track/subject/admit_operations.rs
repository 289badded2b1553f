//! Applies the bounds on operations to the result of an evaluation. Operations in flight stay. New
//! operations beyond a bound are left out.

use super::update_detections::DetectionsByRuleSet;
use super::{TrackedSubject, WaitingOperation};
use crate::detect::RuleValues;
use crate::track::operation::Operation;
use crate::track::operation_limits::{ObjectUsage, OperationLimits, TEXTS_OF_OPERATION};
use crate::track::superseded_operations::OperationName;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use litemap::LiteMap;
use std::sync::Arc;

impl TrackedSubject {
    /// Removes new operations that exceed a bound from `results`. If the texts of a known operation
    /// become longer than a bound allows, the operation keeps its earlier texts.
    pub(super) fn admit(
        &mut self,
        results: &mut DetectionsByRuleSet,
        limits: &mut OperationLimits,
    ) {
        for (what, by_rule_set) in &mut results.found {
            by_rule_set.retain(|name, values| {
                let Some(values) = values else {
                    return true;
                };
                let before = detection_of(&self.operations, &self.waiting, what, name);
                // Only `continueWhile` is true here, which does not start an operation. So no bound
                // applies.
                if before.is_none() && values.only_continues {
                    return true;
                }
                let count = |it: &RuleValues| count_of(what, it, &self.subject.reference);
                let more = count(values).saturating_sub(before.map_or(0, |it| count(it)));
                let rule_set = (what.component.clone(), name.clone());
                if more == 0 || limits.admit(rule_set, &mut self.usage, more) {
                    return true;
                }
                if let Some(before) = before {
                    Arc::make_mut(values).keep_texts(before);
                }
                before.is_some()
            });
        }
    }

    /// Counts what the operations of the subject use of the bounds. An operation counts for each
    /// rule set that detects it, and for the rule set whose values it shows.
    pub(in crate::track) fn measure(&self) -> ObjectUsage {
        let mut usage = ObjectUsage::default();
        let mut add = |what: &OperationName, rule_set: &Text, values: &RuleValues| {
            let count = count_of(what, values, &self.subject.reference);
            usage.add((what.component.clone(), rule_set.clone()), count);
        };
        for (what, operation) in &self.operations {
            let shown = operation.rule_set();
            add(what, shown, &operation.values);
            let others = operation.detections.iter();
            let others = others.filter(|(name, _)| *name != shown);
            others.for_each(|(name, values)| add(what, name, values));
        }
        for (what, waiting) in &self.waiting {
            let all = waiting.detections.iter();
            all.for_each(|(name, values)| add(what, name, values));
        }
        usage
    }
}

/// Returns the values that a rule set yields for a known operation. None if the rule set does not
/// detect the operation. There is one exception: if clients see the values of this rule set, the
/// result is these values, also during the debounce period.
fn detection_of<'a>(
    operations: &'a LiteMap<OperationName, Operation>,
    waiting: &'a LiteMap<OperationName, WaitingOperation>,
    what: &OperationName,
    rule_set: &Text,
) -> Option<&'a Arc<RuleValues>> {
    if let Some(operation) = operations.get(what) {
        let shown = Some(&operation.values).filter(|_| operation.rule_set() == rule_set);
        return operation.detections.get(rule_set).or(shown);
    }
    waiting.get(what)?.detections.get(rule_set)
}

/// Returns how often an operation with these values counts for the bounds. The result depends on
/// the length of the texts.
fn count_of(what: &OperationName, values: &RuleValues, subject: &SubjectReference) -> usize {
    let owners = subject.owner_references.iter().map(|owner| {
        owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len()
    });
    let item = what.item.iter().map(|item| item.len());
    let all = item.chain(owners).sum::<usize>();
    let texts = all + values.text_bytes() + subject.name.len();
    1 + texts / TEXTS_OF_OPERATION
}
