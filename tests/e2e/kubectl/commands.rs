//! Runs the kubectl command lines of [`super::command_lines`], and compares their output with the
//! expected output.

use super::Scene;
use super::command_lines::{Columns, Expect, LINES};
use super::program::{Kubectl, KubectlOutput};
use crate::harness::{TestCluster, columns, path_of_column, text};
use futures::StreamExt as _;
use ifo::resources::LIVE_COLUMNS;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Number of commands that run at the same time.
const AT_ONCE: usize = 4;

/// Runs the command lines for which `is_understood` returns true. Fails with a list of all
/// differences.
pub async fn compare_output(
    cluster: &TestCluster,
    kubectl: &Kubectl,
    is_understood: fn(&str) -> bool,
) {
    let mut scene = Scene::create(cluster, "kubectl").await;
    create_event(cluster, &scene).await;
    let folder = tempfile::tempdir().expect("temporary folders can be created");
    let file = folder.path().join("operation.json");
    std::fs::write(&file, scene.operations[0].to_string()).expect("the folder is writable");
    let file = file
        .to_str()
        .expect("the path of a temporary folder is UTF-8");
    let all = || {
        LINES
            .iter()
            .filter(|(line, _)| is_understood(line))
            .copied()
    };
    let mut lines: Vec<_> = all().collect();
    loop {
        let wrong = run_lines(kubectl, &scene, file, lines).await;
        if wrong.is_empty() {
            break;
        }
        // An interruption of the ifo server's watch changes fields of the operations, such as the
        // condition `Detected`. So the output of a command can differ. If the operations have
        // changed, the test runs the commands with a difference again. If they have not changed,
        // the test fails.
        let now = scene.wait_for_operations(cluster).await;
        assert!(
            now != scene.operations,
            "{}",
            wrong.into_values().collect::<Vec<_>>().join("\n\n")
        );
        scene.assert_unchanged(&now);
        scene.operations = now;
        lines = all().filter(|(line, _)| wrong.contains_key(line)).collect();
    }
    // The server must have refused all commands that write, so the operations must be unchanged.
    scene.assert_unchanged(&scene.wait_for_operations(cluster).await);
}

/// Runs these command lines. Returns the lines whose output differs, each with its difference.
async fn run_lines(
    kubectl: &Kubectl,
    scene: &Scene,
    file: &str,
    lines: Vec<(&'static str, Expect)>,
) -> BTreeMap<&'static str, String> {
    let filled = |text: &str| {
        let text = text.replace("$ns", scene.namespace).replace("$file", file);
        let names = ["$a", "$b", "$c"].into_iter().enumerate();
        names.fold(text, |text, (at, word)| text.replace(word, scene.name(at)))
    };
    let mut answers = futures::stream::iter(lines)
        .map(async |(line, expect)| {
            let words = filled(line);
            let output = kubectl.run(&words.split(' ').collect::<Vec<_>>()).await;
            (line, expect, output)
        })
        .buffered(AT_ONCE);
    let mut wrong = BTreeMap::new();
    while let Some((line, expect, output)) = answers.next().await {
        if let Err(difference) = compare(&output, expect, scene, filled) {
            let KubectlOutput { out, err, .. } = output;
            let words = filled(line);
            wrong.insert(line, format!("kubectl {words}: {difference}\n{out}{err}"));
        }
    }
    wrong
}

/// Creates an Event about the first operation, as a controller could do.
async fn create_event(cluster: &TestCluster, scene: &Scene) {
    let operation = &scene.operations[0];
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "moon"},
        "type": "Normal", "reason": "Noticed", "message": "The moon was full.",
        "involvedObject": {
            "apiVersion": operation["apiVersion"], "kind": operation["kind"],
            "namespace": scene.namespace, "name": scene.name(0),
            "uid": operation["metadata"]["uid"],
        },
    });
    let path = format!("/api/v1/namespaces/{}/events", scene.namespace);
    cluster.admin.post(&path, &event).await.ok();
}

/// Compares the output of a command with the expected output. If they differ, returns an error that
/// describes the difference.
fn compare(
    output: &KubectlOutput,
    expect: Expect,
    scene: &Scene,
    filled: impl Fn(&str) -> String,
) -> Result<(), String> {
    let fails = matches!(expect, Expect::Refusal(_) | Expect::NoVerb(_));
    if output.succeeded == fails {
        let result = if fails { "succeeded" } else { "failed" };
        return Err(format!("the command {result} unexpectedly"));
    }
    // A command that must succeed must print nothing to standard error, not even a warning. The
    // only exception is `Note`, which expects a text there.
    if !fails && !matches!(expect, Expect::Note(_)) && !output.err.is_empty() {
        return Err("the command printed to standard error".to_owned());
    }
    match expect {
        Expect::Rows(machines, columns) => {
            let operation = |machine: u8| &scene.operations[usize::from(machine - b'a')];
            let rows = machines
                .bytes()
                .map(|machine| cells(operation(machine), columns));
            equal(&table(&output.out)?, &(header(columns), rows.collect()))
        }
        Expect::List => {
            let mut list = read(&output.out)?;
            // kubectl itself creates the metadata of a list, so they are not compared.
            list["metadata"].take();
            let items = &scene.operations;
            let wanted =
                json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": null});
            equal(&list, &wanted)
        }
        Expect::One => equal(&read(&output.out)?, &scene.operations[0]),
        Expect::Text(text) => equal(&output.out, &filled(text)),
        Expect::Words(words) => {
            let mut rest = output.out.as_str();
            for word in words {
                let word = filled(word);
                let at = rest.find(&word).ok_or(format!("no {word:?}"))?;
                rest = &rest[at + word.len()..];
            }
            Ok(())
        }
        Expect::Note(text) | Expect::Refusal(text) => contains_text(&output.err, &filled(text)),
        Expect::NoVerb(verb) => {
            let resource = "inflightoperations.live.ifo.kubevirt.io";
            let refusal = format!("{verb} is not supported on resources of kind \"{resource}\"");
            contains_text(&output.err, &refusal)
        }
    }
}

fn read(text: &str) -> Result<Value, String> {
    // JSON is valid YAML.
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

fn equal<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{found:?}, expected {wanted:?}"))
    }
}

fn contains_text(text: &str, part: &str) -> Result<(), String> {
    if text.contains(part) {
        Ok(())
    } else {
        Err(format!("no {part:?}"))
    }
}

fn header(columns: Columns) -> Vec<String> {
    let usual = "SUBJECT OPERATION STATE AGE MESSAGE";
    let all = match columns {
        Columns::Usual => usual.to_owned(),
        Columns::Namespace => format!("NAMESPACE {usual}"),
        Columns::Wide => {
            return LIVE_COLUMNS
                .iter()
                .map(|it| it.name.to_uppercase())
                .collect();
        }
        Columns::Labels => format!("{usual} LABELS"),
        Columns::TwoLabels => format!("{usual} TEAM OPERATION"),
    };
    all.split_whitespace().map(str::to_owned).collect()
}

/// Returns the cells of an operation in these columns, without AGE.
fn cells(operation: &Value, columns: Columns) -> Vec<String> {
    let at = |pointer: &str| text(operation, pointer).to_owned();
    let labels = &operation["metadata"]["labels"];
    let mut cells: Vec<String> = row(operation).into();
    match columns {
        Columns::Usual => {}
        Columns::Namespace => cells.insert(0, at("/metadata/namespace")),
        Columns::Wide => {
            let [subject, _, state, _] = row(operation);
            let columns = LIVE_COLUMNS.iter().filter(|it| it.name != "Age");
            let wide = columns.map(|it| match it.name {
                "Subject" => subject.clone(),
                "State" => state.clone(),
                "Progress" => percent(operation),
                name => at(&path_of_column(name)),
            });
            cells = wide.collect();
        }
        Columns::Labels => {
            let labels = labels.as_object().into_iter().flatten();
            let pairs = labels.map(|(key, value)| format!("{key}={}", text(value, "")));
            cells.push(pairs.collect::<Vec<_>>().join(","));
        }
        Columns::TwoLabels => {
            let wanted = ["team", "ifo.kubevirt.io/operation"];
            cells.extend(wanted.map(|key| text(&labels[key], "").to_owned()));
        }
    }
    cells
}

/// Returns the progress of an operation as the tables show it.
fn percent(operation: &Value) -> String {
    format!("{}%", operation["status"]["progress"])
}

/// Returns the cells of an operation on a VirtualMachine in the default columns, without AGE.
pub fn row(operation: &Value) -> [String; 4] {
    assert_eq!(operation["spec"]["subject"]["kind"], "VirtualMachine");
    [
        format!("VirtualMachine/{}", text(operation, "/spec/subject/name")),
        text(operation, "/spec/operation").to_owned(),
        format!(
            "{} {}",
            text(operation, "/status/state"),
            percent(operation)
        ),
        text(operation, "/status/message").to_owned(),
    ]
}

/// Parses a table. Returns its header, and its rows without the column AGE. If a cell of the
/// column AGE is not an age, returns an error.
fn table(text: &str) -> Result<(Vec<String>, Vec<Vec<String>>), String> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let names: Vec<String> = columns(header).into_iter().map(str::to_owned).collect();
    let mut starts: Vec<usize> = Vec::new();
    for name in &names {
        // Two columns can have the same name, so the search starts after the previous column.
        let after = starts.last().map_or(0, |start| start + 1);
        let at = header[after..]
            .find(name.as_str())
            .expect("the name comes from the header");
        starts.push(after + at);
    }
    let mut rows = Vec::new();
    for line in lines {
        let mut row = Vec::new();
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(line.len());
            let cell = line.get(*start..end.min(line.len())).unwrap_or_default();
            let cell = cell.trim_end();
            if names[at] != "AGE" {
                row.push(cell.to_owned());
            } else if !cell.starts_with(|it: char| it.is_ascii_digit()) {
                return Err(format!("{cell:?} is not an age"));
            }
        }
        rows.push(row);
    }
    Ok((names, rows))
}
