//! Tests of the whole module with a cluster in memory, under virtual time.

use super::*;
use crate::index::{Bounds, Key, VersionAssignment, Write, Writer, index};
use crate::telemetry::Metrics;
use fake::Fake;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;
use uuid::Uuid;

pub mod fake;

fn operation(name: &str, phase: &str) -> Write {
    let uid = Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes());
    let object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {
            "name": format!("{name}-migrating-01234567"), "namespace": "default",
            "uid": uid, "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 1,
        },
        "spec": {
            "operation": "Migrating", "ruleSet": "rules", "component": "kubevirt",
            "subject": {
                "apiVersion": "v1", "kind": "VM", "name": name, "namespace": "default",
            },
        },
        "status": {
            "phase": phase, "state": if phase == "Active" { "Progressing" } else { "Ended" },
            "reason": "Migrating", "startTimeSource": "Detected",
            "lastDetected": "2026-01-02T03:04:05Z", "conditions": [],
        },
    });
    let mut object = object;
    if phase == "Completed" {
        // The current time, because the retention is one day.
        object["status"]["completed"] = json!("2026-01-02T03:04:05Z");
    }
    Write::Put {
        key: key(name),
        json: serde_json::to_vec(&object).unwrap(),
    }
}

fn key(name: &str) -> Key {
    Key::new("default", format!("{name}-migrating-01234567"))
}

fn delete(name: &str) -> Write {
    Write::Delete { key: key(name) }
}

/// An index, and writers that follow it.
struct Bench {
    writer: Writer,
    reader: IndexReader,
    fake: Fake,
    settled: watch::Sender<Option<Arc<UnreadRuleSets>>>,
    retain: bool,
}

struct Running {
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
    verdict: watch::Receiver<PersistVerdict>,
    metrics: Arc<Metrics>,
}

impl Running {
    /// Number of writes that it has counted.
    fn counted(&self) -> usize {
        let text = self.metrics.render();
        let counts = text
            .lines()
            .filter(|line| line.starts_with("ifo_persistence_writes_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        counts.sum()
    }
}

impl Bench {
    fn new(retain: bool) -> Self {
        let bounds = Bounds {
            bytes: 4 << 10,
            age: Duration::from_mins(5),
        };
        let (writer, reader) = index(bounds);
        let fake = Fake::default();
        fake.lock().namespaces = BTreeMap::from([
            ("another".to_owned(), Timestamp::UNIX_EPOCH),
            ("default".to_owned(), Timestamp::UNIX_EPOCH),
        ]);
        Self {
            writer,
            reader,
            fake,
            settled: watch::Sender::new(Some(Arc::default())),
            retain,
        }
    }

    fn run(&self) -> Running {
        self.run_until(AtStop::WriteAll)
    }

    fn run_until(&self, at_stop: AtStop) -> Running {
        let stop = CancellationToken::new();
        let (sender, verdict) = watch::channel(PersistVerdict::Unknown);
        let metrics = Arc::new(Metrics::new());
        let persist = Persist {
            reader: self.reader.clone(),
            store: Arc::new(self.fake.clone()),
            settings: PersistSettings {
                resync: Duration::from_secs(30),
                settling: Duration::from_mins(1),
                requeue: Duration::from_mins(1),
                retain: self.retain,
                retain_for: Duration::from_hours(24),
                retain_max: 100,
            },
            metrics: metrics.persistence(),
            settled: self.settled.subscribe(),
            stop: stop.clone(),
            at_stop,
            verdict: sender,
        };
        Running {
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

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn changes(&self) -> usize {
        self.fake.lock().changes.len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_rewrites_nothing_and_completes_ended_operations() {
    let mut bench = Bench::new(false);
    let one = bench.run();
    for number in 0..5 {
        bench.commit([operation(&format!("vm-{number}"), "Active")]);
    }
    bench.pass(1).await;
    one.task.abort();
    // No server is running during this time.
    bench.commit([delete("vm-0"), delete("vm-1"), operation("vm-5", "Active")]);
    let before = bench.changes();
    let _next = bench.run();
    bench.pass(60).await;
    let names: Vec<String> = bench.fake.phases().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["vm-2", "vm-3", "vm-4", "vm-5"]);
    assert_eq!(bench.changes() - before, 3);
}

#[tokio::test(start_paused = true)]
async fn operations_that_ended_without_a_server_are_completed_in_history() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    bench.commit([operation("a", "Active"), operation("b", "Active")]);
    bench.pass(1).await;
    one.task.abort();
    bench.commit([delete("a")]);
    let next = bench.run();
    bench.pass(60).await;
    assert_eq!(next.counted(), 1);
    let want = [
        ("a".to_owned(), Phase::Completed),
        ("b".to_owned(), Phase::Active),
    ];
    assert_eq!(bench.fake.phases(), want);
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_longer_than_the_ring_the_custom_resources_match() {
    let mut bench = Bench::new(false);
    let running = bench.run();
    bench.commit([operation("first", "Active"), operation("second", "Active")]);
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(StoreFailure::Unreachable("away".into(), None)));
    // There is no pause in which the cursor could follow, so it falls off the ring.
    for number in 0..500 {
        bench.commit([operation(&format!("vm-{number:03}"), "Active")]);
        if number < 490 {
            bench.commit([delete(&format!("vm-{number:03}"))]);
        }
    }
    bench.commit([delete("first")]);
    bench.pass(300).await;
    let attempts = bench.fake.lock().requests.len();
    assert!(attempts < 60, "{attempts}");
    assert!(matches!(
        &*running.verdict.borrow(),
        PersistVerdict::Fails {
            reason: "Unavailable",
            ..
        }
    ));
    bench.fake.set_trouble(None);
    bench.pass(60).await;
    let names: Vec<String> = bench.fake.phases().into_iter().map(|it| it.0).collect();
    let mut want: Vec<String> = (490..500).map(|number| format!("vm-{number}")).collect();
    want.insert(0, "second".to_owned());
    assert_eq!(names, want);
    assert_eq!(*running.verdict.borrow(), PersistVerdict::Works);
}

#[tokio::test(start_paused = true)]
async fn a_missing_crd_is_reported_and_checked_at_each_requeue() {
    let mut bench = Bench::new(true);
    bench.fake.set_trouble(Some(StoreFailure::Missing));
    let running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(599).await;
    assert!(bench.fake.lock().requests.len() <= 10);
    assert!(matches!(
        &*running.verdict.borrow(),
        PersistVerdict::Fails {
            reason: "CustomResourceDefinitionMissing",
            ..
        }
    ));
    bench.fake.set_trouble(None);
    bench.pass(61).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Active)]);
    assert_eq!(*running.verdict.borrow(), PersistVerdict::Works);
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_temporary_failures_lose_nothing() {
    let mut bench = Bench::new(true);
    let running = bench.run();
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(StoreFailure::Unreachable("away".into(), None)));
    bench.commit([operation("late", "Active")]);
    tokio::task::yield_now().await;
    running.stop.cancel();
    bench.pass(3).await;
    bench.fake.set_trouble(None);
    running.task.await.unwrap();
    assert_eq!(bench.fake.phases(), [("late".to_owned(), Phase::Active)]);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_of_other_writers_are_left_alone() {
    let mut bench = Bench::new(false);
    let foreign = InFlightOperation::new(
        "foreign",
        ifo_api::persisted::InFlightOperationSpec {
            operation: "Migrating".to_owned(),
            rule_set: "rules".to_owned(),
            component: "kubevirt".to_owned(),
            subject: serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "VM", "name": "foreign",
            }))
            .unwrap(),
            item: None,
        },
    );
    bench.fake.lock().create(&foreign, false).unwrap();
    let _running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    bench.commit([delete("a")]);
    bench.pass(1300).await;
    assert_eq!(bench.fake.lock().objects.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn operations_of_a_deleted_or_recreated_namespace_are_deleted_and_not_completed() {
    for since in [None, Some("2026-01-02T03:04:06Z")] {
        let mut bench = Bench::new(true);
        let one = bench.run();
        bench.commit([operation("a", "Active"), operation("b", "Active")]);
        bench.pass(1).await;
        bench.commit([operation("b", "Completed")]);
        bench.pass(1).await;
        one.task.abort();
        bench.commit([delete("a"), delete("b")]);
        {
            let namespaces = &mut bench.fake.lock().namespaces;
            namespaces.remove("default");
            let since = since.map(|since| ("default".to_owned(), since.parse().unwrap()));
            namespaces.extend(since);
        }
        let before = bench.changes();
        let _next = bench.run();
        bench.pass(30).await;
        assert_eq!(bench.fake.phases(), []);
        assert_eq!(bench.changes() - before, 2, "one deletion each");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_last_seen_when_its_namespace_was_created_is_completed() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    one.task.abort();
    bench.commit([delete("a")]);
    let since = "2026-01-02T03:04:05Z".parse().unwrap();
    bench.fake.lock().namespaces = BTreeMap::from([("default".to_owned(), since)]);
    let _next = bench.run();
    bench.pass(30).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Completed)]);
}

#[tokio::test(start_paused = true)]
async fn operations_of_a_target_with_a_gap_are_left_alone() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    one.task.abort();
    bench.commit([delete("a")]);
    let unread = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        Some(Arc::new(names.collect()))
    };
    bench.settled.send_replace(unread(&["others", "rules"]));
    let _next = bench.run();
    bench.pass(3_000).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Active)]);
    bench.settled.send_replace(unread(&["others"]));
    bench.pass(30).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Completed)]);
}

/// `write`, with this change of the object.
fn changed(write: &Write, change: impl Fn(&mut serde_json::Value)) -> Write {
    let Write::Put { key, json } = write else {
        panic!("it is put");
    };
    let mut object = serde_json::from_slice(json).unwrap();
    change(&mut object);
    Write::Put {
        key: key.clone(),
        json: serde_json::to_vec(&object).unwrap(),
    }
}

/// `write`, with these fields of its status.
fn with_status(write: &Write, members: &serde_json::Value) -> Write {
    changed(write, |object| {
        for (name, value) in members.as_object().unwrap() {
            object["status"][name] = value.clone();
        }
    })
}

/// The operation on `a`, with this start time.
fn started_at(second: &str) -> Write {
    let Write::Put { json, .. } = operation("a", "Active") else {
        panic!("it is put");
    };
    let mut later: serde_json::Value = serde_json::from_slice(&json).unwrap();
    later["metadata"]["name"] = json!("a-migrating-89abcdef");
    later["metadata"]["uid"] = json!(Uuid::from_u128(7));
    later["metadata"]["creationTimestamp"] = json!(second);
    Write::Put {
        key: Key::new("default", "a-migrating-89abcdef"),
        json: serde_json::to_vec(&later).unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_settling_orphan_ended_when_it_was_last_detected() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    let settled = json!({"state": "Settling", "lastDetected": "2026-01-02T03:04:06Z"});
    bench.commit([with_status(&operation("a", "Active"), &settled)]);
    bench.pass(1).await;
    one.task.abort();
    bench.commit([delete("a"), started_at("2026-01-02T03:04:09Z")]);
    let _next = bench.run();
    bench.pass(60).await;
    let objects = bench.fake.lock().objects.clone();
    let statuses = objects.values().map(|cr| cr.status.as_ref().unwrap());
    let mut ends: Vec<_> = statuses
        .map(|status| {
            (
                status.phase,
                status.completed.as_ref().map(|it| it.0.to_string()),
            )
        })
        .collect();
    ends.sort_by_key(|(_, end)| end.is_some());
    let end = "2026-01-02T03:04:06Z".to_owned();
    assert_eq!(ends, [(Phase::Active, None), (Phase::Completed, Some(end))]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_verb_is_reported_once_and_delays_no_other() {
    for refused in ["delete", "create refused"] {
        let mut bench = Bench::new(false);
        let mut running = bench.run();
        bench.pass(1).await;
        bench.commit([operation("first", "Active")]);
        bench.pass(1).await;
        bench.fake.lock().refused = Some(refused);
        bench.commit([operation("refused", "Active"), delete("first")]);
        let mut told = 0;
        for number in 0..100 {
            let name = format!("vm-{number:03}");
            bench.commit([operation(&name, "Active")]);
            bench.pass(6).await;
            let is_written = bench.fake.phases().iter().any(|(it, _)| *it == name);
            assert!(is_written, "{name}");
            told += usize::from(running.verdict.has_changed().unwrap());
            running.verdict.mark_unchanged();
        }
        assert!(
            (1..=2).contains(&told),
            "that it works, and that it does not"
        );
        let fails = matches!(&*running.verdict.borrow(), PersistVerdict::Fails { .. });
        assert!(fails, "{refused}");
        bench.fake.lock().refused = None;
        bench.pass(301).await;
        assert_eq!(*running.verdict.borrow(), PersistVerdict::Works);
        running.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_dropped_with_its_operation() {
    let mut bench = Bench::new(false);
    let running = bench.run();
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(StoreFailure::Forbidden("no".into())));
    bench.commit([operation("a", "Active")]);
    bench.pass(30).await;
    assert!(matches!(
        &*running.verdict.borrow(),
        PersistVerdict::Fails { .. }
    ));
    bench.commit([delete("a")]);
    bench.fake.set_trouble(None);
    bench.pass(120).await;
    assert_eq!(*running.verdict.borrow(), PersistVerdict::Works);
}

/// `write`, with these labels.
fn with_labels(write: &Write, labels: &serde_json::Value) -> Write {
    changed(write, |object| {
        object["metadata"]["labels"].clone_from(labels);
    })
}

fn status(cr: &InFlightOperation) -> &ifo_api::persisted::InFlightOperationStatus {
    cr.status.as_ref().unwrap()
}

impl Bench {
    /// The requests so far, without lists. There is one custom resource, so verbs are enough.
    fn verbs(&self) -> Vec<String> {
        let cluster = self.fake.lock();
        let verbs = cluster
            .requests
            .iter()
            .map(|it| it.split(' ').next().unwrap());
        verbs
            .filter(|it| *it != "list")
            .map(str::to_owned)
            .collect()
    }

    /// Sets the time that later requests need to arrive.
    fn set_latency(&self, seconds: f64) {
        self.fake.lock().latency = Some(Duration::from_secs_f64(seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_operation_is_created_patched_and_deleted_without_a_read() {
    let mut bench = Bench::new(true);
    let _running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(100).await;
    bench.commit([operation("a", "Completed")]);
    bench.pass(100).await;
    assert_eq!(bench.verbs(), ["create", "patch"]);
    bench.commit([delete("a")]);
    bench.pass(1).await;
    assert_eq!(bench.verbs(), ["create", "patch", "delete"]);
    assert_eq!(bench.fake.phases(), []);
}

#[tokio::test(start_paused = true)]
async fn a_late_change_of_a_previous_leader_changes_nothing() {
    let mut bench = Bench::new(true);
    let previous = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    bench.set_latency(30.0);
    bench.commit([operation("a", "Completed")]);
    bench.pass(1).await;
    previous.task.abort();
    // The next leader did not observe the end, and the operation continues.
    bench.set_latency(0.005);
    let message = json!({"message": "of the next leader"});
    bench.commit([with_status(&operation("a", "Active"), &message)]);
    let _next = bench.run();
    bench.pass(60).await;
    assert_eq!(bench.verbs(), ["create", "patch", "patch"]);
    assert_eq!(bench.changes(), 2);
    assert_eq!(status(&bench.fake.only()).message, "of the next leader");
}

#[tokio::test(start_paused = true)]
async fn a_late_deletion_of_a_previous_leader_deletes_nothing() {
    let mut bench = Bench::new(false);
    let previous = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    bench.set_latency(30.0);
    bench.commit([delete("a")]);
    bench.pass(1).await;
    previous.task.abort();
    bench.set_latency(0.005);
    let message = json!({"message": "of the next leader"});
    bench.commit([with_status(&operation("a", "Active"), &message)]);
    let _next = bench.run();
    bench.pass(60).await;
    assert_eq!(bench.verbs(), ["create", "delete", "patch"]);
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Active)]);
}

#[tokio::test(start_paused = true)]
async fn a_late_creation_of_a_previous_leader_is_found_by_the_second_comparison() {
    for retain in [true, false] {
        let mut bench = Bench::new(retain);
        let previous = bench.run();
        bench.pass(1).await;
        bench.set_latency(58.0);
        bench.commit([operation("a", "Active")]);
        bench.pass(1).await;
        previous.task.abort();
        // The next leader has never observed the operation.
        bench.set_latency(0.005);
        bench.commit([delete("a")]);
        let _next = bench.run();
        bench.pass(50).await;
        assert_eq!(bench.fake.phases(), []);
        bench.pass(10).await;
        assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Active)]);
        bench.pass(15).await;
        let completed = [("a".to_owned(), Phase::Completed)];
        let want: &[_] = if retain { &completed } else { &[] };
        assert_eq!(bench.fake.phases(), want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_creation_of_an_active_operation_changes_nothing() {
    let mut bench = Bench::new(true);
    let previous = bench.run();
    bench.pass(1).await;
    bench.set_latency(30.0);
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    previous.task.abort();
    bench.set_latency(0.005);
    let _next = bench.run();
    bench.pass(100).await;
    assert_eq!(bench.verbs(), ["create", "create"]);
    assert_eq!(bench.changes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_completion_written_while_an_orphan_is_completed_stays() {
    let mut bench = Bench::new(true);
    let previous = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    bench.set_latency(7.0);
    let message = json!({"message": "of the previous leader"});
    bench.commit([with_status(&operation("a", "Completed"), &message)]);
    bench.pass(1).await;
    previous.task.abort();
    bench.set_latency(0.005);
    bench.commit([delete("a")]);
    let _next = bench.run();
    bench.pass(3).await;
    // The next leader reads the custom resource before that end is written, and changes it
    // afterwards.
    bench.set_latency(0.7);
    bench.pass(60).await;
    assert_eq!(bench.verbs(), ["create", "patch", "get", "patch", "get"]);
    assert_eq!(bench.changes(), 2);
    let left = bench.fake.only();
    assert_eq!(status(&left).message, "of the previous leader");
    assert_eq!(status(&left).phase, Phase::Completed);
}

#[tokio::test(start_paused = true)]
async fn foreign_labels_survive_and_obsolete_own_labels_are_removed() {
    let mut bench = Bench::new(true);
    let running = bench.run();
    let labels = json!({"ours": "1", "gone": "1"});
    let progress = json!({"progress": 5, "message": "half way"});
    let first = with_labels(&operation("a", "Active"), &labels);
    bench.commit([with_status(&first, &progress)]);
    bench.pass(1).await;
    let uid = bench.fake.only().metadata.uid;
    let theirs = || ("team".to_owned(), "a".to_owned());
    bench.fake.lock().edit(|cr| {
        cr.metadata
            .labels
            .get_or_insert_default()
            .extend([theirs()]);
        cr.metadata
            .annotations
            .get_or_insert_default()
            .extend([theirs()]);
    });
    let labels = json!({"ours": "2", "new": "1"});
    bench.commit([with_labels(&operation("a", "Active"), &labels)]);
    bench.pass(60).await;
    let cr = bench.fake.only();
    let want = json!({"ours": "2", "new": "1", "team": "a"});
    assert_eq!(json!(cr.metadata.labels), want);
    assert!(
        cr.metadata
            .annotations
            .as_ref()
            .unwrap()
            .contains_key("team")
    );
    assert_eq!(cr.metadata.uid, uid);
    assert_eq!((status(&cr).progress, &*status(&cr).message), (None, ""));
    // None of these is a reason for another write, also not after a restart.
    let changes = bench.verbs();
    running.task.abort();
    let _next = bench.run();
    bench.pass(3_000).await;
    assert_eq!(bench.verbs(), changes);
}

#[tokio::test(start_paused = true)]
async fn an_object_recreated_by_another_client_is_patched_once_and_keeps_its_labels() {
    let mut bench = Bench::new(true);
    let running = bench.run();
    let with = |phase| with_labels(&operation("a", phase), &json!({"ours": "1"}));
    bench.commit([with("Active")]);
    bench.pass(1).await;
    {
        let mut cluster = bench.fake.lock();
        let (_, mut copy) = cluster.objects.pop_first().unwrap();
        let theirs = ("restored".to_owned(), "true".to_owned());
        copy.metadata.labels.as_mut().unwrap().extend([theirs]);
        cluster.create(&copy, false).unwrap();
    }
    bench.commit([with("Completed")]);
    bench.pass(60).await;
    let cr = bench.fake.only();
    assert_eq!(status(&cr).phase, Phase::Completed);
    assert_eq!(
        json!(cr.metadata.labels),
        json!({"ours": "1", "restored": "true"})
    );
    running.task.abort();
    let before = bench.verbs().len();
    let _next = bench.run();
    bench.pass(3_000).await;
    // The next process finds labels that may be ours. It reads the object and tries once.
    assert_eq!(bench.verbs()[before..], ["get", "patch"]);
    assert_eq!(bench.fake.only(), cr);
}

#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_is_looked_up_and_not_repeated() {
    let mut bench = Bench::new(true);
    let _running = bench.run();
    bench.pass(1).await;
    bench.fake.lock().answers_get_lost = true;
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    bench.fake.lock().answers_get_lost = false;
    bench.commit([operation("a", "Completed")]);
    bench.pass(60).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Completed)]);
    let creations = bench.verbs().iter().filter(|it| *it == "create").count();
    assert_eq!(creations, 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflicting_deletion_is_repeated_for_the_current_version() {
    let mut bench = Bench::new(false);
    let _running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    bench.fake.lock().edit(|cr| {
        let label = ("team".to_owned(), "a".to_owned());
        cr.metadata.labels.get_or_insert_default().extend([label]);
    });
    bench.commit([delete("a")]);
    bench.pass(5).await;
    assert_eq!(bench.verbs(), ["create", "delete", "get", "delete"]);
    assert_eq!(bench.fake.phases(), []);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_under_our_name_is_left_alone_and_reported() {
    let mut bench = Bench::new(true);
    let running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    let mut foreign = bench.fake.lock().objects.pop_first().unwrap().1;
    foreign.metadata.annotations = None;
    bench.fake.lock().create(&foreign, false).unwrap();
    let foreign = bench.fake.only();
    bench.commit([operation("a", "Completed")]);
    bench.pass(60).await;
    assert_eq!(bench.fake.only(), foreign);
    let verdict = running.verdict.borrow().clone();
    assert!(
        matches!(
            verdict,
            PersistVerdict::Fails {
                reason: "Refused",
                ..
            }
        ),
        "{verdict:?}"
    );
    bench.fake.lock().objects.clear();
    bench.pass(600).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Completed)]);
    assert_eq!(*running.verdict.borrow(), PersistVerdict::Works);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_runs_alone_writes_all_before_it_stops() {
    let mut bench = Bench::new(true);
    let running = bench.run();
    bench.pass(1).await;
    for number in 0..200 {
        bench.commit([operation(&format!("vm-{number}"), "Active")]);
    }
    let start = Instant::now();
    tokio::task::yield_now().await;
    running.stop.cancel();
    running.task.await.unwrap();
    assert_eq!(bench.changes(), 200);
    assert!(start.elapsed() < AtStop::WriteAll.limit());

    let running = bench.run();
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(StoreFailure::Unreachable("away".into(), None)));
    bench.commit([operation("late", "Active")]);
    let start = Instant::now();
    running.stop.cancel();
    running.task.await.unwrap();
    let limit = AtStop::WriteAll.limit();
    assert!((limit..limit + Duration::from_secs(1)).contains(&start.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn a_handover_awaits_sent_writes_and_leaves_the_rest_to_the_next_leader() {
    // The writes that were sent are answered in time, or not at all.
    for (latency, is_answered) in [(0.3, true), (30.0, false)] {
        let mut bench = Bench::new(true);
        let leader = bench.run_until(AtStop::HandOver);
        bench.pass(1).await;
        bench.set_latency(latency);
        for number in 0..200 {
            bench.commit([operation(&format!("vm-{number}"), "Active")]);
        }
        tokio::task::yield_now().await;
        let start = Instant::now();
        leader.stop.cancel();
        leader.task.await.unwrap();
        let sent = bench.verbs().len();
        assert!((1..200).contains(&sent), "{sent}");
        assert_eq!(bench.changes(), if is_answered { sent } else { 0 });
        let limit = AtStop::HandOver.limit();
        assert_eq!(start.elapsed() < limit, is_answered);
        assert!(start.elapsed() <= limit);
        let metrics = leader.metrics.render();
        assert!(
            metrics.contains("ifo_persistence_queue_length{} 0"),
            "{metrics}"
        );

        bench.set_latency(0.005);
        let next = bench.run();
        bench.pass(60).await;
        assert_eq!(bench.changes(), 200);
        assert_eq!(next.counted() + if is_answered { sent } else { 0 }, 200);
    }
}
