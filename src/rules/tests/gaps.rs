//! Tests the list of rule sets that may miss operations, and the conditions about it.

use super::*;
use crate::clock;
use ifo_engine::rules::{Fact, FeedLag, WorkWaitingSince};

#[tokio::test(start_paused = true)]
async fn rule_sets_that_do_not_work_are_reported_with_their_reason() {
    let fixture = fixture();
    fixture.discovers("typos", not_served());
    for (resource, similar) in [("absent", None), ("similar", Some("example.org"))] {
        let without_group = Resolution::NotServed {
            message: "no such group".into(),
            group_served: false,
            similar_group: similar.map(str::to_owned),
        };
        fixture.discovers(resource, without_group);
    }
    fixture.discovers("doubtful", unknown());
    let mut secrets = rule_set("secrets", "secrets", "true");
    secrets.spec.target.group = String::new();
    fixture.list(&[
        rule_set("absent", "absent", "true"),
        rule_set("broken", "cars", "1 +"),
        rule_set("doubtful", "doubtful", "true"),
        secrets,
        rule_set("similar", "similar", "true"),
        rule_set("typo", "typos", "true"),
        rule_set("works", "cars", "true"),
    ]);
    moment().await;
    let mut fixture = fixture;
    let always = [
        "broken: does not compile",
        "doubtful: discovery of the target failed",
        "secrets: target is refused",
        "similar: target is not served",
        "typo: target is not served",
    ];
    assert!(fixture.report.borrow().gaps().rule_sets_are_read);
    assert_eq!(fixture.gaps()[..5], always);
    assert_eq!(fixture.gaps()[5..], ["works: target is being listed"]);
    let published = fixture.catch_up().await;
    assert_eq!(fixture.gaps(), always);
    fixture.report(&published[0], Some("forbidden")).await;
    moment().await;
    assert_eq!(fixture.gaps()[5..], ["works: target cannot be watched"]);
    fixture.report(&published[0], None).await;
    moment().await;
    let book = published[0].book.clone().unwrap();
    let activity = &book.rule_sets[0].activity;
    let _unknown = activity.report(Fact::Unknown {
        namespace: Some("ns".into()),
        operations: vec!["Working".into()],
        is_uncounted: false,
    });
    assert_eq!(fixture.gaps()[5..], ["works: evaluation fails on 1 object"]);
    let _throttled = activity.report(Fact::Throttled);
    assert_eq!(fixture.gaps()[5..], ["works: throttled"]);
}

#[tokio::test(start_paused = true)]
async fn malformed_rule_set_is_reported_until_it_is_repaired_or_deleted() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.catch_up().await;
    let unreadable = "a: is not a valid object";
    fixture.send(RuleSetEvent::Unreadable("a".into()));
    moment().await;
    assert_eq!(fixture.gaps(), [unreadable]);
    fixture.apply(&rule_set("a", "cars", "true"));
    moment().await;
    fixture.catch_up().await;
    assert_eq!(fixture.gaps(), [""; 0]);
    fixture.send(RuleSetEvent::Unreadable("b".into()));
    fixture.list(&[rule_set("a", "cars", "true")]);
    moment().await;
    assert_eq!(
        fixture.gaps(),
        [""; 0],
        "an object that is missing in the list must not be reported"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_set_that_changed_is_reported_until_its_target_has_been_listed_again() {
    let first = rule_set("a", "cars", "true");
    let mut fixture = started(std::slice::from_ref(&first)).await;
    fixture.catch_up().await;
    assert_eq!(fixture.gaps(), [""; 0]);
    fixture.apply(&edited(first, "false"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let listing = ["a: target is being listed"];
    assert_eq!(
        fixture.gaps(),
        listing,
        "the rule set must be reported before its change is published"
    );
    moment().await;
    assert_eq!(fixture.gaps(), listing);
    fixture.catch_up().await;
    assert_eq!(fixture.gaps(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn fields_that_are_not_understood_are_reported_and_do_not_affect_ready() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.catch_up().await;
    let status = |fixture: &ControllerFixture| {
        let status = fixture.status("a");
        has(&status, "Ready", "True/Watching");
        status
    };
    let apply = |fixture: &ControllerFixture, unknown_fields| {
        fixture.send(RuleSetEvent::Applied {
            rule_set: Box::new(rule_set("a", "cars", "true")),
            unknown_fields,
        });
    };
    apply(&fixture, vec!["spec.rules[0].newer".into()]);
    moment().await;
    let text = message(&status(&fixture), "UnknownFields");
    assert!(
        text.contains(": spec.rules[0].newer. Upgrade the server"),
        "{text}"
    );

    fixture.send(RuleSetEvent::OutdatedDefinition(vec![
        "spec.rules[].outcome".into(),
    ]));
    apply(&fixture, Vec::new());
    moment().await;
    assert_eq!(
        types(&status(&fixture)),
        ["Ready", "OutdatedDefinition", "Validated"]
    );
    let text = message(&status(&fixture), "OutdatedDefinition");
    assert!(text.contains(": spec.rules[].outcome. Run"), "{text}");

    fixture.send(RuleSetEvent::OutdatedDefinition(Vec::new()));
    moment().await;
    assert_eq!(types(&status(&fixture)), ["Ready", "Validated"]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_set_is_behind_while_changes_of_its_target_wait() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    let published = fixture.catch_up().await;
    let book = published[0].book.clone().unwrap();
    let thread = Arc::new(WorkWaitingSince::default());
    let lag = FeedLag::new(&book, None, &thread);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(fixture.gaps(), [""; 0], "no change waits");
    lag.changes.begin(clock::steady());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let behind = "a: is behind by more than 5 s";
    assert_eq!(fixture.gaps(), [behind]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let status = fixture.status("a");
    has(&status, "Ready", "False/Behind");
    fixture.writes();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(fixture.writes().is_empty(), "the status stays the same");
    lag.changes.end();
    assert_eq!(fixture.gaps(), [""; 0]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let status = fixture.status("a");
    has(&status, "Ready", "True/Watching");
}
