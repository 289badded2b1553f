//! The whole room against a cluster of the tests' own, under virtual time.

use super::*;
use crate::clock;
use crate::index::{Bounds, Key, Stamp, Write, Writer, index};
use crate::serve::resource::LIVE_LAYOUT;
use crate::telemetry::Metrics;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// A cluster in memory, in which writes take a moment and may fail.
#[derive(Default)]
struct Fake {
    objects: Mutex<BTreeMap<String, InFlightOperation>>,
    /// Writes that changed something, and all of them.
    changes: Mutex<Vec<String>>,
    attempts: Mutex<usize>,
    trouble: Mutex<Option<Failure>>,
    /// What is refused, by the beginning of verb and name.
    refused: Mutex<Option<&'static str>>,
    /// Since when namespaces are there.
    namespaces: Mutex<BTreeMap<String, Timestamp>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Fake {
    async fn call(&self) -> Result<(), Failure> {
        *lock(&self.attempts) += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        lock(&self.trouble).clone().map_or(Ok(()), Err)
    }

    fn refuse(&self, change: &str) -> Result<(), Failure> {
        let refused = *lock(&self.refused);
        match refused.filter(|refused| change.starts_with(refused)) {
            Some(_) => Err(Failure::Forbidden("not this one".into())),
            None => Ok(()),
        }
    }

    fn set_trouble(&self, trouble: Option<Failure>) {
        *lock(&self.trouble) = trouble;
    }

    fn phases(&self) -> Vec<(String, Phase)> {
        let objects = lock(&self.objects);
        let phase = |cr: &InFlightOperation| cr.status.as_ref().unwrap().phase;
        let of = |cr: &InFlightOperation| (cr.spec.subject.name.clone(), phase(cr));
        objects.values().map(of).collect()
    }
}

impl Store for Fake {
    fn apply<'a>(
        &'a self,
        cr: &'a InFlightOperation,
    ) -> BoxFuture<'a, Result<Option<Uuid>, Failure>> {
        async move {
            self.call().await?;
            let name = cr.metadata.name.clone().unwrap();
            self.refuse(&format!("apply {name}"))?;
            let mut objects = lock(&self.objects);
            let there = objects.get(&name).and_then(|cr| cr.metadata.uid.clone());
            if cr.metadata.uid.is_some() && cr.metadata.uid != there {
                return Err(Failure::Conflict("uid".into()));
            }
            let uid = there.map_or_else(Uuid::new_v4, |uid| Uuid::parse_str(&uid).unwrap());
            let mut new = cr.clone();
            new.metadata.uid = Some(uid.to_string());
            if objects.get(&name) != Some(&new) {
                lock(&self.changes).push(format!("apply {name}"));
                objects.insert(name, new);
            }
            Ok(Some(uid))
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        name: &'a str,
        uid: Option<Uuid>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            self.call().await?;
            self.refuse(&format!("delete {name}"))?;
            let mut objects = lock(&self.objects);
            let there = objects.get(name).and_then(|cr| cr.metadata.uid.clone());
            if uid.is_some_and(|uid| there.is_some_and(|there| there != uid.to_string())) {
                return Err(Failure::Conflict("uid".into()));
            }
            if objects.remove(name).is_some() {
                lock(&self.changes).push(format!("delete {name}"));
            }
            Ok(())
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<InFlightOperation>, Failure>> {
        async move {
            self.call().await?;
            Ok(lock(&self.objects).get(name).cloned())
        }
        .boxed()
    }

    fn page<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        async move {
            self.call().await?;
            // Two in a page, after the one whose name is the token.
            let objects = lock(&self.objects);
            let mut rest = objects
                .iter()
                .filter(|(name, _)| token < Some(name.as_str()));
            let items: Vec<_> = rest.by_ref().take(2).collect();
            let last = items.last().map(|(name, _)| (*name).clone());
            Ok(Page {
                next: rest.next().and(last),
                items: items.into_iter().map(|(_, cr)| cr.clone()).collect(),
            })
        }
        .boxed()
    }

    fn namespaces<'a>(
        &'a self,
        token: Option<&'a str>,
    ) -> BoxFuture<'a, Result<NamespacePage, Failure>> {
        async move {
            let all = lock(&self.namespaces).clone();
            let rest: Vec<_> = all
                .into_iter()
                .filter(|(name, _)| token < Some(name))
                .collect();
            let items: Vec<_> = rest.iter().take(1).cloned().collect();
            let last = items.last().map(|(name, _)| name.clone());
            Ok(NamespacePage {
                next: last.filter(|_| rest.len() > 1),
                items,
            })
        }
        .boxed()
    }
}

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
        // Just now: the retention is for a day.
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
    reader: Reader,
    fake: Arc<Fake>,
    settled: watch::Sender<Option<Arc<Unread>>>,
    retain: bool,
}

struct Running {
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
    verdict: watch::Receiver<Verdict>,
    metrics: Arc<Metrics>,
}

impl Running {
    /// How many writes it has counted.
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
        let (writer, reader) = index(&LIVE_LAYOUT, bounds);
        Self {
            writer,
            reader,
            fake: Arc::new(Fake {
                namespaces: Mutex::new(BTreeMap::from([
                    ("another".to_owned(), Timestamp::UNIX_EPOCH),
                    ("default".to_owned(), Timestamp::UNIX_EPOCH),
                ])),
                ..Fake::default()
            }),
            settled: watch::Sender::new(Some(Arc::default())),
            retain,
        }
    }

    fn run(&self) -> Running {
        let stop = CancellationToken::new();
        let (sender, verdict) = watch::channel(Verdict::Unknown);
        let metrics = Arc::new(Metrics::new());
        let persist = Persist {
            reader: self.reader.clone(),
            store: self.fake.clone(),
            settings: Settings {
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
        let batch = writes.into_iter().collect();
        self.writer.commit(batch, Stamp::Mint).unwrap();
    }

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn changes(&self) -> usize {
        lock(&self.fake.changes).len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_writer_changes_nothing() {
    let mut bench = Bench::new(true);
    let _one = bench.run();
    let _other = bench.run();
    for number in 0..20 {
        bench.commit([operation(&format!("vm-{number}"), "Active")]);
    }
    bench.pass(10).await;
    assert_eq!(bench.changes(), 20);
    for number in 0..20 {
        bench.commit([operation(&format!("vm-{number}"), "Completed")]);
    }
    bench.pass(10).await;
    assert_eq!(bench.changes(), 40);
    let phases = bench.fake.phases();
    assert!(phases.iter().all(|(_, phase)| *phase == Phase::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing_again_and_ends_what_is_over() {
    let mut bench = Bench::new(false);
    let one = bench.run();
    for number in 0..5 {
        bench.commit([operation(&format!("vm-{number}"), "Active")]);
    }
    bench.pass(1).await;
    one.task.abort();
    // While no server is there.
    bench.commit([delete("vm-0"), delete("vm-1"), operation("vm-5", "Active")]);
    let before = bench.changes();
    let _next = bench.run();
    bench.pass(60).await;
    let names: Vec<String> = bench.fake.phases().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["vm-2", "vm-3", "vm-4", "vm-5"]);
    assert_eq!(bench.changes() - before, 3);
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_no_server_was_there_is_completed_where_history_is_kept() {
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
async fn an_end_that_another_server_writes_meanwhile_stays_as_it_was_written() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    one.task.abort();
    bench.commit([delete("a")]);
    let next = bench.run();
    bench.pass(1).await;
    {
        let mut objects = lock(&bench.fake.objects);
        let status = objects.values_mut().next().unwrap().status.as_mut();
        let status = status.unwrap();
        status.phase = Phase::Completed;
        status.completed = Some(Time(clock::now()));
        status.message = "seen by another".to_owned();
    }
    let before = bench.changes();
    bench.pass(60).await;
    assert_eq!(bench.changes(), before);
    assert_eq!(next.counted(), 0);
    let objects = lock(&bench.fake.objects);
    let status = objects.values().next().unwrap().status.as_ref().unwrap();
    assert_eq!(status.message, "seen by another");
}

#[tokio::test(start_paused = true)]
async fn while_the_server_is_away_the_ring_moves_on_and_then_all_is_as_it_should_be() {
    let mut bench = Bench::new(false);
    let running = bench.run();
    bench.commit([operation("first", "Active"), operation("second", "Active")]);
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(Failure::Unreachable("away".into(), None)));
    // Without a pause in which the cursor could follow: it falls off the ring.
    for number in 0..500 {
        bench.commit([operation(&format!("vm-{number:03}"), "Active")]);
        if number < 490 {
            bench.commit([delete(&format!("vm-{number:03}"))]);
        }
    }
    bench.commit([delete("first")]);
    bench.pass(300).await;
    let attempts = *lock(&bench.fake.attempts);
    assert!(attempts < 60, "{attempts}");
    assert!(matches!(
        &*running.verdict.borrow(),
        Verdict::Fails {
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
    assert_eq!(*running.verdict.borrow(), Verdict::Works);
}

#[tokio::test(start_paused = true)]
async fn a_missing_crd_is_told_and_asked_for_once_a_requeue() {
    let mut bench = Bench::new(true);
    bench.fake.set_trouble(Some(Failure::Missing));
    let running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(599).await;
    assert!(*lock(&bench.fake.attempts) <= 10);
    assert!(matches!(
        &*running.verdict.borrow(),
        Verdict::Fails {
            reason: "CustomResourceDefinitionMissing",
            ..
        }
    ));
    bench.fake.set_trouble(None);
    bench.pass(61).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Active)]);
    assert_eq!(*running.verdict.borrow(), Verdict::Works);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_the_queue_is_emptied_or_has_had_its_time() {
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
    assert!(start.elapsed() < DRAIN);

    let running = bench.run();
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(Failure::Unreachable("away".into(), None)));
    bench.commit([operation("late", "Active")]);
    let start = Instant::now();
    running.stop.cancel();
    running.task.await.unwrap();
    assert!(start.elapsed() <= DRAIN + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_trouble_that_passes_costs_nothing() {
    let mut bench = Bench::new(true);
    let running = bench.run();
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(Failure::Unreachable("away".into(), None)));
    bench.commit([operation("late", "Active")]);
    tokio::task::yield_now().await;
    running.stop.cancel();
    bench.pass(3).await;
    bench.fake.set_trouble(None);
    running.task.await.unwrap();
    assert_eq!(bench.fake.phases(), [("late".to_owned(), Phase::Active)]);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_keeps_under_the_same_kind_is_left_alone() {
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
    lock(&bench.fake.objects).insert("foreign".to_owned(), foreign);
    let _running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    bench.commit([delete("a")]);
    bench.pass(1300).await;
    assert_eq!(lock(&bench.fake.objects).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_in_a_namespace_that_is_gone_or_another_is_deleted_and_never_ended() {
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
            let mut namespaces = lock(&bench.fake.namespaces);
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
async fn what_a_target_with_a_gap_may_still_have_is_let_alone() {
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

#[tokio::test(start_paused = true)]
async fn of_two_that_a_killed_server_left_of_one_operation_the_one_that_is_not_shown_is_deleted() {
    let earlier = operation("a", "Active");
    let later = started_at("2026-01-02T03:04:09Z");
    // It was shown for a moment, or never.
    for was_shown in [true, false] {
        let mut bench = Bench::new(true);
        let one = bench.run();
        bench.commit([later.clone()]);
        bench.pass(1).await;
        one.task.abort();
        let running = bench.run();
        if was_shown {
            bench.pass(1).await;
        }
        let taken_back = Write::Delete {
            key: Key::new("default", "a-migrating-89abcdef"),
        };
        bench.commit([earlier.clone(), taken_back]);
        bench.pass(60).await;
        assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Active)]);
        let changes = lock(&bench.fake.changes).clone();
        assert_eq!(changes.len(), 3, "{changes:?}");
        let deleted = |change: &String| change.starts_with("delete a-migrating-89abcdef");
        assert!(changes.iter().any(deleted), "{changes:?}");
        running.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_starts_of_one_operation_the_one_that_another_server_has_ended_meanwhile_stays() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    one.task.abort();
    bench.commit([delete("a"), started_at("2026-01-02T03:04:09Z")]);
    let _next = bench.run();
    bench.pass(2).await;
    // After the next one has listed it, and before it does anything about it.
    {
        let mut objects = lock(&bench.fake.objects);
        let first = objects.values_mut().find(|cr| {
            let status = cr.status.as_ref().unwrap();
            status.started.0.to_string() == "2026-01-02T03:04:05Z"
        });
        let status = first.unwrap().status.as_mut().unwrap();
        status.phase = Phase::Completed;
        status.completed = Some(Time("2026-01-02T03:04:09Z".parse().unwrap()));
    }
    bench.pass(50).await;
    let phases: Vec<Phase> = bench.fake.phases().into_iter().map(|it| it.1).collect();
    assert_eq!(phases.len(), 2);
    assert!(phases.contains(&Phase::Completed) && phases.contains(&Phase::Active));
}

/// `write`, with these members of its status.
fn with_status(write: &Write, members: &serde_json::Value) -> Write {
    let Write::Put { key, json } = write else {
        panic!("it is put");
    };
    let mut object: serde_json::Value = serde_json::from_slice(json).unwrap();
    for (name, value) in members.as_object().unwrap() {
        object["status"][name] = value.clone();
    }
    Write::Put {
        key: key.clone(),
        json: serde_json::to_vec(&object).unwrap(),
    }
}

/// The operation on `a`, as one that started then has it.
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
async fn a_run_that_had_settled_before_a_later_one_started_is_history_and_no_double_of_it() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    let settled = json!({"state": "Settling", "lastDetected": "2026-01-02T03:04:06Z"});
    bench.commit([with_status(&operation("a", "Active"), &settled)]);
    bench.pass(1).await;
    one.task.abort();
    bench.commit([delete("a"), started_at("2026-01-02T03:04:09Z")]);
    let _next = bench.run();
    bench.pass(60).await;
    let objects = lock(&bench.fake.objects);
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
async fn labels_and_annotations_of_others_are_no_reason_to_write() {
    let mut bench = Bench::new(true);
    let _running = bench.run();
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    for cr in lock(&bench.fake.objects).values_mut() {
        let ours = json!({
            "manager": FIELD_MANAGER, "operation": "Apply", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:ifo.kubevirt.io/live": {}}}},
        });
        cr.metadata.managed_fields = Some(vec![serde_json::from_value(ours).unwrap()]);
        let label = [("team".to_owned(), "a".to_owned())];
        cr.metadata
            .labels
            .get_or_insert_default()
            .extend(label.clone());
        cr.metadata
            .annotations
            .get_or_insert_default()
            .extend(label);
    }
    bench.pass(3_000).await;
    assert_eq!(bench.changes(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_words_of_a_replica_that_went_are_found_soon_after_the_start() {
    let mut bench = Bench::new(true);
    let one = bench.run();
    bench.pass(1).await;
    bench.commit([operation("a", "Active")]);
    bench.pass(1).await;
    one.task.abort();
    let late = lock(&bench.fake.objects).pop_first().unwrap();
    bench.commit([delete("a")]);
    let _next = bench.run();
    bench.pass(30).await;
    lock(&bench.fake.objects).extend([late]);
    bench.pass(60).await;
    assert_eq!(bench.fake.phases(), [("a".to_owned(), Phase::Completed)]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_verb_is_told_once_and_holds_up_no_other() {
    for refused in ["delete", "apply refused"] {
        let mut bench = Bench::new(false);
        let mut running = bench.run();
        bench.pass(1).await;
        bench.commit([operation("first", "Active")]);
        bench.pass(1).await;
        *lock(&bench.fake.refused) = Some(refused);
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
        let fails = matches!(&*running.verdict.borrow(), Verdict::Fails { .. });
        assert!(fails, "{refused}");
        *lock(&bench.fake.refused) = None;
        bench.pass(301).await;
        assert_eq!(*running.verdict.borrow(), Verdict::Works);
        running.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_forgotten_with_the_operation_it_was_about() {
    let mut bench = Bench::new(false);
    let running = bench.run();
    bench.pass(1).await;
    bench
        .fake
        .set_trouble(Some(Failure::Forbidden("no".into())));
    bench.commit([operation("a", "Active")]);
    bench.pass(30).await;
    assert!(matches!(&*running.verdict.borrow(), Verdict::Fails { .. }));
    bench.commit([delete("a")]);
    bench.fake.set_trouble(None);
    bench.pass(120).await;
    assert_eq!(*running.verdict.borrow(), Verdict::Works);
}
