//! The two paths of data through the server whose instructions the benchmark counts. Each path has
//! a function that creates the input, processes it in [`counted_section`], checks the result, and
//! returns the number of items.
//!
//! The inputs are the same in every run, so that the numbers of instructions are comparable. For
//! example, all operations start in the year 2016. So a Table shows their age in years, such as
//! `10y`, and this text changes only once a year.

use crate::serving;
use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use ifo::index::{self, Bounds, IndexReader, Rv, VersionAssignment, Write, Writer};
use ifo::telemetry::Metrics;
use ifo_api::ruleset::OperationRuleSet;
use ifo_api::{Gvr, Source};
use ifo_engine::ClockReading;
use ifo_engine::detect::{Detector, Evaluation, FeedEvent};
use ifo_engine::rules::{self, EvaluationTime, RuleBook};
use ifo_engine::track::{Message, Tracker, TrackerSettings};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Valgrind finds [`counted_section`] by this name. No other function may have this text in its
/// name, because valgrind would then also count that function.
pub const COUNTED_SECTION: &str = "counted_section";

/// A path of data through the server.
pub struct MeasuredPath {
    /// The name of the path in the file of the recorded figures.
    pub name: &'static str,
    /// The description of an item. The recorded figure is the number of instructions for one item.
    pub item: &'static str,
    /// Processes the items, and returns their number.
    pub run: fn() -> usize,
}

/// The paths, in the order in which data passes through the server.
pub const PATHS: [MeasuredPath; 2] = [
    MeasuredPath {
        name: "decode and evaluate",
        item: "a VirtualMachine of 5 KB and the shipped rule set of 14 rules",
        run: decode_and_evaluate,
    },
    MeasuredPath {
        name: "list",
        item: "an operation in a list of 1,000 as JSON",
        run: list,
    },
];

const VIRTUAL_MACHINE: &str = include_str!("../../tests/fixtures/objects/virtualmachine.json");
const RULE_SET: &str = include_str!("../../rules/kubevirt/virtualmachines.yaml");
const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Number of objects that are decoded and evaluated.
const OBJECTS: usize = 1_000;
/// Number of operations that are tracked, committed and listed.
const OPERATIONS: usize = 1_000;
/// Number of operations in one namespace.
const OPERATIONS_PER_NAMESPACE: usize = 100;
/// Number of counted lists. The result is their average. Before the counted lists, the benchmark
/// reads one list without counting, so that the caches are filled.
const LISTS: usize = 3;
/// The limits of the index's ring buffer of changes. The server uses the same limit of the size.
/// The limit of the age is higher than in the server, so that a slow machine does not drop changes.
const RING: Bounds = Bounds {
    bytes: 12 << 20,
    age: Duration::from_hours(24),
};

/// The first version of the index, in microseconds since 1970. This time is decades in the future.
/// If the newest version is in the future, the index does not use the clock: the next version is
/// the newest version plus one. So the versions are the same in every run, and have as many digits
/// as versions from the clock.
const FIRST_VERSION: Rv = Rv(3_141_592_653_589_793);

/// Runs `work`. Valgrind counts the instructions only while this function runs.
#[inline(never)]
pub fn counted_section(work: &mut dyn FnMut()) {
    work();
    // Without code after the call, the compiler would replace the call by a jump, and this function
    // would not be on the stack.
    black_box(0_u8);
}

fn decode_and_evaluate() -> usize {
    let mut pipeline = Pipeline::new();
    // Two rules match `migrating`, and one rule matches `VIRTUAL_MACHINE`.
    let migrating = VIRTUAL_MACHINE
        .replace("\"Running\"", "\"Migrating\"")
        .replacen("\"uid\":\"", "\"uid\":\"other-", 1);
    let texts = [migrating.as_str(), VIRTUAL_MACHINE];
    // Both objects are evaluated before the counted section. So in the counted section, no
    // operation starts or ends. Most changes in a cluster do not start or end an operation either.
    for text in texts {
        pipeline.evaluate(text);
    }
    let mut findings = 0;
    counted_section(&mut || {
        for n in 0..OBJECTS {
            let evaluation = pipeline.evaluate(black_box(texts[n % 2]));
            findings += black_box(evaluation).findings.len();
        }
    });
    assert_eq!(
        findings,
        OBJECTS / 2 * 3,
        "three rules must match the two objects"
    );
    OBJECTS
}

fn list() -> usize {
    let mut pipeline = Pipeline::new();
    let (mut writer, reader) = empty_index();
    let committed = writer.commit(pipeline.operations(), VersionAssignment::Mint);
    committed.expect("operations are well-formed");
    let (runtime, router) = (runtime(), serving::router(reader));
    let answer =
        async || chunks(serving::get(&router, LIVE, "application/json", "identity").await).await;

    let text = runtime.block_on(answer()).concat();
    let json: serde_json::Value = serde_json::from_slice(&text).expect("the answer is JSON");
    assert_eq!(json["items"].as_array().map(Vec::len), Some(OPERATIONS));

    counted_section(&mut || {
        for _ in 0..LISTS {
            black_box(runtime.block_on(answer()));
        }
    });
    LISTS * OPERATIONS
}

/// Returns the JSON of `VirtualMachine` number `n`, which is starting.
fn starting_machine(n: usize) -> String {
    const READY: &str = r#""status":"True","type":"Ready""#;
    const SNAPSHOT: &str =
        r#","snapshotInProgress":"tmp-snapshot-e9850da2-25ba-40c4-94a7-e8bf3ab90d62""#;
    const NAME: &str = r#""name":"db","namespace":"snapshot-restore-clone""#;
    assert!(
        [READY, SNAPSHOT, NAME]
            .iter()
            .all(|it| VIRTUAL_MACHINE.contains(it))
    );
    let named = format!(
        r#""name":"vm-{n:04}","namespace":"team-{:02}""#,
        n / OPERATIONS_PER_NAMESPACE
    );
    let unready = r#""message":"Guest VM is not reported as running","reason":"GuestNotRunning","status":"False","type":"Ready""#;
    // Without the snapshot, at most one operation is detected on the object.
    VIRTUAL_MACHINE
        .replace(SNAPSHOT, "")
        .replace(NAME, &named)
        .replacen("\"uid\":\"", &format!("\"uid\":\"{n:08x}"), 1)
        .replace(READY, unready)
        .replace("\"Running\"", "\"Starting\"")
}

/// The server's detector and tracker. The detector evaluates the rules on each `VirtualMachine`,
/// and the tracker turns the results into operations.
struct Pipeline {
    book: Arc<RuleBook>,
    source: Source,
    detector: Detector,
    tracker: Tracker,
    /// The time of the first message.
    start: ClockReading,
}

impl Pipeline {
    fn new() -> Self {
        let book = virtual_machines();
        let metrics = Arc::new(Metrics::new());
        let source = Source {
            target: Arc::new(book.target.clone()),
            namespace: None,
        };
        let settings = TrackerSettings {
            debounce: Duration::from_secs(30),
            retain: None,
            max_records: 0,
            cluster_namespace: "ifo-system".into(),
        };
        let start = ClockReading {
            wall: "2016-01-02T03:04:05Z"
                .parse()
                .expect("the text is a timestamp"),
            steady: Instant::now(),
        };
        let time = Arc::new(EvaluationTime::new(Instant::now));
        let mut detector = Detector::new(book.clone(), metrics.clone()).with_time(time);
        detector.reset();
        // After this call, events count as changes, and not as part of the initial list.
        let (synced, _) = detector.synced();
        let mut pipeline = Self {
            tracker: Tracker::new(settings, metrics),
            book,
            source,
            detector,
            start,
        };
        let rules = Message::Rules {
            target: pipeline.source.target.clone(),
            book: Some(pipeline.book.clone()),
            removed: false,
        };
        let synced = pipeline.message(synced);
        pipeline.tracker.advance(rules, start);
        pipeline.tracker.advance(synced, start);
        pipeline
    }

    /// Decodes an object and evaluates the rules on it.
    fn evaluate(&mut self, json: &str) -> Evaluation {
        let found = self.detector.applied(json.as_bytes(), self.start);
        found
            .expect("the fixture is an object with a name")
            .evaluation
    }

    fn message(&self, event: FeedEvent) -> Message {
        Message::Feed {
            source: self.source.clone(),
            generation: self.book.generation,
            event,
        }
    }

    /// Returns the changes of the tracker when [`OPERATIONS`] objects start their operations.
    fn operations(&mut self) -> Vec<Write> {
        for n in 0..OPERATIONS {
            let evaluation = Box::new(self.evaluate(&starting_machine(n)));
            let read = self.start.steady;
            let message = self.message(FeedEvent::Evaluated { evaluation, read });
            self.tracker.advance(message, self.start);
        }
        let changes = self.tracker.take_changes().into_iter();
        changes.map(index::index_write).collect()
    }
}

/// Returns an empty index whose versions do not come from the clock, so that they are the same in
/// every run.
fn empty_index() -> (Writer, IndexReader) {
    index::index_from(RING, FIRST_VERSION)
}

/// Compiles the shipped rule set for `VirtualMachine` objects to a rule book: all compiled rule
/// sets of one resource.
fn virtual_machines() -> Arc<RuleBook> {
    let set: OperationRuleSet =
        serde_saphyr::from_str(RULE_SET).expect("the shipped rule set is valid");
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let rules = rules::compile(name, &set.spec).expect("the shipped rule set compiles");
    let target = Gvr {
        group: set.spec.target.group.clone(),
        version: set.spec.target.version.clone(),
        resource: set.spec.target.resource.clone(),
    };
    let kind = "VirtualMachine".into();
    Arc::new(RuleBook::new(1, target, kind, true, vec![Arc::new(rules)]))
}

/// Returns a runtime with one thread, so that all work runs in the thread that callgrind counts.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be created")
}

/// Returns the chunks of a body.
async fn chunks(mut body: Body) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("the body must not fail");
        chunks.push(frame.into_data().expect("the answer has no trailers"));
    }
    chunks
}
