//! Groups the results of one evaluation by operation and rule set, and applies them to the earlier
//! detections of each operation.

use crate::detect::Finding;
use crate::rules::RuleBook;
use crate::track::operation::{Detection, Detections};
use crate::track::supersession::OperationName;
use ifo_api::Gvr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The results of one evaluation by operation and rule set.
#[derive(Default)]
pub(super) struct DetectionsByRuleSet {
    /// Detections by operation and rule set. A detection is None if the rule failed.
    pub(super) found: BTreeMap<OperationName, BTreeMap<Arc<str>, Option<Arc<Detection>>>>,
    /// Operation and rule set of each rule whose `forEach` failed.
    failed_lists: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl DetectionsByRuleSet {
    pub(super) fn new(target: &Arc<Gvr>, findings: Vec<Finding>) -> Self {
        let mut results = Self::default();
        for finding in findings {
            let Finding {
                rule_set,
                operation,
                item,
                says,
            } = finding;
            if says.is_none() && item.is_none() {
                results
                    .failed_lists
                    .insert((operation.clone(), rule_set.name.clone()));
            }
            let name = rule_set.name.clone();
            let detection = says.map(|says| {
                Arc::new(Detection {
                    target: target.clone(),
                    rule_set,
                    says,
                })
            });
            results
                .found
                .entry(OperationName { operation, item })
                .or_default()
                .insert(name, detection);
        }
        results
    }

    /// Updates the `detections` of the operation `what`, and removes the results of this operation
    /// from `found`:
    ///
    /// - If a rule of `book` has no result, its detection is removed.
    /// - If a rule failed, its previous detection stays.
    /// - Detections of other targets stay, because their rules were not evaluated.
    pub(super) fn apply(
        &mut self,
        book: &RuleBook,
        what: &OperationName,
        detections: &mut Detections,
    ) {
        let results = self.found.remove(what).unwrap_or_default();
        detections.retain(|rule_set, detection| {
            *detection.target != book.target
                || results.contains_key(rule_set)
                || self
                    .failed_lists
                    .contains(&(what.operation.clone(), rule_set.clone()))
        });
        for (rule_set, detection) in results {
            if let Some(detection) = detection {
                detections.insert(rule_set, detection);
            }
        }
    }
}
