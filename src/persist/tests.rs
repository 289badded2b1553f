//! Tests of persistence mode, in which the leader writes the operations of the index as custom
//! resources. The tests use a fake cluster and tokio's paused clock.

use super::table::WRITES_PER_ROUND;
use super::*;
use crate::index::{Bounds, Key, VersionAssignment, Write, Writer, index};
use fake_cluster::FakeCluster;
use ifo_api::live::Phase;
use ifo_api::persisted::InFlightOperation;
use ifo_api::testing;
use serde_json::json;
use uuid::Uuid;

mod corrections;
pub mod fake_cluster;

fn operation(name: &str, phase: &str) -> Write {
    let uid = Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes());
    let (state, completed) = match phase {
        "Active" => ("Progressing", None),
        _ => ("Ended", Some("2026-01-02T03:04:05Z")),
    };
    let key = key(name);
    let object = testing::object(&json!({
        "metadata": {"name": key.name, "uid": uid, "generation": 1},
        "spec": {"subject": {"name": name, "namespace": "default"}},
        "status": {"phase": phase, "state": state, "completed": completed},
    }));
    Write::Put { key, object }
}

fn key(name: &str) -> Key {
    Key::new("default", format!("{name}-migrating-0123456789abcdef"))
}

fn delete(name: &str) -> Write {
    Write::Delete { key: key(name) }
}

/// An index and a fake cluster. A test starts one or more leaders, which write the operations of
/// the index to the cluster.
struct PersistFixture {
    writer: Writer,
    reader: IndexReader,
    fake: FakeCluster,
    unsynced_rule_sets: watch::Sender<Option<Arc<UnsyncedRuleSets>>>,
    is_restored: watch::Sender<bool>,
    retain: bool,
}

struct RunningLeader {
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
    verdict: watch::Receiver<Option<PersistVerdict>>,
    metrics: Arc<Metrics>,
}

impl RunningLeader {
    /// Returns the number of writes in the metrics of this leader.
    fn counted_writes(&self) -> usize {
        let text = self.metrics.render();
        let counts = text
            .lines()
            .filter(|line| line.starts_with("ifo_persistence_writes_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        counts.sum()
    }
}

impl PersistFixture {
    fn new(retain: bool) -> Self {
        let bounds = Bounds {
            bytes: 4 << 10,
            age: Duration::from_mins(5),
        };
        let (writer, reader) = index(bounds);
        Self {
            writer,
            reader,
            fake: FakeCluster::default(),
            is_restored: watch::Sender::new(true),
            unsynced_rule_sets: watch::Sender::new(Some(Arc::default())),
            retain,
        }
    }

    fn start_leader(&self) -> RunningLeader {
        let stop = CancellationToken::new();
        let (sender, verdict) = watch::channel(None);
        let metrics = Arc::new(Metrics::new());
        let persist = Persist {
            reader: self.reader.clone(),
            store: Arc::new(self.fake.clone()),
            settings: PersistSettings {
                resync: Duration::from_secs(30),
                settling: Duration::from_mins(1),
                requeue: Duration::from_mins(1),
                retain: self.retain,
            },
            metrics: metrics.clone(),
            unsynced_rule_sets: self.unsynced_rule_sets.subscribe(),
            is_restored: self.is_restored.subscribe(),
            stop: stop.clone(),
            verdict: sender,
        };
        RunningLeader {
            task: tokio::spawn(persist.run()),
            stop,
            verdict,
            metrics,
        }
    }

    fn commit(&mut self, writes: impl IntoIterator<Item = Write>) {
        let batch: Vec<Write> = writes.into_iter().collect();
        self.writer.commit(batch, VersionAssignment::Mint).unwrap();
    }

    async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn changes(&self) -> usize {
        self.fake.lock().changes.len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_only_the_changes_that_happened_without_a_server() {
    let mut fixture = PersistFixture::new(false);
    let previous = fixture.start_leader();
    for number in 0..5 {
        fixture.commit([operation(&format!("vm-{number}"), "Active")]);
    }
    fixture.sleep(2).await;
    previous.task.abort();
    // Two operations end and one starts while no leader is running. So the next leader needs three
    // writes: two deletions and one creation.
    fixture.commit([delete("vm-0"), delete("vm-1"), operation("vm-5", "Active")]);
    let before = fixture.changes();
    let _next = fixture.start_leader();
    fixture.sleep(60).await;
    let names: Vec<String> = fixture.fake.phases().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["vm-2", "vm-3", "vm-4", "vm-5"]);
    assert_eq!(fixture.changes() - before, 3);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_of_other_clients_are_not_changed() {
    let mut fixture = PersistFixture::new(false);
    let foreign = InFlightOperation::new(
        "foreign",
        ifo_api::persisted::InFlightOperationSpec {
            live: testing::operation(&json!({})).spec,
        },
    );
    fixture.fake.lock().create(&foreign);
    let _running = fixture.start_leader();
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(2).await;
    fixture.commit([delete("a")]);
    fixture.sleep(1300).await;
    assert_eq!(fixture.fake.lock().objects.len(), 1);
}

/// Returns a copy of `write` whose object `change` has changed.
fn changed(write: &Write, change: impl Fn(&mut serde_json::Value)) -> Write {
    let Write::Put { key, object } = write else {
        panic!("the write must be a put");
    };
    let mut object = json!(**object.operation().unwrap());
    change(&mut object);
    Write::Put {
        key: key.clone(),
        object: testing::object(&object),
    }
}

/// Returns a copy of `write` whose object has these fields in its status.
fn with_status(write: &Write, members: &serde_json::Value) -> Write {
    changed(write, |object| {
        for (name, value) in members.as_object().unwrap() {
            object["status"][name] = value.clone();
        }
    })
}

/// Returns a copy of `write` whose object has `labels` in place of its own labels.
fn with_labels(write: &Write, labels: &serde_json::Value) -> Write {
    changed(write, |object| {
        object["metadata"]["labels"].clone_from(labels);
    })
}

fn status(cr: &InFlightOperation) -> &ifo_api::live::Status {
    &cr.status.as_ref().unwrap().live
}

impl PersistFixture {
    /// Returns the verbs of all writes so far, including failed writes.
    fn verbs(&self) -> Vec<String> {
        let cluster = self.fake.lock();
        let verbs = cluster.requests.iter();
        verbs
            .map(|it| it.split(' ').next().unwrap().to_owned())
            .collect()
    }

    /// Sets the time that later requests need to reach the cluster.
    fn set_latency(&self, seconds: f64) {
        self.fake.lock().latency = Some(Duration::from_secs_f64(seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_created_changed_and_deleted_without_a_read() {
    let mut fixture = PersistFixture::new(true);
    let _running = fixture.start_leader();
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(100).await;
    fixture.commit([operation("a", "Completed")]);
    fixture.sleep(100).await;
    assert_eq!(fixture.verbs(), ["create", "change"]);
    fixture.commit([delete("a")]);
    fixture.sleep(2).await;
    assert_eq!(fixture.verbs(), ["create", "change", "delete"]);
    assert_eq!(fixture.fake.phases(), []);
}

#[tokio::test(start_paused = true)]
async fn a_late_change_of_a_previous_leader_has_no_effect() {
    let mut fixture = PersistFixture::new(true);
    let previous = fixture.start_leader();
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(2).await;
    fixture.set_latency(30.0);
    fixture.commit([operation("a", "Completed")]);
    fixture.sleep(2).await;
    previous.task.abort();
    // In the index of the next leader, the operation is still active, because the next leader has
    // not seen the end of the operation.
    fixture.set_latency(0.005);
    let message = json!({"message": "of the next leader"});
    fixture.commit([with_status(&operation("a", "Active"), &message)]);
    let _next = fixture.start_leader();
    fixture.sleep(60).await;
    assert_eq!(fixture.verbs(), ["create", "change", "change"]);
    assert_eq!(fixture.changes(), 2);
    assert_eq!(status(&fixture.fake.only()).message, "of the next leader");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_ignores_the_labels_of_other_clients() {
    let mut fixture = PersistFixture::new(true);
    let running = fixture.start_leader();
    let ours = |value: &str| with_labels(&operation("a", "Active"), &json!({"ours": value}));
    fixture.commit([ours("1")]);
    fixture.sleep(2).await;
    fixture.fake.lock().edit(|cr| {
        let labels = cr.metadata.labels.get_or_insert_default();
        labels.insert("team".to_owned(), "a".to_owned());
    });
    fixture.commit([ours("2")]);
    fixture.sleep(60).await;
    let want = json!({"ours": "2", "team": "a"});
    assert_eq!(json!(fixture.fake.only().metadata.labels), want);
    // The next leader writes nothing, because it ignores the labels of other clients when it
    // compares the custom resource with the index.
    let requests = fixture.verbs();
    running.task.abort();
    let _next = fixture.start_leader();
    fixture.sleep(3_000).await;
    assert_eq!(fixture.verbs(), requests);
}

#[tokio::test(start_paused = true)]
async fn a_round_sends_four_writes_at_a_time_and_none_after_a_failure_of_the_cluster() {
    let mut fixture = PersistFixture::new(true);
    let _running = fixture.start_leader();
    fixture.sleep(1).await;
    fixture.set_latency(1.0);
    let writes = (0..20).map(|number| operation(&format!("vm-{number:02}"), "Active"));
    fixture.commit(writes);
    for answered in 1..4 {
        fixture.sleep(1).await;
        assert_eq!(fixture.verbs().len(), 4 * answered);
    }
    fixture
        .fake
        .set_failure(Some(StoreFailure::Unreachable("away".into())));
    // The writes that the leader has already sent fail. While the watch is interrupted, the leader
    // writes nothing.
    let sent = fixture.verbs().len();
    fixture.sleep(5).await;
    let more = fixture.verbs().len() - sent;
    assert!(more <= 4, "{more}");
    fixture.fake.set_failure(None);
    fixture.sleep(60).await;
    assert_eq!(fixture.fake.phases().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_sent_writes_and_leaves_the_others_to_the_next_leader() {
    // With a latency of 10 ms, the cluster answers all writes that the rate limit allows. With a
    // latency of 30 s, the time limit of the stop (500 ms) ends before the cluster answers.
    for (latency, is_answered) in [(0.01, true), (30.0, false)] {
        let mut fixture = PersistFixture::new(true);
        let leader = fixture.start_leader();
        fixture.sleep(3).await;
        fixture.set_latency(latency);
        for number in 0..200 {
            fixture.commit([operation(&format!("vm-{number}"), "Active")]);
        }
        tokio::task::yield_now().await;
        let start = Instant::now();
        leader.stop.cancel();
        leader.task.await.unwrap();
        let sent = fixture.verbs().len();
        assert!((1..200).contains(&sent), "{sent}");
        assert_eq!(fixture.changes(), if is_answered { sent } else { 0 });
        assert_eq!(start.elapsed() < STOP_LIMIT, is_answered);
        assert!(start.elapsed() <= STOP_LIMIT);
        let metrics = leader.metrics.render();
        assert!(
            metrics.contains("ifo_persistence_queue_length{} 0"),
            "{metrics}"
        );

        fixture.set_latency(0.005);
        let next = fixture.start_leader();
        fixture.sleep(60).await;
        assert_eq!(fixture.changes(), 200);
        assert_eq!(
            next.counted_writes() + if is_answered { sent } else { 0 },
            200
        );
    }
}
