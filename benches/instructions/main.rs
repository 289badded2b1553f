//! Counts the processor instructions of two paths of data through the server. The benchmark fails if a
//! count differs from its recorded figure in [`PATHS`] by more than 25 %:
//!
//! - A higher count is a performance regression.
//! - A lower count is an improvement. Record it as the new figure. With the old, higher figure, the
//!   comparison would not notice if the count rose again later.
//!
//! A measured time depends on the load of the machine. The number of instructions does not. It does
//! depend on the compiler and on the processor: the figures are those of an `x86_64` with AVX2.
//!
//! `make instructions` runs this benchmark. For each path, the program starts itself under callgrind, a
//! tool of valgrind. Callgrind counts only during [`counted_section`], so the set-up is not counted.

#[allow(dead_code, reason = "other benchmarks use the rest of it")]
mod shared;

use anyhow::{Context as _, bail, ensure};
use axum::body::Body;
use http_body_util::BodyExt as _;
use ifo::index::{self, Bounds, Rv};
use ifo::telemetry::Metrics;
use ifo_engine::ClockReading;
use ifo_engine::detect::Detector;
use ifo_engine::rules::{EvaluationInstant, EvaluationTime};
use serde_json::Value;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A path of data through the server.
struct MeasuredPath {
    name: &'static str,
    /// The recorded figure: the number of instructions for one item.
    recorded: u64,
    /// Processes the items in [`counted_section`], and returns their number. The items are the same in
    /// every run.
    run: fn() -> usize,
}

const PATHS: [MeasuredPath; 2] = [
    // An item is a VirtualMachine of 5 KB, with the shipped rule set of 14 rules.
    MeasuredPath {
        name: "decode-and-evaluate",
        recorded: 153_661,
        run: decode_and_evaluate,
    },
    // An item is an operation in a list of 1,000 as JSON.
    MeasuredPath {
        name: "list",
        recorded: 375,
        run: list,
    },
];

/// Largest accepted difference of a count from its recorded figure, in percent. Smaller differences
/// have no meaning: a change of unrelated code can change the inlining and the layout of the
/// measured code.
const TOLERANCE: u64 = 25;

/// Path of the script that starts valgrind. If valgrind is not installed, the script downloads it.
const VALGRIND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/valgrind");

const VIRTUAL_MACHINE: &str = include_str!("../../tests/fixtures/objects/virtualmachine.json");
const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Number of objects that are evaluated, and of operations that are listed.
const ITEMS: usize = 1_000;
/// Number of counted lists. Before them, one list is read without counting, so that the caches are
/// filled.
const LISTS: usize = 3;

fn main() -> anyhow::Result<()> {
    // `cargo bench` adds the argument `--bench`.
    let arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let arguments: Vec<String> = arguments.collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["compare"] => compare(),
        ["run", name] => {
            let path = PATHS.iter().find(|path| path.name == name);
            println!("{}", (path.context("there is no such path")?.run)());
            Ok(())
        }
        [] => {
            // `cargo bench` builds this program without symbols, so valgrind would not find the
            // function whose instructions are counted.
            println!("instructions: skipped, because `make instructions` runs this benchmark");
            Ok(())
        }
        _ => bail!("the argument must be `compare`"),
    }
}

/// Counts the instructions of all paths and compares them with the recorded figures.
fn compare() -> anyhow::Result<()> {
    let mut outside = Vec::new();
    for path in &PATHS {
        let counted = count(path.name)?;
        let MeasuredPath { name, recorded, .. } = path;
        println!("{name}: {counted} instructions, recorded {recorded}");
        if counted.abs_diff(*recorded) * 100 > recorded * TOLERANCE {
            let profile = profile_file(name).display().to_string();
            outside.push(format!("{name}: callgrind_annotate {profile}"));
        }
    }
    ensure!(
        outside.is_empty(),
        "These counts differ by more than {TOLERANCE} %. If this is intended, record the new figures in \
         benches/instructions/main.rs, and give the reason in the commit message. Otherwise, list the \
         functions of a path:\n{}",
        outside.join("\n")
    );
    Ok(())
}

/// Starts this program under callgrind. Returns the number of instructions for one item of the path.
fn count(name: &str) -> anyhow::Result<u64> {
    let profile = profile_file(name);
    if let Some(folder) = profile.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let output = Command::new(VALGRIND)
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg("--toggle-collect=*counted_section*")
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["run", name])
        .output()
        .with_context(|| format!("cannot start {VALGRIND}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}\n{report}",
        output.status
    );
    // Callgrind prints the number of instructions in a line such as `==123== Collected : 456`.
    let collected: Option<u64> = report
        .lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    let collected = collected.with_context(|| format!("there is no count:\n{report}"))?;
    ensure!(
        collected > 0,
        "valgrind has not found `counted_section`: build with `--profile instructions`"
    );
    let items: u64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(collected / items)
}

/// Returns the path of the file into which callgrind writes the number of instructions of each
/// function.
fn profile_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("instructions/{name}.callgrind"))
}

/// Runs `work`. Valgrind finds this function by its name, and counts the instructions only while it
/// runs. No other function may have this text in its name.
#[inline(never)]
fn counted_section(work: &mut dyn FnMut()) {
    work();
    // Without code after the call, the compiler would replace the call by a jump, and this function
    // would not be on the stack.
    black_box(0_u8);
}

fn decode_and_evaluate() -> usize {
    let start = ClockReading {
        wall: "2016-01-02T03:04:05Z".parse().expect("the text is a time"),
        steady: Instant::now(),
    };
    let time = Arc::new(EvaluationTime::new(|| EvaluationInstant {
        at: Instant::now(),
        used: Duration::ZERO,
    }));
    let metrics = Arc::new(Metrics::new());
    let mut detector = Detector::new(shared::virtual_machines(), metrics).with_time(time);
    detector.reset();
    // After this call, events count as changes, and not as part of the initial list.
    detector.synced();
    let mut findings = |text: &str| {
        let found = detector.applied(text.as_bytes(), start);
        let found = found.expect("the fixture is an object with a name");
        black_box(found.evaluation).findings.len()
    };
    // Two rules match `migrating`, and one rule matches `VIRTUAL_MACHINE`.
    let migrating = VIRTUAL_MACHINE
        .replace("\"Running\"", "\"Migrating\"")
        .replacen("\"uid\":\"", "\"uid\":\"other-", 1);
    let texts = [migrating.as_str(), VIRTUAL_MACHINE];
    // Both objects are evaluated before the counted section. So in the counted section, no
    // operation starts or ends. Most changes in a cluster do not start or end an operation either.
    for text in texts {
        findings(text);
    }
    let mut count = 0;
    counted_section(&mut || {
        for n in 0..ITEMS {
            count += findings(black_box(texts[n % 2]));
        }
    });
    assert_eq!(count, ITEMS / 2 * 3, "three rules must match the objects");
    ITEMS
}

fn list() -> usize {
    // If the newest version is in the future, the index does not use the clock. So the versions are the
    // same in every run, and have as many digits as versions from the clock.
    let bounds = Bounds {
        bytes: 12 << 20,
        age: Duration::from_hours(24),
    };
    let (mut writer, reader) = index::index_from(bounds, Rv(3_141_592_653_589_793));
    let operations = (0..ITEMS).map(|number| {
        let name = format!("vm-{number:04}");
        [format!("team-{:02}", number / 100), name.clone(), name]
    });
    shared::commit(&mut writer, operations);
    // All work runs in the thread that callgrind counts.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be created");
    let router = shared::router(reader);
    let answer = || {
        runtime.block_on(async {
            let body: Body = shared::get(&router, LIVE, "application/json", "identity").await;
            let body = body.collect().await.expect("the body must not fail");
            black_box(body)
        })
    };
    let list: Value = serde_json::from_slice(&answer().to_bytes()).expect("the answer is JSON");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(ITEMS));
    counted_section(&mut || {
        for _ in 0..LISTS {
            answer();
        }
    });
    LISTS * ITEMS
}
