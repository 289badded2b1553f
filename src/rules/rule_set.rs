//! The state of one rule set: its newest spec, the rules that are evaluated, and its status in the
//! cluster. Watch events, and the answers to the controller's own writes, can arrive in any order.
//! [`KnownStatus`] keeps the newest status.

use ifo_api::Gvr;
use ifo_api::ruleset::{OperationRuleSetSpec, OperationRuleSetStatus};
use ifo_engine::rules::{RuleSet, RuleSetError, expression_bytes};
use std::sync::Arc;

/// Maximum size of the expressions of all rules in use, in bytes. A rule set that would exceed this
/// total is not compiled, and its status contains the error. Compiled expressions can need 72 times
/// as much memory. The shipped rule sets together have less than a quarter of this size.
pub(super) const MAX_ALL_EXPRESSIONS: usize = 1 << 20;

/// A rule set with its compiled rules and its status.
#[derive(Debug)]
pub(super) struct RegisteredRuleSet {
    pub(super) uid: Option<String>,
    pub(super) generation: Option<i64>,
    /// The newest spec. A compilation has a clone of this `Arc`.
    pub(super) spec: Arc<OperationRuleSetSpec>,
    /// The value of `Registry::compilations` when `spec` arrived.
    pub(super) arrived: u64,
    /// The result of compiling `spec`. `None` until the compilation ends.
    pub(super) compiled: Option<Result<Arc<RuleSet>, Vec<RuleSetError>>>,
    /// The rules that are evaluated, and the spec that defines them. `None` if the server evaluates
    /// no rules of this rule set.
    ///
    /// While `spec` is being compiled, these are the rules of the last valid spec. If `spec` does
    /// not compile or is too large, these rules stay in use, except if `spec` has another target.
    pub(super) in_use: Option<(Arc<OperationRuleSetSpec>, Arc<RuleSet>)>,
    /// Paths of the fields that this server does not know.
    pub(super) unknown_fields: Vec<String>,
    /// The status that the rule set has in the cluster.
    pub(super) cluster_status: KnownStatus,
}

impl RegisteredRuleSet {
    /// Returns the target of the rules that are evaluated. If there are none, returns the target of
    /// the newest spec.
    pub(super) fn used_target(&self) -> &Gvr {
        let used = self.in_use.as_ref().map(|(used, _)| used);
        &used.unwrap_or(&self.spec).target
    }

    /// Returns the rules for the rule book of `target`.
    pub(super) fn rules_for(&self, target: &Gvr) -> Option<Arc<RuleSet>> {
        let (used, rules) = self.in_use.as_ref()?;
        (used.target == *target).then(|| rules.clone())
    }

    /// Returns the size of the expressions of the rules that are evaluated, in bytes.
    pub(super) fn bytes_in_use(&self) -> usize {
        let used = self.in_use.as_ref();
        used.map_or(0, |(used, _)| expression_bytes(used))
    }

    /// Returns an error if the newest spec and the rules in use of the other rule sets together
    /// exceed [`MAX_ALL_EXPRESSIONS`]. `total` is the size of the expressions of all rules in use.
    pub(super) fn exceeds(&self, total: usize) -> Option<String> {
        let others = total - self.bytes_in_use();
        (others + expression_bytes(&self.spec) > MAX_ALL_EXPRESSIONS).then(|| {
            format!(
                "the expressions of all rule sets would have more than {MAX_ALL_EXPRESSIONS} bytes \
                 together; the other rule sets have {others}"
            )
        })
    }

    /// Returns true if the status was computed for the current generation of the rule set.
    pub(super) fn has_current_status(&self) -> bool {
        self.generation.is_some()
            && self.cluster_status.status.observed_generation == self.generation
    }
}

/// The newest known status of a rule set in the cluster. The status comes from a watch event, or
/// from the answer to the controller's own write.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownStatus {
    /// The resourceVersion of the rule set. `None` for a rule set from a file.
    pub(super) version: Option<String>,
    pub(super) status: OperationRuleSetStatus,
}

impl KnownStatus {
    /// Records a status, unless a newer status is known. `version` is the resourceVersion of the
    /// rule set with this status. `version` is `None` for a rule set from a file or a deleted rule
    /// set.
    pub(super) fn record(&mut self, version: Option<String>, status: OperationRuleSetStatus) {
        // resourceVersions of one resource can be compared as numbers (KEP-5504).
        let number = |version: &Option<String>| version.as_ref()?.parse::<u64>().ok();
        let is_old = number(&version)
            .zip(number(&self.version))
            .is_some_and(|(new, known)| new < known);
        if !is_old {
            self.version = version.or(self.version.take());
            self.status = status;
        }
    }
}
