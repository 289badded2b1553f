//! Replays recordings of real controllers with the shipped rules. Each must show exactly the
//! operations in its truth table, once. `README.md` beside the streams describes their origin.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tolerance for starts and ends in seconds, because objects have whole seconds.
const TOLERANCE: f64 = 1.0;

#[derive(Deserialize)]
struct Truth {
    /// By kind and name of the subject.
    operations: BTreeMap<String, Vec<Stretch>>,
}

/// One operation of a truth table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stretch {
    operation: String,
    /// Start in seconds of the stream.
    start: f64,
    /// Time of the last detection. None for an operation that is in flight at the end of the
    /// stream.
    end: Option<f64>,
    /// The last state.
    state: String,
    // The other fields are compared only if the truth table has them.
    /// The states of the active operation, without `Settling` and without repetitions.
    states: Option<Vec<String>>,
    /// The shown percentages, without repetitions.
    progress: Option<Vec<u64>>,
    /// A part of a shown message.
    message: Option<String>,
    /// Time at which the server shows the end.
    until: Option<f64>,
}

/// An operation that the replay detects.
#[derive(Clone, Debug)]
struct Seen {
    /// Kind and name.
    subject: String,
    operation: String,
    start: f64,
    end: Option<f64>,
    state: String,
    states: Vec<String>,
    progress: Vec<u64>,
    messages: Vec<String>,
    /// Read only if the stream's truth table has an `until`.
    until: Option<f64>,
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The recorded streams, without their extension.
fn streams() -> Vec<PathBuf> {
    let folder = repository().join("tests/fixtures/recorded");
    let mut streams: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder of the streams")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .map(|path| path.with_extension(""))
        .collect();
    streams.sort();
    assert!(streams.len() > 20, "{streams:?}");
    streams
}

fn truth(stream: &Path) -> Truth {
    let path = stream.with_extension("truth.yaml");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The operations that `kubectl ifo rules replay` detects in hindsight. With `live`, also the times
/// at which the server shows each end.
fn replay(stream: &Path, live: bool) -> Vec<Seen> {
    let mut found = runs(stream, &["--hindsight"]);
    if live {
        let ends = runs(stream, &[]);
        // Both list the operations sorted by start.
        let names = |runs: &[Seen]| -> Vec<(String, String)> {
            let name = |run: &Seen| (run.subject.clone(), run.operation.clone());
            runs.iter().map(name).collect()
        };
        assert_eq!(names(&found), names(&ends), "{}", stream.display());
        for (run, live) in found.iter_mut().zip(ends) {
            run.until = live.end;
        }
    }
    found
}

fn runs(stream: &Path, flags: &[&str]) -> Vec<Seen> {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"))
        .args(["rules", "replay", "rules", "-O", "json"])
        .args(flags)
        .arg("--stream")
        .arg(stream.with_extension("jsonl"))
        .current_dir(repository())
        .output()
        .expect("the plugin starts");
    // Its messages on standard error: rules that fail, and invalid lines.
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {complaints}",
        stream.display()
    );
    assert_eq!(complaints, "", "{}", stream.display());
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let operations = found["operations"].as_array().expect("operations");
    operations.iter().map(seen).collect()
}

fn seen(run: &Value) -> Seen {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let subject = &run["subject"];
    let timeline = run["timeline"].as_array().expect("a timeline");
    let mut states: Vec<String> = timeline.iter().map(|it| text(&it["state"])).collect();
    states.retain(|state| ["Progressing", "Blocked", "Failing"].contains(&state.as_str()));
    states.dedup();
    let progress = timeline.iter().filter_map(|it| it["progress"].as_u64());
    let mut progress: Vec<u64> = progress.collect();
    progress.dedup();
    Seen {
        subject: format!("{} {}", text(&subject["kind"]), text(&subject["name"])),
        operation: text(&run["operation"]),
        start: run["started"].as_f64().expect("a start"),
        end: run["completed"].as_f64(),
        state: text(&run["state"]),
        states,
        progress,
        messages: timeline.iter().map(|it| text(&it["message"])).collect(),
        until: None,
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE
}

fn is_same(expected: &Stretch, seen: &Seen) -> bool {
    expected.operation == seen.operation
        && expected.state == seen.state
        && is_near(expected.start, seen.start)
        && match (expected.end, seen.end) {
            (Some(expected), Some(seen)) => is_near(expected, seen),
            (expected, seen) => expected == seen,
        }
        && expected.states.as_ref().is_none_or(|it| *it == seen.states)
        && expected
            .progress
            .as_ref()
            .is_none_or(|it| *it == seen.progress)
        && expected.message.as_ref().is_none_or(|part| {
            let mut messages = seen.messages.iter();
            messages.any(|message| message.contains(part))
        })
        && expected
            .until
            .is_none_or(|expected| seen.until.is_some_and(|seen| is_near(expected, seen)))
}

/// The missing and the unexpected operations.
fn differences(truth: Truth, mut seen: Vec<Seen>) -> Vec<String> {
    let mut differences = Vec::new();
    for (subject, operations) in truth.operations {
        for expected in operations {
            let found = seen
                .iter()
                .position(|seen| seen.subject == subject && is_same(&expected, seen));
            match found {
                // Each entry matches one operation.
                Some(at) => drop(seen.remove(at)),
                None => differences.push(format!("not seen: {subject} {expected:?}")),
            }
        }
    }
    differences.extend(seen.iter().map(|seen| format!("not true: {seen:?}")));
    differences
}

#[test]
fn a_recording_yields_exactly_the_operations_of_its_truth_table() {
    let mut wrong = Vec::new();
    for stream in streams() {
        let name = stream.file_name().expect("a name").display().to_string();
        let truth = truth(&stream);
        let mut expected = truth.operations.values().flatten();
        let live = expected.any(|operation| operation.until.is_some());
        let differences = differences(truth, replay(&stream, live));
        wrong.extend(differences.iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A truth table with one subject.
fn table(operations: &[Stretch]) -> Truth {
    Truth {
        operations: BTreeMap::from([("VirtualMachine a".to_owned(), operations.to_vec())]),
    }
}

fn expected(start: f64) -> Stretch {
    Stretch {
        operation: "Migrating".to_owned(),
        start,
        end: None,
        state: "Blocked".to_owned(),
        states: None,
        progress: None,
        message: None,
        until: None,
    }
}

fn found(start: f64) -> Seen {
    Seen {
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
    let differences = |truth: &[f64], seen: &[f64]| {
        let truth: Vec<Stretch> = truth.iter().copied().map(expected).collect();
        differences(table(&truth), seen.iter().copied().map(found).collect()).len()
    };
    assert_eq!(differences(&[1.0, 9.0], &[9.5, 0.5]), 0);
    assert_eq!(differences(&[1.0], &[]), 1);
    assert_eq!(differences(&[1.0], &[2.5]), 2);
    assert_eq!(differences(&[1.0], &[1.0, 1.0]), 1);
}

#[test]
fn a_wrong_value_of_an_optional_field_is_a_difference() {
    let is_true = |fields: &str| {
        let text = format!("{{operation: Migrating, start: 1, state: Blocked, {fields}}}");
        let expected: Stretch = serde_saphyr::from_str(&text).expect("an operation");
        let mut seen = found(1.0);
        seen.until = Some(31.0);
        differences(table(&[expected]), vec![seen]).is_empty()
    };
    for fields in [
        "states: [Progressing, Blocked]",
        "progress: [0, 50]",
        "message: for a",
        "until: 30.5",
    ] {
        assert!(is_true(fields), "{fields}");
    }
    for fields in [
        "states: [Blocked]",
        "states: []",
        "progress: [0]",
        "message: for the",
        "until: 29.5",
    ] {
        assert!(!is_true(fields), "{fields}");
    }
    // The stream ends before the server shows the end.
    let expected = Stretch {
        until: Some(31.0),
        ..expected(1.0)
    };
    assert_eq!(differences(table(&[expected]), vec![found(1.0)]).len(), 2);
}
