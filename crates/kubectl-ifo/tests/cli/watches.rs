//! Tests of `--watch`.

use super::cluster::{Cluster, is_watch, parameter};
use super::fake_apiserver::{
    LIVE, list_response, not_found, operation, plugin, quiet_watch, serve,
};
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A running command, whose outputs are read line by line. It is killed when the value is dropped.
struct Watch(Child);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Watch {
    fn start(address: SocketAddr, args: &[&str]) -> Self {
        let mut command = plugin(address);
        let command = command.args(args).stdout(Stdio::piped());
        Self(
            command
                .stderr(Stdio::piped())
                .spawn()
                .expect("the plugin can be started"),
        )
    }

    fn stdout(&mut self) -> impl Iterator<Item = String> + use<> {
        lines(self.0.stdout.take())
    }

    fn stderr(&mut self) -> impl Iterator<Item = String> + use<> {
        lines(self.0.stderr.take())
    }
}

fn lines<R: Read>(stream: Option<R>) -> impl Iterator<Item = String> + use<R> {
    let lines = BufReader::new(stream.expect("the stream is piped")).lines();
    lines.map(|it| it.expect("the output is UTF-8"))
}

/// Returns an answer to a watch with these events. Between the events are pauses, so that each of them
/// is shown. The answer stays open.
fn events(events: impl IntoIterator<Item = Value>) -> Response {
    let lines: Vec<_> = events
        .into_iter()
        .map(|it| Ok::<_, std::io::Error>(Bytes::from(format!("{it}\n"))))
        .collect();
    let lines = futures::stream::iter(lines).then(|line| async move {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        line
    });
    let lines = lines.chain(futures::stream::pending());
    Body::from_stream(lines).into_response()
}

/// Returns the event that operation number `number` has changed.
fn modified(number: usize, version: usize, change: impl FnOnce(&mut Value)) -> Value {
    let mut operation = operation(number);
    operation["metadata"]["resourceVersion"] = json!(version.to_string());
    change(&mut operation["status"]);
    json!({"type": "MODIFIED", "object": operation})
}

#[test]
fn a_watched_list_reports_operations_that_ended_while_the_watch_was_broken() {
    let watches = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if is_watch(request) && watches.fetch_add(1, Ordering::Relaxed) == 0 => {
            (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n").into_response()
        }
        LIVE if is_watch(request) => quiet_watch(),
        // After the first watch has failed, the list is empty. So the operation has ended during
        // the interruption.
        LIVE if watches.load(Ordering::Relaxed) > 0 => list_response(&[], ""),
        LIVE => list_response(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut list = Watch::start(address, &["list", "-w"]);
    let err: Vec<String> = list.stderr().take(2).collect();
    let out: Vec<String> = list.stdout().take(3).collect();
    assert!(err[0].starts_with("note: not up to date: "), "{err:?}");
    assert_eq!(err[1], "note: up to date again");
    assert!(out[1].contains("Progressing"), "{out:?}");
    assert!(
        out[2].contains("VirtualMachine/vm-1") && out[2].contains("Ended"),
        "{out:?}"
    );
}

#[test]
fn a_watch_ends_when_its_pipe_is_closed() {
    for command in ["list", "tree"] {
        let (_runtime, address) = serve(|request| match request.uri().path() {
            LIVE if is_watch(request) => {
                // There is a pause between two events, so that the tree is printed for each event.
                let events = futures::stream::unfold(2, |number| async move {
                    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
                    let event = modified(number, 7 + number, |_| ());
                    let line = Ok::<_, std::io::Error>(Bytes::from(format!("{event}\n")));
                    Some((line, number + 1))
                });
                Body::from_stream(events).into_response()
            }
            LIVE => list_response(&[operation(1)], ""),
            _ => not_found(),
        });
        let mut watch = Watch::start(address, &[command, "-w"]);
        assert!(watch.stdout().next().is_some(), "{command}");
        // The reader has been dropped, which closes the read end of the pipe. So the plugin exits
        // with 128 + SIGPIPE (13).
        let status = watch.0.wait().expect("the plugin can be waited for");
        assert_eq!(status.code(), Some(141), "{command}");
        assert_eq!(watch.stderr().next(), None, "{command}");
    }
}

#[test]
fn a_watched_tree_in_a_pipe_is_printed_again_only_if_it_changes() {
    let changed = |number, version, generation: u64| {
        modified(number, version, |it| {
            it["subjectGeneration"] = json!(generation);
        })
    };
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if is_watch(request) => {
            events([changed(1, 8, 2), changed(1, 9, 3), changed(2, 10, 1)])
        }
        LIVE => list_response(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut tree = Watch::start(address, &["tree", "-w"]);
    let mut printed: Vec<String> = Vec::new();
    for line in tree.stdout() {
        printed.push(line);
        if printed.last().is_some_and(|it| it.contains("vm-2")) {
            break;
        }
    }
    let count = |name: &str| printed.iter().filter(|it| it.contains(name)).count();
    assert_eq!((count("vm-1"), count("vm-2")), (2, 1), "{printed:#?}");
    // An empty line is between two outputs. A YAML document begins with `---`.
    assert_eq!(printed.iter().filter(|it| it.is_empty()).count(), 1);
    let mut summary = Watch::start(address, &["summary", "-w", "-O", "yaml"]);
    assert_eq!(summary.stdout().next().as_deref(), Some("---"));
}

#[test]
fn a_watch_shows_when_an_operation_leaves_the_selected_states() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE if is_watch(request) => {
            // The watch must not select a state, because it would then miss this change.
            assert_eq!(parameter(request, "fieldSelector"), "");
            let states = [(2, "Progressing"), (0, "Progressing"), (1, "Failing")];
            events(states.map(|(number, state)| {
                modified(number, 10 + number, |it| it["state"] = json!(state))
            }))
        }
        LIVE => {
            let states = ["Progressing", "Blocked", "Failing"]
                .into_iter()
                .enumerate();
            let operations = states.map(|(number, state)| {
                let mut operation = operation(number);
                operation["status"]["state"] = json!(state);
                operation
            });
            list_response(&operations.collect::<Vec<_>>(), "")
        }
        _ => not_found(),
    });
    let mut list = Watch::start(address, &["list", "--failing", "-w"]);
    let lines: Vec<String> = list.stdout().skip(1).take(3).collect();
    // The change of `vm-0` is not printed, because it was never failing.
    for (line, (name, state)) in lines.iter().zip([
        ("vm-2", " Failing "),
        ("vm-2", " Progressing "),
        ("vm-1", " Failing "),
    ]) {
        assert!(line.contains(name) && line.contains(state), "{lines:?}");
    }
}

#[test]
fn a_watch_ends_the_row_of_an_operation_that_leaves_the_node() {
    let cluster = Cluster::read(
        "{operations: [{number: 2, status: {nodes: [worker-3]}}], rule_sets: [{spec: {nodes: '[]'}}]}",
    );
    let (_runtime, address) = serve(move |request| {
        if !is_watch(request) {
            return cluster.answer(request);
        }
        assert!(parameter(request, "fieldSelector").contains("status.nodes=worker-3"));
        // The operation no longer touches the selected node. A server that does not compare the
        // nodes before and after the change sends `MODIFIED` here instead of `DELETED`.
        events([modified(2, 8, |it| it["nodes"] = json!(["worker-4"]))])
    });
    let mut list = Watch::start(address, &["list", "-w", "--node", "worker-3"]);
    let lines: Vec<String> = list.stdout().skip(1).take(2).collect();
    assert!(
        lines[0].contains("Progressing") && lines[1].contains("Ended"),
        "{lines:?}"
    );
}
