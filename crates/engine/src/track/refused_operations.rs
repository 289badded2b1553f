//! Remembers which bounds have refused operations, and reports them to the
//! [`Activity`](crate::rules::Activity) of the rule sets. The refused operations themselves are not
//! stored, so the memory for them is bounded by the number of rule sets.
//!
//! When there is room again, the feed lists all objects of its target. If the bounds refuse nothing
//! in this list, the rule set shows all its operations again.

use super::operation_limits::OperationLimits;
use crate::rules::{OperationBound, ReachedBound, RuleSet};
use ifo_api::Text;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bounds that have refused operations on the objects of one feed.
#[derive(Debug, Default)]
pub(super) struct RefusedOperations(BTreeMap<(Text, OperationBound), RefusedAtBound>);

#[derive(Debug)]
struct RefusedAtBound {
    report: RefusalReport,
    /// True if the bound has refused an operation since the last list began.
    is_confirmed: bool,
}

/// A report to the activity of a rule set. Dropping this value reverts the report.
#[derive(Debug)]
pub(super) struct RefusalReport {
    rule_set: Arc<RuleSet>,
    reached: ReachedBound,
}

impl Drop for RefusalReport {
    fn drop(&mut self) {
        self.rule_set.activity.stop_refusing(self.reached);
    }
}

impl RefusedOperations {
    /// Records that bounds have refused operations.
    pub fn add(&mut self, refused: Vec<(Arc<RuleSet>, ReachedBound)>) {
        for (rule_set, reached) in refused {
            let key = (rule_set.name.clone(), reached.bound);
            let refusal = self.0.entry(key).or_insert_with(|| {
                rule_set.activity.refuse(reached);
                let report = RefusalReport { rule_set, reached };
                RefusedAtBound {
                    report,
                    is_confirmed: true,
                }
            });
            refusal.is_confirmed = true;
        }
    }

    /// Handles the beginning of a list.
    pub fn begin_list(&mut self) {
        for refusal in self.0.values_mut() {
            refusal.is_confirmed = false;
        }
    }

    /// Handles the end of a list. Returns the reports of the bounds that have refused nothing in
    /// this list. The caller must drop these reports after the listed operations are in the index.
    /// If it drops them earlier, an answer that lacks these operations counts as complete.
    pub fn end_list(&mut self) -> impl Iterator<Item = RefusalReport> {
        let ended = self.0.extract_if(.., |_, refusal| !refusal.is_confirmed);
        ended.map(|(_, refusal)| refusal.report)
    }

    /// Returns each rule set with refused operations, and true if there is room for some of them. A
    /// rule set is returned once for each bound.
    pub fn rooms(&self, limits: &OperationLimits) -> impl Iterator<Item = (&Arc<RuleSet>, bool)> {
        self.0.iter().map(|((_, bound), refusal)| {
            let rule_set = &refusal.report.rule_set;
            (rule_set, limits.has_room(rule_set, *bound))
        })
    }
}
