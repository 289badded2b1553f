//! Tests what clients see when the task of a feed (the watch of a resource) panics. The tests run the
//! whole pipeline of a leader: the rule-set controller, the supervisor, the tracker and the index.
//! Discovery and the feed are simulated.

use super::supervisor_tests::{FakeFeed, RESYNC, Step, thing, wait_until_idle};
use super::*;
use crate::clock;
use crate::index::{self, Bounds, IndexReader, ReadVersion, index};
use crate::observe::Resolve;
use crate::replicate::Leadership;
use crate::rules::{
    Controller, Inputs, Outputs, Report, RuleSetEvent, StatusAnswer, StatusSink, StatusWrite,
};
use crate::tracker_task::{self, ActivityWriter};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::Resolution;
use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec};
use ifo_engine::rules;
use ifo_engine::track::{Tracker, TrackerSettings};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::sync::watch;

/// Discovery of a cluster that serves every target.
struct EverythingServed;

impl Resolve for EverythingServed {
    fn resolve<'a>(&'a self, _: &'a Gvr) -> BoxFuture<'a, Resolution> {
        let served = Resolution::Served {
            kind: "Thing".into(),
            namespaced: true,
        };
        std::future::ready(served).boxed()
    }

    fn resolution_changes(&self) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }
}

/// Keeps the newest status of the only rule set.
#[derive(Default)]
struct NewestStatus(Mutex<Option<StatusWrite>>);

impl StatusSink for NewestStatus {
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer> {
        *self.0.lock().unwrap() = Some(write.clone());
        std::future::ready(StatusAnswer::Written(None)).boxed()
    }
}

struct PipelineFixture {
    newest_report: watch::Receiver<Arc<Report>>,
    feed: Arc<FakeFeed>,
    status: Arc<NewestStatus>,
    operations: IndexReader,
    metrics: Arc<Metrics>,
}

/// Starts the pipeline with one rule set, which has this rule.
async fn pipeline(rule: Value) -> PipelineFixture {
    let bounds = Bounds {
        bytes: 1 << 20,
        age: Duration::from_hours(1),
    };
    let (mut writer, operations) = index(bounds);
    let metrics = Arc::new(Metrics::new());
    let settings = TrackerSettings {
        debounce: Duration::from_secs(30),
        retain: None,
        max_records: 0,
        cluster_namespace: "ifo-system".into(),
    };
    let (tracker, messages) = mpsc::channel(tracker_task::QUEUE_CAPACITY);
    let (feedback, reported) = mpsc::channel(16);
    let (publications, published) = mpsc::channel(16);
    let (report, newest_report) = watch::channel(Arc::<Report>::default());
    let feed = Arc::new(FakeFeed::default());
    let status = Arc::new(NewestStatus::default());
    let supervisor = Supervisor {
        feed: feed.clone(),
        tracker,
        feedback,
        metrics: metrics.clone(),
        resync: RESYNC,
        stored_bytes: Arc::default(),
        time: Arc::default(),
    };
    tokio::spawn(supervisor.run(published));
    let meter = metrics.clone();
    let reports = newest_report.clone();
    let read_gaps = Arc::new(move || reports.borrow().gaps());
    let activity = ActivityWriter::new("ifo-system".into(), &operations, read_gaps);
    tokio::spawn(async move {
        let tracker = Tracker::new(settings, meter.clone());
        let leadership = Leadership::alone(writer.head());
        tracker_task::run(tracker, &mut writer, &leadership, messages, activity, meter).await;
    });
    let spec: OperationRuleSetSpec = serde_json::from_value(json!({
        "component": "tests",
        "target": {"group": "things.example", "version": "v1", "resource": "cars"},
        "rules": [rule],
    }))
    .expect("the JSON has the fields of a rule set");
    let rule_set = Box::new(OperationRuleSet::new("car-rules", spec));
    let rule_sets = [
        RuleSetEvent::Reset,
        RuleSetEvent::Applied {
            rule_set,
            unknown_fields: Vec::new(),
        },
        RuleSetEvent::Synced,
    ];
    let inputs = Inputs {
        rule_sets: stream::iter(rule_sets).chain(stream::pending()).boxed(),
        feedback: reported,
    };
    let outputs = Outputs {
        publications,
        sync: watch::Sender::default(),
        report,
        status: status.clone(),
    };
    let requeue = Duration::from_hours(1);
    let controller = Controller::new(
        Arc::new(EverythingServed),
        Arc::new(|name, spec| std::future::ready(rules::compile(&name, &spec)).boxed()),
        requeue,
        false,
    );
    tokio::spawn(controller.run(inputs, outputs));
    wait_until_idle().await;
    PipelineFixture {
        newest_report,
        feed,
        status,
        operations,
        metrics,
    }
}

impl PipelineFixture {
    /// Returns the subject of each operation and the status of its condition `Detected`.
    fn operations(&self) -> Vec<(String, String)> {
        let listed = self
            .operations
            .list(&index::OPERATIONS, ReadVersion::Latest);
        let (_, entries) = listed.expect("the newest state is always available");
        let operations = entries.iter().map(|entry| {
            let object: Value = serde_json::from_slice(&entry.json()).expect("the index has JSON");
            let conditions = object["status"]["conditions"]
                .as_array()
                .expect("conditions");
            let detected = conditions.iter().find(|it| it["type"] == "Detected");
            let detected = detected.expect("each operation has the condition");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (
                text(&object["spec"]["subject"]["name"]),
                text(&detected["status"]),
            )
        });
        operations.collect()
    }

    /// Returns the reasons why a list of operations may be incomplete.
    fn gaps(&self) -> Vec<String> {
        let gaps = self.newest_report.borrow().gaps().rule_sets;
        gaps.into_iter().map(|gap| gap.reason).collect()
    }

    /// Returns the condition `Ready` of the rule set: the status, the reason and the message.
    fn ready(&self) -> (String, String, String) {
        let written = self.status.0.lock().unwrap().clone();
        let conditions = written.expect("a status was written").status.conditions;
        let ready = conditions.into_iter().find(|it| it.type_ == "Ready");
        let ready = ready.expect("each rule set has the condition");
        (ready.status, ready.reason, ready.message)
    }
}

fn operation(subject: &str, detected: &str) -> (String, String) {
    (subject.to_owned(), detected.to_owned())
}

#[tokio::test(start_paused = true)]
async fn lists_are_incomplete_from_a_panic_until_the_operations_are_detected_again() {
    let fixture = pipeline(json!({"operation": "Working", "expression": "object.works"})).await;
    fixture.feed.running().list(&[thing("a", true)]);
    wait_until_idle().await;
    assert_eq!(fixture.operations(), [operation("a", "True")]);
    assert!(fixture.gaps().is_empty());
    assert_eq!(fixture.ready().0, "True");

    fixture.feed.running().step(Step::Panic);
    wait_until_idle().await;
    assert_eq!(fixture.operations(), [operation("a", "Unknown")]);
    assert_eq!(fixture.gaps(), ["target cannot be watched"]);
    let (status, reason, message) = fixture.ready();
    assert_eq!((&*status, &*reason), ("False", "WatchFailed"));
    assert!(
        message.contains("internal error") && !message.contains("db-password"),
        "the status must not contain the text of the panic: {message}"
    );

    // Meanwhile, an operation on `b` has started.
    fixture
        .feed
        .running()
        .list(&[thing("a", true), thing("b", true)]);
    wait_until_idle().await;
    let all = [operation("a", "True"), operation("b", "True")];
    assert_eq!(fixture.operations(), all);
    assert!(fixture.gaps().is_empty());
    assert_eq!(fixture.ready().0, "True");
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
        let fixture = pipeline(rule).await;
        fixture
            .feed
            .running()
            .list(&[thing("a", true), thing("b", true)]);
        tokio::time::sleep(RESYNC * 3).await;
        assert_eq!(fixture.operations().len(), 2, "{time}");
        fixture.feed.running().list(&[thing("a", false)]);
        tokio::time::sleep(RESYNC * 3).await;
        assert!(fixture.operations().is_empty(), "{time}");
        let metrics = fixture.metrics.render();
        assert!(!metrics.contains("ifo_feed_restarts_total{"), "{time}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expected_duration_beyond_the_range_of_the_clock_does_not_stop_the_tracker() {
    let longest = u64::MAX.to_string();
    let fixture = pipeline(json!({
        "operation": "Working", "expression": "object.works", "expectedDuration": longest,
    }))
    .await;
    for name in ["a", "b"] {
        fixture.feed.running().list(&[thing(name, true)]);
        wait_until_idle().await;
        assert_eq!(fixture.operations(), [operation(name, "True")]);
    }
}
