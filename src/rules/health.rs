//! The facts about a rule set, and the reasons why it may miss operations. The conditions in the status,
//! the warnings on lists and the metric `ifo_rule_sets` are made from these reasons.

use crate::clock;
use ifo_api::ruleset::{
    EVALUATION_FAILED, GROUP_NOT_SERVED, NOT_INSTALLED, NOT_SERVED, TOO_MANY_OPERATIONS,
};
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::{Activity, RuleSet, UnknownDetections};
use std::sync::Arc;

/// Reason of `Ready` while the newest spec is being compiled.
const COMPILING: &str = "Compiling";

/// Reason of `Ready` while the objects of the target are being listed.
const PENDING: &str = "Pending";

/// Reason of `Ready` while discovery of the target or its watch fails.
pub(super) const WATCH_FAILED: &str = "WatchFailed";

/// Message of `Ready` while a feed (a watch of the target) throttles the rule set.
const THROTTLED: &str = "The rules take too much of the server's time, or they read `now` on more objects than the server \
     stores. Until the rules are cheaper, they are evaluated on only some objects. See the section on \
     cost in docs/rules.md.";

/// Message of `Ready` while changes of the target wait for more than
/// [`MAX_LAG`](ifo_engine::rules::MAX_LAG). The message does not contain the waiting time, so that
/// the status is not written again while the rule set is behind.
const BEHIND: &str = "Changes of the target wait for more than 5 s until the rules are evaluated on them. See the \
     section on cost in docs/rules.md.";

/// Text at the end of the message of `TooManyOperations`.
const UNTIL_ROOM: &str = " When operations end, the server lists the objects again and shows the \
                          missing operations. See the bounds on operations in docs/bounds.md.";

/// Text at the end of the message of `InvalidRule` while the server evaluates the rules of the last
/// valid spec.
const LAST_RULES: &str = ". Until these errors are corrected, the last valid version of the rules \
                          stays in use";

/// Text at the end of the message of `Compiling` while the server evaluates the rules of the last
/// valid spec.
const RULES_UNTIL_COMPILED: &str = ". Until then, the last valid version of the rules stays in use";

/// The facts from which the status of a rule set is computed.
#[derive(Debug)]
pub(super) struct RuleSetHealth<'a> {
    pub(super) generation: Option<i64>,
    /// The result of the compilation, with the text of its errors. `None` until it ends.
    pub(super) compiled: Option<Result<&'a Arc<RuleSet>, String>>,
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

/// The state of a feed, which is a watch of a target. The order of the variants matters: the state
/// of several feeds together is the smallest of their states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchState {
    /// The feed fails, for this reason.
    Failed(String),
    /// The feed is not up to date yet, or has not started yet.
    Pending,
    /// The feed is up to date.
    Active,
}

/// The reason why a rule set is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotReady {
    /// Reason of the condition `Ready`, and value of the label `state` of the metric
    /// `ifo_rule_sets`.
    pub(super) reason: &'static str,
    /// Message of the condition `Ready`. Empty for failed evaluations: their message comes from the
    /// condition `EvaluationFailed`.
    pub(super) message: String,
    /// Text for the warning on lists. `None` if the cluster does not serve the API group of the
    /// target, so that no operations can be missing.
    pub(super) warning: Option<String>,
    /// `None` if only the condition `Ready` shows this reason. Otherwise the status has a second
    /// condition, whose type is the field `reason`, and whose reason is this field. The second
    /// condition has the status True and the message `message`.
    pub(super) cause: Option<&'static str>,
}

impl NotReady {
    pub(super) fn new(
        reason: &'static str,
        message: impl Into<String>,
        warning: impl Into<String>,
    ) -> Self {
        Self {
            reason,
            message: message.into(),
            warning: Some(warning.into()),
            cause: None,
        }
    }

    fn caused_by(self, cause: &'static str) -> Self {
        Self {
            cause: Some(cause),
            ..self
        }
    }

    /// Returns the reason for an object that cannot be decoded as a rule set.
    pub(super) fn unreadable() -> Self {
        Self::new("InvalidRule", "", "is not a valid object")
    }

    /// Returns the reasons why the server does not evaluate the rules of the newest spec on all
    /// objects of the target. The condition `Ready` has the first of them. If there is no such
    /// reason, [`Self::of_activity`] can still return a reason.
    pub(super) fn all(health: &RuleSetHealth<'_>) -> Vec<Self> {
        let unusable = [Self::of_compilation(health), Self::of_target(health)];
        let mut all: Vec<Self> = unusable.into_iter().flatten().collect();
        if all.is_empty() {
            all.extend(Self::of_watch(health));
        }
        all
    }

    /// Returns the first reason of [`Self::all`].
    pub(super) fn of(health: &RuleSetHealth<'_>) -> Option<Self> {
        Self::all(health).into_iter().next()
    }

    fn of_compilation(health: &RuleSetHealth<'_>) -> Option<Self> {
        let with_last_rules = |text| if health.uses_last_rules { text } else { "" };
        match &health.compiled {
            None => {
                let until = with_last_rules(RULES_UNTIL_COMPILED);
                let message = format!("The rules are being compiled{until}.");
                Some(Self::new(COMPILING, message, "is being compiled"))
            }
            Some(Err(errors)) => {
                let message = format!("{errors}{}", with_last_rules(LAST_RULES));
                let invalid = Self::new("InvalidRule", message, "does not compile");
                Some(invalid.caused_by("InvalidRule"))
            }
            Some(Ok(_)) => None,
        }
    }

    /// Returns the reason why the server cannot watch the target. `None` if no reason is known.
    pub(super) fn of_target(health: &RuleSetHealth<'_>) -> Option<Self> {
        let invalid = |message, warning| Self::new("InvalidTarget", message, warning);
        if let Some(message) = health.refused {
            return Some(invalid(message.to_owned(), "target is refused").caused_by("Refused"));
        }
        if health.scoped_wrongly {
            let target = health.target;
            let message = format!("{target} is cluster-scoped: namespaces cannot select anything");
            return Some(invalid(message, "target is refused").caused_by("ClusterScoped"));
        }
        let Some(Resolution::NotServed {
            message,
            group_served,
            similar_group,
        }) = health.resolution
        else {
            return None;
        };
        if *group_served {
            let not_served = invalid(message.clone(), "target is not served");
            return Some(not_served.caused_by(NOT_SERVED));
        }
        // The resolution is that of an earlier look-up, because the last look-up failed. The group
        // may have been installed since then, so the target does not count as not installed.
        if health.look_up_failure.is_some() {
            return None;
        }
        // The name of the group is probably misspelled. Objects of the similar group can exist, so
        // operations can be missing.
        if let Some(similar) = similar_group {
            let message = format!("{message} (hint: did you mean {similar}?)");
            return Some(invalid(message, "target is not served").caused_by(NOT_SERVED));
        }
        Some(Self {
            reason: NOT_INSTALLED,
            message: message.clone(),
            warning: None,
            cause: Some(GROUP_NOT_SERVED),
        })
    }

    fn of_watch(health: &RuleSetHealth<'_>) -> Option<Self> {
        let failed = |message, warning| {
            Some(Self::new(WATCH_FAILED, message, warning).caused_by(WATCH_FAILED))
        };
        match (&health.watch, health.look_up_failure) {
            (WatchState::Active, _) => None,
            (WatchState::Failed(message), _) => failed(message.clone(), "target cannot be watched"),
            (WatchState::Pending, Some(failure)) => {
                let message = format!("discovery of {} failed: {failure}", health.target);
                failed(message, "discovery of the target failed")
            }
            (WatchState::Pending, None) => {
                let message = "The target is being listed.";
                Some(Self::new(PENDING, message, "target is being listed"))
            }
        }
    }

    /// Returns true if the rules are being compiled, or if the target has not been read completely.
    pub(super) fn is_unsynced(&self) -> bool {
        matches!(self.reason, COMPILING | PENDING | WATCH_FAILED)
    }

    /// Returns true if the rules are being compiled, or if the target is being listed.
    pub(super) fn is_being_read(&self) -> bool {
        matches!(self.reason, COMPILING | PENDING)
    }

    /// Returns the reason why a watched rule set may miss operations.
    pub(super) fn of_activity(activity: &Activity) -> Option<Self> {
        if activity.is_throttled() {
            return Some(Self::new("Throttled", THROTTLED, "throttled"));
        }
        if activity.is_behind(clock::steady()) {
            return Some(Self::new("Behind", BEHIND, "is behind by more than 5 s"));
        }
        if let Some(reached) = activity.reached_bound() {
            let message = format!("Operations may be missing: {reached}.{UNTIL_ROOM}");
            let warning = format!("too many operations: {} are counted", reached.kept);
            return Some(Self::new(TOO_MANY_OPERATIONS, message, warning));
        }
        // If a rule fails on an object, the server does not know whether an operation is in flight on
        // this object.
        let unknown = activity.unknown();
        (unknown.objects > 0).then(|| Self::new(EVALUATION_FAILED, "", evaluation_fails(&unknown)))
    }
}

/// Returns a text such as `evaluation fails on 3 objects`.
pub(super) fn evaluation_fails(unknown: &UnknownDetections) -> String {
    let objects = unknown.objects;
    let at_least = if unknown.has_more { "at least " } else { "" };
    let plural = if objects == 1 { "" } else { "s" };
    format!("evaluation fails on {at_least}{objects} object{plural}")
}
