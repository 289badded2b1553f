//! Replays recorded watch streams of real controllers with the shipped rules. Each stream has a
//! truth table: a YAML file with the operations that really happened. The rules must detect exactly
//! these operations. `tests/fixtures/recorded/README.md` describes the streams and the tables.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
#[derive(Clone, Debug, Deserialize)]
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

/// An operation that the replay detects.
#[derive(Clone, Debug)]
struct Replayed {
    /// Kind and name of the subject.
    subject: String,
    operation: String,
    start: f64,
    end: Option<f64>,
    state: String,
    states: Vec<String>,
    progress: Vec<u64>,
    messages: Vec<String>,
    /// Time at which the server would show the end. None if the truth table has no `until`, or if
    /// the stream ends before this time.
    until: Option<f64>,
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the paths of the recorded streams without their extension.
fn streams() -> Vec<PathBuf> {
    let folder = repository().join("tests/fixtures/recorded");
    let mut streams: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder of the streams can be read")
        .map(|entry| entry.expect("the entry can be read").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .map(|path| path.with_extension(""))
        .collect();
    streams.sort();
    assert!(
        streams.len() > 20,
        "there must be more streams than {streams:?}"
    );
    streams
}

/// Reads the truth table of a stream.
fn read_truth(stream: &Path) -> Truth {
    let path = stream.with_extension("truth.yaml");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the operations that `kubectl ifo rules replay --hindsight` detects in a stream. With
/// this flag, an operation ends when it is no longer detected. If `with_until` is true, this
/// function replays the stream again without the flag, and sets `until` to the ends in this replay.
fn replay(stream: &Path, with_until: bool) -> Vec<Replayed> {
    let mut operations = replay_with(stream, &["--hindsight"]);
    if with_until {
        let live = replay_with(stream, &[]);
        // Both replays return the operations sorted by start, so the operations can be paired by
        // position.
        let names = |operations: &[Replayed]| -> Vec<(String, String)> {
            let name = |it: &Replayed| (it.subject.clone(), it.operation.clone());
            operations.iter().map(name).collect()
        };
        assert_eq!(names(&operations), names(&live), "{}", stream.display());
        for (operation, live) in operations.iter_mut().zip(live) {
            operation.until = live.end;
        }
    }
    operations
}

/// Runs `kubectl ifo rules replay` with the shipped rules on a stream.
fn replay_with(stream: &Path, flags: &[&str]) -> Vec<Replayed> {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"))
        .args(["rules", "replay", "rules", "-O", "json"])
        .args(flags)
        .arg("--stream")
        .arg(stream.with_extension("jsonl"))
        .current_dir(repository())
        .output()
        .expect("the plugin can be started");
    // Standard error has a message for each rule that fails and for each invalid line.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", stream.display());
    assert_eq!(stderr, "", "{}", stream.display());
    let json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let operations = json["operations"]
        .as_array()
        .expect("the output has a list of operations");
    operations.iter().map(parse_operation).collect()
}

/// Converts one operation of the JSON output.
fn parse_operation(json: &Value) -> Replayed {
    let text = |value: &Value| value.as_str().expect("the value is a string").to_owned();
    let subject = &json["subject"];
    let timeline = json["timeline"].as_array();
    let timeline = timeline.expect("an operation has a timeline");
    let mut states: Vec<String> = timeline.iter().map(|it| text(&it["state"])).collect();
    states.retain(|state| ["Progressing", "Blocked", "Held", "Failing"].contains(&state.as_str()));
    states.dedup();
    let progress = timeline.iter().filter_map(|it| it["progress"].as_u64());
    let mut progress: Vec<u64> = progress.collect();
    progress.dedup();
    Replayed {
        subject: format!("{} {}", text(&subject["kind"]), text(&subject["name"])),
        operation: text(&json["operation"]),
        start: json["started"].as_f64().expect("an operation has a start"),
        end: json["completed"].as_f64(),
        state: text(&json["state"]),
        states,
        progress,
        messages: timeline.iter().map(|it| text(&it["message"])).collect(),
        until: None,
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE
}

/// Returns true if a replayed operation equals an operation of the truth table. The caller compares
/// the subjects.
fn matches(expected: &Expected, actual: &Replayed) -> bool {
    expected.operation == actual.operation
        && expected.state == actual.state
        && is_near(expected.start, actual.start)
        && match (expected.end, actual.end) {
            (Some(expected), Some(actual)) => is_near(expected, actual),
            (expected, actual) => expected == actual,
        }
        && expected
            .states
            .as_ref()
            .is_none_or(|it| *it == actual.states)
        && expected
            .progress
            .as_ref()
            .is_none_or(|it| *it == actual.progress)
        && expected.message.as_ref().is_none_or(|part| {
            let mut messages = actual.messages.iter();
            messages.any(|message| message.contains(part))
        })
        && expected
            .last
            .as_ref()
            .is_none_or(|last| actual.messages.last() == Some(last))
        && expected
            .until
            .is_none_or(|expected| actual.until.is_some_and(|until| is_near(expected, until)))
}

/// Returns a line for each operation that is only in the truth table or only in the replay.
fn differences(truth: Truth, mut replayed: Vec<Replayed>) -> Vec<String> {
    let mut differences = Vec::new();
    for (subject, operations) in truth.operations {
        for expected in operations {
            let found = replayed
                .iter()
                .position(|actual| actual.subject == subject && matches(&expected, actual));
            match found {
                // The replayed operation must not also match another entry of the truth table.
                Some(at) => drop(replayed.remove(at)),
                None => differences.push(format!("not detected: {subject} {expected:?}")),
            }
        }
    }
    let unexpected = replayed.iter();
    differences.extend(unexpected.map(|actual| format!("not in the truth table: {actual:?}")));
    differences
}

#[test]
fn the_operations_in_a_recording_are_exactly_those_of_its_truth_table() {
    let mut wrong = Vec::new();
    for stream in streams() {
        let name = stream
            .file_name()
            .expect("the path has a name")
            .display()
            .to_string();
        let truth = read_truth(&stream);
        let mut expected = truth.operations.values().flatten();
        let with_until = expected.any(|operation| operation.until.is_some());
        let differences = differences(truth, replay(&stream, with_until));
        wrong.extend(differences.iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns a truth table with one subject.
fn truth_table(operations: &[Expected]) -> Truth {
    Truth {
        operations: BTreeMap::from([("VirtualMachine a".to_owned(), operations.to_vec())]),
    }
}

/// Returns an operation of a truth table.
fn expected(start: f64) -> Expected {
    Expected {
        operation: "Migrating".to_owned(),
        start,
        end: None,
        state: "Blocked".to_owned(),
        states: None,
        progress: None,
        message: None,
        last: None,
        until: None,
    }
}

/// Returns a replayed operation that equals `expected(start)`.
fn replayed(start: f64) -> Replayed {
    Replayed {
        subject: "VirtualMachine a".to_owned(),
        operation: "Migrating".to_owned(),
        start,
        end: None,
        state: "Blocked".to_owned(),
        states: vec!["Progressing".to_owned(), "Blocked".to_owned()],
        progress: vec![0, 50],
        messages: vec![String::new(), "waits for a node".to_owned()],
        until: None,
    }
}

#[test]
fn missing_late_or_extra_operations_are_differences() {
    let differences = |truth: &[f64], starts: &[f64]| {
        let truth: Vec<Expected> = truth.iter().copied().map(expected).collect();
        let replayed = starts.iter().copied().map(replayed).collect();
        differences(truth_table(&truth), replayed).len()
    };
    assert_eq!(differences(&[1.0, 9.0], &[9.5, 0.5]), 0);
    assert_eq!(differences(&[1.0], &[]), 1);
    assert_eq!(differences(&[1.0], &[2.5]), 2);
    assert_eq!(differences(&[1.0], &[1.0, 1.0]), 1);
}

#[test]
fn a_wrong_value_of_an_optional_field_is_a_difference() {
    let matches = |fields: &str| {
        let text = format!("{{operation: Migrating, start: 1, state: Blocked, {fields}}}");
        let expected: Expected = serde_saphyr::from_str(&text).expect("the fields are valid");
        let mut replayed = replayed(1.0);
        replayed.until = Some(31.0);
        differences(truth_table(&[expected]), vec![replayed]).is_empty()
    };
    for fields in [
        "states: [Progressing, Blocked]",
        "progress: [0, 50]",
        "message: for a",
        "last: waits for a node",
        "until: 30.5",
    ] {
        assert!(matches(fields), "{fields} must match");
    }
    for fields in [
        "states: [Blocked]",
        "states: []",
        "progress: [0]",
        "message: for the",
        "last: waits",
        "until: 29.5",
    ] {
        assert!(!matches(fields), "{fields} must not match");
    }
    // The replayed operation has no `until`, as if the stream ended before the server showed the
    // end.
    let expected = Expected {
        until: Some(31.0),
        ..expected(1.0)
    };
    let differences = differences(truth_table(&[expected]), vec![replayed(1.0)]);
    assert_eq!(differences.len(), 2, "{differences:?}");
}
