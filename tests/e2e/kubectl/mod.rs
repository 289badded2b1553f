//! Tests of kubectl with operations, with a current version of kubectl and with version 1.20 of 2020.
//! `tests/e2e/compare_with_custom_resource` proves that the server answers like the kube-apiserver.
//! So these tests need only one command line for each part of kubectl.

mod program;

pub use program::{Kubectl, is_log, wait_for_watch};

use crate::harness::{Kind, TestCluster, VM, eventually, ok_if, rule_set, shared, skip, text};
use futures::StreamExt as _;
use serde_json::json;

/// Number of commands that run at the same time.
const AT_ONCE: usize = 4;

const EVENT: Kind = Kind::new("v1", "Event", "events");

/// A command line of `lines.txt`.
struct CommandLine {
    line: &'static str,
    succeeds: bool,
    texts: Vec<&'static str>,
}

/// Reads the command lines in `lines.txt`, which describes its format.
fn command_lines() -> Vec<CommandLine> {
    let mut all: Vec<CommandLine> = Vec::new();
    let lines = include_str!("lines.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(text) = line.strip_prefix("  ") {
            all.last_mut()
                .expect("a text follows a command")
                .texts
                .push(text);
            continue;
        }
        all.push(CommandLine {
            line: line.trim_start_matches("! "),
            succeeds: !line.starts_with('!'),
            texts: Vec::new(),
        });
    }
    all
}

/// Creates a namespace with the operations `Starting` on the VirtualMachine `a` and `Migrating` on
/// `b`, and an Event about the first. Runs the command lines for which `is_understood` returns true.
/// Then ends the first operation, while `kubectl wait` waits for its end and for its deletion.
async fn check(cluster: &TestCluster, kubectl: &Kubectl, is_understood: fn(&str) -> bool) {
    let namespace = cluster.new_namespace("kubectl").await;
    let machines = [("a", "Starting"), ("b", "Migrating")];
    let rule = |(_, status): (&str, &str)| {
        json!({
            "operation": status,
            "expression": format!("object.status.printableStatus == '{status}'"),
            "message": "object.status.message", "progress": "object.status.progress",
        })
    };
    let mut rules = rule_set(namespace, &VM, &[]);
    rules["spec"]["namespaces"] = json!([namespace]);
    rules["spec"]["labels"] = json!({"team": namespace});
    rules["spec"]["rules"] = json!(machines.map(rule));
    cluster.ready_rule_set(&rules).await;
    for (name, status) in machines {
        let status = json!({"printableStatus": status, "message": "Half done.", "progress": 50});
        cluster.vm(namespace, name, status).await;
    }
    let operations = cluster.until_operations(namespace, &machines).await;
    let [a, b] = [0, 1].map(|index| text(&operations[index], "/metadata/name"));
    let event = EVENT.object(
        "moon",
        json!({
            "type": "Normal", "reason": "Noticed", "message": "The moon was full.",
            "involvedObject": {
                "apiVersion": operations[0]["apiVersion"], "kind": operations[0]["kind"],
                "namespace": namespace, "name": a, "uid": operations[0]["metadata"]["uid"],
            },
        }),
    );
    cluster.create(&EVENT, Some(namespace), &event).await;
    let folder = tempfile::tempdir().expect("temporary folders can be created");
    let file = folder.path().join("operation.json");
    std::fs::write(&file, operations[0].to_string()).expect("the folder is writable");
    let file = file
        .to_str()
        .expect("the path of a temporary folder is UTF-8");
    let filled = |text: &str| {
        let pairs = [("$ns", namespace), ("$file", file), ("$a", a), ("$b", b)];
        let fill = |text: String, (word, value)| text.replace(word, value);
        pairs.into_iter().fold(text.to_owned(), fill)
    };
    let lines = command_lines()
        .into_iter()
        .filter(|it| is_understood(it.line));
    let run = async |command: CommandLine| {
        let (line, succeeds) = (filled(command.line), command.succeeds);
        let output = kubectl.run(&line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(output.succeeded, succeeds, "{line}: {output:?}");
        let printed = if succeeds { &output.out } else { &output.err };
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut rest = printed.as_str();
        for text in command.texts.into_iter().map(filled) {
            let at = rest.find(&text);
            let at = at.unwrap_or_else(|| panic!("{line}: no {text:?} in {printed}"));
            rest = &rest[at + text.len()..];
        }
        // A command that succeeds prints no warning.
        assert!(
            !succeeds || output.err.is_empty() || line.contains("none"),
            "{line}: {output:?}"
        );
    };
    let runs = futures::stream::iter(lines)
        .map(run)
        .buffer_unordered(AT_ONCE);
    runs.collect::<Vec<()>>().await;

    let waits = ["delete", "condition=Completed", "condition=Detected=false"].map(|what| {
        let line = format!("wait ifo/{a} -n {namespace} --for={what} --timeout=180s");
        kubectl.follow(&line.split(' ').collect::<Vec<_>>())
    });
    let mut running = Vec::from(waits);
    for lines in &mut running {
        wait_for_watch(lines).await;
    }
    cluster.set_status(namespace, "a", "Running").await;
    for lines in &mut running {
        let is_met = |all: &[String]| {
            all.iter()
                .any(|it| it.ends_with("condition met"))
                .then_some(())
        };
        lines.until("the condition is met", is_met).await;
    }
}

#[test]
fn current_kubectl_understands_operations() {
    shared(async |cluster| {
        let kubectl = Kubectl::new(cluster);
        // Only a kubectl since 1.27 reads the schemas in `/openapi/v3`.
        eventually("kubectl explain describes operations", async || {
            let output = kubectl.run(&["explain", "ifo"]).await;
            ok_if(output.succeeded, output.err)
        })
        .await;
        check(cluster, &kubectl, |_| true).await;
    });
}

#[test]
fn kubectl_of_2020_understands_operations() {
    shared(async |cluster| match Kubectl::old(cluster).await {
        Ok(kubectl) => {
            let is_understood = |line: &str| !line.starts_with("explain");
            check(cluster, &kubectl, is_understood).await;
        }
        Err(why) => skip(&why),
    });
}
