//! Updates the detections of operations after an evaluation of the rules on an object. A detection
//! is the values that a rule yields for an operation that it detects. This module groups the
//! results of the evaluation by operation and rule set. Then it applies these results to the
//! earlier detections of each operation.

use crate::detect::{Finding, RuleValues};
use crate::rules::RuleBook;
use crate::track::operation::Detections;
use crate::track::superseded_operations::OperationName;
use ifo_api::Text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The operation of a rule, and the name of its rule set.
type RuleKey = (Text, Text);

/// The results of one evaluation, grouped by operation and rule set.
#[derive(Default)]
pub(super) struct DetectionsByRuleSet {
    /// The detections, by operation and name of the rule set. None for a rule that failed or was
    /// not evaluated.
    pub(super) found: BTreeMap<OperationName, BTreeMap<Text, Option<Arc<RuleValues>>>>,
    /// The rules without a result for the whole object: rules that failed or were skipped, and
    /// rules with `forEach` that were not evaluated on all elements. An earlier detection of their
    /// operations stays, unless this evaluation has a new one.
    incomplete_rules: BTreeSet<RuleKey>,
}

impl DetectionsByRuleSet {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        let mut results = Self::default();
        for finding in findings {
            let Finding {
                rule_set,
                operation,
                item,
                values,
            } = finding;
            if values.is_none() && item.is_none() {
                let rule = (operation.clone(), rule_set.name.clone());
                results.incomplete_rules.insert(rule);
            }
            let what = OperationName {
                component: rule_set.component.clone(),
                operation,
                item,
            };
            let by_rule_set = results.found.entry(what).or_default();
            by_rule_set.insert(rule_set.name.clone(), values.map(Arc::new));
        }
        results
    }

    /// Applies the results for the operation `what` to its earlier `detections`, and removes these
    /// results from `found`. Each rule set has its own detection:
    ///
    /// - If the rule set detects the operation, its new detection replaces the earlier detection.
    /// - If the rule failed, or was not evaluated on the element, the earlier detection stays.
    /// - If the rule set was evaluated and does not detect the operation, the earlier detection is
    ///   removed.
    /// - If `book` does not contain the rule, the earlier detection stays: this evaluation did not
    ///   include the rule.
    pub(super) fn apply(
        &mut self,
        book: &RuleBook,
        what: &OperationName,
        detections: &mut Detections,
    ) {
        let results = self.found.remove(what).unwrap_or_default();
        let is_unknown = |rule_set: &Text| {
            let rule = (what.operation.clone(), rule_set.clone());
            self.incomplete_rules.contains(&rule)
        };
        let has_rule = |rule_set: &Text| {
            let rule_set = book.rule_set(rule_set);
            rule_set.is_some_and(|it| it.rule(&what.operation).is_some())
        };
        detections.retain(|rule_set, _| {
            !has_rule(rule_set) || results.contains_key(rule_set) || is_unknown(rule_set)
        });
        for (rule_set, detection) in results {
            if let Some(detection) = detection {
                detections.insert(rule_set, detection);
            }
        }
    }
}
