//! Measures how much memory and processor time the optional fields of rules and rule sets cost.
//! Examples are a rule's fields `stalledAfter` and `work`, and a rule set's field `nodes`.
//! `docs/rules.md` describes these fields under "Time", "Pieces of work" and "Nodes". A variant is
//! a rule set with one rule and some of these fields. For each variant, the benchmark measures the
//! memory of an operation in flight, and the processor time of a change. The benchmark also
//! measures the memory of a record of a completed operation. The goals are in
//! `docs/performance.md`.
//!
//! This program measures each variant in a new process. In the same process, a variant would use
//! memory that an earlier variant has freed, and this memory would not be counted. For each
//! variant, the program starts several processes, and prints their smallest figures. The measured
//! steps begin with the JSON of an object, and end when the index has the changed operation.

use anyhow::{Context as _, bail, ensure};
use ifo::index::{self, Bounds, IndexReader, VersionAssignment, Writer};
use ifo::telemetry::Metrics;
use ifo_api::Source;
use ifo_api::ruleset::OperationRuleSet;
use ifo_engine::ClockReading;
use ifo_engine::detect::{Detector, FeedEvent};
use ifo_engine::rules::{self, RuleBook};
use ifo_engine::track::{Message, OperationBounds, Tracker, TrackerSettings};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of operations in flight.
const OPERATIONS: usize = 10_000;
/// Number of operations that the benchmark creates before it measures the memory. The first
/// operations also cause allocations that happen only once in a process.
const UNCOUNTED: usize = 100;
/// Number of operations that change in a pass.
const CHANGES: usize = 1_000;
/// Number of passes. The result is the time of the fastest pass.
const PASSES: usize = 20;
/// Number of processes for each variant.
const PROCESSES: usize = 5;
/// Number of completed operations in the variants with earlier runs. The server compares an
/// operation in flight with earlier runs if there are at least 20.
const EARLIER_RUNS: usize = 20;
/// Limits of the ring buffer of the latest changes in the index. The limits are small, so that old
/// versions of operations take almost no memory.
const RING: Bounds = Bounds {
    bytes: 64 << 10,
    age: Duration::from_mins(5),
};

/// A rule set with one rule and some optional fields.
struct RuleVariant {
    name: &'static str,
    /// True if there are earlier runs of the operation, which yield its usual duration.
    has_earlier_runs: bool,
    /// Optional fields of the rule, as JSON.
    fields: &'static str,
    /// The value of the rule set's field `nodes`.
    nodes: Option<&'static str>,
}

const PROGRESS: &str = r#"{"progress": "object.status.progress"}"#;
const VARIANTS: [RuleVariant; 8] = [
    variant("no field, no earlier runs", false, "{}", None),
    variant("20 earlier runs", true, "{}", None),
    variant("progress", false, PROGRESS, None),
    variant(
        "progress, stalledAfter",
        false,
        r#"{"progress": "object.status.progress", "stalledAfter": "10m"}"#,
        None,
    ),
    variant(
        "expectedDuration",
        false,
        r#"{"expectedDuration": "30m"}"#,
        None,
    ),
    variant("work", false, r#"{"work": "object.metadata.uid"}"#, None),
    variant(
        "nodes",
        false,
        "{}",
        Some("[object.status.source, object.status.target]"),
    ),
    variant(
        "all of them",
        true,
        r#"{
            "progress": "object.status.progress", "stalledAfter": "10m",
            "expectedDuration": "30m", "work": "object.metadata.uid"
        }"#,
        Some("[object.status.source, object.status.target]"),
    ),
];

const fn variant(
    name: &'static str,
    has_earlier_runs: bool,
    fields: &'static str,
    nodes: Option<&'static str>,
) -> RuleVariant {
    RuleVariant {
        name,
        has_earlier_runs,
        fields,
        nodes,
    }
}

/// The figures of one variant.
#[derive(Clone, Copy)]
struct Figures {
    /// Resident memory for each operation in flight, in bytes.
    memory: u64,
    /// Processor time of a change that clients see, in nanoseconds.
    change: u64,
    /// Processor time of a change of the object that does not change the operation, in nanoseconds.
    heartbeat: u64,
}

fn main() -> anyhow::Result<()> {
    // `cargo bench` adds the argument `--bench`.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let [mode, name] = arguments.as_slice() {
        let variant = VARIANTS.iter().find(|variant| variant.name == name);
        let variant = variant.with_context(|| format!("there is no variant {name:?}"))?;
        if mode == "run-record" {
            println!("{}", memory_of_a_record(variant)?);
            return Ok(());
        }
        let Figures {
            memory,
            change,
            heartbeat,
        } = measure(variant)?;
        println!("{memory} {change} {heartbeat}");
        return Ok(());
    }
    let mut all: Vec<Option<Figures>> = vec![None; VARIANTS.len()];
    for _ in 0..PROCESSES {
        for (variant, best) in VARIANTS.iter().zip(&mut all) {
            let figures = run(variant.name)?;
            let before = best.unwrap_or(figures);
            *best = Some(Figures {
                memory: before.memory.min(figures.memory),
                change: before.change.min(figures.change),
                heartbeat: before.heartbeat.min(figures.heartbeat),
            });
        }
    }
    println!(
        "{:<28} {:>18} {:>22} {:>22}",
        "fields of the rule", "memory", "visible change", "heartbeat"
    );
    let first = all.first().copied().flatten().context("no figures")?;
    for (variant, figures) in VARIANTS.iter().zip(all) {
        let figures = figures.context("no figures")?;
        let with_difference = |figure: u64, first: u64, unit: &str| {
            format!(
                "{figure} {unit} ({:+})",
                figure.cast_signed() - first.cast_signed()
            )
        };
        println!(
            "{:<28} {:>18} {:>22} {:>22}",
            variant.name,
            with_difference(figures.memory, first.memory, "B"),
            with_difference(figures.change, first.change, "ns"),
            with_difference(figures.heartbeat, first.heartbeat, "ns"),
        );
    }
    for variant in [&VARIANTS[0], &VARIANTS[VARIANTS.len() - 1]] {
        let bytes = start_self(&["run-record", variant.name])?;
        println!("memory of a record, {}: {} B", variant.name, bytes.trim());
    }
    Ok(())
}

/// Runs this program with `arguments`. Returns its output.
fn start_self(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(std::env::current_exe()?)
        .args(arguments)
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{arguments:?}: {}\n{error}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Measures a variant in a new process.
fn run(name: &str) -> anyhow::Result<Figures> {
    let text = start_self(&["run", name])?;
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    let [memory, change, heartbeat] = numbers?[..] else {
        bail!("{name}: the process printed {text:?} instead of three numbers");
    };
    Ok(Figures {
        memory,
        change,
        heartbeat,
    })
}

fn measure(variant: &RuleVariant) -> anyhow::Result<Figures> {
    let mut pipeline = Pipeline::new(variant);
    if variant.has_earlier_runs {
        pipeline.complete_runs();
    }
    // The progress of each object rises twice. So if the rule has `progress`, the tracker can
    // estimate the end of the operation.
    let mut before = 0;
    for number in 0..OPERATIONS + UNCOUNTED {
        if number == UNCOUNTED {
            before = resident_memory()?;
        }
        for progress in 1..=3 {
            pipeline.process(&object(number, progress, 0));
        }
    }
    let memory = resident_memory()?.saturating_sub(before) / OPERATIONS as u64;
    let records = if variant.has_earlier_runs {
        EARLIER_RUNS
    } else {
        0
    };
    ensure!(pipeline.reader.len() == OPERATIONS + UNCOUNTED + records);

    let mut figures = [u64::MAX; 2];
    for pass in 0..PASSES {
        // The first iteration changes `progress`, which changes the operations. The second
        // iteration changes only `heartbeat`, which no rule reads.
        for (heartbeat_value, best) in figures.iter_mut().enumerate() {
            let progress = 4 + pass;
            let objects = (0..CHANGES).map(|number| object(number, progress, heartbeat_value));
            let objects: Vec<String> = objects.collect();
            let took = pipeline.process_all(&objects);
            *best = (*best).min(u64::try_from(took.as_nanos())? / CHANGES as u64);
        }
    }
    let [change, heartbeat] = figures;
    Ok(Figures {
        memory,
        change,
        heartbeat,
    })
}

/// Returns the resident memory for each record of a completed operation, in bytes. Each operation
/// completes before the next operation starts, so that the memory of operations in flight is
/// reused. The tracker also remembers the last runs of up to 10,000 operations. This memory is not
/// counted, because the function completes 10,000 operations before the counting begins.
fn memory_of_a_record(variant: &RuleVariant) -> anyhow::Result<u64> {
    let mut rule: Value = serde_json::from_str(variant.fields)?;
    rule["debounce"] = json!("0s");
    let mut pipeline = Pipeline::new(&RuleVariant {
        fields: rule.to_string().leak(),
        ..*variant
    });
    let mut before = 0;
    for number in 0..2 * OPERATIONS {
        if number == OPERATIONS {
            before = resident_memory()?;
        }
        let moving = object(number, 1, 0);
        pipeline.process(&moving);
        pipeline.process(&moving.replace("Moving", "Moved"));
    }
    ensure!(pipeline.reader.len() == 2 * OPERATIONS);
    Ok(resident_memory()?.saturating_sub(before) / OPERATIONS as u64)
}

/// Returns the JSON of an object that is being moved. A new `progress` changes its operation, but a
/// new `heartbeat` does not.
fn object(number: usize, progress: usize, heartbeat: usize) -> String {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "name": format!("vm-{number:05}"), "namespace": format!("team-{:03}", number / 100),
            "uid": format!("{number:08x}-9a6b-4a43-8f0e-3bd3e8a52f0c"), "generation": 3,
        },
        "status": {
            "phase": "Moving", "progress": progress, "heartbeat": heartbeat,
            "message": format!("Copied {progress:03} blocks"),
            "source": "worker-17", "target": "worker-4",
        },
    })
    .to_string()
}

/// The detector, the tracker and the index of a server. The detector evaluates the rule on each
/// object, and the tracker turns the results of the rule into operations.
struct Pipeline {
    book: Arc<RuleBook>,
    source: Source,
    detector: Detector,
    tracker: Tracker,
    writer: Writer,
    reader: IndexReader,
    now: ClockReading,
}

impl Pipeline {
    fn new(variant: &RuleVariant) -> Self {
        let book = rule_book(variant);
        let metrics = Arc::new(Metrics::new());
        let settings = TrackerSettings {
            debounce: Duration::from_secs(30),
            retain: None,
            max_records: 2 * OPERATIONS,
            cluster_namespace: "ifo-system".into(),
        };
        let source = Source {
            target: Arc::new(book.target.clone()),
            namespace: None,
        };
        let (writer, reader) = index::index(RING);
        let mut detector = Detector::new(book.clone(), metrics.clone());
        detector.reset();
        let (synced, _) = detector.synced();
        let bounds = OperationBounds {
            of_rule_set: 3 * OPERATIONS,
            all: 10 * OPERATIONS,
            texts_of_rule_set: 1 << 30,
            all_texts: 1 << 32,
            ..OperationBounds::default()
        };
        let mut pipeline = Self {
            tracker: Tracker::new(settings, metrics).with_bounds(bounds),
            book,
            source,
            detector,
            writer,
            reader,
            now: ifo::clock::reading(),
        };
        let rules = Message::Rules {
            target: pipeline.source.target.clone(),
            book: Some(pipeline.book.clone()),
            removed: false,
        };
        pipeline.tracker.advance(rules, pipeline.now);
        pipeline.advance(synced);
        pipeline
    }

    /// Lets [`EARLIER_RUNS`] operations complete.
    fn complete_runs(&mut self) {
        for phase in ["Moving", "Moved"] {
            for number in 0..EARLIER_RUNS {
                let moving = object(number, 1, 0);
                self.process(&moving.replace("Moving", phase));
            }
            self.wait(Duration::from_mins(10));
        }
        assert_eq!(
            self.reader.len(),
            EARLIER_RUNS,
            "all operations must have ended, and each has left a record"
        );
    }

    /// Lets time pass, lets the timers of the tracker expire, and commits the changes.
    fn wait(&mut self, time: Duration) {
        self.now.wall += time;
        self.now.steady += time;
        self.tracker.expire(self.now);
        self.commit();
    }

    /// Processes the JSON of an object, and then lets 10 ms pass.
    fn process(&mut self, json: &str) {
        let evaluated = self.detector.applied(json.as_bytes(), self.now);
        let evaluated = evaluated.expect("the object has a name");
        self.advance(FeedEvent::Evaluated {
            evaluation: Box::new(evaluated.evaluation),
            read: self.now.steady,
        });
        self.wait(Duration::from_millis(10));
    }

    /// Processes the JSON of all objects. Returns the processor time.
    #[inline(never)]
    fn process_all(&mut self, objects: &[String]) -> Duration {
        let start = processor_time();
        for json in objects {
            self.process(json);
        }
        processor_time().saturating_sub(start)
    }

    fn advance(&mut self, event: FeedEvent) {
        let message = Message::Feed {
            source: self.source.clone(),
            generation: self.book.generation,
            event,
        };
        self.tracker.advance(message, self.now);
    }

    /// Writes the changes of the tracker to the index.
    fn commit(&mut self) {
        let changes = self.tracker.take_changes();
        if !changes.is_empty() {
            let committed = self.writer.commit(changes, VersionAssignment::Mint);
            committed.expect("operations are well-formed");
            self.writer.trim(Instant::now());
        }
    }
}

/// Compiles the rule of a variant.
fn rule_book(variant: &RuleVariant) -> Arc<RuleBook> {
    let mut rule: Value = serde_json::from_str(variant.fields).expect("the fields are JSON");
    rule["operation"] = json!("Moving");
    rule["expression"] = json!("object.status.phase == 'Moving'");
    rule["message"] = json!("object.status.message");
    let mut set = json!({
        "metadata": {"name": "rules"},
        "spec": {
            "component": "kubevirt", "rules": [rule],
            "target": {
                "group": "kubevirt.io", "version": "v1", "resource": "virtualmachineinstances",
            },
        },
    });
    if let Some(nodes) = variant.nodes {
        set["spec"]["nodes"] = json!(nodes);
    }
    let set: OperationRuleSet = serde_json::from_value(set).expect("the rule set is valid");
    let rules = rules::compile("rules", &set.spec).expect("the rule compiles");
    let target = ifo_api::Gvr {
        group: set.spec.target.group.clone(),
        version: set.spec.target.version.clone(),
        resource: set.spec.target.resource.clone(),
    };
    let kind = "VirtualMachineInstance".into();
    Arc::new(RuleBook::new(1, target, kind, true, vec![Arc::new(rules)]))
}

/// Returns the resident memory of this process, in bytes.
fn resident_memory() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    Ok(kilobytes.context("VmRSS is missing")?.parse::<u64>()? * 1024)
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}
