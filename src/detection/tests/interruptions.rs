//! Tests what clients see when the task of a feed (the watch of a resource) panics. Also tests that
//! no time of day makes a task panic. The tests run the supervisor, the tracker and the index.

use super::pipeline::{TestPipeline, settings};
use super::*;
use crate::index::{self, ReadVersion};
use jiff::Timestamp;

/// Starts a pipeline whose rule book has one rule set with this rule.
async fn pipeline(rule: Value) -> (TestPipeline, Arc<FakeFeed>) {
    let feed = Arc::new(FakeFeed::default());
    let settings = settings(Duration::from_secs(30), 0);
    let pipeline = TestPipeline::start(feed.clone(), settings, RESYNC);
    let target = target("cars");
    let book = book(1, &target, rule_set_of(&target, &[], &rule));
    pipeline.publish(Arc::new(book)).await;
    wait_until_idle().await;
    (pipeline, feed)
}

/// Returns the subject of each operation, and the status of its condition `Detected`.
fn operations(pipeline: &TestPipeline) -> Vec<String> {
    let listed = pipeline
        .operations
        .list(&index::OPERATIONS, ReadVersion::Latest);
    let (_, entries) = listed.expect("the newest state is always available");
    let operations = entries.iter().map(|entry| {
        let operation = entry.object().operation().expect("it is an operation");
        let mut conditions = operation.status.conditions.iter();
        let detected = conditions.find(|it| &*it.type_ == "Detected");
        let detected = detected.expect("each operation has the condition");
        format!("{} {}", operation.spec.subject.name, detected.status)
    });
    operations.collect()
}

#[tokio::test(start_paused = true)]
async fn detections_are_unknown_from_a_panic_until_the_operations_are_detected_again() {
    let rule = json!({"operation": "Working", "expression": "object.works"});
    let (pipeline, feed) = pipeline(rule).await;
    feed.running().list(&[thing("a", true)]);
    wait_until_idle().await;
    assert_eq!(operations(&pipeline), ["a True"]);
    feed.running().step(Step::Panic);
    wait_until_idle().await;
    assert_eq!(operations(&pipeline), ["a Unknown"]);
    // Meanwhile, an operation on `b` has started.
    feed.running().list(&[thing("a", true), thing("b", true)]);
    wait_until_idle().await;
    assert_eq!(operations(&pipeline), ["a True", "b True"]);
}

/// The clock of the host can be wrong. For example, it can show 1970 after an empty battery.
#[tokio::test(start_paused = true)]
async fn no_time_of_day_makes_the_detection_panic() {
    let years_0_and_1 = [-62_167_219_200, -62_135_596_801, -62_135_596_800];
    let around_1970 = [-1, 0, 1];
    let seconds = years_0_and_1.into_iter().chain(around_1970);
    let times = seconds.map(|it| Timestamp::from_second(it).expect("the time is in range"));
    for time in [Timestamp::MIN, Timestamp::MAX].into_iter().chain(times) {
        let _simulated = clock::simulated::begin(time);
        let expression = "object.works && (now.getFullYear() > 2 || string(now) != '' || \
                          now - timestamp('0001-01-01T00:00:00Z') < duration('1h'))";
        let rule = json!({"operation": "Working", "expression": expression, "startedAt": "now"});
        let (pipeline, feed) = pipeline(rule).await;
        feed.running().list(&[thing("a", true), thing("b", true)]);
        tokio::time::sleep(RESYNC * 3).await;
        assert_eq!(operations(&pipeline).len(), 2, "{time}");
        feed.running().list(&[thing("a", false)]);
        tokio::time::sleep(RESYNC * 3).await;
        assert!(operations(&pipeline).is_empty(), "{time}");
        let metrics = pipeline.metrics.render();
        assert!(!metrics.contains("ifo_feed_restarts_total{"), "{time}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expected_duration_beyond_the_range_of_the_clock_does_not_stop_the_tracker() {
    let longest = u64::MAX.to_string();
    let (pipeline, feed) = pipeline(json!({
        "operation": "Working", "expression": "object.works", "expectedDuration": longest,
    }))
    .await;
    for name in ["a", "b"] {
        feed.running().list(&[thing(name, true)]);
        wait_until_idle().await;
        assert_eq!(operations(&pipeline), [format!("{name} True")]);
    }
}
