//! Tests when the controller writes the statuses of rule sets, and how often.

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
    &book_of(publication).rule_sets[0].activity
}

#[tokio::test(start_paused = true)]
async fn status_is_written_only_when_it_changes() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    let published = fixture.catch_up().await;
    assert_eq!(
        fixture.writes().len(),
        2,
        "the status must be written twice: pending, then ready"
    );
    fixture.report(&published[0], None).await;
    fixture.changes.send(()).unwrap();
    tokio::time::sleep(REQUEUE * 10).await;
    assert!(fixture.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failure_is_reported_within_seconds_and_once() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    let published = fixture.catch_up().await;
    fixture.writes();
    for second in 0..60 {
        let activity = activity(&published[0]);
        activity.evaluated(clock::now());
        activity.failed(failure(second));
        tokio::time::sleep(Duration::from_secs(1)).await;
        if second == 10 {
            let status = fixture.status("a");
            let text = message(&status, "EvaluationFailed");
            assert!(
                text.starts_with("Working: expected") && !text.contains("ns/car"),
                "the message must not name an object: {text}"
            );
            has(&status, "Ready", "True/Watching");
        }
    }
    assert_eq!(
        fixture.writes().len(),
        1,
        "failures on further objects must not cause further writes"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_or_conflicting_write_is_retried_after_a_delay() {
    for is_conflict in [false, true] {
        let mut fixture = fixture();
        if is_conflict {
            // The controller does not receive the event with this version.
            let mut versions = fixture.sink.versions.lock().unwrap();
            versions.insert("a".into(), 10);
        } else {
            fixture.fail_writes();
        }
        fixture.list(&[rule_set("a", "cars", "true")]);
        moment().await;
        fixture.published();
        fixture.writes();
        // Discovery reports changes all the time. These reports must not cause further attempts to
        // write the status.
        for _ in 0..600 {
            fixture.changes.send(()).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let attempts = fixture.writes().len();
        let expected = 19..=21;
        assert!(
            expected.contains(&attempts),
            "{attempts} attempts in ten minutes"
        );
        fixture.sink.failing_writes.lock().unwrap().clear();
        fixture.sink.versions.lock().unwrap().clear();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(fixture.writes().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn many_statuses_are_written_soon_with_limited_concurrency() {
    let rule_sets: Vec<_> = (0..100)
        .map(|n| rule_set(&format!("r{n}"), "cars", "true"))
        .collect();
    let fixture = fixture();
    *fixture.sink.write_duration.lock().unwrap() = Duration::from_millis(10);
    fixture.list(&rule_sets);
    while fixture.discovery.looked_up.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert!(fixture.sink.written.lock().unwrap().len() <= 16);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(fixture.writes().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_rule_set_stay_in_order() {
    let fixture = fixture();
    *fixture.sink.write_duration.lock().unwrap() = Duration::from_secs(20);
    fixture.list(&[rule_set("a", "cars", "true")]);
    moment().await;
    let mut fixture = fixture;
    fixture.catch_up().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        fixture.writes().len(),
        1,
        "the second write must wait until the first one has ended"
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    has(&fixture.status("a"), "Ready", "True/Watching");
}

#[tokio::test(start_paused = true)]
async fn rule_set_recreated_during_a_write_gets_its_own_status() {
    let old = rule_set("a", "cars", "true");
    let fixture = fixture();
    *fixture.sink.write_duration.lock().unwrap() = Duration::from_secs(2);
    fixture.list(std::slice::from_ref(&old));
    moment().await;
    let mut new = old;
    new.metadata.uid = Some("another".into());
    fixture.send(RuleSetEvent::Deleted("a".into()));
    fixture.apply(&new);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let uids: Vec<_> = fixture.writes().into_iter().map(|it| it.uid).collect();
    assert_eq!(uids.last(), Some(&Some("another".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn restart_rewrites_a_status_only_if_a_feed_now_fails() {
    let mut object = rule_set("a", "cars", "true");
    let mut before = started(&[object.clone()]).await;
    before.catch_up().await;
    object.status = Some(before.status("a"));

    let mut after = started(&[object]).await;
    let published = after.catch_up().await;
    assert_eq!(after.writes(), []);
    after.report(&published[0], Some("forbidden: cars")).await;
    moment().await;
    has(&after.status("a"), "Ready", "False/WatchFailed");
}

#[tokio::test(start_paused = true)]
async fn rule_set_stays_ready_during_a_relist_caused_by_another_rule_set() {
    let mut fixture = started(&[rule_set("a", "cars", "true")]).await;
    fixture.catch_up().await;
    fixture.writes();
    fixture.apply(&rule_set("b", "cars", "true"));
    moment().await;
    fixture.catch_up().await;
    let names: Vec<_> = fixture.writes().into_iter().map(|it| it.name).collect();
    assert_eq!(
        names,
        ["b", "b"],
        "only the status of b must be written: pending, then ready"
    );
}
