//! Runs `kubectl get -w` and `kubectl wait` while an operation ends, and compares their output with
//! the events of the test's own watch. `kubectl get -w` must print exactly the events that match
//! its arguments. `kubectl wait` must print one line.

use super::Scene;
use super::commands::row;
use super::program::Kubectl;
use crate::harness::{Lines, TestCluster, columns, event_types, is_in_gap, text};
use serde_json::{Value, json};

/// How a command prints events.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// One table row for each event. The row begins with the fields at these JSON pointers of the
    /// event, such as its type.
    Rows(&'static [&'static str]),
    Yaml,
    Json,
    /// One line for each event, with the field at this JSON pointer.
    Part(&'static str),
    /// One line, which `kubectl wait` prints when its condition is true.
    WaitLine,
}

/// A function that returns true if a command must print this event.
type EventFilter = fn(&Value) -> bool;

/// A running command.
struct Watch {
    line: String,
    form: Form,
    prints: EventFilter,
    lines: Lines,
}

/// Returns true if an event is about the operation on VirtualMachine `a`. The test ends this
/// operation.
fn is_of_ending_operation(event: &Value) -> bool {
    text(event, "/object/spec/subject/name") == "a"
}

fn is_starting(event: &Value) -> bool {
    text(event, "/object/spec/operation") == "Starting"
}

/// Returns all commands. Each tuple contains the arguments of the command, the form of its output,
/// and a filter for the events that the command must print. `ending_operation` is the name of
/// the operation that ends.
fn commands(namespace: &str, ending_operation: &str) -> Vec<(String, Form, EventFilter)> {
    let ifos = format!("get ifos -n {namespace} -w");
    let ifo = format!("get ifo {ending_operation} -n {namespace} -w");
    let all = |_: &Value| true;
    let later = |event: &Value| event["type"] != "ADDED";
    let wait = |what: &str| {
        format!("wait ifo/{ending_operation} -n {namespace} --for={what} --timeout=180s")
    };
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
            is_starting,
        ),
        (ifo.clone(), Form::Rows(&[]), is_of_ending_operation),
        (
            format!("{ifo} --output-watch-events"),
            Form::Rows(&["/type"]),
            is_of_ending_operation,
        ),
        (format!("{ifo} -o json"), Form::Json, is_of_ending_operation),
        (
            format!("{ifo} -o jsonpath={{.status.state}}{{\"\\n\"}}"),
            Form::Part("/object/status/state"),
            is_of_ending_operation,
        ),
        (wait("delete"), Form::WaitLine, is_of_ending_operation),
        (
            wait("condition=Completed"),
            Form::WaitLine,
            is_of_ending_operation,
        ),
        (
            wait("condition=Detected=false"),
            Form::WaitLine,
            is_of_ending_operation,
        ),
        (
            wait("jsonpath={.status.phase}=Completed"),
            Form::WaitLine,
            is_of_ending_operation,
        ),
    ]
}

/// Returns the output that a command must print for these events. `ending_operation` is the
/// name of the operation that ends.
fn expected_output(form: Form, events: &[&Value], ending_operation: &str) -> Vec<Value> {
    let print = |event: &&Value| match form {
        Form::Rows(before) => {
            let before = before.iter().map(|it| text(event, it).to_owned());
            json!(before.chain(row(&event["object"])).collect::<Vec<_>>())
        }
        Form::Yaml | Form::Json => event["object"].clone(),
        Form::Part(pointer) => json!(text(event, pointer)),
        Form::WaitLine => json!(format!(
            "inflightoperation.live.ifo.kubevirt.io/{ending_operation} condition met"
        )),
    };
    let lines = events.iter().map(print);
    // `kubectl wait` prints one line, even if there are several events.
    let count = if matches!(form, Form::WaitLine) {
        1
    } else {
        events.len()
    };
    lines.take(count).collect()
}

/// Parses the output of a command, without log lines and warnings. Returns an error if the output
/// is incomplete.
fn parse_output(form: Form, lines: &[String]) -> Result<Vec<Value>, String> {
    let lines: Vec<&str> = (lines.iter().map(String::as_str))
        .filter(|line| !is_log(line) && !line.contains("operations may be missing"))
        .collect();
    match form {
        Form::Rows(_) => {
            let Some((header, rows)) = lines.split_first() else {
                return Ok(Vec::new());
            };
            let header = columns(header);
            let age = header
                .iter()
                .position(|it| *it == "AGE")
                .ok_or("the header has no column AGE")?;
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
        Form::Part(_) | Form::WaitLine => Ok(lines.into_iter().map(|it| json!(it)).collect()),
    }
}

/// Returns true if a line is a log line of kubectl, such as `I0314 …`.
pub fn is_log(line: &str) -> bool {
    let mut letters = line.chars();
    letters.next().is_some_and(|it| "IWE".contains(it))
        && letters.take(4).filter(char::is_ascii_digit).count() == 4
}

/// Waits until a command of [`Kubectl::follow`] has received the answer to its watch request.
/// kubectl logs the status of this answer, because `follow` sets `-v=6`.
pub async fn wait_for_watch(lines: &mut Lines) {
    let is_answer = |line: &String| line.contains("watch=true") && line.contains("200 OK");
    lines
        .until("the answer to the watch request", |all| {
            all.iter().any(is_answer).then_some(())
        })
        .await;
}

/// Largest number of attempts. If the server's own watch is interrupted (a watch gap), clients
/// receive additional events, and the test tries again. After the last attempt, the test fails.
const ATTEMPTS: usize = 5;

/// Runs all commands, ends an operation, and compares the output with the expected output. If there
/// was a watch gap, tries again in a new namespace.
pub async fn compare_output(cluster: &TestCluster, kubectl: &Kubectl) {
    for _ in 0..ATTEMPTS {
        if compare_output_once(cluster, kubectl).await {
            return;
        }
        eprintln!("there was a watch gap");
    }
    panic!("there was a watch gap in each attempt");
}

/// Runs the commands once. Returns false if there was a watch gap.
async fn compare_output_once(cluster: &TestCluster, kubectl: &Kubectl) -> bool {
    let scene = Scene::create(cluster, "kubectl-watch").await;
    let ending_operation = scene.name(0);
    let mut own_watch = cluster.watch(scene.namespace).await;
    let mut watches: Vec<Watch> = commands(scene.namespace, ending_operation)
        .into_iter()
        .filter(|(line, ..)| kubectl.waits_for_fields || !line.contains("--for=jsonpath"))
        .map(|(line, form, prints)| {
            let lines = kubectl.follow(&line.split(' ').collect::<Vec<_>>());
            Watch {
                line,
                form,
                prints,
                lines,
            }
        })
        .collect();
    for watch in &mut watches {
        wait_for_watch(&mut watch.lines).await;
    }
    cluster.set_status(scene.namespace, "a", "Running").await;
    let events = own_watch
        .until("the operation is deleted", |all| {
            (event_types(all, ending_operation).last() == Some(&"DELETED")).then(|| all.to_vec())
        })
        .await;
    assert_eq!(
        event_types(&events, ending_operation),
        ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    );
    if events.iter().any(|event| is_in_gap(&event["object"])) {
        return false;
    }
    for mut watch in watches {
        let events: Vec<&Value> = events.iter().filter(|it| (watch.prints)(it)).collect();
        let expected = expected_output(watch.form, &events, ending_operation);
        let what = format!("kubectl {} prints {expected:?}", watch.line);
        let form = watch.form;
        watch
            .lines
            .until(&what, |lines| {
                (parse_output(form, lines).as_ref() == Ok(&expected)).then_some(())
            })
            .await;
    }
    true
}
