//! Computes the status of a rule set: its conditions, and the time of its last evaluation.

use super::health::{RuleSetHealth, UnusableTarget, WatchState, evaluation_fails};
use super::states::{NotReady, WATCH_FAILED};
use ifo_api::ruleset::{EVALUATION_FAILED, NOT_INSTALLED, OperationRuleSetStatus};
use ifo_api::{Resolution, printable};
use ifo_engine::rules::{Activity, EvaluationFailure, ObjectScope, RuleSet};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::time::Duration;

/// Maximum length of a condition's message in characters. A longer message is cut. metav1.Condition
/// allows 32,768 characters.
const MAX_MESSAGE: usize = 1_024;

/// Type of the condition that a rule set has if it contains fields that this server does not know.
const UNKNOWN_FIELDS: &str = "UnknownFields";

/// Type of the condition that all rule sets have if the installed CRD lacks fields that this server
/// knows.
const OUTDATED_DEFINITION: &str = "OutdatedDefinition";

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
            let was_watched = written.watch_active || find(written, WATCH_FAILED).is_some();
            let is_usable = UnusableTarget::of(health).is_none();
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
    let fixed = NotReady::of(health);
    conditions.add_compilation(fixed.as_ref());
    if let Some(target) = UnusableTarget::of(health) {
        conditions.add(target.condition, "True", target.reason, &target.message);
    }
    if let Some(NotReady {
        reason, message, ..
    }) = &fixed
        && *reason == WATCH_FAILED
    {
        conditions.add(WATCH_FAILED, "True", WATCH_FAILED, message);
    }
    let watch_active = fixed.is_none();
    let mut not_ready = fixed;
    if let Some(Ok(rule_set)) = health.compiled {
        not_ready = not_ready.or_else(|| NotReady::of_activity(&rule_set.activity));
        if let Some(message) = evaluation_failure(rule_set, written, now, requeue) {
            conditions.add("EvaluationFailed", "True", EVALUATION_FAILED, &message);
            if let Some(not_ready) = &mut not_ready
                && not_ready.reason == EVALUATION_FAILED
            {
                not_ready.message = message;
            }
        }
    }
    conditions.add_fields();
    let (status, reason, message) = match &not_ready {
        Some(not_ready) => ("False", not_ready.reason, &*not_ready.message),
        None => ("True", "Watching", "The target is being watched."),
    };
    conditions.add("Ready", status, reason, message);
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

/// Returns the message of `EvaluationFailed`. A detection is unknown if a rule fails on an object, so
/// that the server does not know whether an operation is in flight there. Returns `None` if no
/// detection is unknown, and no rule has failed in the last two `requeue` intervals.
fn evaluation_failure(
    rule_set: &RuleSet,
    written: &OperationRuleSetStatus,
    now: Timestamp,
    requeue: Duration,
) -> Option<String> {
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
        return Some(before.message.clone());
    }
    let last = failure.map_or_else(String::new, |failure| {
        format!("{}: {}", failure.what, failure.error)
    });
    Some(match objects {
        0 => last,
        _ => format!("{}: {last}", evaluation_fails(objects)),
    })
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
    /// Adds the conditions about the compilation. `not_ready` has the message if the newest spec has
    /// not been compiled.
    fn add_compilation(&mut self, not_ready: Option<&NotReady>) {
        let message = not_ready.map_or("", |it| &it.message);
        match self.health.compiled {
            None => self.add("Validated", "Unknown", "Compiling", message),
            Some(Ok(_)) => {
                let message = "All expressions compile.";
                self.add("Validated", "True", "RulesCompiled", message);
            }
            Some(Err(_)) => {
                self.add("Validated", "False", "InvalidRule", message);
                self.add("InvalidRule", "True", "InvalidRule", message);
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
