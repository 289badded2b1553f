//! Remembers which bounds have refused operations, and reports them to the
//! [`Activity`](crate::rules::Activity) of the rule sets. The refused operations themselves are not
//! stored, so the memory for them is bounded by the number of rule sets.
//!
//! When a bound has room again, the feed lists all objects of its target. If the bounds refuse no
//! operation of a rule set in this list, clients see all operations of this rule set again.

use super::operation_limits::{OperationLimits, Refusal};
use crate::rules::{Fact, OperationBound, Report, RuleBook, RuleSet};
use ifo_api::Text;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bounds that have refused operations on the objects of one feed.
#[derive(Debug, Default)]
pub(super) struct RefusedOperations(BTreeMap<(Text, OperationBound), RefusedAtBound>);

#[derive(Debug)]
struct RefusedAtBound {
    rule_set: Arc<RuleSet>,
    report: Report,
    /// The smallest [`Refusal::count`] since the last list began. If the bound has room for this
    /// count, a new list can add at least one of the refused operations.
    least_count: usize,
    /// True if the bound has refused an operation since the last list began.
    is_confirmed: bool,
}

impl RefusedOperations {
    /// Records that bounds have refused operations. The rule sets are in `book`.
    pub fn add(&mut self, refusals: Vec<Refusal>, book: &RuleBook) {
        for refusal in refusals {
            let Some(rule_set) = book.rule_set(&refusal.rule_set) else {
                continue;
            };
            let key = (refusal.rule_set, refusal.reached.bound);
            let refused = self.0.entry(key).or_insert_with(|| RefusedAtBound {
                rule_set: rule_set.clone(),
                report: rule_set.activity.report(Fact::Refused(refusal.reached)),
                least_count: usize::MAX,
                is_confirmed: true,
            });
            if !std::mem::replace(&mut refused.is_confirmed, true) {
                refused.least_count = usize::MAX;
            }
            refused.least_count = refused.least_count.min(refusal.count);
        }
    }

    /// Handles the beginning of a list.
    pub fn begin_list(&mut self) {
        for refused in self.0.values_mut() {
            refused.is_confirmed = false;
        }
    }

    /// Handles the end of a list. Returns the reports of the bounds that have refused nothing in
    /// this list. The caller must drop these reports after the listed operations are in the index.
    /// If the caller drops the reports earlier, clients could get a list of operations that counts
    /// as complete, but lacks these operations.
    pub fn end_list(&mut self) -> impl Iterator<Item = Report> {
        let ended = self.0.extract_if(.., |_, refused| !refused.is_confirmed);
        ended.map(|(_, refused)| refused.report)
    }

    /// Returns each rule set with refused operations, and whether there is room for some of them. A
    /// rule set is returned once for each bound.
    pub fn rooms(&self, limits: &OperationLimits) -> impl Iterator<Item = (&Arc<RuleSet>, bool)> {
        self.0.iter().map(|((_, bound), refused)| {
            let rule_set = &refused.rule_set;
            let id = (rule_set.component.clone(), rule_set.name.clone());
            (rule_set, limits.has_room(&id, *bound, refused.least_count))
        })
    }
}
