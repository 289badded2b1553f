//! Computes the status of a rule set: its conditions, and the time of its last evaluation.

use super::health::{NotReady, RuleSetHealth, WATCH_FAILED, WatchState, evaluation_fails};
use ifo_api::live::cut_message;
use ifo_api::ruleset::{EVALUATION_FAILED, NOT_INSTALLED, OperationRuleSetStatus};
use ifo_api::{Resolution, printable};
use ifo_engine::rules::RuleSet;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::time::Duration;

/// Type of the condition that a rule set has if it contains fields that this server does not know.
const UNKNOWN_FIELDS: &str = "UnknownFields";

/// Type of the condition that all rule sets have if the installed CRD lacks fields that this server
/// knows.
const OUTDATED_DEFINITION: &str = "OutdatedDefinition";

/// Returns true if the rule set must keep the status `written` for now, because too little is known
/// about the rule set. `written` must have been computed for the current generation. There are two
/// cases:
///
/// - The server has restarted, and has not compiled the rule set or not looked up the target yet.
/// - The feeds of the target are new and have not reported yet. Feeds are new after a restart, and
///   after a change of another rule set of the target. So the status does not change only because
///   the new feeds are listing the objects.
pub(super) fn stays(health: &RuleSetHealth<'_>, written: &OperationRuleSetStatus) -> bool {
    match (&health.compiled, health.resolution) {
        (None, _) => true,
        (_, None) => health.look_up_failure.is_none(),
        (Some(Ok(_)), Some(Resolution::Served { .. })) => {
            let was_watched = written.watch_active || find(written, WATCH_FAILED).is_some();
            let is_usable = NotReady::of_target(health).is_none();
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
    let reasons = NotReady::all(health);
    let watch_active = reasons.is_empty();
    let compiled = health.compiled.as_ref();
    let compiled = compiled.and_then(|compiled| compiled.as_ref().ok());
    let mut rows = condition_rows(health, &reasons);
    let mut not_ready = reasons.into_iter().next();
    if let Some(rule_set) = compiled {
        not_ready = not_ready.or_else(|| NotReady::of_activity(&rule_set.activity));
        if let Some(message) = evaluation_failure(rule_set, written, now, requeue) {
            if let Some(not_ready) = &mut not_ready
                && not_ready.reason == EVALUATION_FAILED
            {
                not_ready.message.clone_from(&message);
            }
            rows.push(("EvaluationFailed", "True", EVALUATION_FAILED, message));
        }
    }
    let ready = if let Some(it) = not_ready {
        ("Ready", "False", it.reason, it.message)
    } else {
        let message = "The target is being watched.".to_owned();
        ("Ready", "True", "Watching", message)
    };
    let shown = if ready.2 == NOT_INSTALLED {
        NOT_INSTALLED
    } else {
        ready.1
    };
    rows.push(ready);
    let conditions = rows.into_iter();
    let conditions = conditions.map(|row| condition(row, written, health.generation, now));
    let mut conditions: Vec<Condition> = conditions.collect();
    if health.missing_fields.is_none() {
        // After a start, the condition stays as it was until the installed CRD has been read.
        conditions.extend(find(written, OUTDATED_DEFINITION).cloned());
    }
    conditions.sort_by(|a, b| (a.type_ != "Ready", &a.type_).cmp(&(b.type_ != "Ready", &b.type_)));
    let mut status = OperationRuleSetStatus {
        ready: shown.to_owned(),
        conditions,
        watch_active,
        last_evaluation_time: written.last_evaluation_time.clone(),
        observed_generation: health.generation,
    };
    if let Some(activity) = compiled.map(|rule_set| &rule_set.activity)
        && let Some(evaluated) = activity.last_evaluation()
        && (is_due(written, evaluated, requeue) || status != *written)
    {
        status.last_evaluation_time = Some(whole_seconds(evaluated));
    }
    status
}

/// Type, status, reason and message of a condition.
type ConditionRow = (&'static str, &'static str, &'static str, String);

/// Returns the conditions that do not depend on evaluations. The conditions about unknown fields do not
/// change `Ready`, because the other fields are evaluated as usual.
fn condition_rows(health: &RuleSetHealth<'_>, reasons: &[NotReady]) -> Vec<ConditionRow> {
    let first = || {
        reasons
            .first()
            .map_or_else(String::new, |it| it.message.clone())
    };
    let mut rows = vec![match &health.compiled {
        None => ("Validated", "Unknown", "Compiling", first()),
        Some(Err(_)) => ("Validated", "False", "InvalidRule", first()),
        Some(Ok(_)) => {
            let message = "All expressions compile.".to_owned();
            ("Validated", "True", "RulesCompiled", message)
        }
    }];
    let causes = reasons.iter();
    rows.extend(causes.filter_map(|it| Some((it.reason, "True", it.cause?, it.message.clone()))));
    if !health.unknown_fields.is_empty() {
        let message = format!(
            "This server does not know these fields and ignores them: {}. Upgrade the server, or \
             remove the fields.",
            health.unknown_fields.join(", ")
        );
        rows.push((UNKNOWN_FIELDS, "True", UNKNOWN_FIELDS, message));
    }
    if let Some(missing @ [_, ..]) = health.missing_fields {
        let message = format!(
            "The installed CustomResourceDefinition is older than this server. The kube-apiserver \
             removes these fields from rule sets: {}. Run `kubectl apply -k deploy/crd` with the \
             version of the server, and apply the rule set again.",
            missing.join(", ")
        );
        rows.push((OUTDATED_DEFINITION, "True", OUTDATED_DEFINITION, message));
    }
    rows
}

/// Returns a condition. Its transition time changes only with its status.
fn condition(
    (type_, status, reason, message): ConditionRow,
    written: &OperationRuleSetStatus,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let before = find(written, type_).filter(|old| old.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: cut_message(&printable(&message)).into_owned(),
        last_transition_time: before.map_or_else(
            || whole_seconds(now),
            |old| old.last_transition_time.clone(),
        ),
        observed_generation,
    }
}

/// The cause in the condition `EvaluationFailed` if no rule has failed.
const SKIPPED: &str = "the rule set was throttled, so the server has skipped the evaluation";

/// Returns the message of the condition `EvaluationFailed`, with the last failure of each field that
/// has failed recently. Returns `None` if there is no unknown
/// detection, and no rule has failed in the last two `requeue` intervals.
///
/// A detection is unknown if a rule fails on an object: the server then does not know whether the
/// operation is in flight on this object.
fn evaluation_failure(
    rule_set: &RuleSet,
    written: &OperationRuleSetStatus,
    now: Timestamp,
    requeue: Duration,
) -> Option<String> {
    let activity = &rule_set.activity;
    let unknown = activity.unknown();
    let is_unknown = unknown.objects > 0;
    // While a detection is unknown, its failure can be old, because the server evaluates a rule on
    // an object only when the object changes. So the last failure always counts as recent then.
    let (failures, newest) = if is_unknown {
        let failures = activity.detection_failures();
        let newest = failures.iter().map(|failure| failure.at).max();
        (failures, newest.unwrap_or(now))
    } else {
        (activity.failures(), now)
    };
    let recent = failures
        .iter()
        .filter(|failure| newest.duration_since(failure.at).unsigned_abs() < requeue * 2);
    let texts = recent.map(|failure| format!("{}: {}", failure.what, failure.error));
    let texts = texts.collect::<Vec<_>>().join("; ");
    // If no rule has failed, the server has skipped the objects, because it throttles the rule set.
    // The reason `Throttled` then says enough.
    if texts.is_empty() && (!is_unknown || activity.is_throttled()) {
        return None;
    }
    let before = find(written, "EvaluationFailed");
    let was_unknown = find(written, "Ready").is_some_and(|ready| ready.reason == EVALUATION_FAILED);
    // The message can change with each evaluated object. The old message stays until the requeue
    // interval has passed, so that there are few writes.
    if let Some(before) = before
        && was_unknown == is_unknown
        && !is_due(written, now, requeue)
    {
        return Some(before.message.clone());
    }
    Some(match (is_unknown, &*texts) {
        (false, _) => texts,
        (true, "") => format!("{}: {SKIPPED}", evaluation_fails(&unknown)),
        (true, texts) => format!("{}: {texts}", evaluation_fails(&unknown)),
    })
}

/// Returns the condition of this type.
fn find<'a>(status: &'a OperationRuleSetStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|it| it.type_ == type_)
}

/// Returns true if `lastEvaluationTime` is not set, or if `now` is at least `requeue` later.
fn is_due(written: &OperationRuleSetStatus, now: Timestamp, requeue: Duration) -> bool {
    match &written.last_evaluation_time {
        None => true,
        Some(Time(shown)) => now.duration_since(*shown).unsigned_abs() >= requeue,
    }
}

/// Cuts a time to whole seconds, the precision of the API. Otherwise, a status would differ from
/// the same status in the cluster, and the controller would write the status again.
fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
