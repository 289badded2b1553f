//! Applies the bounds on operations to the result of an evaluation. Operations in flight stay. New
//! operations beyond a bound are left out.

use super::update_detections::DetectionsByRuleSet;
use super::{TrackedSubject, WaitingOperation};
use crate::track::operation::{Detection, Operation};
use crate::track::operation_limits::{ObjectUsage, OperationLimits, TEXTS_OF_OPERATION};
use crate::track::superseded_operations::OperationName;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use litemap::LiteMap;
use std::sync::Arc;

impl TrackedSubject {
    /// Removes the new operations from `results` that exceed a bound. If the texts of an operation
    /// in flight become longer than a bound allows, the operation keeps its earlier texts.
    pub(super) fn admit(
        &mut self,
        results: &mut DetectionsByRuleSet,
        limits: &mut OperationLimits,
    ) {
        for (what, by_rule_set) in &mut results.found {
            by_rule_set.retain(|name, detection| {
                let Some(detection) = detection else {
                    return true;
                };
                let before = detection_of(&self.operations, &self.waiting, what, name);
                // `continueWhile` alone does not start an operation.
                if before.is_none() && detection.values.only_continues {
                    return true;
                }
                let count = |it: &Detection| count_of(what, it, &self.subject.reference);
                let more = count(detection).saturating_sub(before.map_or(0, |it| count(it)));
                if more == 0 || limits.admit(&detection.rule_set, &mut self.usage, more) {
                    return true;
                }
                if let Some(before) = before {
                    let values = &mut Arc::make_mut(detection).values;
                    values.keep_texts(&before.values);
                }
                before.is_some()
            });
        }
    }

    /// Counts what the operations of the subject use of the bounds. An operation counts for each
    /// rule set that detects it, and for the rule set whose values it shows.
    pub(in crate::track) fn measure(&self) -> ObjectUsage {
        let mut usage = ObjectUsage::default();
        let mut add = |what: &OperationName, detection: &Detection| {
            let count = count_of(what, detection, &self.subject.reference);
            usage.add(&detection.rule_set, count);
        };
        for (what, operation) in &self.operations {
            let shown = &operation.primary;
            add(what, shown);
            let others = operation.detections.iter();
            let others = others.filter(|(rule_set, _)| **rule_set != shown.rule_set.name);
            others.for_each(|(_, detection)| add(what, detection));
        }
        for (what, waiting) in &self.waiting {
            waiting.detections.values().for_each(|it| add(what, it));
        }
        usage
    }
}

/// Returns the detection of an operation by a rule set. During the debounce period of an operation,
/// this is the last detection. None if the rule set does not detect the operation.
fn detection_of<'a>(
    operations: &'a LiteMap<OperationName, Operation>,
    waiting: &'a LiteMap<OperationName, WaitingOperation>,
    what: &OperationName,
    rule_set: &Text,
) -> Option<&'a Arc<Detection>> {
    if let Some(operation) = operations.get(what) {
        let shown = Some(&operation.primary).filter(|it| it.rule_set.name == *rule_set);
        return operation.detections.get(rule_set).or(shown);
    }
    waiting.get(what)?.detections.get(rule_set)
}

/// Returns how often an operation counts for a detection. This depends on the length of its texts.
fn count_of(what: &OperationName, detection: &Detection, subject: &SubjectReference) -> usize {
    let owners = subject.owner_references.iter().map(|owner| {
        owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len()
    });
    let item = what.item.iter().map(|item| item.len());
    let all = item.chain(owners).sum::<usize>();
    let texts = all + detection.values.text_bytes() + subject.name.len();
    1 + texts / TEXTS_OF_OPERATION
}
