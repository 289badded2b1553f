//! Tests of the [`Supervisor`], which starts a task for each feed (the watch of a resource). The
//! feeds are simulated. The tests read the messages to the tracker, which turns detections into
//! operations, and the reports on the feeds.

use super::*;
use crate::observe::{GapReason, Raw};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use ifo_engine::detect::FeedEvent;
use ifo_engine::rules::{self, RuleSet};
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::task::JoinHandle;

/// The time between two evaluations of objects whose rules read `now`.
pub(super) const RESYNC: Duration = Duration::from_mins(1);

/// The tests wait for this time, so that all tasks finish their work. Tokio's clock is paused, so
/// the time passes only while all tasks wait. The time is shorter than [`RESYNC`], so that the wait
/// itself causes no evaluation.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// A feed that was started, and the sender of its steps.
pub(super) struct FollowedFeed {
    source: Source,
    steps: mpsc::UnboundedSender<Step>,
}

/// One step of a simulated feed.
pub(super) enum Step {
    Event(Raw),
    /// The stream of the feed panics. The evaluation of a rule can panic in the same task.
    Panic,
    /// The stream of the feed ends.
    End,
}

impl FollowedFeed {
    /// Returns true if the feed was not stopped.
    fn is_running(&self) -> bool {
        !self.steps.is_closed()
    }

    pub(super) fn send(&self, raw: Raw) {
        self.step(Step::Event(raw));
    }

    pub(super) fn step(&self, step: Step) {
        let sent = self.steps.send(step);
        assert!(sent.is_ok(), "the feed was not stopped");
    }

    /// Sends a complete list of these objects.
    pub(super) fn list(&self, objects: &[Value]) {
        self.send(Raw::Reset);
        for object in objects {
            self.send(applied(object));
        }
        self.send(Raw::Synced);
    }
}

#[derive(Default)]
pub(super) struct FakeFeed(Mutex<Vec<Arc<FollowedFeed>>>);

impl FakeFeed {
    /// Returns the only running feed.
    pub(super) fn running(&self) -> Arc<FollowedFeed> {
        let all = self.0.lock().unwrap().clone();
        let mut running: Vec<_> = all.into_iter().filter(|own| own.is_running()).collect();
        assert_eq!(running.len(), 1, "exactly one feed must run");
        running.remove(0)
    }
}

impl Feed for FakeFeed {
    fn follow(&self, source: Source) -> BoxStream<'static, Raw> {
        let (steps, receiver) = mpsc::unbounded_channel();
        let feed = FollowedFeed { source, steps };
        self.0.lock().unwrap().push(Arc::new(feed));
        stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Some(Step::Event(raw)) => Some((raw, receiver)),
                Some(Step::Panic) => panic!("the secret name is db-password"),
                Some(Step::End) => None,
                None => std::future::pending().await,
            }
        })
        .boxed()
    }
}

pub(super) struct SupervisorFixture {
    feed: Arc<FakeFeed>,
    publications: mpsc::Sender<Publication>,
    pub(super) messages: mpsc::Receiver<Message>,
    /// The messages to the tracker that the test has received, but not read.
    unread: Vec<Message>,
    feedback: mpsc::Receiver<Feedback>,
    metrics: Arc<Metrics>,
    running: JoinHandle<()>,
}

/// Starts a supervisor without rule books. The queue of messages to the tracker has the capacity
/// `queue`.
fn supervisor_with_queue(queue: usize) -> SupervisorFixture {
    supervisor_with(queue, EvaluationTime::default())
}

/// Starts a supervisor as [`supervisor_with_queue`] does. `time` measures the evaluations.
pub(super) fn supervisor_with(queue: usize, time: EvaluationTime) -> SupervisorFixture {
    let feed = Arc::new(FakeFeed::default());
    let (tracker, messages) = mpsc::channel(queue);
    let (report, feedback) = mpsc::channel(64);
    let (publications, published) = mpsc::channel(16);
    let metrics = Arc::new(Metrics::new());
    let supervisor = Supervisor {
        feed: feed.clone(),
        tracker,
        feedback: report,
        metrics: metrics.clone(),
        resync: RESYNC,
        stored_bytes: Arc::default(),
        time: Arc::new(time),
    };
    SupervisorFixture {
        feed,
        publications,
        messages,
        unread: Vec::new(),
        feedback,
        metrics,
        running: tokio::spawn(supervisor.run(published)),
    }
}

fn supervisor() -> SupervisorFixture {
    supervisor_with_queue(4096)
}

pub(super) async fn wait_until_idle() {
    tokio::time::sleep(IDLE_TIME).await;
}

impl SupervisorFixture {
    pub(super) async fn publish(&self, target: &Arc<Gvr>, book: Option<RuleBook>) {
        let publication = Publication {
            target: target.clone(),
            book: book.map(Arc::new),
            removed: false,
        };
        self.publications
            .send(publication)
            .await
            .expect("the supervisor is running");
        wait_until_idle().await;
    }

    /// Returns all feeds that were started, in order.
    pub(super) fn feeds(&self) -> Vec<Arc<FollowedFeed>> {
        self.feed.0.lock().unwrap().clone()
    }

    /// Returns the only running feed.
    pub(super) fn running_feed(&self) -> Arc<FollowedFeed> {
        self.feed.running()
    }

    /// Returns the sorted names of the running feeds: `resource`, or `resource/namespace`.
    fn running_sources(&self) -> Vec<String> {
        let feeds = self.feeds();
        let running = feeds.iter().filter(|own| own.is_running());
        let mut sources: Vec<_> = running.map(|own| feed_name(&own.source)).collect();
        sources.sort();
        sources
    }

    /// Receives messages as the tracker does, until the supervisor sends no more messages.
    pub(super) async fn receive_messages(&mut self) {
        let mut may_continue = true;
        while may_continue {
            wait_until_idle().await;
            may_continue = false;
            while let Ok(message) = self.messages.try_recv() {
                match message {
                    Message::Flush(done) => {
                        // The feed waits for this answer, unless it was stopped.
                        let _ = done.send(());
                        may_continue = true;
                    }
                    message => self.unread.push(message),
                }
            }
        }
    }

    /// Returns the messages to the tracker since the last call, one line each.
    pub(super) async fn sent_messages(&mut self) -> Vec<String> {
        self.receive_messages().await;
        self.unread.drain(..).map(|it| message_line(&it)).collect()
    }

    /// Returns the reports on feeds since the last call. Each report has the name of the feed, the
    /// generation of its rule book, and the failure. The failure is None if the feed works.
    async fn sent_reports(&mut self) -> Vec<(String, u64, Option<String>)> {
        self.receive_messages().await;
        std::iter::from_fn(|| self.feedback.try_recv().ok())
            .map(|own| (feed_name(&own.source), own.generation, own.failure))
            .collect()
    }
}

fn feed_name(source: &Source) -> String {
    match &source.namespace {
        Some(namespace) => format!("{}/{namespace}", source.target.resource),
        None => source.target.resource.clone(),
    }
}

fn message_line(message: &Message) -> String {
    match message {
        Message::Rules { target, book, .. } => match book {
            Some(book) => format!("rules {} of {}", book.generation, target.resource),
            None => format!("no rules of {}", target.resource),
        },
        Message::Feed {
            generation, event, ..
        } => format!("{generation}: {}", event_line(event)),
        other => panic!("unexpected message {other:?}"),
    }
}

fn event_line(event: &FeedEvent) -> String {
    match event {
        FeedEvent::Reset => "reset".to_owned(),
        FeedEvent::Synced { .. } => "synced".to_owned(),
        FeedEvent::Lost => "lost".to_owned(),
        FeedEvent::Deleted { subject, .. } => format!("{} is gone", subject.path()),
        FeedEvent::Evaluated { evaluation, .. } => {
            let findings = evaluation.findings.iter().map(|finding| {
                let answer = if finding.values.is_some() { "" } else { "?" };
                format!("{}{answer}", finding.operation)
            });
            let findings: Vec<_> = findings.collect();
            format!("{} [{}]", evaluation.subject.path(), findings.join(" "))
        }
    }
}

pub(super) fn target(resource: &str) -> Arc<Gvr> {
    Arc::new(Gvr {
        group: "things.example".into(),
        version: "v1".into(),
        resource: resource.into(),
    })
}

/// Returns a rule set that detects the operation `Working` if `expression` is true.
pub(super) fn rule_set(target: &Gvr, namespaces: &[&str], expression: &str) -> Arc<RuleSet> {
    let spec = json!({
        "component": "tests",
        "target": target,
        "namespaces": namespaces,
        "rules": [{"operation": "Working", "expression": expression}],
    });
    let spec = serde_json::from_value(spec).expect("the JSON has the fields of a rule set");
    Arc::new(rules::compile("a", &spec).expect("the rules are valid"))
}

pub(super) fn book(generation: u64, target: &Gvr, rule_set: Arc<RuleSet>) -> RuleBook {
    let kind = "Thing".to_owned();
    RuleBook::new(generation, target.clone(), kind, true, vec![rule_set])
}

/// Returns a rule book with one rule. The rule detects the operation `Working` on a [`thing`] whose
/// field `works` is true.
pub(super) fn working(generation: u64, target: &Gvr) -> RuleBook {
    book(generation, target, rule_set(target, &[], "object.works"))
}

pub(super) fn thing(name: &str, works: impl Into<Value>) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "works": works.into(),
    })
}

fn bytes(object: &Value) -> Bytes {
    object.to_string().into()
}

pub(super) fn applied(object: &Value) -> Raw {
    Raw::Applied(bytes(object))
}

#[tokio::test(start_paused = true)]
async fn the_tracker_receives_the_rules_before_the_first_message_of_the_feed() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    assert_eq!(fixture.running_sources(), ["cars"]);
    fixture
        .running_feed()
        .list(&[thing("a", true), thing("b", false)]);
    assert_eq!(
        fixture.sent_messages().await,
        [
            "rules 1 of cars",
            "1: reset",
            "1: ns/a [Working]",
            "1: ns/b []",
            "1: synced"
        ]
    );
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 1, None)]);
}

#[tokio::test(start_paused = true)]
async fn a_new_rule_book_restarts_the_feed_and_the_old_feed_sends_nothing_more() {
    // The queue has one slot. So the old feed is waiting for the queue when the new rule book
    // arrives.
    let mut fixture = supervisor_with_queue(1);
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    let old = fixture.running_feed();
    let many: Vec<_> = (0..10).map(|n| thing(&format!("t{n}"), true)).collect();
    old.list(&many);
    fixture.publish(&cars, Some(working(2, &cars))).await;
    assert!(!old.is_running());
    let mut messages = Vec::new();
    while !messages.contains(&"rules 2 of cars".to_owned()) {
        messages.push(message_line(
            &fixture
                .messages
                .recv()
                .await
                .expect("the supervisor is running"),
        ));
    }
    wait_until_idle().await;
    fixture.running_feed().list(&many[..1]);
    for _ in 0..3 {
        let message = fixture
            .messages
            .recv()
            .await
            .expect("the supervisor is running");
        assert!(message_line(&message).starts_with("2: "), "{message:?}");
    }
    assert!(
        messages.len() < many.len(),
        "the old feed must be stopped before it has sent all objects: {messages:?}"
    );
    assert_eq!(fixture.feeds().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_feed_without_rules_is_stopped_and_other_feeds_continue() {
    let mut fixture = supervisor();
    let (cars, boats) = (target("cars"), target("boats"));
    fixture.publish(&cars, Some(working(1, &cars))).await;
    fixture.publish(&boats, Some(working(2, &boats))).await;
    assert_eq!(fixture.running_sources(), ["boats", "cars"]);
    fixture.sent_messages().await;
    // A real feed sets this metric. The fake feed does not, so the test sets it.
    fixture
        .metrics
        .feed_state("things.example/v1/cars", "watching");
    let metric = "ifo_feed_state{target=\"things.example/v1/cars\"";
    assert!(fixture.metrics.render().contains(metric));
    fixture.publish(&cars, None).await;
    assert_eq!(fixture.sent_messages().await, ["no rules of cars"]);
    assert_eq!(fixture.running_sources(), ["boats"]);
    assert_eq!(fixture.feeds().len(), 2, "no feed must be started again");
    assert!(
        !fixture.metrics.render().contains(metric),
        "the metric of the stopped feed must be removed"
    );
    fixture.publish(&cars, Some(working(3, &cars))).await;
    assert_eq!(
        fixture.running_sources(),
        ["boats", "cars"],
        "a new rule book must start the feed again"
    );
}

#[tokio::test(start_paused = true)]
async fn each_named_namespace_has_a_feed_of_its_own() {
    let mut fixture = supervisor();
    let cars = target("cars");
    let named = |generation, namespaces: &[&str]| {
        let rule_set = rule_set(&cars, namespaces, "object.works");
        Some(book(generation, &cars, rule_set))
    };
    fixture.publish(&cars, named(1, &["x", "y"])).await;
    assert_eq!(fixture.running_sources(), ["cars/x", "cars/y"]);
    for feed in fixture.feeds() {
        feed.list(&[]);
    }
    let mut reported = fixture.sent_reports().await;
    reported.sort();
    assert_eq!(
        reported,
        [
            ("cars/x".to_owned(), 1, None),
            ("cars/y".to_owned(), 1, None)
        ]
    );
    fixture.publish(&cars, named(2, &["y", "z"])).await;
    assert_eq!(fixture.running_sources(), ["cars/y", "cars/z"]);
    fixture.publish(&cars, named(3, &[])).await;
    assert_eq!(fixture.running_sources(), ["cars"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_feed_is_reported_with_its_error_until_it_recovers() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(7, &cars))).await;
    let feed = fixture.running_feed();
    let message = "may not list cars".to_owned();
    feed.send(Raw::Lost(GapReason::Refused { code: 403, message }));
    let mut reported = fixture.sent_reports().await;
    let (name, generation, failure) = reported.remove(0);
    assert_eq!((&*name, generation, reported.len()), ("cars", 7, 0));
    let failure = failure.expect("the feed reports a failure");
    assert!(
        failure.starts_with("forbidden: may not list cars; apply the ClusterRole"),
        "{failure}"
    );
    let command = "kubectl create clusterrole ifo-target-cars.things.example \
                   --verb=get,list,watch --resource=cars.things.example && kubectl label \
                   clusterrole ifo-target-cars.things.example \
                   ifo.kubevirt.io/aggregate-to-targets=true";
    assert!(failure.ends_with(command), "{failure}");
    feed.list(&[]);
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 7, None)]);
    // This interruption of the watch ends without a new list, because no change was missed.
    feed.send(Raw::Lost(GapReason::Unreachable("reset by peer".into())));
    feed.send(Raw::Synced);
    let failure = Some("unreachable: reset by peer".to_owned());
    let reported = fixture.sent_reports().await;
    assert_eq!(reported[0], ("cars".to_owned(), 7, failure));
    assert_eq!(reported[1], ("cars".to_owned(), 7, None));
    assert_eq!(
        fixture.sent_messages().await,
        [
            "rules 7 of cars",
            "7: lost",
            "7: reset",
            "7: synced",
            "7: lost",
            "7: synced"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_empty_evaluations_are_not_sent_to_the_tracker() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    let feed = fixture.running_feed();
    feed.list(&[]);
    fixture.sent_messages().await;
    for works in [false, true, true, false, false] {
        feed.send(applied(&thing("a", works)));
    }
    feed.send(Raw::Deleted(bytes(&thing("a", false))));
    assert_eq!(
        fixture.sent_messages().await,
        [
            "1: ns/a [Working]",
            "1: ns/a [Working]",
            "1: ns/a []",
            "1: ns/a is gone"
        ]
    );
    // During a list, empty evaluations are also sent. The tracker needs them, because it considers
    // an object to be deleted if it receives no evaluation of the object during the list.
    feed.send(applied(&thing("b", true)));
    feed.list(&[thing("b", false)]);
    assert_eq!(
        fixture.sent_messages().await,
        ["1: ns/b [Working]", "1: reset", "1: ns/b []", "1: synced"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_evaluated_counts_as_failed_and_not_as_deleted() {
    let mut fixture = supervisor();
    let cars = target("cars");
    let book = working(1, &cars);
    let rule_set = book.rule_sets[0].clone();
    fixture.publish(&cars, Some(book)).await;
    let feed = fixture.running_feed();
    feed.list(&[thing("typed", "as a text")]);
    feed.send(applied(&json!({"metadata": {"namespace": "ns"}})));
    feed.send(Raw::Applied(Bytes::from_static(b"\xffnonsense")));
    feed.send(Raw::Deleted(Bytes::from_static(b"{")));
    let large = json!({"metadata": {"name": "large", "namespace": "ns", "uid": "large"}});
    feed.send(Raw::TooLarge {
        object: bytes(&large),
        length: 20_000_000,
    });
    feed.send(applied(&thing("b", true)));
    assert_eq!(
        fixture.sent_messages().await,
        [
            "rules 1 of cars",
            "1: reset",
            "1: ns/typed [Working?]",
            "1: synced",
            "1: ns/large [Working?]",
            "1: ns/b [Working]"
        ]
    );
    let failure = rule_set
        .activity
        .last_failure()
        .expect("the object is too large");
    let text = failure.error.to_string();
    assert!(
        text.contains("20000000 bytes, which is more than the limit for one object"),
        "{text}"
    );
    assert_eq!(
        fixture.running_sources(),
        ["cars"],
        "the feed must continue after failures"
    );
}

#[tokio::test(start_paused = true)]
async fn time_dependent_rules_are_evaluated_again_without_a_change() {
    let mut fixture = supervisor();
    let cars = target("cars");
    let long_ago = "object.works && now > timestamp('2000-01-01T00:00:00Z')";
    let timed = book(1, &cars, rule_set(&cars, &[], long_ago));
    fixture.publish(&cars, Some(timed)).await;
    let feed = fixture.running_feed();
    // The field `works` of `other` is false. So the rule does not read `now` on this object, and
    // the object is not evaluated again.
    feed.list(&[thing("timed", true), thing("other", false)]);
    fixture.sent_messages().await;
    for _ in 0..3 {
        tokio::time::sleep(RESYNC).await;
        assert_eq!(fixture.sent_messages().await, ["1: ns/timed [Working]"]);
    }
    feed.send(Raw::Deleted(bytes(&thing("timed", true))));
    assert_eq!(fixture.sent_messages().await, ["1: ns/timed is gone"]);
    tokio::time::sleep(RESYNC * 3).await;
    assert!(fixture.sent_messages().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn closing_the_channel_of_publications_stops_all_feeds() {
    let fixture = supervisor();
    let (cars, boats) = (target("cars"), target("boats"));
    fixture.publish(&cars, Some(working(1, &cars))).await;
    fixture.publish(&boats, Some(working(2, &boats))).await;
    let feeds = fixture.feeds();
    assert!(feeds.iter().all(|feed| feed.is_running()));
    drop(fixture.publications);
    fixture
        .running
        .await
        .expect("the supervisor does not panic");
    wait_until_idle().await;
    assert!(feeds.iter().all(|feed| !feed.is_running()));
}

#[tokio::test(start_paused = true)]
async fn a_changed_detection_has_the_time_of_the_objects_last_change() {
    let mut fixture = supervisor();
    let target = target("things");
    fixture.publish(&target, Some(working(1, &target))).await;
    let feed = fixture.running_feed();
    let at = |works: bool, second: u8| {
        let mut object = thing("a", works);
        let time = format!("2026-11-21T10:00:{second:02}Z");
        object["metadata"]["managedFields"] = json!([{"manager": "m", "time": time}]);
        object
    };
    feed.list(&[at(false, 1)]);
    fixture.sent_messages().await;
    let mut managed = async |object: Value| {
        feed.send(applied(&object));
        wait_until_idle().await;
        fixture.receive_messages().await;
        let message = fixture
            .unread
            .pop()
            .expect("each change of the object sends a message");
        let Message::Feed {
            event: FeedEvent::Evaluated { evaluation, .. },
            ..
        } = message
        else {
            panic!("{message:?}");
        };
        let second = |at: jiff::Timestamp| at.as_second().rem_euclid(60);
        evaluation.subject.managed.map(second)
    };
    assert_eq!(
        managed(at(true, 2)).await,
        Some(2),
        "when the detection starts"
    );
    assert_eq!(
        managed(at(true, 3)).await,
        None,
        "while the detection stays the same"
    );
    assert_eq!(
        managed(at(false, 4)).await,
        Some(4),
        "when the detection ends"
    );
    assert_eq!(
        managed(at(true, 5)).await,
        Some(5),
        "when the detection starts again"
    );
    assert_eq!(
        managed(thing("b", true)).await,
        None,
        "for an object without managedFields"
    );
}

/// Returns the number of objects with an unknown detection, that is, objects on which a rule could
/// not be evaluated. Also returns true if the rule set is throttled.
fn unknown(rule_set: &RuleSet) -> (usize, bool) {
    let activity = &rule_set.activity;
    let unknown = activity.unknown_on(rules::ObjectScope::ALL);
    (unknown.objects, activity.is_throttled())
}

#[tokio::test(start_paused = true)]
async fn unknown_detections_are_counted_until_the_object_is_evaluated_or_deleted() {
    let mut fixture = supervisor();
    let cars = target("cars");
    let rules = rule_set(&cars, &[], "object.works > 1");
    fixture
        .publish(&cars, Some(book(1, &cars, rules.clone())))
        .await;
    let feed = fixture.running_feed();
    feed.list(&[
        thing("a", "text"),
        thing("b", 2),
        thing("c", "text"),
        thing("d", "text"),
    ]);
    fixture.receive_messages().await;
    assert_eq!(unknown(&rules), (3, false));
    // The rule fails on object `a` again. The number of objects stays the same.
    feed.send(applied(&thing("a", "other")));
    fixture.receive_messages().await;
    assert_eq!(unknown(&rules), (3, false));
    feed.send(applied(&thing("a", 1)));
    feed.send(Raw::Deleted(bytes(&thing("c", "text"))));
    fixture.receive_messages().await;
    assert_eq!(unknown(&rules), (1, false));
    // The counts of a new list replace the old counts when the list is complete.
    feed.send(Raw::Lost(GapReason::Unreachable("x".into())));
    feed.send(Raw::Reset);
    fixture.receive_messages().await;
    assert_eq!(unknown(&rules), (1, false));
    feed.send(applied(&thing("b", 2)));
    feed.send(Raw::Synced);
    fixture.receive_messages().await;
    assert_eq!(unknown(&rules), (0, false));
}

#[tokio::test(start_paused = true)]
async fn stopping_a_feed_removes_its_unknown_detections() {
    let fixture = supervisor();
    let cars = target("cars");
    let rules = rule_set(&cars, &[], "object.works > 1");
    fixture
        .publish(&cars, Some(book(1, &cars, rules.clone())))
        .await;
    fixture.running_feed().list(&[thing("a", "text")]);
    wait_until_idle().await;
    assert_eq!(unknown(&rules), (1, false));
    // The new generation of the rule book contains the same rule set. In a cluster, this happens
    // when another rule set of the target changes.
    fixture
        .publish(&cars, Some(book(2, &cars, rules.clone())))
        .await;
    assert_eq!(unknown(&rules), (0, false));
    fixture.running_feed().list(&[thing("a", "text")]);
    wait_until_idle().await;
    assert_eq!(unknown(&rules), (1, false));
    fixture.publish(&cars, None).await;
    assert_eq!(unknown(&rules), (0, false));
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_panics_or_ends_is_reported_as_interrupted_and_starts_again() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(3, &cars))).await;
    fixture.running_feed().list(&[thing("a", true)]);
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 3, None)]);
    fixture.sent_messages().await;
    for (number, step) in [Step::Panic, Step::End].into_iter().enumerate() {
        fixture.running_feed().step(step);
        let failure = Some(feed_task::ENDED_UNEXPECTEDLY.to_owned());
        let reported = fixture.sent_reports().await;
        assert_eq!(reported, [("cars".to_owned(), 3, failure)]);
        assert_eq!(fixture.sent_messages().await, ["3: lost"]);
        let metrics = fixture.metrics.render();
        let restarts = number + 1;
        for line in [
            format!("ifo_feed_restarts_total{{target=\"things.example/v1/cars\"}} {restarts}"),
            "ifo_feed_state{target=\"things.example/v1/cars\",state=\"lost\"} 1".to_owned(),
        ] {
            assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
        }
        // The new feed lists all objects, and the interruption is over.
        fixture.running_feed().list(&[thing("a", true)]);
        assert_eq!(
            fixture.sent_messages().await,
            ["3: reset", "3: ns/a [Working]", "3: synced"]
        );
        assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 3, None)]);
    }
    assert_eq!(fixture.feeds().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_always_panics_starts_again_at_growing_intervals() {
    let mut fixture = supervisor();
    let (cars, boats) = (target("cars"), target("boats"));
    fixture.publish(&cars, Some(working(1, &cars))).await;
    fixture.publish(&boats, Some(working(2, &boats))).await;
    let started = tokio::time::Instant::now();
    while started.elapsed() < Duration::from_hours(1) {
        for feed in fixture.feeds() {
            if feed.is_running() && feed.source.target == cars {
                feed.step(Step::Panic);
            }
        }
        fixture.receive_messages().await;
    }
    // After the first restarts, the delay is between 30 s and 60 s.
    let restarts = fixture.feeds().len() - 2;
    assert!((60..150).contains(&restarts), "{restarts} restarts");
    // The other feed still works, and a new rule book replaces the feed that panics.
    fixture.sent_messages().await;
    fixture.publish(&cars, Some(working(3, &cars))).await;
    assert_eq!(fixture.running_sources(), ["boats", "cars"]);
    assert_eq!(fixture.sent_messages().await, ["rules 3 of cars"]);
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_reported_as_up_to_date_after_its_operations_are_in_the_index() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    fixture.running_feed().list(&[thing("a", true)]);
    wait_until_idle().await;
    // The tracker has not processed the messages yet.
    assert!(fixture.feedback.try_recv().is_err());
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 1, None)]);
}
