//! Tests the conditions in the status of a rule set.

mod evaluation_failures;

use super::super::health::{RuleSetHealth, WatchState};
use super::super::status::compute;
use super::*;
use ifo_engine::rules::{Fact, OperationBound, ReachedBound, Report};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Starts a controller with one rule set, whose name must be `a`. `discovered` is the result of
/// discovery for its target. Returns the status after all feeds (the watches of the target) have
/// reported that they are up to date.
async fn final_status(
    rule_set: OperationRuleSet,
    discovered: Resolution,
) -> OperationRuleSetStatus {
    let mut fixture = fixture();
    fixture.discovers(&rule_set.spec.target.resource, discovered);
    fixture.list(std::slice::from_ref(&rule_set));
    moment().await;
    fixture.catch_up().await;
    fixture.status("a")
}

fn without_group(similar_group: Option<&str>) -> Resolution {
    Resolution::NotServed {
        message: "the cluster does not serve the API group example.com".into(),
        group_served: false,
        similar_group: similar_group.map(str::to_owned),
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_watched_has_a_condition_with_the_reason() {
    let cars = || rule_set("a", "cars", "true");
    let mut core_secrets = rule_set("a", "secrets", "true");
    core_secrets.spec.target.group = String::new();
    let nodes = Resolution::Served {
        kind: "Node".to_owned(),
        namespaced: false,
    };
    let in_x = in_namespaces(rule_set("a", "nodes", "true"), &["x"]);
    let (absent, similar) = (without_group(None), without_group(Some("example.org")));
    let invalid = "InvalidTarget";
    for (object, resolution, type_, reason, text) in [
        (cars(), not_served(), invalid, "NotServed", "nobody serves"),
        (
            cars(),
            absent,
            "NotInstalled",
            "GroupNotServed",
            "API group",
        ),
        (cars(), similar, invalid, "NotServed", "did you mean"),
        (
            core_secrets,
            served(),
            invalid,
            "Refused",
            "--allow-secrets",
        ),
        (cars(), unknown(), "WatchFailed", "WatchFailed", "503"),
        (
            in_x,
            nodes.clone(),
            invalid,
            "ClusterScoped",
            "is cluster-sc",
        ),
    ] {
        let status = final_status(object, resolution).await;
        let others = types(&status)[1..].iter().copied().collect();
        assert_eq!(BTreeSet::from([type_, "Validated"]), others);
        let (ready, found) = (format!("False/{type_}"), format!("True/{reason}"));
        assert_eq!(condition(&status, "Ready"), Some(ready));
        assert_eq!(condition(&status, type_), Some(found));
        let shown = if type_ == "NotInstalled" {
            type_
        } else {
            "False"
        };
        assert_eq!(status.ready, shown);
        assert!(message(&status, type_).contains(text), "{reason}");
    }
    for (resource, resolution) in [("secrets", served()), ("nodes", nodes)] {
        let status = final_status(rule_set("a", resource, "true"), resolution).await;
        let ready = condition(&status, "Ready");
        assert_eq!(ready.as_deref(), Some("True/Watching"), "{resource}");
        assert_eq!(status.ready, "True");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_feed_is_reported_with_its_error_while_it_fails() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    let published = fixture.published();
    has(&fixture.status("a"), "Ready", "False/Pending");
    fixture
        .report(&published[0], Some("forbidden: may not list cars"))
        .await;
    moment().await;
    let status = fixture.status("a");
    assert_eq!(types(&status), ["Ready", "Validated", "WatchFailed"]);
    assert_eq!(
        message(&status, "WatchFailed"),
        "forbidden: may not list cars"
    );
    assert_eq!(message(&status, "Ready"), "forbidden: may not list cars");
    assert!(!status.watch_active);
    let mut conditions = status.conditions.iter();
    assert!(conditions.all(|it| it.observed_generation == Some(1)));
    fixture.report(&published[0], None).await;
    moment().await;
    assert_eq!(types(&fixture.status("a")), ["Ready", "Validated"]);
}

#[tokio::test(start_paused = true)]
async fn all_errors_of_a_rule_set_are_reported_with_their_positions() {
    let mut object = rule_set("a", "cars", "object.spec ==\n  1 +");
    let color = json!({"key": "color", "expression": "1"});
    object.spec.label_expressions.push(from(color));
    let text = message(&final_status(object, served()).await, "InvalidRule");
    assert!(
        text.starts_with("rules[Working].expression: 2:6: "),
        "{text}"
    );
    assert!(
        text.contains("; labelExpressions[color].expression: 1:1: "),
        "{text}"
    );
}

/// Returns a time of the 1st of January 2026.
fn time(text: &str) -> Timestamp {
    let time = format!("2026-01-01T{text}Z").parse();
    time.expect("the test uses valid times")
}

/// Returns the status of a rule set at the time `now`. `written` is the previous status. `change`
/// changes the activity of the rule set, as a feed (the watch of its target) does. For example,
/// `change` sets the number of objects on which a rule has failed.
fn watched_at<T>(
    now: &str,
    written: &OperationRuleSetStatus,
    watch: WatchState,
    change: impl Fn(&Activity) -> T,
) -> OperationRuleSetStatus {
    let rule_set =
        Arc::new(compile("a", &spec("cars", "true")).expect("the rule set of the test is valid"));
    let _reports = change(&rule_set.activity);
    let target = Gvr {
        group: String::new(),
        version: "v1".into(),
        resource: "cars".into(),
    };
    let health = RuleSetHealth {
        generation: Some(1),
        compiled: Some(Ok(&rule_set)),
        uses_last_rules: false,
        target: &target,
        refused: None,
        resolution: None,
        look_up_failure: None,
        scoped_wrongly: false,
        watch,
        unknown_fields: &[],
        missing_fields: Some(&[]),
    };
    compute(&health, written, time(now), REQUEUE)
}

#[test]
fn evaluation_time_is_updated_once_per_interval_and_with_every_other_change() {
    let nothing = OperationRuleSetStatus::default();
    let at = |evaluated: &str| {
        let evaluated = time(evaluated);
        move |activity: &Activity| activity.evaluated(evaluated)
    };
    let shown = |status: &OperationRuleSetStatus| {
        status
            .last_evaluation_time
            .clone()
            .map(|Time(at)| at.to_string())
    };
    let first = watched_at("10:00:00", &nothing, WatchState::Pending, |_| {});
    assert_eq!(
        shown(&first),
        None,
        "a rule set that was not evaluated must have no evaluation time"
    );
    let first = watched_at("10:00:01", &first, WatchState::Active, at("10:00:00"));
    assert_eq!(shown(&first).as_deref(), Some("2026-01-01T10:00:00Z"));
    let soon = watched_at("10:00:59", &first, WatchState::Active, at("10:00:59"));
    assert_eq!(
        soon, first,
        "an evaluation alone must not change the status within the interval"
    );
    let other = watched_at(
        "10:00:59",
        &first,
        WatchState::Failed("gone".into()),
        at("10:00:59"),
    );
    assert_eq!(shown(&other).as_deref(), Some("2026-01-01T10:00:59Z"));
    let later = watched_at("10:01:00", &first, WatchState::Active, at("10:01:00"));
    assert_eq!(shown(&later).as_deref(), Some("2026-01-01T10:01:00Z"));
}

#[test]
fn transition_time_changes_only_with_the_condition_status() {
    let nothing = OperationRuleSetStatus::default();
    let ready = watched_at("10:00:00.7", &nothing, WatchState::Active, |_| {});
    let failed = WatchState::Failed("one".into());
    let failing = watched_at("11:00:00", &ready, failed, |_| {});
    // A long message is cut.
    let failed = WatchState::Failed("ä".repeat(100_000));
    let still = watched_at("12:00:00", &failing, failed, |_| {});
    let since = |status: &OperationRuleSetStatus, type_: &str| {
        find(status, type_)
            .unwrap()
            .last_transition_time
            .0
            .to_string()
    };
    assert_eq!(since(&ready, "Ready"), "2026-01-01T10:00:00Z");
    assert_eq!(since(&failing, "Ready"), "2026-01-01T11:00:00Z");
    assert_eq!(since(&still, "Ready"), "2026-01-01T11:00:00Z");
    assert_eq!(message(&still, "Ready"), "ä".repeat(1_023) + "…");
    assert_eq!(since(&still, "Validated"), "2026-01-01T10:00:00Z");
}
