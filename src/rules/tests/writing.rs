//! Tests when statuses are written, and how many writes that takes.

use super::*;
use crate::clock;

fn failure(characters: usize) -> EvaluationFailure {
    EvaluationFailure {
        at: clock::now(),
        what: "Working".into(),
        error: EvaluationError::State(characters),
    }
}

fn activity(publication: &Publication) -> &Activity {
    &publication
        .book
        .as_ref()
        .expect("the publication has a rule book")
        .rule_sets[0]
        .activity
}

#[tokio::test(start_paused = true)]
async fn status_is_written_only_when_it_changes() {
    let mut world = started(&[rule_set("a", "cars", "true")]).await;
    let published = world.catch_up().await;
    assert_eq!(
        world.writes().len(),
        2,
        "the status must be written twice: pending, then ready"
    );
    world.report(&published[0], None).await;
    world.changes.send(()).unwrap();
    tokio::time::sleep(REQUEUE * 10).await;
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failure_is_reported_within_seconds_and_once() {
    let mut world = started(&[rule_set("a", "cars", "true")]).await;
    let published = world.catch_up().await;
    world.writes();
    for second in 0..60 {
        let activity = activity(&published[0]);
        activity.evaluated(clock::now());
        activity.failed(failure(second));
        tokio::time::sleep(Duration::from_secs(1)).await;
        if second == 10 {
            let status = world.status("a");
            let text = message(&status, "EvaluationFailed");
            assert!(
                text.starts_with("Working: expected") && !text.contains("ns/car"),
                "the message must not name an object: {text}"
            );
            assert_eq!(
                condition(&status, "Ready").as_deref(),
                Some("True/Watching")
            );
        }
    }
    assert_eq!(
        world.writes().len(),
        1,
        "failures on further objects must not cause further writes"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_retried_with_back_off() {
    let mut world = world();
    world.sink.refuse.lock().unwrap().insert("a".into());
    world.list(&[rule_set("a", "cars", "true")]);
    moment().await;
    world.published();
    world.writes();
    // Discovery reports changes all the time. These reports must not cause further attempts to
    // write the status.
    for _ in 0..600 {
        world.changes.send(()).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let attempts = world.writes().len();
    assert!(
        (5..=9).contains(&attempts),
        "{attempts} attempts in ten minutes"
    );
    world.sink.refuse.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(world.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_write_does_not_delay_a_publication() {
    let world = world();
    world.sink.refuse.lock().unwrap().insert("a".into());
    world.list(&[rule_set("a", "cars", "true")]);
    moment().await;
    let mut world = world;
    world.published();
    world.apply(&rule_set("b", "boats", "true"));
    moment().await;
    assert_eq!(world.published().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_statuses_are_written_soon_with_limited_concurrency() {
    let rule_sets: Vec<_> = (0..100)
        .map(|n| rule_set(&format!("r{n}"), "cars", "true"))
        .collect();
    let world = world();
    *world.sink.takes.lock().unwrap() = Duration::from_millis(10);
    world.list(&rule_sets);
    while world.discovery.looked_up.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert!(world.sink.written.lock().unwrap().len() <= 16);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.writes().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_rule_set_stay_in_order() {
    let world = world();
    *world.sink.takes.lock().unwrap() = Duration::from_secs(20);
    world.list(&[rule_set("a", "cars", "true")]);
    moment().await;
    let mut world = world;
    world.catch_up().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        world.writes().len(),
        1,
        "the second write must wait until the first one has ended"
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        condition(&world.status("a"), "Ready").as_deref(),
        Some("True/Watching")
    );
}

#[tokio::test(start_paused = true)]
async fn rule_set_recreated_during_a_write_gets_its_own_status() {
    let old = rule_set("a", "cars", "true");
    let world = world();
    *world.sink.takes.lock().unwrap() = Duration::from_secs(2);
    world.list(std::slice::from_ref(&old));
    moment().await;
    let mut new = old;
    new.metadata.uid = Some("another".into());
    world.send(RuleSetEvent::Deleted("a".into()));
    world.apply(&new);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let uids: Vec<_> = world.writes().into_iter().map(|own| own.uid).collect();
    assert_eq!(uids.last(), Some(&Some("another".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn restart_does_not_rewrite_a_current_status() {
    let mut object = rule_set("a", "cars", "true");
    let mut before = started(&[object.clone()]).await;
    before.catch_up().await;
    object.status = Some(before.status("a"));

    let mut after = started(&[object]).await;
    after.catch_up().await;
    assert!(after.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn restart_reports_a_feed_that_now_fails() {
    let mut object = rule_set("a", "cars", "true");
    let mut before = started(&[object.clone()]).await;
    before.catch_up().await;
    object.status = Some(before.status("a"));

    let mut after = started(&[object]).await;
    let published = after.published();
    after.report(&published[0], Some("forbidden: cars")).await;
    moment().await;
    assert_eq!(
        condition(&after.status("a"), "Ready").as_deref(),
        Some("False/WatchFailed")
    );
}

#[tokio::test(start_paused = true)]
async fn rule_set_stays_ready_during_a_relist_caused_by_another_rule_set() {
    let mut world = started(&[rule_set("a", "cars", "true")]).await;
    world.catch_up().await;
    world.writes();
    world.apply(&rule_set("b", "cars", "true"));
    moment().await;
    world.catch_up().await;
    let names: Vec<_> = world.writes().into_iter().map(|own| own.name).collect();
    assert_eq!(
        names,
        ["b", "b"],
        "only the status of b must be written: pending, then ready"
    );
}

#[tokio::test(start_paused = true)]
async fn changed_rule_set_is_not_ready_before_its_target_is_relisted() {
    let a = rule_set("a", "cars", "true");
    let mut world = started(std::slice::from_ref(&a)).await;
    world.catch_up().await;
    world.apply(&edited(a, "false"));
    moment().await;
    let status = world.status("a");
    assert_eq!(
        condition(&status, "Ready").as_deref(),
        Some("False/Pending")
    );
    assert_eq!(status.observed_generation, Some(2));
}
