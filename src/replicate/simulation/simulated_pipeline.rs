//! The simulated pipeline of a leader: it watches simulated subjects (the objects that operations
//! are about) and detects operations. The pipeline uses the real tracker, which turns detections
//! into operations. It also uses the real persistence, which writes operations to custom resources.

use super::invariants::Invariants;
use crate::clock;
use crate::index::{IndexReader, Writer};
use crate::persist::fake_cluster::FakeCluster;
use crate::persist::{self, Persist, Store};
use crate::replicate::{Leadership, Pipeline};
use crate::takeover;
use crate::telemetry::Metrics;
use crate::tracker_task::{self, ActivityWriter};
use aggregated_apiserver::serve::Readiness;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::completeness::Gaps;
use ifo_api::{Gvr, Source};
use ifo_engine::detect::{Detector, FeedEvent};
use ifo_engine::rules::{RuleBook, compile};
use ifo_engine::track::{InitialState, Message, Publication, Retention, Tracker, TrackerSettings};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The namespace of all subjects.
pub const NAMESPACE: &str = "ns";

/// The debounce period: an operation ends when it has not been detected for this time.
pub const DEBOUNCE: Duration = Duration::from_secs(2);

/// All subjects in the simulated cluster. Clones share them.
#[derive(Clone, Default)]
pub struct Subjects(Arc<Mutex<SubjectsState>>);

#[derive(Default)]
struct SubjectsState {
    objects: BTreeMap<String, Value>,
    /// All changes so far: the changed object, and true if the change is its deletion.
    changes: Vec<(Value, bool)>,
    changed: watch::Sender<usize>,
    uids: u32,
}

impl Subjects {
    /// Creates, changes or deletes one subject at random.
    pub fn change(&self, random: &mut fastrand::Rng) {
        let mut state = self.0.lock().expect("no lock holder panics");
        let number = random.u32(0..8);
        let name = format!("vm-{number}");
        let before = state.objects.get(&name).cloned();
        let is_deleted = before.is_some() && random.u8(..) < 25;
        let object = match before {
            Some(object) if is_deleted => object,
            Some(mut object) => {
                let is_migrating = object["phase"] == "Migrating";
                if is_migrating && random.bool() {
                    object["percent"] = random.u32(0..100).into();
                } else {
                    object["phase"] = if is_migrating { "Running" } else { "Migrating" }.into();
                    // Only subjects with an even number get the field `began`, the start time of
                    // the operation.
                    if !is_migrating && number.is_multiple_of(2) {
                        object["began"] = clock::now().to_string().into();
                    }
                }
                object
            }
            None => {
                state.uids += 1;
                let uid = format!("uid-{}", state.uids);
                json!({
                    "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid},
                    "phase": "Running", "percent": 0,
                })
            }
        };
        if is_deleted {
            state.objects.remove(&name);
        } else {
            state.objects.insert(name, object.clone());
        }
        state.changes.push((object, is_deleted));
        let count = state.changes.len();
        state.changed.send_replace(count);
    }

    /// Returns the names of the subjects that have an operation in flight.
    pub fn in_flight(&self) -> Vec<String> {
        let state = self.0.lock().expect("no lock holder panics");
        let objects = state.objects.iter();
        let migrating = objects.filter(|(_, object)| object["phase"] == "Migrating");
        migrating.map(|(name, _)| name.clone()).collect()
    }

    /// Returns a receiver for the number of changes so far.
    fn changed(&self) -> watch::Receiver<usize> {
        let state = self.0.lock().expect("no lock holder panics");
        state.changed.subscribe()
    }

    /// Returns the number of changes so far, and all objects.
    fn list(&self) -> (usize, Vec<Value>) {
        let state = self.0.lock().expect("no lock holder panics");
        (
            state.changes.len(),
            state.objects.values().cloned().collect(),
        )
    }

    fn changes_after(&self, count: usize) -> Vec<(Value, bool)> {
        let state = self.0.lock().expect("no lock holder panics");
        state.changes[count..].to_vec()
    }
}

/// The pipeline of a simulated replica. The pipeline watches the simulated subjects, and runs the
/// real tracker and the real persistence.
pub struct SimulatedPipeline {
    pub operations: IndexReader,
    pub subjects: Subjects,
    pub invariants: Invariants,
    pub readiness: Arc<Readiness>,
    pub retention: Option<Retention>,
    /// The custom resources. None if persistence mode is off.
    pub store: Option<FakeCluster>,
    pub metrics: Arc<Metrics>,
    pub random: fastrand::Rng,
}

impl Pipeline for SimulatedPipeline {
    async fn run(
        &mut self,
        writer: &mut Writer,
        leadership: &Leadership,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        self.invariants.record_term(leadership);
        let (sender, messages) = mpsc::channel(tracker_task::QUEUE_CAPACITY);
        let unsynced_rule_sets = watch::Sender::new(None);
        let ending = CancellationToken::new();
        let mut persistence = self.persist(unsynced_rule_sets.subscribe(), &ending);
        let feed = SimulatedFeed {
            operations: self.operations.clone(),
            subjects: self.subjects.clone(),
            store: self.store.clone(),
            readiness: self.readiness.clone(),
            random: self.random.fork(),
            messages: sender,
        };
        let settings = TrackerSettings {
            debounce: DEBOUNCE,
            retain: self.retention,
            max_records: 50,
            cluster_namespace: "ifo-system".into(),
        };
        let tracker = Tracker::new(settings, self.metrics.clone());
        let metrics = self.metrics.clone();
        let activity = ActivityWriter::new("ifo-system".into(), &self.operations);
        let ended = tokio::select! {
            biased;
            () = leadership.lost() => None,
            () = stop.cancelled() => None,
            _ = tracker_task::run(tracker, writer, leadership, messages, activity, metrics) => None,
            () = feed.run(unsynced_rule_sets) => Some("feed"),
            () = &mut persistence => Some("persistence"),
        };
        if leadership.is_valid() {
            ending.cancel();
            persistence.await;
        }
        ended
    }
}

impl SimulatedPipeline {
    /// Returns the task of persistence mode, which runs until `stop` is cancelled.
    fn persist(
        &self,
        unsynced_rule_sets: watch::Receiver<Option<Arc<persist::UnsyncedRuleSets>>>,
        stop: &CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let stop = stop.clone();
        let Some(store) = self.store.clone() else {
            return async move { stop.cancelled().await }.boxed();
        };
        let persist = Persist {
            reader: self.operations.clone(),
            store: Arc::new(store),
            settings: persist::PersistSettings {
                resync: Duration::from_secs(30),
                settling: DEBOUNCE + Duration::from_secs(30),
                requeue: Duration::from_secs(10),
                retain: self.retention.is_some(),
            },
            metrics: self.metrics.clone(),
            unsynced_rule_sets,
            is_restored: watch::channel(true).1,
            stop,
            verdict: watch::Sender::new(None),
        };
        persist.run().boxed()
    }
}

/// The watch of the simulated subjects. It detects operations during one leadership term (the time
/// for which one leader holds the Lease).
struct SimulatedFeed {
    operations: IndexReader,
    subjects: Subjects,
    store: Option<FakeCluster>,
    readiness: Arc<Readiness>,
    random: fastrand::Rng,
    messages: mpsc::Sender<Message>,
}

impl SimulatedFeed {
    async fn run(
        mut self,
        unsynced_rule_sets: watch::Sender<Option<Arc<persist::UnsyncedRuleSets>>>,
    ) {
        let state = self.initial_state().await;
        self.send(Message::Resume(Box::new(state))).await;
        let target = Arc::new(Gvr {
            group: "example.com".into(),
            version: "v1".into(),
            resource: "machines".into(),
        });
        let book = Arc::new(book(&target));
        self.random_delay(500).await;
        self.send(Message::Rules(Publication {
            target: target.clone(),
            book: Some(book.clone()),
            removed: false,
        }))
        .await;
        let source = Source {
            target,
            namespace: None,
        };
        let mut detector = Detector::new(book, Arc::new(()));
        let mut changed = self.subjects.changed();
        let mut has_synced = false;
        loop {
            let mut known = self.relist(&source, &mut detector).await;
            if !has_synced {
                has_synced = true;
                self.send(Message::AllRuleBooksSent(Arc::default())).await;
                let (done, flushed) = oneshot::channel();
                self.send(Message::Flush(done)).await;
                // This wait fails only if the tracker has ended. Then this task ends, too.
                let _ = flushed.await;
                self.readiness.set_synced();
                unsynced_rule_sets.send_replace(Some(Arc::default()));
                let gaps = Gaps {
                    rule_sets_are_read: true,
                    total: 1,
                    ..Gaps::default()
                };
                self.send(Message::Gaps(gaps)).await;
            }
            while self.random.u8(..) > 2 {
                // This wait cannot fail, because `self.subjects` contains the sender.
                let _ = changed.wait_for(|&count| count > known).await;
                for (object, is_deleted) in self.subjects.changes_after(known) {
                    known += 1;
                    self.random_delay(300).await;
                    let event = if is_deleted {
                        Some(deleted(&mut detector, &object))
                    } else {
                        applied(&mut detector, &object)
                    };
                    self.feed(&source, event).await;
                }
            }
            // Simulates an interruption of the watch.
            self.feed(&source, Some(FeedEvent::Lost)).await;
            self.random_delay(3_000).await;
        }
    }

    /// Lists all subjects, and sends them to the tracker. Returns the number of changes before the
    /// list.
    async fn relist(&mut self, source: &Source, detector: &mut Detector) -> usize {
        self.feed(source, Some(detector.reset())).await;
        self.random_delay(500).await;
        let (known, objects) = self.subjects.list();
        for object in objects {
            self.feed(source, applied(detector, &object)).await;
            if self.random.bool() {
                self.random_delay(50).await;
            }
        }
        self.feed(source, Some(detector.synced().0)).await;
        known
    }

    /// Reads the operations that a new leader takes over, as the real server does.
    async fn initial_state(&self) -> InitialState {
        let store = self.store.as_ref().map(|store| store as &dyn Store);
        let namespaces = [(NAMESPACE.into(), Timestamp::UNIX_EPOCH)].into();
        let namespaces = watch::channel(Some(Arc::new(namespaces))).1;
        let reader = &self.operations;
        let taken = takeover::take_over(store, reader, "ifo-system".into(), namespaces);
        taken.await.0
    }

    async fn random_delay(&mut self, longest_ms: u64) {
        sleep(Duration::from_millis(self.random.u64(0..=longest_ms))).await;
    }

    async fn feed(&self, source: &Source, event: Option<FeedEvent>) {
        let Some(event) = event else { return };
        self.send(Message::Feed {
            source: source.clone(),
            generation: 1,
            event,
        })
        .await;
    }

    /// Sends a message to the tracker. Never completes if the tracker has ended.
    async fn send(&self, message: Message) {
        if self.messages.send(message).await.is_err() {
            pending::<()>().await;
        }
    }
}

fn book(target: &Gvr) -> RuleBook {
    let spec = json!({
        "component": "machines",
        "target": target,
        "rules": [{
            "operation": "Migrating",
            "expression": "object.phase == 'Migrating'",
            "startedAt": "object.began",
            "progress": "object.percent",
        }],
    });
    let spec = serde_json::from_value(spec).expect("the JSON has the fields of a rule set");
    let rule_set = Arc::new(compile("machine-rules", &spec).expect("the rules are valid"));
    RuleBook::new(1, target.clone(), "Machine".into(), true, vec![rule_set])
}

fn applied(detector: &mut Detector, object: &Value) -> Option<FeedEvent> {
    let found = detector.applied(object.to_string().as_bytes(), clock::reading());
    found.expect("the object has a name").into_event()
}

fn deleted(detector: &mut Detector, object: &Value) -> FeedEvent {
    let deleted = detector.deleted(object.to_string().as_bytes(), clock::reading());
    deleted.expect("the object has a name").0
}
