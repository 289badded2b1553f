//! Tests the conditions in the status of a rule set.

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
    assert_eq!(message(&still, "Ready"), "ä".repeat(1_024));
    assert_eq!(since(&still, "Validated"), "2026-01-01T10:00:00Z");
}

#[test]
fn evaluation_failure_is_shown_for_two_intervals() {
    let nothing = OperationRuleSetStatus::default();
    let failed = |activity: &Activity| {
        activity.failed(EvaluationFailure {
            at: time("10:00:00"),
            what: "Working".into(),
            error: EvaluationError::TooManyElements,
        });
    };
    let shown = watched_at("10:01:59", &nothing, WatchState::Active, failed);
    assert_eq!(
        message(&shown, "EvaluationFailed"),
        "Working: expected at most 1000 elements, found more"
    );
    has(&shown, "Ready", "True/Watching");
    let gone = watched_at("10:02:00", &shown, WatchState::Active, failed);
    assert_eq!(types(&gone), ["Ready", "Validated"]);
}

/// Returns the status at the time `now`. The rule fails on `objects` objects, so the server does
/// not know whether the operation is in flight on these objects. `written` is the previous status.
fn while_unknown(
    now: &str,
    written: &OperationRuleSetStatus,
    objects: usize,
) -> OperationRuleSetStatus {
    unknown_since(now, now, written, objects)
}

/// As [`while_unknown`], but the time `evaluated` of the last evaluation can be earlier than `now`.
fn unknown_since(
    evaluated: &str,
    now: &str,
    written: &OperationRuleSetStatus,
    objects: usize,
) -> OperationRuleSetStatus {
    watched_at(now, written, WatchState::Active, |activity| {
        activity.evaluated(time(evaluated));
        let failure = |what: &str| EvaluationFailure {
            at: time("10:00:00"),
            what: what.into(),
            error: EvaluationError::TooManyElements,
        };
        activity.detection_failed(failure("rules[Working].expression"));
        // A later failure of the rule's `message` does not make a detection unknown, so it must not
        // replace the failure in the condition.
        activity.failed(failure("rules[Working].message"));
        let unknown = || Fact::Unknown {
            namespace: None,
            operations: vec!["Working".into()],
            is_uncounted: false,
        };
        let reports = (0..objects).map(|_| activity.report(unknown()));
        reports.collect::<Vec<Report>>()
    })
}

#[test]
fn rule_set_is_not_ready_while_the_detection_is_unknown_on_an_object() {
    let nothing = OperationRuleSetStatus::default();
    let unknown = while_unknown("10:00:01", &nothing, 2);
    has(&unknown, "Ready", "False/EvaluationFailed");
    assert!(
        unknown.watch_active,
        "a failing rule must not change watchActive"
    );
    let expected = "evaluation fails on 2 objects: rules[Working].expression: expected at most 1000 elements, \
                    found more";
    assert_eq!(message(&unknown, "Ready"), expected);
    assert_eq!(message(&unknown, "EvaluationFailed"), expected);
    // A failure on a further object changes the number in the message. This change alone must not
    // cause a write within the requeue interval of one minute.
    let more = while_unknown("10:00:10", &unknown, 3);
    assert_eq!(more, unknown);
    let later = while_unknown("10:01:01", &unknown, 3);
    assert!(message(&later, "Ready").starts_with("evaluation fails on 3 objects: "));
    // The condition stays while the detection is unknown on at least one object. When the detection
    // is known on all objects, the controller removes the condition at once.
    let old = while_unknown("12:00:00", &later, 1);
    assert!(message(&old, "Ready").starts_with("evaluation fails on 1 object: "));
    let over = while_unknown("12:00:01", &old, 0);
    has(&over, "Ready", "True/Watching");
    assert_eq!(types(&over), ["Ready", "Validated"]);
}

#[test]
fn the_number_of_objects_is_corrected_without_a_further_evaluation() {
    let nothing = OperationRuleSetStatus::default();
    let first = unknown_since("10:00:00", "10:00:00", &nothing, 150);
    let soon = unknown_since("10:00:02", "10:00:59", &first, 170);
    assert_eq!(soon, first);
    let later = unknown_since("10:00:02", "10:01:00", &soon, 170);
    assert!(message(&later, "Ready").starts_with("evaluation fails on 170 objects: "));
    let unchanged = unknown_since("10:00:02", "12:00:00", &later, 170);
    assert_eq!(unchanged, later);
}

#[test]
fn a_number_of_objects_that_is_too_low_is_called_a_minimum() {
    let nothing = OperationRuleSetStatus::default();
    let shown = watched_at("10:00:00", &nothing, WatchState::Active, |activity| {
        let unknown = |is_uncounted| Fact::Unknown {
            namespace: None,
            operations: vec!["Working".into()],
            is_uncounted,
        };
        // The last two facts can be about the same object.
        let reports = [false, false, true, true].map(|it| activity.report(unknown(it)));
        activity.evaluated(time("10:00:00"));
        reports
    });
    assert!(message(&shown, "Ready").starts_with("evaluation fails on at least 3 objects: "));
}

#[test]
fn all_fields_that_have_failed_recently_are_named() {
    let nothing = OperationRuleSetStatus::default();
    let failed = |activity: &Activity| {
        for (at, what) in [
            ("09:00:00", "rules[Working].reason"),
            ("10:00:00", "rules[Working].progress"),
            ("10:00:01", "rules[Working].message"),
        ] {
            let (at, what) = (time(at), what.into());
            let error = EvaluationError::TooManyElements;
            activity.failed(EvaluationFailure { at, what, error });
        }
    };
    let shown = watched_at("10:00:02", &nothing, WatchState::Active, failed);
    assert_eq!(
        message(&shown, "EvaluationFailed"),
        "rules[Working].message: expected at most 1000 elements, found more; \
         rules[Working].progress: expected at most 1000 elements, found more"
    );
}

#[test]
fn rule_set_is_not_ready_while_a_bound_refuses_its_operations() {
    let reached = |bound, maximum, kept| ReachedBound {
        bound,
        maximum,
        kept,
    };
    let nothing = OperationRuleSetStatus::default();
    let at = "10:00:00";
    let refuse = |activity: &Activity, reached| activity.report(Fact::Refused(reached));
    let refused = watched_at(at, &nothing, WatchState::Active, |activity| {
        // Another feed reaches the bound of the rule set, too.
        drop(refuse(
            activity,
            reached(OperationBound::RuleSet, 10_000, 10_000),
        ));
        let first = refuse(
            activity,
            reached(OperationBound::AllRuleSets, 50_000, 2_000),
        );
        (
            first,
            refuse(activity, reached(OperationBound::RuleSet, 10_000, 10_000)),
        )
    });
    has(&refused, "Ready", "False/TooManyOperations");
    assert!(
        message(&refused, "Ready").starts_with(
            "Operations may be missing: 10000 operations are counted, and 10000 is the bound for \
             a rule set. When operations end, "
        ) && message(&refused, "Ready").ends_with(" docs/bounds.md."),
        "{}",
        message(&refused, "Ready")
    );
    let on_object = reached(OperationBound::Object, 256, 300);
    let shown = watched_at(at, &refused, WatchState::Active, |activity| {
        refuse(activity, on_object)
    });
    assert!(message(&shown, "Ready").contains("256 is the bound for a rule set on one object"));
    let ready = watched_at(at, &shown, WatchState::Active, |activity| {
        drop(refuse(activity, on_object));
    });
    has(&ready, "Ready", "True/Watching");
}
