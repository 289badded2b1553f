//! These tests pass the events of one feed (the watch of one resource) to a detector. They check
//! the messages that the detector returns for the tracker.

use super::detector::MIN_SETTLING_PERIOD;
use super::stored_objects::{MAX_FIELDS, MAX_OBJECTS};
use super::*;
use crate::ClockReading;
use crate::rules::{
    EvaluationInstant, EvaluationTime, Fact, OperationBound, RULE_SET_ALLOWANCE, ReachedBound,
    RuleBook, RuleSet, compile,
};
use ifo_api::Gvr;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn target() -> Gvr {
    Gvr {
        group: "things.example".into(),
        version: "v1".into(),
        resource: "things".into(),
    }
}

/// Creates a rule set with one rule for the operation `Working`. The rule set has the name of its
/// component. If `rule` has the member `selected` with the value true, the rule set gets a label
/// selector.
fn rule_set(component: &str, rule: &Value) -> Arc<RuleSet> {
    let mut spec = json!({"component": component, "target": target()});
    if rule["selected"] == true {
        spec["labelSelector"] = json!({"matchLabels": {"watched": "yes"}});
    }
    let mut rule = rule.clone();
    rule["operation"] = "Working".into();
    rule.as_object_mut()
        .expect("a rule is a JSON object")
        .remove("selected");
    spec["rules"] = json!([rule]);
    let spec = serde_json::from_value(spec).expect("the rule set of the test is valid");
    Arc::new(compile(component, &spec).expect("the rule set of the test compiles"))
}

fn new_detector(rule_sets: Vec<Arc<RuleSet>>) -> Detector {
    let book = RuleBook::new(1, target(), "Thing".into(), true, rule_sets);
    Detector::new(Arc::new(book), Arc::new(()))
}

/// Creates a detector with the rule of [`rule_set`]. The detector has completed an empty list.
fn detector(rule: &Value) -> Detector {
    let mut detector = new_detector(vec![rule_set("tests", rule)]);
    detector.reset();
    detector.synced();
    detector
}

fn detector_with_expression(rule: &str) -> Detector {
    detector(&json!({"expression": rule}))
}

fn thing(name: &str, works: bool) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")}, "works": works})
}

fn clock_after(time: Duration) -> ClockReading {
    static BEGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    ClockReading {
        wall: Timestamp::UNIX_EPOCH + Duration::from_hours(500_000) + time,
        steady: *BEGIN + time,
    }
}

fn now() -> ClockReading {
    clock_after(Duration::ZERO)
}

/// Passes an added or modified object to the detector. Returns true if the detector has a message
/// for the tracker.
fn apply_yields_message(detector: &mut Detector, object: &Value, now: ClockReading) -> bool {
    let found = detector.applied(object.to_string().as_bytes(), now);
    found.expect("the object has a name").into_event().is_some()
}

/// Evaluates the stored objects again. Returns the number of evaluated objects.
fn reevaluate_stored_objects(detector: &mut Detector) -> usize {
    detector.begin_resync(now());
    std::iter::from_fn(|| detector.reevaluate_next(now())).count()
}

/// An expression that is true, and reads `now`.
const READS_NOW: &str = "now > timestamp('2000-01-01T00:00:00Z')";

/// The share of a component in [`MAX_OBJECTS`], if no other component stores objects.
const SHARE: usize = MAX_OBJECTS * 9 / 10 / 2;

/// Creates a detector with a rule set for each component. The rule of the component reads `now` on
/// objects whose member `team` is the component. The detector has completed an empty list.
fn detector_for_teams(components: &[&str], bytes: &Arc<StoredBytes>) -> Detector {
    let rules = |component: &str| {
        let expression =
            format!("object.team == '{component}' && object.note != '-' && {READS_NOW}");
        json!({"expression": expression})
    };
    let rule_sets = components.iter().map(|it| rule_set(it, &rules(it)));
    let mut detector = new_detector(rule_sets.collect()).with_stored_bytes(bytes.clone());
    detector.reset();
    detector.synced();
    detector
}

/// Adds objects whose fields take a little more than `length` bytes.
fn add_things(detector: &mut Detector, team: &str, count: usize, length: usize) {
    for number in 0..count {
        let mut thing = thing(&format!("{team}-{number}"), true);
        thing["team"] = team.into();
        thing["note"] = "x".repeat(length).into();
        apply_yields_message(detector, &thing, now());
    }
}

/// Returns true if the rule set at `index` of the rule book is throttled.
fn is_throttled(detector: &Detector, index: usize) -> bool {
    detector.book().rule_sets[index].activity.is_throttled()
}

#[test]
fn a_rule_set_that_reads_now_on_too_many_objects_is_throttled_until_there_is_room() {
    let mut detector = detector_for_teams(&["a"], &Arc::default());
    add_things(&mut detector, "a", SHARE, 0);
    assert!(!is_throttled(&detector, 0));
    add_things(&mut detector, "a", SHARE + 1, 0);
    assert_eq!(reevaluate_stored_objects(&mut detector), SHARE);
    assert!(is_throttled(&detector, 0));
    assert!(!detector.wants_list(now()), "there is no room");
    // After the deletion of an object, another object can be stored. A list finds it.
    detector.deleted(thing("a-0", true).to_string().as_bytes(), now());
    assert_eq!(reevaluate_stored_objects(&mut detector), SHARE - 1);
    assert!(is_throttled(&detector, 0));
    assert!(detector.needs_resync() && detector.wants_list(now()));
    detector.reset();
    add_things(&mut detector, "a", SHARE, 0);
    detector.synced();
    assert!(
        is_throttled(&detector, 0),
        "the operations must be in the index first"
    );
    assert_eq!(reevaluate_stored_objects(&mut detector), SHARE);
    assert!(!is_throttled(&detector, 0));
}

#[test]
fn a_stored_object_that_does_not_grow_stays_stored_when_other_components_use_their_shares() {
    let mut detector = detector_for_teams(&["a", "b"], &Arc::default());
    add_things(&mut detector, "a", SHARE, 10);
    add_things(&mut detector, "b", SHARE / 2, 10);
    add_things(&mut detector, "a", 1, 0);
    for _ in 0..2 {
        assert_eq!(reevaluate_stored_objects(&mut detector), SHARE + SHARE / 2);
    }
    assert!(!is_throttled(&detector, 0) && !is_throttled(&detector, 1));
    // A larger object needs room as a new object does.
    add_things(&mut detector, "a", 1, 20);
    assert_eq!(
        reevaluate_stored_objects(&mut detector),
        SHARE + SHARE / 2 - 1
    );
    assert!(is_throttled(&detector, 0));
}

#[test]
fn the_stored_objects_of_all_feeds_have_one_bound() {
    const LENGTH: usize = 15 << 10;
    let bytes = Arc::default();
    let names = ["a", "b", "c", "d", "e", "f", "g", "small"];
    let mut feeds = names.map(|name| detector_for_teams(&[name], &bytes));
    for (feed, name) in feeds.iter_mut().zip(names) {
        let length = if name == "small" { 10 } else { LENGTH };
        add_things(feed, name, 300, length);
    }
    let stored: Vec<usize> = feeds.iter_mut().map(reevaluate_stored_objects).collect();
    let all: usize = stored[..7].iter().sum();
    assert!(all * LENGTH < MAX_STORED_BYTES, "{stored:?}");
    assert!((200..300).contains(&stored[0]), "{stored:?}");
    assert!(stored[1] > 100 && stored[2] > 50, "{stored:?}");
    assert!(
        stored[7] > 150,
        "a component with few bytes has a reserve: {stored:?}"
    );
    assert!(is_throttled(&feeds[0], 0) && is_throttled(&feeds[1], 0));
    // When a feed ends, its share is free again.
    assert!(!feeds[1].wants_list(now()));
    feeds[0] = detector_for_teams(&["a"], &bytes);
    assert!(feeds[1].wants_list(now()));
    feeds[1].reset();
    add_things(&mut feeds[1], "b", 150, LENGTH);
    feeds[1].synced();
    assert_eq!(reevaluate_stored_objects(&mut feeds[1]), 150);
    assert!(!is_throttled(&feeds[1], 0));
}

#[test]
fn objects_kept_for_time_dependent_rules_have_only_projected_fields() {
    let mut detector =
        detector_with_expression("object.note != '' && now > timestamp('2000-01-01T00:00:00Z')");
    for (name, note, unread) in [("short", 10, 2 * MAX_FIELDS), ("long", 2 * MAX_FIELDS, 0)] {
        let mut object = thing(name, true);
        object["note"] = "x".repeat(note).into();
        object["unread"] = "x".repeat(unread).into();
        assert!(apply_yields_message(&mut detector, &object, now()));
    }
    detector.begin_resync(now());
    let found = detector
        .reevaluate_next(now())
        .expect("one object is stored");
    assert_eq!(found.evaluation.subject.path(), "ns/short");
    assert!(detector.reevaluate_next(now()).is_none());
    // The other object is too large to be stored. A list shows whether it still is.
    assert!(is_throttled(&detector, 0) && detector.wants_list(now()));
    detector.reset();
    detector.synced();
    detector.begin_resync(now());
    assert!(!is_throttled(&detector, 0));
}

#[test]
fn an_undecodable_object_is_not_reevaluated_from_its_previous_state() {
    let mut detector =
        detector_with_expression("object.works && now > timestamp('2000-01-01T00:00:00Z')");
    apply_yields_message(&mut detector, &thing("a", true), now());
    let mut large = thing("a", true);
    large["works"] = json!(vec![0; 200_000]);
    let found = detector.applied(large.to_string().as_bytes(), now());
    let found = found.expect("the identity is known").evaluation;
    assert_eq!(found.subject.path(), "ns/a");
    assert_eq!((found.failures.len(), found.unknown.len()), (1, 1));
    assert_eq!(reevaluate_stored_objects(&mut detector), 0);
}

#[test]
fn an_object_that_a_throttled_rule_set_skipped_is_evaluated_after_the_recovery() {
    let clock = Arc::new(Mutex::new(now().steady));
    let read = clock.clone();
    let time = EvaluationTime::new(move || EvaluationInstant {
        at: *read.lock().expect("no test panics with the lock"),
        used: Duration::ZERO,
    });
    let rule_set = rule_set("tests", &json!({"expression": "object.works"}));
    let mut detector = new_detector(vec![rule_set.clone()]).with_time(Arc::new(time));
    detector.reset();
    detector.synced();
    let account = rule_set.activity.time();
    account.charge(Duration::from_secs(2), now().steady, RULE_SET_ALLOWANCE);
    apply_yields_message(&mut detector, &thing("a", true), now());
    assert!(is_throttled(&detector, 0));
    assert_eq!(rule_set.activity.unknown().objects, 1);
    *clock.lock().expect("no test panics with the lock") += Duration::from_secs(25);
    assert_eq!(reevaluate_stored_objects(&mut detector), 1);
    detector.settle();
    assert!(!is_throttled(&detector, 0));
    assert_eq!(rule_set.activity.unknown().objects, 0);
}

#[test]
fn refused_operations_are_listed_again_when_there_is_room() {
    let rule_set = rule_set("tests", &json!({"expression": "object.works"}));
    let mut detector = new_detector(vec![rule_set.clone()]);
    detector.reset();
    detector.synced();
    let report = rule_set.activity.report(Fact::Refused(ReachedBound {
        bound: OperationBound::RuleSet,
        maximum: 1,
        kept: 1,
    }));
    assert!(!detector.wants_list(now()), "there is no room");
    rule_set.activity.set_room(true);
    assert!(detector.needs_resync());
    detector.reset();
    assert!(!detector.wants_list(now()), "a list has begun");
    detector.synced();
    assert!(detector.wants_list(now()));
    drop(report);
    assert!(!detector.needs_resync(), "nothing is refused");
}

#[test]
fn an_evaluation_without_a_detection_is_reported_only_if_it_can_end_an_operation() {
    let rule = json!({
        "expression": "object.works == true",
        "outcome": "object.works == false ? 'Succeeded' : ''",
    });
    let mut detector = detector(&rule);
    let (working, ended) = (thing("a", true), thing("a", false));
    let mut without_result = thing("a", false);
    without_result["works"] = json!("unknown");
    let steps = [
        (&without_result, false),
        (&ended, false),
        (&working, true),
        (&without_result, true),
        (&without_result, false),
        (&ended, true),
    ];
    for (index, (object, expected)) in steps.into_iter().enumerate() {
        let is_reported = apply_yields_message(&mut detector, object, now());
        assert_eq!(is_reported, expected, "step {index}");
    }
    for (period, expected) in [
        (MIN_SETTLING_PERIOD / 2, true),
        (MIN_SETTLING_PERIOD, false),
    ] {
        let now = clock_after(period);
        detector.begin_resync(now);
        let is_reported = apply_yields_message(&mut detector, &ended, now);
        assert_eq!(is_reported, expected, "after {period:?}");
    }
}

#[test]
fn an_object_that_no_rule_set_selects_is_reported_while_its_operation_settles() {
    let mut detector = detector(&json!({"expression": "object.works", "selected": true}));
    let unselected = thing("a", false);
    let selected = |works: bool| {
        let mut object = thing("a", works);
        object["metadata"]["labels"] = json!({"watched": "yes"});
        object
    };
    let steps = [
        (&unselected, false),
        (&selected(true), true),
        (&selected(false), true),
        (&selected(false), false),
        (&unselected, true),
        (&unselected, false),
        (&selected(false), true),
        (&selected(false), false),
    ];
    for (index, (object, expected)) in steps.into_iter().enumerate() {
        let is_reported = apply_yields_message(&mut detector, object, now());
        assert_eq!(is_reported, expected, "step {index}");
    }
}

#[test]
fn a_feed_with_a_label_selector_asks_which_deleted_objects_have_operations() {
    let mut selecting = detector(&json!({"expression": "object.works", "selected": true}));
    let mut object = thing("a", true);
    object["metadata"]["labels"] = json!({"watched": "yes"});
    apply_yields_message(&mut selecting, &object, now());
    let delete = |detector: &mut Detector| {
        let deleted = detector.deleted(object.to_string().as_bytes(), now());
        deleted.expect("the object has a name")
    };
    let (event, missing) = delete(&mut selecting);
    let FeedEvent::Deleted {
        subject,
        missing: Some(_),
        ..
    } = event
    else {
        panic!("{event:?}");
    };
    assert!(missing.is_some());
    let left = selecting.vanished(subject.clone(), true, now());
    let FeedEvent::Evaluated { evaluation, .. } = left else {
        panic!("{left:?}");
    };
    assert_eq!(evaluation.unselected.len(), 1);
    // The labels match again. If the tracker did not receive this evaluation, the operation would
    // end with the reason `SelectorLeft`.
    let mut stopped = object.clone();
    stopped["works"] = false.into();
    assert!(apply_yields_message(&mut selecting, &stopped, now()));
    let deleted = selecting.vanished(subject, false, now());
    let is_final = matches!(deleted, FeedEvent::Deleted { missing: None, .. });
    assert!(is_final, "{deleted:?}");
    selecting.reset();
    assert!(selecting.synced().1.is_some());

    let mut plain = detector_with_expression("object.works");
    assert!(delete(&mut plain).1.is_none());
    assert!(plain.synced().1.is_none());
}
