//! Measures the processor time that the server needs for one change of an operation and for changes of
//! activities, and the memory of operations and activities.
//!
//! The measured time is the processor time of this process, so that other processes do not
//! influence the result. `benches/README.md` has the goals. `benches/cluster` measures the server
//! together with a kube-apiserver.

#[path = "instructions/shared.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest of it")]
mod shared;

use ifo::clock;
use ifo::index::{self, Bounds, IndexReader, ReadVersion, VersionAssignment, Writer};
use ifo::telemetry::Metrics;
use ifo_api::completeness::Gaps;
use ifo_api::{Source, Text};
use ifo_cel::Doc;
use ifo_engine::activity::Activities;
use ifo_engine::detect::{Evaluation, FeedEvent, evaluate};
use ifo_engine::rules::RuleBook;
use ifo_engine::track::{
    Existing, Message, OperationBounds, Publication, Tracker, TrackerSettings, Write,
};
use jiff::Timestamp;
use shared::{processor_time, virtual_machines};
use std::sync::Arc;
use std::time::{Duration, Instant};

const VIRTUAL_MACHINE: &str = include_str!("../tests/fixtures/objects/virtualmachine.json");
/// Number of operations in the benchmarks of memory, commits and lists.
const OPERATIONS: usize = 10_000;
/// The limits of the index's ring buffer of changes, as in the server.
const RING: Bounds = Bounds {
    bytes: 8 << 20,
    age: Duration::from_mins(5),
};

/// Runs `work` this number of times, and prints the mean of the times that it returns. The first runs,
/// which fill the caches, do not count.
fn measure(name: &str, runs: u32, mut work: impl FnMut() -> Duration) {
    for _ in 0..runs / 10 {
        work();
    }
    let total: Duration = (0..runs).map(|_| work()).sum();
    println!("{name}: {:.2?}", total / runs);
}

/// Returns the processor time of all threads of this process during `work`.
fn time_of(work: impl FnOnce()) -> Duration {
    let start = processor_time();
    work();
    processor_time().saturating_sub(start)
}

fn decode_and_evaluate(book: &RuleBook, json: &[u8], metrics: &Metrics) -> Evaluation {
    let doc = Doc::parse(json, &book.projection).expect("the fixture is an object");
    evaluate(book, &doc, Timestamp::UNIX_EPOCH, metrics).expect("the fixture has a name")
}

/// The tracker and the index of a server that watches `VirtualMachine` objects. The tracker turns
/// the results of rules into operations.
struct Pipeline {
    book: Arc<RuleBook>,
    source: Source,
    metrics: Arc<Metrics>,
    tracker: Tracker,
    writer: Writer,
}

impl Pipeline {
    fn new() -> (Self, IndexReader) {
        let book = virtual_machines();
        let metrics = Arc::new(Metrics::new());
        let settings = TrackerSettings {
            debounce: Duration::from_secs(30),
            retain: None,
            max_records: 0,
            cluster_namespace: "ifo-system".into(),
        };
        let (writer, reader) = index::index(RING);
        let source = Source {
            target: Arc::new(book.target.clone()),
            namespace: None,
        };
        let bounds = OperationBounds {
            of_rule_set: 2 * OPERATIONS,
            ..OperationBounds::default()
        };
        let mut pipeline = Self {
            tracker: Tracker::new(settings, metrics.clone()).with_bounds(bounds),
            book,
            source,
            metrics,
            writer,
        };
        pipeline.tracker.advance(
            Message::Rules(Publication {
                target: pipeline.source.target.clone(),
                book: Some(pipeline.book.clone()),
                removed: false,
            }),
            clock::reading(),
        );
        (pipeline, reader)
    }

    /// Returns the message that the tracker receives for `VirtualMachine` number `n` with `status`.
    /// The snapshot is removed from the fixture, so that the `VirtualMachine` has at most one
    /// operation.
    fn event(&self, n: usize, status: &str) -> Message {
        const SNAPSHOT: &str =
            r#","snapshotInProgress":"tmp-snapshot-e9850da2-25ba-40c4-94a7-e8bf3ab90d62""#;
        assert!(
            VIRTUAL_MACHINE.contains(SNAPSHOT),
            "the fixture must have the snapshot"
        );
        let json = VIRTUAL_MACHINE
            .replace(SNAPSHOT, "")
            .replace("\"Running\"", &format!("\"{status}\""))
            .replace(
                "\"name\":\"db\",\"namespace\":\"",
                &format!("\"name\":\"vm-{n}\",\"namespace\":\"team-{}-", n / 100),
            )
            .replacen("\"uid\":\"", &format!("\"uid\":\"{n:08x}"), 1);
        Message::Feed {
            source: self.source.clone(),
            generation: self.book.generation,
            event: FeedEvent::Evaluated {
                evaluation: Box::new(decode_and_evaluate(
                    &self.book,
                    json.as_bytes(),
                    &self.metrics,
                )),
                read: Instant::now(),
            },
        }
    }

    /// Writes the changes of the tracker to the index.
    fn commit(&mut self) {
        let changes = self.tracker.take_changes().into_iter();
        let changes: Vec<_> = changes.map(index::index_write).collect();
        let committed = self.writer.commit(changes, VersionAssignment::Mint);
        committed.expect("operations are well-formed");
    }

    /// Lets the tracker process a message, and writes the changes to the index.
    fn process(&mut self, message: Message) {
        self.tracker.advance(message, clock::reading());
        self.commit();
    }

    /// Creates a pipeline with this number of operations in flight.
    fn with_operations(operations: usize) -> (Self, IndexReader) {
        let (mut pipeline, reader) = Self::new();
        for n in 0..operations {
            let message = pipeline.event(n, "Migrating");
            pipeline.tracker.advance(message, clock::reading());
        }
        pipeline.commit();
        (pipeline, reader)
    }
}

/// Returns the resident memory of this process in kilobytes. None on other systems than Linux.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    line?.trim().strip_suffix(" kB")?.parse().ok()
}

/// Prints the resident memory that the tracker and the index need for each operation in flight.
///
/// This benchmark must be the first one in the process. After another benchmark, the operations
/// would use memory that the other benchmark has freed. The process still has this memory, so it
/// would not be counted.
fn memory() {
    // The first 100 operations are not counted, because they also cause allocations that happen
    // only once in a process.
    let (mut pipeline, _reader) = Pipeline::with_operations(100);
    let before = resident();
    for n in 100..OPERATIONS + 100 {
        let message = pipeline.event(n, "Migrating");
        pipeline.process(message);
    }
    pipeline.writer.trim(Instant::now() + RING.age * 2);
    if let (Some(before), Some(after)) = (before, resident()) {
        let each = after.saturating_sub(before) * 1024 / OPERATIONS;
        println!("memory of an operation in flight: {each} bytes");
    }
    let before = resident();
    let _activities = idle_activities();
    if let (Some(before), Some(after)) = (before, resident()) {
        let each = after.saturating_sub(before) * 1024 / (NAMESPACES + NODES);
        println!("memory of an activity: {each} bytes");
    }
}

/// Number of namespaces and of nodes in the benchmark of activities.
const NAMESPACES: usize = 10_000;
const NODES: usize = 1_000;

/// Returns the value of [`Activities::set_gaps`] if all rule sets work, or if they have not been read.
fn gaps(are_read: bool) -> Arc<Gaps> {
    Arc::new(Gaps {
        rule_sets_are_read: are_read,
        total: 61,
        ..Gaps::default()
    })
}

fn commit(writer: &mut Writer, activities: &mut Activities) {
    let writes = activities.writes(clock::now(), false);
    let writes: Vec<_> = writes.into_iter().map(index::index_write).collect();
    let committed = writer.commit(writes, VersionAssignment::Mint);
    committed.expect("the index accepts new versions");
    writer.trim(Instant::now() + RING.age * 2);
}

/// Creates the activities of a cluster with [`NAMESPACES`] and [`NODES`], in which nothing is in
/// flight, and an index with them.
fn idle_activities() -> (Activities, Writer) {
    let names = |prefix: &str, count| -> Vec<Text> {
        (0..count).map(|n| format!("{prefix}-{n}").into()).collect()
    };
    let (mut writer, _reader) = index::index(RING);
    let mut activities = Activities::new("ifo-system".into(), []);
    let namespaces = names("namespace", NAMESPACES).into_iter();
    let namespaces = namespaces
        .map(|name| (name, Timestamp::UNIX_EPOCH))
        .collect();
    activities.set_existing(&Existing::Namespaces(Arc::new(namespaces)));
    activities.set_existing(&Existing::Nodes(names("node", NODES)));
    activities.set_gaps(gaps(true));
    commit(&mut writer, &mut activities);
    (activities, writer)
}

/// Measures the time of changes of activities: one operation starts and ends, and all activities
/// become unknown and idle again.
fn activities() {
    let (mut activities, mut writer) = idle_activities();
    let (_pipeline, operations) = Pipeline::with_operations(1);
    let operation = operations.list(&index::OPERATIONS, ReadVersion::Latest);
    let (_, entries) = operation.expect("the newest state is always available");
    let put = Write::Put {
        key: index::engine_key(entries[0].key()),
        object: entries[0].object().clone(),
    };
    let delete = Write::Delete {
        key: index::engine_key(entries[0].key()),
    };
    measure("activities: an operation starts and ends", 1_000, || {
        time_of(|| {
            for write in [&put, &delete] {
                activities.record(write);
                commit(&mut writer, &mut activities);
            }
        })
    });
    measure("activities: all become unknown and idle", 10, || {
        time_of(|| {
            for are_read in [false, true] {
                activities.set_gaps(gaps(are_read));
                commit(&mut writer, &mut activities);
            }
        })
    });
}

/// Measures the time for one result of an evaluation: the tracker processes the result, and the
/// index commits the changes.
fn track() {
    let (mut pipeline, _reader) = Pipeline::with_operations(OPERATIONS);
    for (name, statuses) in [
        ("a visible change", ["Running", "Migrating"]),
        ("a heartbeat", ["Migrating", "Migrating"]),
    ] {
        let mut turn = 0;
        measure(&format!("track and commit: {name}"), 20_000, || {
            turn += 1;
            let message = pipeline.event(17, statuses[turn % 2]);
            time_of(|| pipeline.process(message))
        });
    }
}

fn main() {
    memory();
    activities();
    track();
}
