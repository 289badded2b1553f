//! Tests which rule books the controller publishes, and when. A rule book contains the compiled
//! rule sets of one target (the resource that they watch). The feeds are the watches of a target.
//! When a new rule book is published, its feeds list all objects of the target.

use super::*;

#[tokio::test(start_paused = true)]
async fn changes_within_half_a_second_are_published_together() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.published();
    fixture.apply(&rule_set("b", "cars", "true"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    fixture.apply(&edited(rule_set("b", "cars", "true"), "false"));
    fixture.apply(&rule_set("c", "cars", "true"));
    moment().await;
    fixture.publishes(&[("cars", Some(vec!["a", "b", "c"]))]);
}

#[tokio::test(start_paused = true)]
async fn no_feed_relists_for_another_target_or_a_status_change() {
    let a = rule_set("a", "cars", "true");
    let mut fixture = started(std::slice::from_ref(&a)).await;
    fixture.catch_up().await;
    fixture.apply(&rule_set("b", "boats", "true"));
    let mut event = a;
    event.status = Some(fixture.status("a"));
    fixture.apply(&event);
    moment().await;
    fixture.publishes(&[("boats", Some(vec!["b"]))]);
}

#[tokio::test(start_paused = true)]
async fn unusable_rule_set_does_not_affect_others_of_its_target() {
    let mut fixture = started(&[rule_set("good", "cars", "true")]).await;
    fixture.catch_up().await;
    fixture.writes();
    let bad = rule_set("bad", "cars", "object.");
    fixture.apply(&bad);
    moment().await;
    fixture.apply(&edited(bad, "object.."));
    moment().await;
    assert!(
        fixture.published().is_empty(),
        "an invalid rule set must not change the rule book"
    );
    let names: BTreeSet<_> = fixture.writes().into_iter().map(|it| it.name).collect();
    assert_eq!(names, BTreeSet::from(["bad".to_owned()]));
    fixture.send(RuleSetEvent::Deleted("bad".into()));
    moment().await;
    assert!(
        fixture.published().is_empty(),
        "the deletion of an invalid rule set must not change the rule book"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_set_that_becomes_invalid_keeps_its_last_valid_rules() {
    let a = rule_set("a", "cars", "true");
    let mut fixture = started(&[a.clone(), rule_set("b", "cars", "true")]).await;
    fixture.catch_up().await;
    let invalid = edited(a, "1 +");
    fixture.apply(&invalid);
    moment().await;
    assert!(
        fixture.published().is_empty(),
        "the rule book must keep the last valid rules"
    );
    let status = fixture.status("a");
    has(&status, "Ready", "False/InvalidRule");
    let text = message(&status, "InvalidRule");
    assert!(
        text.contains("the last valid version of the rules stays in use"),
        "{text}"
    );

    // Another rule set of the target is created. The new rule book also contains the last valid
    // rules of `a`.
    fixture.apply(&rule_set("c", "cars", "true"));
    moment().await;
    let published = fixture.catch_up().await;
    assert_eq!(summary(&published[0]), ("cars", Some(vec!["a", "b", "c"])));

    let repaired = edited(invalid.clone(), "true");
    fixture.apply(&repaired);
    moment().await;
    let published = fixture.catch_up().await;
    assert_eq!(summary(&published[0]), ("cars", Some(vec!["a", "b", "c"])));
    has(&fixture.status("a"), "Ready", "True/Watching");

    // The invalid spec names another target than the last valid spec. So the server no longer
    // evaluates the last valid rules.
    let mut moved = edited(repaired, "1 +");
    moved.spec.target.resource = "boats".into();
    fixture.apply(&moved);
    moment().await;
    assert_eq!(
        summary(&fixture.published()[0]),
        ("cars", Some(vec!["b", "c"]))
    );
    let text = message(&fixture.status("a"), "InvalidRule");
    assert!(!text.contains("stays in use"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn rule_sets_missing_from_a_relist_are_removed() {
    let kept = rule_set("kept", "cars", "true");
    let gone = rule_set("gone", "boats", "true");
    let mut fixture = started(&[kept.clone(), gone.clone()]).await;
    fixture.published();
    // The first list is incomplete, so it removes nothing.
    fixture.send(RuleSetEvent::Reset);
    fixture.apply(&kept);
    fixture.list(&[gone, kept.clone()]);
    moment().await;
    fixture.publishes(&[]);
    fixture.list(&[kept]);
    moment().await;
    let published = fixture.published();
    assert_eq!(summary(&published[0]), ("boats", None));
    assert!(!published[0].removed, "the target is still served");
}

#[tokio::test(start_paused = true)]
async fn target_is_watched_while_its_crd_is_installed() {
    let mut fixture = fixture();
    fixture.discovers("cars", not_served());
    fixture.list(&[rule_set("a", "cars", "true")]);
    moment().await;
    assert!(fixture.published().is_empty());
    has(&fixture.status("a"), "InvalidTarget", "True/NotServed");

    fixture.discovers("cars", served());
    fixture.changes.send(()).unwrap();
    moment().await;
    assert_eq!(
        summary(&fixture.catch_up().await[0]),
        ("cars", Some(vec!["a"]))
    );
    has(&fixture.status("a"), "Ready", "True/Watching");

    fixture.discovers("cars", not_served());
    fixture.changes.send(()).unwrap();
    moment().await;
    let published = fixture.published();
    assert_eq!(summary(&published[0]), ("cars", None));
    assert!(published[0].removed);
    moment().await;
    let status = fixture.status("a");
    has(&status, "Ready", "False/InvalidTarget");
    assert!(!status.watch_active);
    fixture.writes();
    fixture.looked_up();
    tokio::time::sleep(REQUEUE * 5).await;
    assert_eq!(
        fixture.looked_up().len(),
        5,
        "the target must be looked up once in each interval"
    );
    assert!(
        fixture.writes().is_empty() && fixture.published().is_empty(),
        "repeated look-ups must cause no writes and no publications"
    );
}

#[tokio::test(start_paused = true)]
async fn change_during_a_discovery_causes_another_discovery() {
    let mut fixture = fixture();
    *fixture.discovery.lookup_duration.lock().unwrap() = Duration::from_secs(10);
    fixture.discovers("cars", not_served());
    fixture.list(&[rule_set("a", "cars", "true")]);
    moment().await;
    fixture.discovers("cars", served());
    fixture.changes.send(()).unwrap();
    moment().await;
    assert_eq!(
        fixture.looked_up(),
        ["cars"],
        "a target must have only one look-up at a time"
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fixture.looked_up(), ["cars"]);
    assert_eq!(summary(&fixture.published()[0]), ("cars", Some(vec!["a"])));
}

#[tokio::test(start_paused = true)]
async fn inconclusive_discovery_ends_no_feed() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.catch_up().await;
    fixture.writes();
    fixture.discovers("cars", unknown());
    fixture.changes.send(()).unwrap();
    tokio::time::sleep(REQUEUE * 3).await;
    assert!(fixture.published().is_empty());
    assert!(
        fixture.writes().is_empty(),
        "the status must not change while the feed is up to date"
    );
}

#[tokio::test(start_paused = true)]
async fn target_of_a_failing_feed_is_discovered_at_once_and_each_interval() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    let published = fixture.catch_up().await;
    fixture.looked_up();
    fixture.report(&published[0], Some("not found: cars")).await;
    moment().await;
    assert_eq!(fixture.looked_up(), ["cars"]);
    // Discovery is out of date, so it still finds `cars`. No event reports when discovery is up to
    // date again.
    assert_eq!(fixture.published().len(), 0);
    fixture.discovers("cars", not_served());
    tokio::time::sleep(REQUEUE).await;
    assert_eq!(fixture.looked_up(), ["cars"]);
    assert_eq!(summary(&fixture.published()[0]), ("cars", None));
}

#[tokio::test(start_paused = true)]
async fn change_of_the_served_resource_makes_another_rule_book() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.published();
    fixture.changes.send(()).unwrap();
    moment().await;
    assert!(
        fixture.published().is_empty(),
        "an unchanged result must not be published"
    );
    let kind = "Automobile".to_owned();
    fixture.discovers(
        "cars",
        Resolution::Served {
            kind,
            namespaced: true,
        },
    );
    fixture.changes.send(()).unwrap();
    moment().await;
    assert_eq!(book_of(&fixture.published()[0]).kind, "Automobile");
}

#[tokio::test(start_paused = true)]
async fn reports_of_an_older_rule_books_feed_are_ignored() {
    let a = rule_set("a", "cars", "true");
    let mut fixture = started(std::slice::from_ref(&a)).await;
    let old = fixture.published();
    fixture.apply(&edited(a, "false"));
    moment().await;
    fixture.writes();
    fixture.report(&old[0], None).await;
    moment().await;
    assert!(fixture.writes().is_empty());
    fixture.catch_up().await;
    has(&fixture.status("a"), "Ready", "True/Watching");
}
