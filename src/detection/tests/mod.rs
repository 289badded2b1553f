//! Tests of the [`Supervisor`], which starts a task for each feed (the watch of a resource). The
//! feeds are simulated. The tests read the messages to the tracker, which turns detections into
//! operations, and the reports on the feeds.

mod interruptions;
pub(crate) mod pipeline;
mod recording;
mod replay;
mod slow_rules;
mod supervisor;

use super::*;
use crate::rules::Feedback;
use crate::telemetry::Metrics;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use ifo_engine::detect::FeedEvent;
use ifo_engine::rules::{self, EvaluationTime, RuleSet};
use ifo_observe::{Feed, Raw};
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::task::JoinHandle;

/// The time between two evaluations of objects whose rules read `now`.
const RESYNC: Duration = Duration::from_mins(1);

/// The tests wait for this time, so that all tasks finish their work. Tokio's clock is paused, so
/// the time passes only while all tasks wait. The time is shorter than [`RESYNC`], so that the wait
/// itself causes no evaluation.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// A feed that was started, and the sender of its steps.
struct FollowedFeed {
    source: Source,
    steps: mpsc::UnboundedSender<Step>,
}

/// One step of a simulated feed.
enum Step {
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

    fn send(&self, raw: Raw) {
        self.step(Step::Event(raw));
    }

    fn step(&self, step: Step) {
        let sent = self.steps.send(step);
        assert!(sent.is_ok(), "the feed was not stopped");
    }

    /// Sends a complete list of these objects.
    fn list(&self, objects: &[Value]) {
        self.send(Raw::Reset);
        for object in objects {
            self.send(applied(object));
        }
        self.send(Raw::Synced);
    }
}

#[derive(Default)]
struct FakeFeed(Mutex<Vec<Arc<FollowedFeed>>>);

impl FakeFeed {
    /// Returns the only running feed.
    fn running(&self) -> Arc<FollowedFeed> {
        let all = self.0.lock().unwrap().clone();
        let mut running: Vec<_> = all.into_iter().filter(|own| own.is_running()).collect();
        assert_eq!(running.len(), 1, "exactly one feed must run");
        running.remove(0)
    }
}

impl Feed for FakeFeed {
    fn follow(&self, source: Source, _: Option<&str>) -> BoxStream<'static, Raw> {
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

struct SupervisorFixture {
    feed: Arc<FakeFeed>,
    publications: mpsc::Sender<Publication>,
    messages: mpsc::Receiver<Message>,
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
fn supervisor_with(queue: usize, time: EvaluationTime) -> SupervisorFixture {
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

async fn wait_until_idle() {
    tokio::time::sleep(IDLE_TIME).await;
}

impl SupervisorFixture {
    async fn publish(&self, target: &Arc<Gvr>, book: Option<RuleBook>) {
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
    fn feeds(&self) -> Vec<Arc<FollowedFeed>> {
        self.feed.0.lock().unwrap().clone()
    }

    /// Returns the only running feed.
    fn running_feed(&self) -> Arc<FollowedFeed> {
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
    async fn receive_messages(&mut self) {
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
    async fn sent_messages(&mut self) -> Vec<String> {
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
        Message::Rules(Publication { target, book, .. }) => match book {
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

fn target(resource: &str) -> Arc<Gvr> {
    Arc::new(Gvr {
        group: "things.example".into(),
        version: "v1".into(),
        resource: resource.into(),
    })
}

/// Returns a rule set that detects the operation `Working` if `expression` is true.
fn rule_set(target: &Gvr, namespaces: &[&str], expression: &str) -> Arc<RuleSet> {
    let rule = json!({"operation": "Working", "expression": expression});
    rule_set_of(target, namespaces, &rule)
}

/// Returns a rule set with one rule.
fn rule_set_of(target: &Gvr, namespaces: &[&str], rule: &Value) -> Arc<RuleSet> {
    let spec = json!({
        "component": "tests", "target": target, "namespaces": namespaces, "rules": [rule],
    });
    let spec = serde_json::from_value(spec).expect("the JSON has the fields of a rule set");
    Arc::new(rules::compile("a", &spec).expect("the rules are valid"))
}

fn book(generation: u64, target: &Gvr, rule_set: Arc<RuleSet>) -> RuleBook {
    let kind = "Thing".to_owned();
    RuleBook::new(generation, target.clone(), kind, true, vec![rule_set])
}

/// Returns a rule book with one rule. The rule detects the operation `Working` on a [`thing`] whose
/// field `works` is true.
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
