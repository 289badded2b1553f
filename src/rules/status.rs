//! Computes the status of a rule set: its conditions, and the time of its last evaluation.

use crate::clock;
use ifo_api::ruleset::{
    EVALUATION_FAILED, GROUP_NOT_SERVED, NOT_INSTALLED, NOT_SERVED, OperationRuleSetStatus,
    TOO_MANY_OPERATIONS,
};
use ifo_api::{Gvr, Resolution, printable};
use ifo_engine::rules::{Activity, EvaluationFailure, ObjectScope, RuleSet, RuleSetError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a condition's message in characters. A longer message is cut. metav1.Condition
/// allows 32,768 characters.
const MAX_MESSAGE: usize = 1_024;

/// Type of the condition that a rule set has if it contains fields that this server does not know.
const UNKNOWN_FIELDS: &str = "UnknownFields";

/// Type of the condition that all rule sets have if the installed CRD lacks fields that this server
/// knows.
const OUTDATED_DEFINITION: &str = "OutdatedDefinition";

/// Reason and message of `Ready` while a feed (a watch of the target) throttles the rule set.
const THROTTLED: (&str, &str) = (
    "Throttled",
    "The rules take too much of the server's time, they exhausted their evaluation steps on ten \
     objects in a row, or they read `now` on more objects than the server stores. Until the rules \
     are cheaper, they are evaluated on only some objects. \
     See the section on cost in docs/rules.md.",
);

/// Reason and message of `Ready` while changes of the target wait for more than
/// [`MAX_LAG`](ifo_engine::rules::MAX_LAG). The message does not contain the waiting time, so that
/// the status is not written again while the rule set is behind.
const BEHIND: (&str, &str) = (
    "Behind",
    "Changes of the target wait for more than 5 s until the rules are evaluated on them. See the \
     section on cost in docs/rules.md.",
);

/// Text at the end of the message of `TooManyOperations`.
const UNTIL_ROOM: &str = " When operations end, the server lists the objects again and shows the \
                          missing operations. See the bounds on operations in docs/rules.md.";

/// Text at the end of the message of `InvalidRule` while the server evaluates the rules of the last
/// valid spec.
const LAST_RULES: &str = ". Until these errors are corrected, the last valid version of the rules \
                          stays in use";

/// Reason of `Ready` and `Validated` while the newest spec is being compiled.
const COMPILING: &str = "Compiling";

/// Text at the end of the message of `Compiling` while the server evaluates the rules of the last
/// valid spec.
const RULES_UNTIL_COMPILED: &str = ". Until then, the last valid version of the rules stays in use";

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
    /// True if the rule set may miss operations, because the server has not read all objects of its
    /// target, or because a watch of the target is interrupted.
    pub(super) is_unsynced: bool,
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

/// Returns true if the status `written`, which was computed for the current generation, stays until
/// more is known about the rule set:
///
/// - After a restart, until the rule set is compiled and discovery has looked up the target.
/// - After a restart, or after a change of another rule set of the target, until the new feeds of the
///   target have reported. So a status does not change for the time of a list.
pub(super) fn stays(health: &RuleSetHealth<'_>, written: &OperationRuleSetStatus) -> bool {
    match (health.compiled, health.resolution) {
        (None, _) | (_, None) => true,
        (Some(Ok(_)), Some(Resolution::Served { .. })) => {
            let was_watched = written.watch_active || find(written, "WatchFailed").is_some();
            let is_usable = unusable_target(health).is_none();
            health.watch == WatchState::Pending && was_watched && is_usable
        }
        _ => false,
    }
}

/// Computes the status. `written` is the status that the rule set has in the cluster.
///
/// `lastEvaluationTime` changes only together with another change of the status, or if the last
/// evaluation is at least `requeue` later than the old `lastEvaluationTime`. So evaluations alone
/// cause few writes.
pub(super) fn compute(
    health: &RuleSetHealth<'_>,
    written: &OperationRuleSetStatus,
    now: Timestamp,
    requeue: Duration,
) -> OperationRuleSetStatus {
    let mut conditions = Conditions {
        written,
        health,
        now,
        all: Vec::new(),
    };
    let mut not_ready: Option<(&str, String)> = conditions.add_compilation();

    if let Some(Unusable {
        condition,
        reason,
        message,
    }) = unusable_target(health)
    {
        conditions.add(condition, "True", reason, &message);
        not_ready.get_or_insert((condition, message));
    }
    let failure = match (&health.watch, health.look_up_failure) {
        (WatchState::Failed(message), _) => Some(message.clone()),
        (WatchState::Pending, Some(message)) => {
            Some(format!("discovery of {} failed: {message}", health.target))
        }
        _ => None,
    };
    if let Some(message) = failure.filter(|_| not_ready.is_none()) {
        conditions.add("WatchFailed", "True", "WatchFailed", &message);
        not_ready.get_or_insert(("WatchFailed", message));
    }
    let watch_active = health.watch == WatchState::Active && not_ready.is_none();
    if let Some(Ok(rule_set)) = health.compiled {
        if rule_set.activity.is_throttled() {
            let (reason, message) = THROTTLED;
            not_ready.get_or_insert((reason, message.to_owned()));
        }
        if watch_active && rule_set.activity.is_behind(clock::steady()) {
            let (reason, message) = BEHIND;
            not_ready.get_or_insert((reason, message.to_owned()));
        }
        if let Some(reached) = rule_set.activity.reached_bound() {
            let message = format!("Operations may be missing: {reached}.{UNTIL_ROOM}");
            not_ready.get_or_insert((TOO_MANY_OPERATIONS, message));
        }
        if let Some((message, unknown)) = evaluation_failure(rule_set, written, now, requeue) {
            conditions.add("EvaluationFailed", "True", EVALUATION_FAILED, &message);
            if unknown {
                not_ready.get_or_insert((EVALUATION_FAILED, message));
            }
        }
    }
    conditions.add_fields();
    let (status, reason, message) = match not_ready {
        Some((reason, message)) => ("False", reason, message),
        None if watch_active => (
            "True",
            "Watching",
            "The target is being watched.".to_owned(),
        ),
        None => ("False", "Pending", "The target is being listed.".to_owned()),
    };
    conditions.add("Ready", status, reason, &message);
    let ready = if reason == NOT_INSTALLED {
        NOT_INSTALLED
    } else {
        status
    };

    let mut all = conditions.all;
    all.sort_by(|a, b| (a.type_ != "Ready", &a.type_).cmp(&(b.type_ != "Ready", &b.type_)));
    let mut status = OperationRuleSetStatus {
        ready: ready.to_owned(),
        conditions: all,
        watch_active,
        last_evaluation_time: written.last_evaluation_time.clone(),
        observed_generation: health.generation,
    };
    let evaluated = health
        .compiled
        .and_then(Result::ok)
        .and_then(|rule_set| rule_set.activity.last_evaluation());
    if let (Some(evaluated), Some(Ok(rule_set))) = (evaluated, health.compiled)
        && (is_due(written, &rule_set.activity, requeue) || status != *written)
    {
        status.last_evaluation_time = Some(whole_seconds(evaluated));
    }
    status
}

/// Returns the message of `EvaluationFailed`, and true if a detection is unknown. A detection is
/// unknown if a rule fails on an object, so that the server does not know whether an operation is
/// in flight there. Returns `None` if no detection is unknown, and no rule has failed in the last
/// two `requeue` intervals.
fn evaluation_failure(
    rule_set: &RuleSet,
    written: &OperationRuleSetStatus,
    now: Timestamp,
    requeue: Duration,
) -> Option<(String, bool)> {
    let activity = &rule_set.activity;
    let objects = activity.unknown_on(ObjectScope::ALL).objects;
    let recent =
        |failure: &EvaluationFailure| now.duration_since(failure.at).unsigned_abs() < requeue * 2;
    let failure = match objects {
        0 => Some(activity.last_failure().filter(recent)?),
        _ => activity.last_detection_failure(),
    };
    let before = find(written, "EvaluationFailed");
    let was_unknown = find(written, "Ready").is_some_and(|ready| ready.reason == EVALUATION_FAILED);
    // The number of objects in the message can change with each evaluated object. The old message
    // stays until the requeue interval has passed, so that there are few writes.
    if let Some(before) = before
        && was_unknown == (objects > 0)
        && !is_due(written, activity, requeue)
    {
        return Some((before.message.clone(), objects > 0));
    }
    let last = failure.map_or_else(String::new, |failure| {
        format!("{}: {}", failure.what, failure.error)
    });
    let message = match objects {
        0 => last,
        _ => format!("{}: {last}", evaluation_fails(objects)),
    };
    Some((message, objects > 0))
}

/// Returns a text such as `evaluation fails on 3 objects`.
pub(super) fn evaluation_fails(objects: usize) -> String {
    let plural = if objects == 1 { "" } else { "s" };
    format!("evaluation fails on {objects} object{plural}")
}

/// Returns the condition of this type.
fn find<'a>(status: &'a OperationRuleSetStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|it| it.type_ == type_)
}

/// Returns true if `lastEvaluationTime` must be updated: it is not set, or the last evaluation is
/// at least `requeue` later.
fn is_due(written: &OperationRuleSetStatus, activity: &Activity, requeue: Duration) -> bool {
    let Some(evaluated) = activity.last_evaluation() else {
        return false;
    };
    match &written.last_evaluation_time {
        None => true,
        Some(Time(shown)) => evaluated.duration_since(*shown).unsigned_abs() >= requeue,
    }
}

/// The reason why the server cannot watch a target.
struct Unusable {
    /// Type of the condition. It is also the reason of `Ready`.
    condition: &'static str,
    /// Reason of the condition.
    reason: &'static str,
    message: String,
}

/// Returns the reason why the server cannot watch the target. `None` if no reason is known.
fn unusable_target(health: &RuleSetHealth<'_>) -> Option<Unusable> {
    let invalid = |reason, message| Unusable {
        condition: "InvalidTarget",
        reason,
        message,
    };
    if let Some(message) = health.refused {
        return Some(invalid("Refused", message.to_owned()));
    }
    if health.scoped_wrongly {
        let message = format!(
            "{} is cluster-scoped: namespaces cannot select anything",
            health.target
        );
        return Some(invalid("ClusterScoped", message));
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
        _ if *group_served => invalid(NOT_SERVED, message.clone()),
        Some(similar) => {
            let message = format!("{message} (hint: did you mean {similar}?)");
            invalid(GROUP_NOT_SERVED, message)
        }
        None => Unusable {
            condition: NOT_INSTALLED,
            reason: GROUP_NOT_SERVED,
            message: message.clone(),
        },
    })
}

/// Rounds a time to whole seconds, the precision of the API. So the time in the status is still
/// equal after the status was written and read again.
fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

struct Conditions<'a> {
    written: &'a OperationRuleSetStatus,
    health: &'a RuleSetHealth<'a>,
    now: Timestamp,
    all: Vec<Condition>,
}

impl Conditions<'_> {
    /// Adds the conditions about the compilation. Returns the reason and the message of `Ready`, if
    /// the newest spec has not been compiled.
    fn add_compilation(&mut self) -> Option<(&'static str, String)> {
        let uses_last_rules = self.health.uses_last_rules;
        match self.health.compiled {
            None => {
                let mut message = "The rules are being compiled".to_owned();
                if uses_last_rules {
                    message.push_str(RULES_UNTIL_COMPILED);
                }
                message.push('.');
                self.add("Validated", "Unknown", COMPILING, &message);
                Some((COMPILING, message))
            }
            Some(Ok(_)) => {
                let message = "All expressions compile.";
                self.add("Validated", "True", "RulesCompiled", message);
                None
            }
            Some(Err(invalid)) => {
                let errors = invalid.iter().map(ToString::to_string);
                let mut message = errors.collect::<Vec<_>>().join("; ");
                if uses_last_rules {
                    message.push_str(LAST_RULES);
                }
                self.add("Validated", "False", "InvalidRule", &message);
                self.add("InvalidRule", "True", "InvalidRule", &message);
                Some(("InvalidRule", message))
            }
        }
    }

    /// Adds the conditions about fields that the server, or the installed CRD, does not know. These
    /// conditions do not change `Ready`, because the other fields are evaluated as usual.
    fn add_fields(&mut self) {
        let unknown = self.health.unknown_fields;
        if !unknown.is_empty() {
            let message = format!(
                "This server does not know these fields and ignores them: {}. Upgrade the server, \
                 or remove the fields.",
                unknown.join(", ")
            );
            self.add(UNKNOWN_FIELDS, "True", UNKNOWN_FIELDS, &message);
        }
        match self.health.missing_fields {
            Some([]) => {}
            Some(missing) => {
                let message = format!(
                    "The installed CustomResourceDefinition is older than this server. The \
                     kube-apiserver removes these fields from rule sets: {}. Run `kubectl apply -k \
                     deploy/crd` with the version of the server, and apply the rule set again.",
                    missing.join(", ")
                );
                self.add(OUTDATED_DEFINITION, "True", OUTDATED_DEFINITION, &message);
            }
            // After a start, the condition stays as it was until the installed CRD has been read.
            None => self
                .all
                .extend(find(self.written, OUTDATED_DEFINITION).cloned()),
        }
    }

    fn add(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let before = find(self.written, type_).filter(|old| old.status == status);
        self.all.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: printable(message).chars().take(MAX_MESSAGE).collect(),
            last_transition_time: before.map_or_else(
                || whole_seconds(self.now),
                |old| old.last_transition_time.clone(),
            ),
            observed_generation: self.health.generation,
        });
    }
}
