//! Tests of the supervisor with a simulated feed, and with a tracker and a controller that only
//! record messages.

use super::*;
use crate::observe::{GapReason, Raw};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use ifo_engine::detect::FeedEvent;
use ifo_engine::rules::{self, RuleSet};
use serde_json::{Value, json};
use std::sync::Mutex;

/// Interval at which rules that read `now` are evaluated again.
const RESYNC: Duration = Duration::from_mins(1);

/// Longer than any step while tokio's clock is paused, and shorter than [`RESYNC`].
const A_MOMENT: Duration = Duration::from_secs(1);

/// The scope of a feed, and the sender for its messages.
struct Followed {
    source: Source,
    say: mpsc::UnboundedSender<Raw>,
}

impl Followed {
    /// Returns true if the receiver exists.
    fn runs(&self) -> bool {
        !self.say.is_closed()
    }

    fn say(&self, raw: Raw) {
        self.say.send(raw).expect("the feed runs");
    }

    /// Sends a complete state.
    fn list(&self, objects: &[Value]) {
        self.say(Raw::Reset);
        for object in objects {
            self.say(applied(object));
        }
        self.say(Raw::Synced);
    }
}

#[derive(Default)]
struct FakeFeed(Mutex<Vec<Arc<Followed>>>);

impl Feed for FakeFeed {
    fn follow(&self, source: Source) -> BoxStream<'static, Raw> {
        let (say, said) = mpsc::unbounded_channel();
        let followed = Followed { source, say };
        self.0.lock().unwrap().push(Arc::new(followed));
        stream::unfold(said, |mut said| async move {
            said.recv().await.map(|raw| (raw, said))
        })
        // The contract of a feed requires that it never ends.
        .chain(stream::pending())
        .boxed()
    }
}

struct World {
    feed: Arc<FakeFeed>,
    publications: mpsc::Sender<Publication>,
    messages: mpsc::Receiver<Message>,
    feedback: mpsc::Receiver<Feedback>,
    metrics: Arc<Metrics>,
    running: JoinHandle<()>,
}

/// A running supervisor without rule books. The queue of its tracker has this capacity.
fn world_of(queue: usize) -> World {
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
    };
    World {
        feed,
        publications,
        messages,
        feedback,
        metrics,
        running: tokio::spawn(supervisor.run(published)),
    }
}

fn world() -> World {
    world_of(4096)
}

async fn moment() {
    tokio::time::sleep(A_MOMENT).await;
}

impl World {
    async fn publish(&self, target: &Arc<Gvr>, book: Option<RuleBook>) {
        let publication = Publication {
            target: target.clone(),
            book: book.map(Arc::new),
            removed: false,
        };
        self.publications.send(publication).await.expect("it runs");
        moment().await;
    }

    /// All feeds that were started, in order.
    fn feeds(&self) -> Vec<Arc<Followed>> {
        self.feed.0.lock().unwrap().clone()
    }

    /// The only running feed.
    fn running_feed(&self) -> Arc<Followed> {
        let mut running: Vec<_> = self.feeds().into_iter().filter(|own| own.runs()).collect();
        assert_eq!(running.len(), 1, "feeds that run");
        running.remove(0)
    }

    /// `resource` or `resource/namespace` of the running feeds, sorted.
    fn running_sources(&self) -> Vec<String> {
        let feeds = self.feeds();
        let running = feeds.iter().filter(|own| own.runs());
        let mut sources: Vec<_> = running.map(|own| place(&own.source)).collect();
        sources.sort();
        sources
    }

    /// The messages to the tracker since the last call, one line each.
    async fn told(&mut self) -> Vec<String> {
        moment().await;
        std::iter::from_fn(|| self.messages.try_recv().ok())
            .map(|message| line(&message))
            .collect()
    }

    /// The reports of feeds since the last call: feed, generation and content.
    async fn reported(&mut self) -> Vec<(String, u64, Option<String>)> {
        moment().await;
        std::iter::from_fn(|| self.feedback.try_recv().ok())
            .map(|own| (place(&own.source), own.generation, own.failure))
            .collect()
    }
}

fn place(source: &Source) -> String {
    match &source.namespace {
        Some(namespace) => format!("{}/{namespace}", source.target.resource),
        None => source.target.resource.clone(),
    }
}

fn line(message: &Message) -> String {
    match message {
        Message::Rules { target, book, .. } => match book {
            Some(book) => format!("rules {} of {}", book.generation, target.resource),
            None => format!("no rules of {}", target.resource),
        },
        Message::Feed {
            generation, event, ..
        } => format!("{generation}: {}", event_line(event)),
        other => panic!("a feed does not say {other:?}"),
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
                let answer = if finding.says.is_some() { "" } else { "?" };
                format!("{}{answer}", finding.operation)
            });
            let findings: Vec<_> = findings.collect();
            format!("{} [{}]", evaluation.subject.path(), findings.join(" "))
        }
    }
}

fn target(resource: &str) -> Arc<Gvr> {
    Arc::new(Gvr {
        group: "things.example".into(),
        version: "v1".into(),
        resource: resource.into(),
    })
}

/// A rule set whose operation `Working` is `expression`.
fn rule_set(target: &Gvr, namespaces: &[&str], expression: &str) -> Arc<RuleSet> {
    let spec = json!({
        "component": "tests",
        "target": target,
        "namespaces": namespaces,
        "rules": [{"operation": "Working", "expression": expression}],
    });
    let spec = serde_json::from_value(spec).expect("a rule set");
    Arc::new(rules::compile("a", &spec).expect("valid"))
}

fn book(generation: u64, target: &Gvr, rule_set: Arc<RuleSet>) -> RuleBook {
    let kind = "Thing".to_owned();
    RuleBook::new(generation, target.clone(), kind, true, vec![rule_set])
}

/// A rule book with one rule: a [`thing`] is working while its field says so.
fn working(generation: u64, target: &Gvr) -> RuleBook {
    book(generation, target, rule_set(target, &[], "object.works"))
}

fn thing(name: &str, works: impl Into<Value>) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "works": works.into(),
    })
}

fn bytes(object: &Value) -> Bytes {
    object.to_string().into()
}

fn applied(object: &Value) -> Raw {
    Raw::Applied(bytes(object))
}

#[tokio::test(start_paused = true)]
async fn rule_book_starts_a_feed_after_the_tracker_received_the_rules() {
    let mut world = world();
    let cars = target("cars");
    world.publish(&cars, Some(working(1, &cars))).await;
    assert_eq!(world.running_sources(), ["cars"]);
    world
        .running_feed()
        .list(&[thing("a", true), thing("b", false)]);
    assert_eq!(
        world.told().await,
        [
            "rules 1 of cars",
            "1: reset",
            "1: ns/a [Working]",
            "1: ns/b []",
            "1: synced"
        ]
    );
    assert_eq!(world.reported().await, [("cars".to_owned(), 1, None)]);
}

#[tokio::test(start_paused = true)]
async fn newer_rule_book_restarts_the_feed_and_the_old_feed_is_silent() {
    // The queue is so short that the old feed waits in the middle of a message during the change.
    let mut world = world_of(1);
    let cars = target("cars");
    world.publish(&cars, Some(working(1, &cars))).await;
    let old = world.running_feed();
    let many: Vec<_> = (0..10).map(|n| thing(&format!("t{n}"), true)).collect();
    old.list(&many);
    world.publish(&cars, Some(working(2, &cars))).await;
    assert!(!old.runs());
    let mut told = Vec::new();
    while !told.contains(&"rules 2 of cars".to_owned()) {
        told.push(line(&world.messages.recv().await.expect("it runs")));
    }
    moment().await;
    world.running_feed().list(&many[..1]);
    for _ in 0..3 {
        let message = world.messages.recv().await.expect("it runs");
        assert!(line(&message).starts_with("2: "), "{message:?}");
    }
    assert!(told.len() < many.len(), "it was cut off: {told:?}");
    assert_eq!(world.feeds().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn feeds_end_with_their_rules_and_others_continue() {
    let mut world = world();
    let (cars, boats) = (target("cars"), target("boats"));
    world.publish(&cars, Some(working(1, &cars))).await;
    world.publish(&boats, Some(working(2, &boats))).await;
    assert_eq!(world.running_sources(), ["boats", "cars"]);
    world.told().await;
    // The reason comes from the feed.
    world
        .metrics
        .feed_state("things.example/v1/cars", "watching");
    let shown = "ifo_feed_state{target=\"things.example/v1/cars\"";
    assert!(world.metrics.render().contains(shown));
    world.publish(&cars, None).await;
    assert_eq!(world.told().await, ["no rules of cars"]);
    assert_eq!(world.running_sources(), ["boats"]);
    assert_eq!(world.feeds().len(), 2, "nothing was started anew");
    assert!(!world.metrics.render().contains(shown), "nothing is left");
    world.publish(&cars, Some(working(3, &cars))).await;
    assert_eq!(world.running_sources(), ["boats", "cars"], "and back");
}

#[tokio::test(start_paused = true)]
async fn each_named_namespace_has_a_feed_of_its_own() {
    let mut world = world();
    let cars = target("cars");
    let named = |generation, namespaces: &[&str]| {
        let rule_set = rule_set(&cars, namespaces, "object.works");
        Some(book(generation, &cars, rule_set))
    };
    world.publish(&cars, named(1, &["x", "y"])).await;
    assert_eq!(world.running_sources(), ["cars/x", "cars/y"]);
    for feed in world.feeds() {
        feed.list(&[]);
    }
    let mut reported = world.reported().await;
    reported.sort();
    assert_eq!(
        reported,
        [
            ("cars/x".to_owned(), 1, None),
            ("cars/y".to_owned(), 1, None)
        ]
    );
    world.publish(&cars, named(2, &["y", "z"])).await;
    assert_eq!(world.running_sources(), ["cars/y", "cars/z"]);
    world.publish(&cars, named(3, &[])).await;
    assert_eq!(world.running_sources(), ["cars"]);
}

#[tokio::test(start_paused = true)]
async fn failing_feed_is_reported_with_its_error_until_it_recovers() {
    let mut world = world();
    let cars = target("cars");
    world.publish(&cars, Some(working(7, &cars))).await;
    let feed = world.running_feed();
    let message = "may not list cars".to_owned();
    feed.say(Raw::Lost(GapReason::Forbidden { message }));
    let mut reported = world.reported().await;
    let (feed_name, generation, failure) = reported.remove(0);
    assert_eq!((&*feed_name, generation, reported.len()), ("cars", 7, 0));
    let failure = failure.expect("it fails");
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
    assert_eq!(world.reported().await, [("cars".to_owned(), 7, None)]);
    // A gap without missed changes.
    feed.say(Raw::Lost(GapReason::Unreachable("reset by peer".into())));
    feed.say(Raw::Synced);
    let failure = Some("unreachable: reset by peer".to_owned());
    let reported = world.reported().await;
    assert_eq!(reported[0], ("cars".to_owned(), 7, failure));
    assert_eq!(reported[1], ("cars".to_owned(), 7, None));
    assert_eq!(
        world.told().await,
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
    let mut world = world();
    let cars = target("cars");
    world.publish(&cars, Some(working(1, &cars))).await;
    let feed = world.running_feed();
    feed.list(&[]);
    world.told().await;
    for works in [false, true, true, false, false] {
        feed.say(applied(&thing("a", works)));
    }
    feed.say(Raw::Deleted(bytes(&thing("a", false))));
    assert_eq!(
        world.told().await,
        [
            "1: ns/a [Working]",
            "1: ns/a [Working]",
            "1: ns/a []",
            "1: ns/a is gone"
        ]
    );
    // After a restart, a feed reports all existing objects. An object that is missing was deleted.
    feed.say(applied(&thing("b", true)));
    feed.list(&[thing("b", false)]);
    assert_eq!(
        world.told().await,
        ["1: ns/b [Working]", "1: reset", "1: ns/b []", "1: synced"]
    );
}

#[tokio::test(start_paused = true)]
async fn object_that_cannot_be_evaluated_is_failed_and_not_deleted() {
    let mut world = world();
    let cars = target("cars");
    let book = working(1, &cars);
    let rule_set = book.rule_sets[0].clone();
    world.publish(&cars, Some(book)).await;
    let feed = world.running_feed();
    feed.list(&[thing("typed", "as a text")]);
    feed.say(applied(&json!({"metadata": {"namespace": "ns"}})));
    feed.say(Raw::Applied(Bytes::from_static(b"\xffnonsense")));
    feed.say(Raw::Deleted(Bytes::from_static(b"{")));
    feed.say(applied(&thing("b", true)));
    assert_eq!(
        world.told().await,
        [
            "rules 1 of cars",
            "1: reset",
            "1: ns/typed [Working?]",
            "1: synced",
            "1: ns/b [Working]"
        ]
    );
    let failure = rule_set.activity.last_failure().expect("it failed");
    assert_eq!(
        format!("{}: {}", failure.what, failure.error),
        "rules[Working].expression: expected type 'bool' but found 'string'"
    );
    assert_eq!(world.running_sources(), ["cars"], "it goes on");
}

#[tokio::test(start_paused = true)]
async fn time_dependent_rules_are_evaluated_again_without_a_change() {
    let mut world = world();
    let cars = target("cars");
    let long_ago = "object.works && now > timestamp('2000-01-01T00:00:00Z')";
    let timed = book(1, &cars, rule_set(&cars, &[], long_ago));
    world.publish(&cars, Some(timed)).await;
    let feed = world.running_feed();
    // `works` is false, so `now` is not read.
    feed.list(&[thing("timed", true), thing("other", false)]);
    world.told().await;
    for _ in 0..3 {
        tokio::time::sleep(RESYNC).await;
        assert_eq!(world.told().await, ["1: ns/timed [Working]"]);
    }
    feed.say(Raw::Deleted(bytes(&thing("timed", true))));
    assert_eq!(world.told().await, ["1: ns/timed is gone"]);
    tokio::time::sleep(RESYNC * 3).await;
    assert!(world.told().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn closing_the_rule_book_channel_ends_all_feeds() {
    let world = world();
    let (cars, boats) = (target("cars"), target("boats"));
    world.publish(&cars, Some(working(1, &cars))).await;
    world.publish(&boats, Some(working(2, &boats))).await;
    let feeds = world.feeds();
    assert!(feeds.iter().all(|feed| feed.runs()));
    drop(world.publications);
    world.running.await.expect("it ends without a panic");
    moment().await;
    assert!(feeds.iter().all(|feed| !feed.runs()));
}

#[tokio::test(start_paused = true)]
async fn a_detection_carries_the_time_of_the_subjects_change() {
    let mut world = world();
    let target = target("things");
    world.publish(&target, Some(working(1, &target))).await;
    let feed = world.running_feed();
    let at = |works: bool, second: u8| {
        let mut object = thing("a", works);
        let time = format!("2026-11-21T10:00:{second:02}Z");
        object["metadata"]["managedFields"] = json!([{"manager": "m", "time": time}]);
        object
    };
    feed.list(&[at(false, 1)]);
    world.told().await;
    let mut managed = async |object: Value| {
        feed.say(applied(&object));
        moment().await;
        let message = world.messages.try_recv().expect("it is told");
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
    assert_eq!(managed(at(true, 2)).await, Some(2), "it starts");
    assert_eq!(managed(at(true, 3)).await, None, "it goes on");
    assert_eq!(managed(at(false, 4)).await, Some(4), "it stops");
    assert_eq!(managed(at(true, 5)).await, Some(5), "it starts again");
    assert_eq!(managed(thing("b", true)).await, None, "nobody knows");
}

/// The number of objects with an unknown detection, and true if a feed throttles the rule set.
fn unknown(rule_set: &RuleSet) -> (usize, bool) {
    let activity = &rule_set.activity;
    let unknown = activity.unknown_on(rules::ObjectScope::ALL);
    (unknown.objects, activity.is_throttled())
}

#[tokio::test(start_paused = true)]
async fn unknown_detections_are_counted_until_the_object_is_evaluated_or_deleted() {
    let world = world();
    let cars = target("cars");
    let rules = rule_set(&cars, &[], "object.works > 1");
    world
        .publish(&cars, Some(book(1, &cars, rules.clone())))
        .await;
    let feed = world.running_feed();
    feed.list(&[
        thing("a", "text"),
        thing("b", 2),
        thing("c", "text"),
        thing("d", "text"),
    ]);
    moment().await;
    assert_eq!(unknown(&rules), (3, false));
    // A repeated failure is about the same object.
    feed.say(applied(&thing("a", "other")));
    moment().await;
    assert_eq!(unknown(&rules), (3, false));
    feed.say(applied(&thing("a", 1)));
    feed.say(Raw::Deleted(bytes(&thing("c", "text"))));
    moment().await;
    assert_eq!(unknown(&rules), (1, false));
    // A new list replaces the state when it is complete.
    feed.say(Raw::Lost(GapReason::Unreachable("x".into())));
    feed.say(Raw::Reset);
    moment().await;
    assert_eq!(unknown(&rules), (1, false));
    feed.say(applied(&thing("b", 2)));
    feed.say(Raw::Synced);
    moment().await;
    assert_eq!(unknown(&rules), (0, false));
}

#[tokio::test(start_paused = true)]
async fn ending_a_feed_removes_its_unknown_detections() {
    let world = world();
    let cars = target("cars");
    let rules = rule_set(&cars, &[], "object.works > 1");
    world
        .publish(&cars, Some(book(1, &cars, rules.clone())))
        .await;
    world.running_feed().list(&[thing("a", "text")]);
    moment().await;
    assert_eq!(unknown(&rules), (1, false));
    // Another rule set of the target has changed. This one is the same in both rule books.
    world
        .publish(&cars, Some(book(2, &cars, rules.clone())))
        .await;
    assert_eq!(unknown(&rules), (0, false));
    world.running_feed().list(&[thing("a", "text")]);
    moment().await;
    assert_eq!(unknown(&rules), (1, false));
    world.publish(&cars, None).await;
    assert_eq!(unknown(&rules), (0, false));
}
