//! Replays recorded watch streams of real controllers with the shipped rules. Each stream has a
//! truth table: a YAML file with the operations that really happened. The rules must detect exactly
//! these operations. `tests/fixtures/recorded/README.md` describes the streams and the tables.

use super::fake_apiserver::execute;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Largest accepted difference between an expected and a replayed time, in seconds. The times in
/// objects are whole seconds, so exact times are not known.
const TOLERANCE: f64 = 1.0;

/// A truth table.
#[derive(Deserialize)]
struct Truth {
    /// The operations by kind and name of their subject.
    operations: BTreeMap<String, Vec<Expected>>,
}

/// One operation of a truth table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    operation: String,
    /// Start, in seconds since the start of the stream.
    start: f64,
    /// First time at which the operation is no longer detected, in seconds since the start of the
    /// stream. None if the operation is in flight at the end of the stream.
    end: Option<f64>,
    /// The last state of the operation in the stream.
    state: String,
    // The following fields are compared only if the truth table has them.
    /// The states of the operation while it was detected (`Progressing`, `Blocked`, `Held` and
    /// `Failing`), without consecutive repetitions.
    states: Option<Vec<String>>,
    /// The values of the progress in percent, without consecutive repetitions.
    progress: Option<Vec<u64>>,
    /// A part of one of the messages.
    message: Option<String>,
    /// The last message.
    last: Option<String>,
    /// Time at which `ifo-apiserver` would show the end, in seconds since the start of the stream.
    /// Usually this time is one debounce period after `end`. If the rule yields an outcome, the
    /// server shows the end at once.
    until: Option<f64>,
}

/// The output of `kubectl ifo rules replay`.
#[derive(Deserialize)]
struct Replay {
    operations: Vec<Replayed>,
}

/// An operation that the replay detects.
#[derive(Debug, Deserialize)]
struct Replayed {
    subject: Subject,
    operation: String,
    started: f64,
    completed: Option<f64>,
    state: String,
    timeline: Vec<Change>,
    /// Time at which the server would show the end. None if the stream ends before this time.
    until: Option<f64>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Subject {
    kind: String,
    name: String,
}

/// A change of a replayed operation.
#[derive(Debug, Deserialize)]
struct Change {
    state: String,
    message: String,
    progress: Option<u64>,
}

/// Returns the paths of the recorded streams.
fn streams() -> Vec<PathBuf> {
    let folder = Path::new(REPOSITORY).join("tests/fixtures/recorded");
    let entries = fs::read_dir(folder).expect("the folder of the streams can be read");
    let paths = entries.map(|it| it.expect("the entry can be read").path());
    let mut streams: Vec<PathBuf> = paths
        .filter(|it| it.extension().is_some_and(|it| it == "jsonl"))
        .collect();
    streams.sort();
    assert!(streams.len() > 20, "{streams:?}");
    streams
}

/// Replays a stream. With `--hindsight`, an operation ends when it is no longer detected. Without
/// this flag, it ends when the server would show its end.
fn replay(stream: &Path, flags: &[&str]) -> Vec<Replayed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command.args(["rules", "replay", "rules", "-O", "json", "--stream"]);
    let output = execute(command.arg(stream).args(flags).current_dir(REPOSITORY));
    // Standard error has a message for each rule that fails and for each invalid line.
    assert_eq!(
        (output.code, &*output.stderr),
        (0, ""),
        "{}",
        stream.display()
    );
    let replay: Replay = serde_json::from_str(&output.stdout).expect("the output is JSON");
    replay.operations
}

/// Returns true if a replayed operation equals an operation of the truth table. The caller compares
/// the subjects.
fn matches(expected: &Expected, actual: &Replayed) -> bool {
    let is_near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE;
    let mut states: Vec<&str> = actual.timeline.iter().map(|it| it.state.as_str()).collect();
    states.retain(|it| ["Progressing", "Blocked", "Held", "Failing"].contains(it));
    states.dedup();
    let mut progress: Vec<u64> = actual
        .timeline
        .iter()
        .filter_map(|it| it.progress)
        .collect();
    progress.dedup();
    let last = actual.timeline.last().map(|it| &it.message);
    let has_message = |part: &String| actual.timeline.iter().any(|it| it.message.contains(part));
    let is_until = |it: f64| actual.until.is_some_and(|until| is_near(it, until));
    expected.operation == actual.operation
        && expected.state == actual.state
        && is_near(expected.start, actual.started)
        && expected.end.is_some() == actual.completed.is_some()
        && expected
            .end
            .zip(actual.completed)
            .is_none_or(|(a, b)| is_near(a, b))
        && expected.states.as_ref().is_none_or(|it| *it == states)
        && expected.progress.as_ref().is_none_or(|it| *it == progress)
        && expected.message.as_ref().is_none_or(has_message)
        && expected.last.as_ref().is_none_or(|it| last == Some(it))
        && expected.until.is_none_or(is_until)
}

#[test]
fn the_operations_in_a_recording_are_exactly_those_of_its_truth_table() {
    let mut differences = Vec::new();
    for stream in streams() {
        let name = stream.file_stem().expect("the path has a name").display();
        let text = fs::read_to_string(stream.with_extension("truth.yaml"));
        let text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
        let truth: Truth =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut replayed = replay(&stream, &["--hindsight"]);
        if truth
            .operations
            .values()
            .flatten()
            .any(|it| it.until.is_some())
        {
            // Both replays return the operations sorted by start, so they are paired by position.
            let live = replay(&stream, &[]);
            assert_eq!(replayed.len(), live.len(), "{name}");
            for (operation, live) in replayed.iter_mut().zip(live) {
                assert_eq!(operation.subject, live.subject, "{name}");
                assert_eq!(operation.operation, live.operation, "{name}");
                operation.until = live.completed;
            }
        }
        for (subject, operations) in truth.operations {
            for expected in operations {
                let found = replayed.iter().position(|it| {
                    format!("{} {}", it.subject.kind, it.subject.name) == subject
                        && matches(&expected, it)
                });
                match found {
                    // The replayed operation must not also match another entry of the truth table.
                    Some(at) => drop(replayed.remove(at)),
                    None => differences.push(format!("{name}: {subject}: no {expected:?}")),
                }
            }
        }
        differences.extend(
            replayed
                .iter()
                .map(|it| format!("{name}: unexpected {it:?}")),
        );
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_shipped_rule_sets_have_no_warning() {
    // Unlike the kustomizations, the folders also have the optional rule sets.
    let folders = fs::read_dir(Path::new(REPOSITORY).join("rules")).expect("the folder exists");
    let folders = folders.map(|it| it.expect("the folder can be read").path());
    let files = folders
        .filter(|it| it.is_dir())
        .flat_map(|it| fs::read_dir(it).expect("the folder can be read"))
        .map(|it| it.expect("the folder can be read").path())
        .filter(|it| !it.ends_with("kustomization.yaml") && !it.ends_with("clusterrole.yaml"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    let output = execute(command.args(["rules", "check"]).args(files));
    assert_eq!((output.code, &*output.stderr), (0, ""));
    assert!(output.stdout.lines().count() > 50, "{}", output.stdout);
}
