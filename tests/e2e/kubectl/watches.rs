//! Tests of watches and waits while an operation settles, completes and is deleted. kubectl prints
//! exactly the received events.

use super::Scene;
use super::commands::row;
use super::program::Kubectl;
use crate::harness::{Lines, World, columns, event_types, is_in_gap, text};
use serde_json::{Value, json};

/// The format in which a command prints events.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// One row per event. Its first cells are the event's type or namespace.
    Rows(&'static [&'static str]),
    Yaml,
    Json,
    /// One line with this part of the object.
    Part(&'static str),
    /// Only the fulfilled condition.
    Met,
}

/// Decides if a command prints an event.
type Wanted = fn(&Value) -> bool;

/// A running command.
struct Watch {
    line: String,
    form: Form,
    wanted: Wanted,
    lines: Lines,
}

/// Returns true if an event is about the operation of machine a, which ends.
fn ends(event: &Value) -> bool {
    text(event, "/object/spec/subject/name") == "a"
}

fn starting(event: &Value) -> bool {
    text(event, "/object/spec/operation") == "Starting"
}

/// The commands, with the events that each prints.
fn commands(namespace: &str, one: &str) -> Vec<(String, Form, Wanted)> {
    let ifos = format!("get ifos -n {namespace} -w");
    let ifo = format!("get ifo {one} -n {namespace} -w");
    let all = |_: &Value| true;
    let later = |event: &Value| event["type"] != "ADDED";
    let wait = |what: &str| format!("wait ifo/{one} -n {namespace} --for={what} --timeout=180s");
    vec![
        (ifos.clone(), Form::Rows(&[]), all),
        (
            format!("{ifos} --output-watch-events"),
            Form::Rows(&["/type"]),
            all,
        ),
        (
            format!("get ifos -A -w --output-watch-events -l team={namespace}"),
            Form::Rows(&["/type", "/object/metadata/namespace"]),
            all,
        ),
        (format!("{ifos} --watch-only"), Form::Rows(&[]), later),
        (
            format!("{ifos} -l ifo.kubevirt.io/operation=Starting -o yaml"),
            Form::Yaml,
            starting,
        ),
        (ifo.clone(), Form::Rows(&[]), ends),
        (
            format!("{ifo} --output-watch-events"),
            Form::Rows(&["/type"]),
            ends,
        ),
        (format!("{ifo} -o json"), Form::Json, ends),
        (
            format!("{ifo} -o jsonpath={{.status.state}}{{\"\\n\"}}"),
            Form::Part("/object/status/state"),
            ends,
        ),
        (wait("delete"), Form::Met, ends),
        (wait("condition=Completed"), Form::Met, ends),
        (wait("condition=Detected=false"), Form::Met, ends),
        (wait("jsonpath={.status.phase}=Completed"), Form::Met, ends),
    ]
}

/// The expected output of a command after these events.
fn wanted(form: Form, events: &[&Value], one: &str) -> Vec<Value> {
    let print = |event: &&Value| match form {
        Form::Rows(before) => {
            let before = before.iter().map(|it| text(event, it).to_owned());
            json!(before.chain(row(&event["object"])).collect::<Vec<_>>())
        }
        Form::Yaml | Form::Json => event["object"].clone(),
        Form::Part(pointer) => json!(text(event, pointer)),
        Form::Met => json!(format!(
            "inflightoperation.live.ifo.kubevirt.io/{one} condition met"
        )),
    };
    let prints = events.iter().map(print);
    // A wait prints one line, regardless of earlier events.
    let count = if matches!(form, Form::Met) {
        1
    } else {
        events.len()
    };
    prints.take(count).collect()
}

/// The printed output. An error if it ends in the middle of a line.
fn printed(form: Form, lines: &[String]) -> Result<Vec<Value>, String> {
    let lines: Vec<&str> = (lines.iter().map(String::as_str))
        .filter(|line| !is_log(line) && !line.contains("operations may be missing"))
        .collect();
    match form {
        Form::Rows(_) => {
            let Some((header, rows)) = lines.split_first() else {
                return Ok(Vec::new());
            };
            let header = columns(header);
            let age = header.iter().position(|it| *it == "AGE").ok_or("no AGE")?;
            let row = |line: &&str| {
                let mut cells = columns(line);
                if cells.len() == header.len() {
                    cells.remove(age);
                }
                json!(cells)
            };
            Ok(rows.iter().map(row).collect())
        }
        Form::Yaml => serde_saphyr::from_multiple(&lines.join("\n")).map_err(|it| it.to_string()),
        Form::Json => serde_json::Deserializer::from_str(&lines.join("\n"))
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|it| it.to_string()),
        Form::Part(_) | Form::Met => Ok(lines.into_iter().map(|it| json!(it)).collect()),
    }
}

/// Returns true if a line is a log line about a request: `I0314 …`.
pub fn is_log(line: &str) -> bool {
    let mut letters = line.chars();
    letters.next().is_some_and(|it| "IWE".contains(it))
        && letters.take(4).filter(char::is_ascii_digit).count() == 4
}

/// Waits until the watch of a command is answered.
pub async fn is_open(lines: &mut Lines) {
    let watching = |line: &String| line.contains("watch=true") && line.contains("200 OK");
    lines
        .until("its watch is open", |all| {
            all.iter().any(watching).then_some(())
        })
        .await;
}

/// Number of attempts after a watch gap. A command that begins in a gap first prints a different
/// event.
const ATTEMPTS: usize = 5;

/// Starts all commands, ends an operation, and compares the output.
pub async fn all_see_the_end(world: &World, kubectl: &Kubectl) {
    for _ in 0..ATTEMPTS {
        if all_see_one_end(world, kubectl).await {
            return;
        }
        eprintln!("a watch gap came between");
    }
    panic!("there is a watch gap each time");
}

/// Does this once. Returns false if a watch gap occurred.
async fn all_see_one_end(world: &World, kubectl: &Kubectl) -> bool {
    let scene = Scene::set(world, "kubectl-watch").await;
    let one = scene.name(0);
    let mut wire = world.watch(scene.namespace).await;
    let mut watches: Vec<Watch> = commands(scene.namespace, one)
        .into_iter()
        .filter(|(line, ..)| kubectl.waits_for_fields || !line.contains("--for=jsonpath"))
        .map(|(line, form, wanted)| {
            let lines = kubectl.follow(&line.split(' ').collect::<Vec<_>>());
            Watch {
                line,
                form,
                wanted,
                lines,
            }
        })
        .collect();
    for watch in &mut watches {
        is_open(&mut watch.lines).await;
    }
    world.set_status(scene.namespace, "a", "Running").await;
    let events = wire
        .until("the operation goes", |all| {
            (event_types(all, one).last() == Some(&"DELETED")).then(|| all.to_vec())
        })
        .await;
    assert_eq!(
        event_types(&events, one),
        ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    );
    if events.iter().any(|event| is_in_gap(&event["object"])) {
        return false;
    }
    for mut watch in watches {
        let events: Vec<&Value> = events.iter().filter(|it| (watch.wanted)(it)).collect();
        let wanted = wanted(watch.form, &events, one);
        let what = format!("kubectl {} prints {wanted:?}", watch.line);
        let form = watch.form;
        watch
            .lines
            .until(&what, |lines| {
                (printed(form, lines).as_ref() == Ok(&wanted)).then_some(())
            })
            .await;
    }
    true
}
