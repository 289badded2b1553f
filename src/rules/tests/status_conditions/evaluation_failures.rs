//! Tests of the conditions about failed evaluations and bounds.

use super::*;

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
fn skipped_objects_of_a_throttled_rule_set_are_no_failures() {
    let nothing = OperationRuleSetStatus::default();
    let shown = |is_throttled: bool| {
        watched_at("10:00:00", &nothing, WatchState::Active, |activity| {
            activity.evaluated(time("10:00:00"));
            let skipped = activity.report(Fact::Unknown {
                namespace: None,
                operations: vec!["Working".into()],
                is_uncounted: false,
            });
            (
                skipped,
                is_throttled.then(|| activity.report(Fact::Throttled)),
            )
        })
    };
    let throttled = shown(true);
    has(&throttled, "Ready", "False/Throttled");
    assert_eq!(types(&throttled), ["Ready", "Validated"]);
    // The rule set is no longer throttled, but the server has not evaluated the object yet.
    let text = "evaluation fails on 1 object: the rule set was throttled, so the server has skipped the evaluation";
    assert_eq!(message(&shown(false), "Ready"), text);
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
