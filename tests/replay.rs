//! Streams that were recorded from real controllers, through the rules that ship: each
//! shows the operations that its truth table has, once, and none else. `README.md` beside
//! the streams tells where they come from.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How far a start or an end may be off, in seconds: objects have whole seconds.
const TOLERANCE: f64 = 1.0;

#[derive(Deserialize)]
struct Truth {
    /// By kind and name of the subject.
    operations: BTreeMap<String, Vec<Stretch>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stretch {
    operation: String,
    /// Seconds of the stream.
    start: f64,
    /// None for what is under way when the stream ends.
    end: Option<f64>,
    /// How it ended, or how it stands.
    state: String,
}

/// What the operation was detected on, and what it is.
struct Seen {
    subject: String,
    operation: Stretch,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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

/// What `kubectl ifo rules replay` finds.
fn replay(stream: &Path) -> Vec<Seen> {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"))
        .args(["rules", "replay", "rules", "-O", "json", "--stream"])
        .arg(stream.with_extension("jsonl"))
        .current_dir(repository())
        .output()
        .expect("the plugin starts");
    // What it has to say beyond the operations: rules that fail, lines that are none.
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
    Seen {
        subject: format!("{} {}", text(&subject["kind"]), text(&subject["name"])),
        operation: Stretch {
            operation: text(&run["operation"]),
            start: run["started"].as_f64().expect("a start"),
            end: run["completed"].as_f64(),
            state: text(&run["state"]),
        },
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE
}

fn is_same(one: &Stretch, other: &Stretch) -> bool {
    one.operation == other.operation
        && one.state == other.state
        && is_near(one.start, other.start)
        && match (one.end, other.end) {
            (Some(one), Some(other)) => is_near(one, other),
            (one, other) => one == other,
        }
}

/// What is in the truth and was not seen, and what was seen and is not in the truth.
fn differences(truth: Truth, mut seen: Vec<Seen>) -> Vec<String> {
    let mut differences = Vec::new();
    for (subject, operations) in truth.operations {
        for expected in operations {
            let found = seen
                .iter()
                .position(|seen| seen.subject == subject && is_same(&seen.operation, &expected));
            match found {
                // Each stands for one.
                Some(at) => drop(seen.remove(at)),
                None => differences.push(format!("not seen: {subject} {expected:?}")),
            }
        }
    }
    let more = seen.iter();
    differences.extend(more.map(|seen| format!("not true: {} {:?}", seen.subject, seen.operation)));
    differences
}

#[test]
fn a_recorded_stream_shows_what_was_under_way_and_nothing_else() {
    let mut wrong = Vec::new();
    for stream in streams() {
        let name = stream.file_name().expect("a name").display().to_string();
        let differences = differences(truth(&stream), replay(&stream));
        wrong.extend(differences.iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_missing_or_late_or_too_much_is_a_difference() {
    let operation = |start: f64| Stretch {
        operation: "Migrating".to_owned(),
        start,
        end: None,
        state: "Progressing".to_owned(),
    };
    let truth = |starts: &[f64]| {
        let operations = starts.iter().copied().map(operation).collect();
        Truth {
            operations: BTreeMap::from([("VirtualMachine a".to_owned(), operations)]),
        }
    };
    let seen = |starts: &[f64]| {
        let seen = |start| Seen {
            subject: "VirtualMachine a".to_owned(),
            operation: operation(start),
        };
        starts.iter().copied().map(seen).collect::<Vec<_>>()
    };
    assert!(differences(truth(&[1.0, 9.0]), seen(&[9.5, 0.5])).is_empty());
    assert_eq!(differences(truth(&[1.0]), seen(&[])).len(), 1);
    assert_eq!(differences(truth(&[1.0]), seen(&[2.5])).len(), 2);
    assert_eq!(differences(truth(&[1.0]), seen(&[1.0, 1.0])).len(), 1);
}
