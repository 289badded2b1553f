//! Runs the table of command lines, and compares their output.

use super::Scene;
use super::program::{Kubectl, Said};
use super::table::{Columns, Expect, LINES};
use crate::harness::{World, eventually, text};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Number of concurrent commands. Each mostly waits for the server.
const AT_ONCE: usize = 4;

/// Runs all lines, and fails with all differences.
pub async fn all_answer(world: &World, kubectl: &Kubectl) {
    let mut scene = Scene::set(world, "kubectl").await;
    // kube-apiserver reads the OpenAPI document some time after the registration.
    eventually("operations are documented", async || {
        let said = kubectl.say(&["explain", "ifo"]).await;
        if said.succeeded {
            Ok(())
        } else {
            Err(said.err)
        }
    })
    .await;
    happened(world, &scene).await;
    let folder = tempfile::tempdir().expect("there is room for a file");
    let file = folder.path().join("operation.json");
    std::fs::write(&file, scene.operations[0].to_string()).expect("the folder is ours");
    let file = file.to_str().expect("our paths are UTF-8");
    let mut lines = LINES.to_vec();
    loop {
        let wrong = wrong(kubectl, &scene, file, lines).await;
        if wrong.is_empty() {
            break;
        }
        // A watch gap changes operations. Other changes are not expected.
        let now = scene.again(world).await;
        assert!(
            now != scene.operations,
            "{}",
            wrong.into_values().collect::<Vec<_>>().join("\n\n")
        );
        scene.unchanged(&now);
        scene.operations = now;
        lines = LINES.to_vec();
        lines.retain(|(line, _)| wrong.contains_key(line));
    }
    // Refused commands had no effect.
    scene.unchanged(&scene.again(world).await);
}

/// Runs these lines. Returns the differences with their lines.
async fn wrong(
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
            let said = kubectl.say(&words.split(' ').collect::<Vec<_>>()).await;
            (line, expect, said)
        })
        .buffered(AT_ONCE);
    let mut wrong = BTreeMap::new();
    while let Some((line, expect, said)) = answers.next().await {
        if let Err(difference) = compare(&said, expect, scene, filled) {
            let Said { out, err, .. } = said;
            let words = filled(line);
            wrong.insert(line, format!("kubectl {words}: {difference}\n{out}{err}"));
        }
    }
    wrong
}

/// An Event on the first operation, as a controller could record it.
async fn happened(world: &World, scene: &Scene) {
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
    world.admin.post(&path, &event).await.ok();
}

fn compare(
    said: &Said,
    expect: Expect,
    scene: &Scene,
    filled: impl Fn(&str) -> String,
) -> Result<(), String> {
    let fails = matches!(expect, Expect::Refusal(_) | Expect::NoVerb(_));
    if said.succeeded == fails {
        return Err(format!("it succeeded: {}", said.succeeded));
    }
    // Any text on standard error, such as a warning, would irritate users.
    if !fails && !matches!(expect, Expect::Note(_)) && !said.err.is_empty() {
        return Err("it complains".to_owned());
    }
    match expect {
        Expect::Rows(machines, columns) => {
            let of = |machine: u8| &scene.operations[usize::from(machine - b'a')];
            let rows = machines.bytes().map(|machine| cells(of(machine), columns));
            same(&table(&said.out)?, &(header(columns), rows.collect()))
        }
        Expect::List => {
            let mut list = read(&said.out)?;
            // kubectl creates the metadata of lists.
            list["metadata"].take();
            let items = &scene.operations;
            let wanted =
                json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": null});
            same(&list, &wanted)
        }
        Expect::One => same(&read(&said.out)?, &scene.operations[0]),
        Expect::Text(text) => same(&said.out, &filled(text)),
        Expect::Words(words) => {
            let mut rest = said.out.as_str();
            for word in words {
                let word = filled(word);
                let at = rest.find(&word).ok_or(format!("no {word:?}"))?;
                rest = &rest[at + word.len()..];
            }
            Ok(())
        }
        Expect::Note(text) | Expect::Refusal(text) => holds(&said.err, &filled(text)),
        Expect::NoVerb(verb) => {
            let resource = "inflightoperations.live.ifo.kubevirt.io";
            let refusal = format!("{verb} is not supported on resources of kind \"{resource}\"");
            holds(&said.err, &refusal)
        }
    }
}

fn read(text: &str) -> Result<Value, String> {
    // YAML parsers also read JSON.
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{found:?} where {wanted:?} is wanted"))
    }
}

fn holds(text: &str, part: &str) -> Result<(), String> {
    if text.contains(part) {
        Ok(())
    } else {
        Err(format!("no {part:?}"))
    }
}

fn header(columns: Columns) -> Vec<String> {
    let usual = "NAME KIND SUBJECT OPERATION PHASE STATE PROGRESS AGE MESSAGE";
    let (before, after) = match columns {
        Columns::Usual => ("", ""),
        Columns::Namespace => ("NAMESPACE", ""),
        Columns::Wide => ("", "COMPONENT RULESET REASON STARTED COMPLETED"),
        Columns::Labels => ("", "LABELS"),
        Columns::TwoLabels => ("", "TEAM OPERATION"),
    };
    let all = [before, usual, after].join(" ");
    all.split_whitespace().map(str::to_owned).collect()
}

/// The cells of an operation below a header, except AGE.
fn cells(operation: &Value, columns: Columns) -> Vec<String> {
    let at = |pointer: &str| text(operation, pointer).to_owned();
    let labels = &operation["metadata"]["labels"];
    let mut cells = row(operation);
    match columns {
        Columns::Usual => {}
        Columns::Namespace => cells.insert(0, at("/metadata/namespace")),
        Columns::Wide => cells.extend([
            at("/spec/component"),
            at("/spec/ruleSet"),
            at("/status/reason"),
            at("/metadata/creationTimestamp"),
            at("/status/completed"),
        ]),
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

/// The cells of an operation in the default columns, except AGE.
pub fn row(operation: &Value) -> Vec<String> {
    let progress = &operation["status"]["progress"];
    let cells = [
        text(operation, "/metadata/name"),
        text(operation, "/spec/subject/kind"),
        text(operation, "/spec/subject/name"),
        text(operation, "/spec/operation"),
        text(operation, "/status/phase"),
        text(operation, "/status/state"),
        &format!("{progress}%"),
        text(operation, "/status/message"),
    ];
    cells.map(str::to_owned).to_vec()
}

/// A header and its rows, without the cells of AGE, which must have the format of an age.
fn table(text: &str) -> Result<(Vec<String>, Vec<Vec<String>>), String> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let names: Vec<String> = header.split_whitespace().map(str::to_owned).collect();
    let mut starts: Vec<usize> = Vec::new();
    for name in &names {
        // Two columns can have the same name.
        let after = starts.last().map_or(0, |start| start + 1);
        let at = header[after..].find(name.as_str()).expect("it is there");
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
                return Err(format!("{cell:?} is no age"));
            }
        }
        rows.push(row);
    }
    Ok((names, rows))
}
