//! The status of a rule set.

use super::report;
use ifo_api::ruleset::{EVALUATION_FAILED, GROUP_NOT_SERVED, NOT_SERVED, OperationRuleSetStatus};
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::{Activity, EvaluationFailure, ObjectScope, RuleSet, RuleSetError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::sync::Arc;
use std::time::Duration;

/// Longest message of a condition, in characters (metav1.Condition allows 32,768).
const MAX_MESSAGE: usize = 1_024;

/// Reason and message of `Ready` while a feed throttles the rule set.
const THROTTLED: (&str, &str) = (
    "Throttled",
    "The rules exhausted their budget of evaluation steps on ten objects in a row. Until one \
     evaluation stays within it, they are evaluated on one object every ten seconds. See \
     the section on cost in docs/rules.md.",
);

/// The inputs of the status.
#[derive(Debug)]
pub(super) struct RuleSetHealth<'a> {
    pub(super) generation: Option<i64>,
    pub(super) compiled: Result<&'a Arc<RuleSet>, &'a [RuleSetError]>,
    pub(super) target: &'a Gvr,
    pub(super) refused: Option<&'a str>,
    pub(super) resolution: Option<&'a Resolution>,
    pub(super) unknown: Option<&'a str>,
    pub(super) scoped_wrongly: bool,
    pub(super) watch: Watch,
}

/// The state of the feeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Not up to date yet.
    Pending,
    /// Up to date.
    Active,
    /// Failing, with the reason.
    Failed(String),
}

/// Builds the status. `lastEvaluationTime` changes only with another change or once in each
/// `requeue`, so that evaluations alone do not cause a write each.
pub(super) fn of(
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
    let mut not_ready: Option<(&str, String)> = None;

    match health.compiled {
        Ok(_) => conditions.add(
            "Validated",
            "True",
            "RulesCompiled",
            "All expressions compile.",
        ),
        Err(invalid) => {
            let message = invalid
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ");
            conditions.add("Validated", "False", "InvalidRule", &message);
            conditions.add("InvalidRule", "True", "InvalidRule", &message);
            not_ready.get_or_insert(("InvalidRule", message));
        }
    }
    if let Some((reason, message)) = invalid_target(health) {
        conditions.add("InvalidTarget", "True", reason, &message);
        not_ready.get_or_insert(("InvalidTarget", message));
    }
    let failure = match (&health.watch, health.unknown) {
        (Watch::Failed(message), _) => Some(message.clone()),
        (Watch::Pending, Some(message)) => {
            Some(format!("discovery of {} failed: {message}", health.target))
        }
        _ => None,
    };
    if let Some(message) = failure.filter(|_| not_ready.is_none()) {
        conditions.add("WatchFailed", "True", "WatchFailed", &message);
        not_ready.get_or_insert(("WatchFailed", message));
    }
    let watch_active = health.watch == Watch::Active && not_ready.is_none();
    if let Ok(rule_set) = health.compiled {
        if rule_set.activity.is_throttled() {
            let (reason, message) = THROTTLED;
            not_ready.get_or_insert((reason, message.to_owned()));
        }
        if let Some((message, unknown)) = failed(rule_set, written, now, requeue) {
            conditions.add("EvaluationFailed", "True", EVALUATION_FAILED, &message);
            if unknown {
                not_ready.get_or_insert((EVALUATION_FAILED, message));
            }
        }
    }
    match not_ready {
        Some((reason, message)) => conditions.add("Ready", "False", reason, &message),
        None if watch_active => {
            conditions.add("Ready", "True", "Watching", "The target is being watched.");
        }
        None => conditions.add("Ready", "False", "Pending", "The target is being listed."),
    }

    let mut all = conditions.all;
    all.sort_by(|a, b| (a.type_ != "Ready", &a.type_).cmp(&(b.type_ != "Ready", &b.type_)));
    let mut status = OperationRuleSetStatus {
        conditions: all,
        watch_active,
        last_evaluation_time: written.last_evaluation_time.clone(),
        observed_generation: health.generation,
    };
    let evaluated = health
        .compiled
        .ok()
        .and_then(|rule_set| rule_set.activity.last_evaluation());
    if let (Some(evaluated), Ok(rule_set)) = (evaluated, health.compiled)
        && (is_due(written, &rule_set.activity, requeue) || status != *written)
    {
        status.last_evaluation_time = Some(whole_seconds(evaluated));
    }
    status
}

/// The message of `EvaluationFailed`, if a rule failed recently or a detection is unknown, and
/// whether a detection is unknown.
fn failed(
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
    let before = written
        .conditions
        .iter()
        .find(|old| old.type_ == "EvaluationFailed");
    let was_unknown = written
        .conditions
        .iter()
        .any(|old| old.type_ == "Ready" && old.reason == EVALUATION_FAILED);
    // The count changes with every object. One write in each requeue interval is enough.
    if let Some(before) = before
        && names_no_subject(&before.message)
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
        _ => format!("{}: {last}", report::evaluation_fails(objects)),
    };
    Some((message, objects > 0))
}

/// Returns true if `lastEvaluationTime` has to be refreshed.
fn is_due(written: &OperationRuleSetStatus, activity: &Activity, requeue: Duration) -> bool {
    let Some(evaluated) = activity.last_evaluation() else {
        return false;
    };
    match &written.last_evaluation_time {
        None => true,
        Some(Time(shown)) => evaluated.duration_since(*shown).unsigned_abs() >= requeue,
    }
}

/// Returns true if a message of `EvaluationFailed` names no subject. Version 0.1.0 wrote `<field>
/// on <subject>: <text that may quote a value>`, which must be replaced.
fn names_no_subject(message: &str) -> bool {
    !message
        .split(": ")
        .next()
        .is_some_and(|field| field.starts_with("rules[") && field.contains(" on "))
}

fn invalid_target(health: &RuleSetHealth<'_>) -> Option<(&'static str, String)> {
    if let Some(message) = health.refused {
        return Some(("Refused", message.to_owned()));
    }
    if health.scoped_wrongly {
        let message = format!(
            "{} is cluster-scoped: namespaces cannot select anything",
            health.target
        );
        return Some(("ClusterScoped", message));
    }
    match health.resolution {
        Some(Resolution::NotServed {
            message,
            group_served,
        }) => {
            let reason = if *group_served {
                NOT_SERVED
            } else {
                GROUP_NOT_SERVED
            };
            Some((reason, message.clone()))
        }
        _ => None,
    }
}

/// A time in the precision of the API, so that it is equal when it is read back.
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
    fn add(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let before = self
            .written
            .conditions
            .iter()
            .find(|old| old.type_ == type_ && old.status == status);
        self.all.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.chars().take(MAX_MESSAGE).collect(),
            last_transition_time: before.map_or_else(
                || whole_seconds(self.now),
                |old| old.last_transition_time.clone(),
            ),
            observed_generation: self.health.generation,
        });
    }
}
