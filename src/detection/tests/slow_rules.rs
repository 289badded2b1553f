//! Tests of feeds whose rules take much time. All feeds run on one thread, so a feed must let the
//! other feeds run, and must report that its changes wait.

use super::*;
use ifo_engine::rules::{EvaluationInstant, Fact, OperationBound, ReachedBound};
use ifo_observe::GapReason;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A rule that must be evaluated again when time has passed.
const READS_NOW: &str = "object.works && now > timestamp('2000-01-01T00:00:00Z')";

/// Number of objects on which the expensive rules are evaluated. tokio makes a task yield after 128
/// operations on channels. A feed needs fewer operations for this number of objects, so it yields
/// only because its evaluations take much time.
const OBJECTS: usize = 40;

/// Simulates evaluations that take 3 ms each. Sends an object to the feed in `next` during the
/// next evaluation.
fn expensive_evaluations(next: Arc<Mutex<Option<Arc<FollowedFeed>>>>) -> EvaluationTime {
    let (begin, readings) = (Instant::now(), AtomicU32::new(0));
    EvaluationTime::new(move || {
        if let Some(feed) = next.lock().expect("no test panics with the lock").take() {
            feed.send(applied(&thing("boat", true)));
        }
        let used = Duration::from_millis(3) * readings.fetch_add(1, Ordering::Relaxed);
        let at = begin + used;
        EvaluationInstant { at, used }
    })
}

fn things() -> Vec<Value> {
    let names = (0..OBJECTS).map(|number| format!("car-{number}"));
    names.map(|name| thing(&name, true)).collect()
}

/// Receives the messages to the tracker, until the feed sends no more messages.
async fn receive_all(fixture: &mut SupervisorFixture) {
    let silence = Duration::from_millis(100);
    while let Ok(message) = tokio::time::timeout(silence, fixture.messages.recv()).await {
        if let Some(Message::Flush(done)) = message {
            done.send(()).expect("the feed waits for the answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_feeds_run_between_the_objects_of_an_expensive_feed() {
    for is_resync in [false, true] {
        let during_evaluation = Arc::default();
        let time = expensive_evaluations(Arc::clone(&during_evaluation));
        let mut fixture = supervisor_with(4096, time);
        let (cars, boats) = (target("cars"), target("boats"));
        let rules = rule_set(&cars, &[], READS_NOW);
        fixture.publish(&cars, Some(book(1, &cars, rules))).await;
        fixture.publish(&boats, Some(working(2, &boats))).await;
        let feeds = fixture.feeds();
        feeds[0].list(&things());
        feeds[1].list(&[]);
        fixture.sent_messages().await;
        *during_evaluation.lock().unwrap() = Some(feeds[1].clone());
        if is_resync {
            tokio::time::sleep(RESYNC).await;
        } else {
            for car in things() {
                feeds[0].send(applied(&car));
            }
        }
        let sent = fixture.sent_messages().await;
        let boat = "2: ns/boat [Working]";
        let before = sent.iter().position(|line| line == boat);
        let before = before.expect("the other feed must send a message");
        assert!(
            before < 5,
            "the other feed waited for {before} objects: {sent:?}"
        );
        assert_eq!(sent.len(), OBJECTS + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_behind_while_its_changes_wait_for_more_than_five_seconds() {
    let mut fixture = supervisor_with(1, EvaluationTime::default());
    let cars = target("cars");
    let rules = rule_set(&cars, &[], "object.works");
    let is_behind = || rules.activity.is_behind(clock::steady());
    fixture
        .publish(&cars, Some(book(1, &cars, rules.clone())))
        .await;
    // The queue of the tracker has one slot. So the feed waits until the test receives messages.
    fixture.running_feed().list(&things());
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!is_behind(), "the first list is not complete");
    receive_all(&mut fixture).await;
    for car in things() {
        fixture.running_feed().send(applied(&car));
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!is_behind(), "the changes wait for four seconds");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(is_behind(), "the changes wait for six seconds");
    receive_all(&mut fixture).await;
    assert!(!is_behind(), "no change waits any more");
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_behind_while_objects_wait_for_their_next_evaluation() {
    let mut fixture = supervisor_with(1, EvaluationTime::default());
    let cars = target("cars");
    let rules = rule_set(&cars, &[], READS_NOW);
    let is_behind = || rules.activity.is_behind(clock::steady());
    fixture
        .publish(&cars, Some(book(1, &cars, rules.clone())))
        .await;
    fixture.running_feed().list(&things());
    receive_all(&mut fixture).await;
    assert!(!is_behind());
    tokio::time::sleep(RESYNC + Duration::from_secs(6)).await;
    assert!(
        is_behind(),
        "the evaluations began at least six seconds ago"
    );
    receive_all(&mut fixture).await;
    assert!(!is_behind(), "all objects were evaluated again");
}

/// Makes the feed list all objects again: the tracker seems to have room for operations that it
/// refused before. Returns within a second after the feed has requested the list.
async fn cause_relist(fixture: &SupervisorFixture, rules: &RuleSet) {
    let reached = ReachedBound {
        bound: OperationBound::RuleSet,
        maximum: 1,
        kept: 1,
    };
    let report = rules.activity.report(Fact::Refused(reached));
    rules.activity.set_room(true);
    let before = fixture.feeds().len();
    while fixture.feeds().len() == before {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    drop(report);
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_behind_while_a_requested_list_does_not_begin() {
    let mut fixture = supervisor_with(4096, EvaluationTime::default());
    let cars = target("cars");
    let rules = rule_set(&cars, &[], "object.works");
    let is_behind = || rules.activity.is_behind(clock::steady());
    fixture
        .publish(&cars, Some(book(1, &cars, rules.clone())))
        .await;
    fixture.running_feed().list(&things());
    receive_all(&mut fixture).await;
    // The kube-apiserver answers slowly.
    cause_relist(&fixture, &rules).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!is_behind(), "the list was requested four seconds ago");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(is_behind(), "nothing has watched for six seconds");
    tokio::time::sleep(RESYNC * 2).await;
    assert_eq!(fixture.feeds().len(), 2, "the list is requested only once");
    assert!(is_behind(), "still nothing watches");
    fixture.running_feed().list(&things());
    receive_all(&mut fixture).await;
    assert!(!is_behind(), "the list is complete");
    // The kube-apiserver does not answer. The report on the interruption replaces the lag.
    cause_relist(&fixture, &rules).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(is_behind(), "nothing has watched for ten seconds");
    let lost = GapReason::Unreachable("the connection failed".into());
    fixture.running_feed().send(Raw::Lost(lost));
    receive_all(&mut fixture).await;
    assert!(!is_behind(), "the interruption is reported");
}
