//! The status of a rule set: what its author reads.

use super::{Invalid, RuleSet};
use crate::api::ruleset::OperationRuleSetStatus;
use crate::api::{Gvr, Resolution};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::sync::Arc;
use std::time::Duration;

/// Longest message of a condition, in characters (metav1.Condition allows 32,768).
const MAX_MESSAGE: usize = 1_024;

/// All that the status follows from.
#[derive(Debug)]
pub(super) struct Health<'a> {
    pub(super) generation: Option<i64>,
    pub(super) compiled: Result<&'a Arc<RuleSet>, &'a [Invalid]>,
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
    /// Failing, and why.
    Failed(String),
}

/// The status as it should be. `lastEvaluationTime` moves only with another change, or
/// once per `requeue`, so that evaluations alone do not cause a write each.
pub(super) fn of(
    health: &Health<'_>,
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
    if let Ok(rule_set) = health.compiled
        && let Some(failure) = rule_set.activity.last_failure()
        && now.duration_since(failure.at).unsigned_abs() < requeue * 2
    {
        let message = format!(
            "{} on {}: {}",
            failure.what, failure.subject, failure.message
        );
        // One failing subject after another must not cause a write each.
        let standing = written
            .conditions
            .iter()
            .find(|old| old.type_ == "EvaluationFailed");
        let message = standing.map_or(message, |old| old.message.clone());
        conditions.add("EvaluationFailed", "True", "EvaluationFailed", &message);
    }
    let watch_active = health.watch == Watch::Active && not_ready.is_none();
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
    if let Some(evaluated) = evaluated {
        let due = match &written.last_evaluation_time {
            None => true,
            Some(Time(shown)) => evaluated.duration_since(*shown).unsigned_abs() >= requeue,
        };
        if due || status != *written {
            status.last_evaluation_time = Some(Time(evaluated));
        }
    }
    status
}

fn invalid_target(health: &Health<'_>) -> Option<(&'static str, String)> {
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
        Some(Resolution::NotServed { message }) => Some(("NotServed", message.clone())),
        _ => None,
    }
}

struct Conditions<'a> {
    written: &'a OperationRuleSetStatus,
    health: &'a Health<'a>,
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
            // In whole seconds, as it is written, so that it compares equal when read back.
            last_transition_time: before.map_or_else(
                || Time(Timestamp::from_second(self.now.as_second()).unwrap_or(self.now)),
                |old| old.last_transition_time.clone(),
            ),
            observed_generation: self.health.generation,
        });
    }
}
