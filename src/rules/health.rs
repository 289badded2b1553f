//! The facts about a rule set from which its status and its state are computed.

use ifo_api::ruleset::{GROUP_NOT_SERVED, NOT_INSTALLED, NOT_SERVED};
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::{RuleSet, RuleSetError};
use std::sync::Arc;

/// The facts from which the status of a rule set is computed.
#[derive(Debug)]
pub(super) struct RuleSetHealth<'a> {
    pub(super) generation: Option<i64>,
    /// The result of the compilation. `None` until it ends.
    pub(super) compiled: Option<Result<&'a Arc<RuleSet>, &'a [RuleSetError]>>,
    /// True if the rules of the last valid spec are evaluated, because the newest spec does not
    /// compile or is being compiled.
    pub(super) uses_last_rules: bool,
    pub(super) target: &'a Gvr,
    /// The reason why the server refuses to watch the target. `None` if it does not refuse.
    pub(super) refused: Option<&'a str>,
    pub(super) resolution: Option<&'a Resolution>,
    /// The reason why the last look-up of the target failed. `None` if it succeeded.
    pub(super) look_up_failure: Option<&'a str>,
    /// True if the rule set names namespaces, but its target is cluster-scoped.
    pub(super) scoped_wrongly: bool,
    pub(super) watch: WatchState,
    /// Fields of the rule set that this server does not know.
    pub(super) unknown_fields: &'a [String],
    /// Fields that the installed CRD does not have. `None` if the CRD has not been read.
    pub(super) missing_fields: Option<&'a [String]>,
}

/// The state of the feeds of a rule set, which are the watches of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WatchState {
    /// No feed fails, but at least one feed is not up to date yet or has not started yet.
    Pending,
    /// All feeds are up to date.
    Active,
    /// A feed fails, for this reason.
    Failed(String),
}

/// The reason why the server cannot watch a target.
pub(super) struct UnusableTarget {
    /// Type of the condition. It is also the reason of `Ready`.
    pub(super) condition: &'static str,
    /// Reason of the condition.
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Text for the warning on lists. `None` if no operations can be missing.
    pub(super) warning: Option<&'static str>,
}

impl UnusableTarget {
    /// Returns the reason why the server cannot watch the target. `None` if no reason is known.
    pub(super) fn of(health: &RuleSetHealth<'_>) -> Option<Self> {
        let invalid = |reason, message, warning| Self {
            condition: "InvalidTarget",
            reason,
            message,
            warning,
        };
        if let Some(message) = health.refused {
            let warning = Some("target is refused");
            return Some(invalid("Refused", message.to_owned(), warning));
        }
        if health.scoped_wrongly {
            let message = format!(
                "{} is cluster-scoped: namespaces cannot select anything",
                health.target
            );
            return Some(invalid("ClusterScoped", message, Some("target is refused")));
        }
        let Some(Resolution::NotServed {
            message,
            group_served,
            similar_group,
        }) = health.resolution
        else {
            return None;
        };
        Some(match similar_group {
            _ if *group_served => {
                invalid(NOT_SERVED, message.clone(), Some("target is not served"))
            }
            // The group can have been installed since the last successful look-up.
            _ if health.look_up_failure.is_some() => return None,
            Some(similar) => {
                let message = format!("{message} (hint: did you mean {similar}?)");
                invalid(GROUP_NOT_SERVED, message, None)
            }
            None => Self {
                condition: NOT_INSTALLED,
                reason: GROUP_NOT_SERVED,
                message: message.clone(),
                warning: None,
            },
        })
    }
}

/// Returns a text such as `evaluation fails on 3 objects`.
pub(super) fn evaluation_fails(objects: usize) -> String {
    let plural = if objects == 1 { "" } else { "s" };
    format!("evaluation fails on {objects} object{plural}")
}
