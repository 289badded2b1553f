//! Tests that a slow compilation of one rule set delays neither other rule sets nor reports about
//! lost watches. The simulated compiler does not finish before the test says so.

use super::*;

/// Returns a rule set whose expression is long, so that it is compiled after the other rule sets.
fn large(name: &str, resource: &str) -> OperationRuleSet {
    rule_set(
        name,
        resource,
        &format!("'{}' == object.a", "x".repeat(1_000)),
    )
}

/// Starts a controller with two rule sets. The rule set `a` is for `cars`, and its feed is up to
/// date. The large rule set `b` is for `target`, and is being compiled.
async fn compiling(target: &str) -> ControllerFixture {
    let mut fixture = fixture();
    fixture.compiler.hold(&["b"]);
    fixture.list(&[large("b", target), rule_set("a", "cars", "true")]);
    moment().await;
    fixture.catch_up().await;
    fixture
}

#[tokio::test(start_paused = true)]
async fn other_rule_sets_are_published_while_a_rule_set_is_compiled() {
    let mut fixture = fixture();
    fixture.compiler.hold(&["b"]);
    fixture.list(&[large("b", "boats"), rule_set("a", "cars", "true")]);
    moment().await;
    assert_eq!(fixture.compiler.begun(), ["a", "b"]);
    fixture.catches_up_with(&[("cars", Some(vec!["a"]))]).await;
    has(&fixture.status("a"), "Ready", "True/Watching");

    fixture.compiler.hold(&[]);
    moment().await;
    fixture.catches_up_with(&[("boats", Some(vec!["b"]))]).await;
    assert_eq!(fixture.gaps(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_start_waits_for_the_compiler_for_a_limited_time() {
    let fixture = compiling("boats").await;
    assert!(fixture.without_book().is_none());
    assert_eq!(fixture.report.borrow().rule_sets.len(), 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let without_book = fixture.without_book();
    let undecided = without_book.expect("the start is done").undecided.clone();
    assert_eq!(undecided, BTreeSet::from(["b".to_owned()]));
    assert_eq!(fixture.gaps(), ["b: is being compiled"]);
    assert_eq!(fixture.unsynced(), "b");
    let status = fixture.status("b");
    assert_eq!(condition(&status, "Ready").unwrap(), "False/Compiling");
    assert_eq!(
        condition(&status, "Validated").unwrap(),
        "Unknown/Compiling"
    );

    fixture.compiler.hold(&[]);
    moment().await;
    assert_eq!(fixture.unsynced(), "b", "its target is not read yet");
    assert_eq!(fixture.gaps(), ["b: target is being listed"]);
}

/// The tracker of a new leader has restored the operations of the previous leader. If the
/// controller reported too early that `b` is in a rule book, the tracker would end the operations
/// of `b`.
#[tokio::test(start_paused = true)]
async fn a_rule_set_is_undecided_until_its_rule_book_is_published() {
    let mut fixture = compiling("cars").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let undecided = |fixture: &ControllerFixture| {
        let without_book = fixture.without_book();
        without_book.expect("the start is done").undecided.clone()
    };
    let only_b = BTreeSet::from(["b".to_owned()]);
    assert_eq!(undecided(&fixture), only_b);
    fixture.compiler.hold(&[]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.gaps().last().unwrap(), "b: target is being listed");
    assert_eq!(undecided(&fixture), only_b);
    moment().await;
    fixture
        .catches_up_with(&[("cars", Some(vec!["a", "b"]))])
        .await;
    assert_eq!(undecided(&fixture), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_is_reported_while_a_rule_set_is_compiled() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    let published = fixture.catch_up().await;
    assert_eq!(fixture.gaps(), [""; 0]);
    fixture.compiler.hold(&["b"]);
    fixture.apply(&large("b", "boats"));
    moment().await;
    assert_eq!(fixture.compiler.begun(), ["a", "b"]);
    fixture.report(&published[0], Some("connection lost")).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(
        fixture.gaps(),
        ["a: target cannot be watched", "b: is being compiled"]
    );
    assert_eq!(fixture.unsynced(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_changed_rule_set_keeps_its_rules_until_the_new_ones_are_compiled() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.catch_up().await;
    fixture.compiler.hold(&["a"]);
    let mut changed = edited(rule_set("a", "cars", "true"), "object.a");
    changed.spec.target.resource = "boats".into();
    fixture.apply(&changed);
    moment().await;
    assert_eq!(fixture.published().len(), 0, "the rule book must stay");
    assert_eq!(fixture.gaps(), ["a: is being compiled"]);
    let status = fixture.status("a");
    assert_eq!(condition(&status, "Ready").unwrap(), "False/Compiling");
    assert!(message(&status, "Ready").contains("stays in use"));
    assert_eq!(status.observed_generation, Some(2));

    fixture.compiler.hold(&[]);
    moment().await;
    fixture
        .catches_up_with(&[("boats", Some(vec!["a"])), ("cars", None)])
        .await;
    has(&fixture.status("a"), "Ready", "True/Watching");
}

#[tokio::test(start_paused = true)]
async fn only_the_newest_version_of_a_rule_set_is_used() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.catch_up().await;
    fixture.compiler.hold(&["a"]);
    let mut changed = rule_set("a", "cars", "true");
    for expression in ["object.a", "object.b", "1 +"] {
        changed = edited(changed, expression);
        fixture.apply(&changed);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(
        fixture.compiler.begun(),
        ["a", "a"],
        "only one compilation runs"
    );
    fixture.compiler.hold(&[]);
    moment().await;
    assert_eq!(fixture.compiler.begun(), ["a"]);
    assert_eq!(
        fixture.published().len(),
        0,
        "the last valid rules stay in use"
    );
    has(&fixture.status("a"), "Ready", "False/InvalidRule");
}

#[tokio::test(start_paused = true)]
async fn a_rule_set_is_compiled_again_only_if_its_spec_changes() {
    let valid = rule_set("a", "cars", "true");
    let too_large = rule_set("b", "cars", &"x".repeat(200_000));
    let fixture = started(&[valid.clone(), too_large.clone()]).await;
    assert_eq!(fixture.compiler.begun(), ["a", "b"]);
    let status = fixture.status("b");
    let expected = "the expressions of the rule set have 200000 bytes together, more than 131072";
    assert_eq!(message(&status, "InvalidRule"), expected);

    let mut relabeled = too_large.clone();
    relabeled.metadata.resource_version = Some("2".into());
    fixture.list(&[valid, relabeled]);
    moment().await;
    assert_eq!(fixture.compiler.begun(), [""; 0]);
    fixture.apply(&edited(too_large, "true"));
    moment().await;
    assert_eq!(fixture.compiler.begun(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn small_rule_sets_that_change_again_and_again_do_not_keep_a_large_one_waiting() {
    let small = |name, expression| rule_set(name, "cars", expression);
    let first = [small("a", "true"), small("c", "true"), large("b", "boats")];
    let fixture = started(&first).await;
    assert_eq!(fixture.compiler.begun(), ["a", "c", "b"]);
    fixture.compiler.hold(&["a", "c"]);
    fixture.apply(&edited(small("a", "true"), "object.a"));
    moment().await;
    fixture.apply(&edited(
        large("b", "boats"),
        &format!("object.{}", "b".repeat(100)),
    ));
    fixture.apply(&edited(small("c", "true"), "object.c"));
    moment().await;
    fixture.compiler.hold(&["c"]);
    moment().await;
    assert_eq!(fixture.compiler.begun(), ["a", "c"]);
    fixture.apply(&edited(small("a", "true"), "object.d"));
    moment().await;
    fixture.compiler.hold(&[]);
    moment().await;
    assert_eq!(fixture.compiler.begun(), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn rule_sets_beyond_the_size_for_all_get_an_error_until_others_are_deleted() {
    let names: Vec<String> = (0..9).map(|number| format!("b{number}")).collect();
    let expression = format!("'{}' == object.a", "x".repeat(4_000));
    let huge = |name: &String| {
        let mut huge = rule_set(name, "boats", &expression);
        let first = huge.spec.rules[0].clone();
        huge.spec.rules = (0..31)
            .map(|number| {
                let mut rule = first.clone();
                rule.operation = format!("Working{number}");
                rule
            })
            .collect();
        huge
    };
    let mut all: Vec<OperationRuleSet> = names.iter().map(huge).collect();
    all.push(rule_set("a", "cars", "true"));
    let mut fixture = started(&all).await;
    moment().await;
    let refused = |fixture: &ControllerFixture| -> Vec<String> {
        let is_refused = |name: &&String| {
            let status = fixture.status(name);
            condition(&status, "Ready").as_deref() == Some("False/InvalidRule")
        };
        names.iter().filter(is_refused).cloned().collect()
    };
    assert_eq!(refused(&fixture), ["b8"], "the last one of the largest");
    let status = fixture.status("b8");
    let why = message(&status, "InvalidRule");
    assert!(
        why.starts_with("the expressions of all rule sets would have more than 1048576 bytes"),
        "{why}"
    );
    assert!(!fixture.compiler.begun().contains(&"b8".to_owned()));
    // The newest spec is small and invalid, so the large rules stay in use. They still count
    // towards the maximum size.
    let mut small = huge(&names[1]);
    small.spec.rules.truncate(1);
    fixture.apply(&edited(small, "1 +"));
    moment().await;
    assert_eq!(refused(&fixture), ["b1", "b8"]);
    assert_eq!(fixture.compiler.begun(), ["b1"]);
    fixture.send(RuleSetEvent::Deleted("b0".into()));
    moment().await;
    assert_eq!(fixture.compiler.begun(), ["b8"]);
    has(&fixture.status("b8"), "Validated", "True/RulesCompiled");
    // The rules for a former target do not stay in use.
    fixture.published();
    let mut moved = edited(rule_set("a", "cars", "true"), "object.a");
    moved.spec = huge(&names[0]).spec;
    fixture.apply(&moved);
    moment().await;
    fixture.publishes(&[("cars", None)]);
    has(&fixture.status("a"), "Ready", "False/InvalidRule");
}

#[tokio::test(start_paused = true)]
async fn a_rule_set_that_is_deleted_while_it_is_compiled_is_not_published() {
    let mut fixture = compiling("boats").await;
    fixture.send(RuleSetEvent::Deleted("b".into()));
    // The loop handles the deletion before the compiler finishes.
    moment().await;
    fixture.compiler.hold(&[]);
    moment().await;
    assert_eq!(fixture.published().len(), 0);
    assert_eq!(fixture.unsynced(), "");

    // A rule set with the same name, but another uid, does not get the rules of the deleted one.
    fixture.compiler.hold(&["a"]);
    let mut other = edited(rule_set("a", "cars", "true"), "object.a");
    other.metadata.uid = Some("other".into());
    fixture.apply(&other);
    moment().await;
    fixture.publishes(&[("cars", None)]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_old_status_stays_while_a_rule_set_is_compiled() {
    let mut watched = rule_set("b", "boats", "true");
    watched.status = Some(from(json!({
        "ready": "True", "watchActive": true, "observedGeneration": 1,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Watching",
            "message": "The target is being watched.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    })));
    let fixture = fixture();
    fixture.compiler.hold(&["b"]);
    fixture.list(&[watched]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(fixture.gaps(), ["b: is being compiled"]);
    assert_eq!(fixture.writes().len(), 0);
}
