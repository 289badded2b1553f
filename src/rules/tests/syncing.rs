//! Tests when the first state of all rule sets counts as complete, and that failures of single rule
//! sets do not delay this time.

use super::*;

#[tokio::test(start_paused = true)]
async fn without_rule_sets_the_server_is_synced_at_once() {
    let fixture = fixture();
    moment().await;
    assert!(
        fixture.without_book().is_none(),
        "the state must not be complete before the rule sets have been read"
    );
    fixture.list(&[]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(fixture.without_book().is_some());
}

#[tokio::test(start_paused = true)]
async fn server_is_synced_once_every_feed_has_synced_or_failed() {
    let a = in_namespaces(rule_set("a", "cars", "true"), &["x", "y"]);
    let mut fixture = started(&[a, rule_set("b", "boats", "true")]).await;
    let published = fixture.published();
    fixture.report(&published[0], Some("forbidden")).await;
    let book = published[1].book.clone().unwrap();
    let sources = book.sources(&published[1].target);
    fixture
        .report_of(sources[0].clone(), book.generation, None)
        .await;
    fixture
        .report_of(sources[0].clone(), book.generation, None)
        .await;
    moment().await;
    assert!(
        fixture.without_book().is_none(),
        "the state must not be complete before every feed has reported"
    );
    fixture
        .report_of(sources[1].clone(), book.generation, None)
        .await;
    moment().await;
    assert!(fixture.without_book().is_some());
}

#[tokio::test(start_paused = true)]
async fn rule_sets_are_reported_while_their_target_has_a_gap() {
    let mut fixture = fixture();
    fixture.discovers("trains", unknown());
    fixture.discovers("planes", not_served());
    fixture.list(&[
        in_namespaces(rule_set("a", "cars", "true"), &["x"]),
        in_namespaces(rule_set("b", "cars", "true"), &["y"]),
        rule_set("c", "boats", "true"),
        rule_set("d", "trains", "true"),
        rule_set("e", "planes", "true"),
        rule_set("f", "boats", "not valid"),
    ]);
    moment().await;
    assert_eq!(fixture.unsynced(), "abcd");
    let published = fixture.published();
    let of = |resource: &str| {
        let mut published = published.iter();
        let found = published.find(|it| it.target.resource == resource);
        found.expect("the target has a rule book").clone()
    };
    let cars = of("cars");
    let book = cars.book.clone().unwrap();
    let sources = book.sources(&cars.target);
    let feed = |namespace: &str| {
        let mut sources = sources.iter();
        let found = sources.find(|it| it.namespace.as_deref() == Some(namespace));
        found.expect("the namespace is watched").clone()
    };
    fixture.report_of(feed("x"), book.generation, None).await;
    fixture
        .report_of(feed("y"), book.generation, Some("forbidden"))
        .await;
    fixture.report(&of("boats"), None).await;
    moment().await;
    assert!(
        fixture.without_book().is_some(),
        "a failing feed must not delay the first state"
    );
    assert_eq!(fixture.unsynced(), "bd");
    fixture.report_of(feed("y"), book.generation, None).await;
    moment().await;
    assert_eq!(fixture.unsynced(), "d");
    fixture.report(&of("boats"), Some("away")).await;
    moment().await;
    assert_eq!(fixture.unsynced(), "cd");
}

#[tokio::test(start_paused = true)]
async fn targets_that_cannot_be_watched_do_not_delay_the_sync() {
    let mut fixture = fixture();
    fixture.discovers("cars", not_served());
    fixture.discovers("boats", unknown());
    fixture.list(&[
        rule_set("a", "cars", "true"),
        rule_set("b", "boats", "true"),
        rule_set("c", "trains", "not valid"),
    ]);
    moment().await;
    let without_book = |fixture: &ControllerFixture| {
        let without_book = fixture.without_book();
        without_book.expect("targets that cannot be watched do not delay the first state")
    };
    assert!(without_book(&fixture).undecided.iter().eq(["b", "c"]));
    assert!(without_book(&fixture).unserved.iter().eq(["a"]));
    // A target that is found later counts as undecided until its feed has reported.
    fixture.discovers("boats", served());
    tokio::time::sleep(REQUEUE * 2).await;
    assert!(without_book(&fixture).undecided.iter().eq(["b", "c"]));
    fixture.catch_up().await;
    assert!(without_book(&fixture).undecided.iter().eq(["c"]));
}

#[tokio::test(start_paused = true)]
async fn rule_books_are_published_as_soon_as_all_rule_sets_are_known() {
    let mut fixture = fixture();
    fixture.send(RuleSetEvent::Reset);
    fixture.apply(&rule_set("a", "cars", "true"));
    tokio::time::sleep(REQUEUE * 2).await;
    assert!(fixture.published().is_empty());
    assert!(fixture.writes().is_empty());
    fixture.apply(&rule_set("b", "cars", "true"));
    fixture.send(RuleSetEvent::Synced);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fixture.publishes(&[("cars", Some(vec!["a", "b"]))]);
}
