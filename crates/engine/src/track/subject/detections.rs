//! The results of an evaluation for each operation of a subject.

use crate::detect::Finding;
use crate::rules::RuleBook;
use crate::track::arbitrate::OperationName;
use crate::track::operation::{Detection, Detections};
use ifo_api::Gvr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The detections of each operation by rule set. The detection is None if the rule failed.
#[derive(Default)]
pub(super) struct DetectionsByRuleSet {
    pub(super) found: BTreeMap<OperationName, BTreeMap<Arc<str>, Option<Arc<Detection>>>>,
    /// Operation and rule set of rules whose `forEach` failed.
    failed_lists: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl DetectionsByRuleSet {
    pub(super) fn new(target: &Arc<Gvr>, findings: Vec<Finding>) -> Self {
        let mut answers = Self::default();
        for finding in findings {
            let Finding {
                rule_set,
                operation,
                item,
                says,
            } = finding;
            if says.is_none() && item.is_none() {
                answers
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
            answers
                .found
                .entry(OperationName { operation, item })
                .or_default()
                .insert(name, detection);
        }
        answers
    }

    /// Updates the detections of one operation. A rule of this book without a detection means "not
    /// detected". A failed rule keeps its previous detection. Rules of other targets were not
    /// evaluated.
    pub(super) fn apply(
        &mut self,
        book: &RuleBook,
        what: &OperationName,
        detections: &mut Detections,
    ) {
        let answers = self.found.remove(what).unwrap_or_default();
        detections.retain(|rule_set, detection| {
            *detection.target != book.target
                || answers.contains_key(rule_set)
                || self
                    .failed_lists
                    .contains(&(what.operation.clone(), rule_set.clone()))
        });
        for (rule_set, detection) in answers {
            if let Some(detection) = detection {
                detections.insert(rule_set, detection);
            }
        }
    }
}
