//! Runs informers of client-go, the Go library with which most programs watch objects. The tests
//! compare the store of each informer with a list of the operations, which are the objects that the
//! server under test serves.
//!
//! An informer runs in its own process, with the program in `tests/control-plane/informer`. When this
//! process reads a line from its standard input, it prints the state of the informer as one line of
//! JSON.

use crate::harness::{Caller, ControlPlane, DEADLINE, OPERATION, eventually, ok_if, text};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A running informer. Dropping this value closes the standard input of the program, so the program
/// exits.
pub struct ClientGo {
    name: String,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

/// Objects by `namespace/name`.
pub type Objects = BTreeMap<String, Value>;

/// The state of an informer, and facts from the events that the informer has delivered.
#[derive(Debug, Deserialize)]
pub struct InformerState {
    /// True if the informer has received the complete initial state.
    pub synced: bool,
    /// The objects in the store of the informer.
    pub store: Objects,
    /// The objects that result from the events that the informer has delivered.
    #[serde(rename = "told")]
    pub from_events: Objects,
    /// The UIDs of the objects whose deletion an event has reported.
    #[serde(rename = "deleted", deserialize_with = "or_none")]
    pub deleted_uids: BTreeSet<String>,
    /// Descriptions of violated guarantees, such as a resourceVersion that decreases.
    #[serde(rename = "broken", deserialize_with = "or_none")]
    pub violations: Vec<String>,
}

/// Reads null as an empty list, because Go writes an empty list as null.
fn or_none<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl ClientGo {
    /// Starts an informer of all operations. The initial state is all operations that exist at the
    /// start. If `streaming` is true, the informer receives the initial state from a watch.
    /// Otherwise it receives the initial state from a list.
    pub fn start(control_plane: &ControlPlane, streaming: bool) -> Self {
        let addresses = &control_plane.addresses;
        let (group, version) = OPERATION.group_version();
        let name = if streaming { "streaming" } else { "listing" };
        // The informer logs many errors while the server is stopped, so its log goes to a file.
        let log = File::create(addresses.dir.join(format!("informer-{name}.log")));
        let mut child = Command::new(&control_plane.informer)
            .arg(&addresses.kubeconfig)
            .args([group, version, OPERATION.plural])
            .env("KUBE_FEATURE_WatchListClient", streaming.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.expect("the folder of the control plane is writable"))
            .spawn()
            .expect("the informer was built with the control plane");
        let stdout = child.stdout.take().expect("standard output is piped");
        Self {
            name: format!("client-go's informer, {name}"),
            stdin: child.stdin.take().expect("standard input is piped"),
            lines: BufReader::new(stdout).lines(),
            _child: child,
        }
    }

    /// Returns the current state of the informer.
    async fn state(&mut self) -> InformerState {
        let asked = self.stdin.write_all(b"\n").await;
        asked.unwrap_or_else(|error| panic!("{} has ended: {error}", self.name));
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{} does not answer", self.name));
        let line = line.expect("the pipe is readable");
        let line = line.unwrap_or_else(|| panic!("{} has ended", self.name));
        serde_json::from_str(&line).expect("the program prints this type as JSON")
    }
}

/// Returns the key of an object in [`Objects`].
pub fn key(object: &Value) -> String {
    let (namespace, name) = ("/metadata/namespace", "/metadata/name");
    format!("{}/{}", text(object, namespace), text(object, name))
}

/// Lists all operations.
pub async fn list_operations(admin: &Caller) -> Result<Objects, String> {
    let answer = admin.try_get(&OPERATION.path(None)).await?;
    ok_if(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array();
    let items = items.ok_or("the list has no items")?;
    Ok(items.iter().map(|it| (key(it), it.clone())).collect())
}

/// Compares the objects of a client, `held`, with the objects of a list, `listed`. If they differ,
/// returns an error that describes the differences. The error contains `what`, a name for the
/// client's objects.
pub fn compare(what: &str, held: &Objects, listed: &Objects) -> Result<(), String> {
    let keys: BTreeSet<&String> = held.keys().chain(listed.keys()).collect();
    let differences: Vec<String> = keys
        .into_iter()
        .filter(|key| held.get(*key) != listed.get(*key))
        .map(|key| match (held.get(key), listed.get(key)) {
            (Some(held), Some(listed)) => format!("{key}: {held}, but the list has {listed}"),
            (Some(_), None) => format!("{key}: no longer exists"),
            (None, _) => format!("{key}: is missing"),
        })
        .collect();
    ok_if(differences.is_empty(), (what, differences))
}

/// Waits until the store of an informer equals a list of the operations, and the objects from its
/// events equal this list, too.
pub async fn wait_until_state_correct(admin: &Caller, informer: &mut ClientGo) -> InformerState {
    let name = informer.name.clone();
    eventually(&format!("{name} has the listed operations"), async || {
        let listed = list_operations(admin).await?;
        let state = informer.state().await;
        ok_if(state.synced, "the informer is not synced")?;
        compare("the store", &state.store, &listed)?;
        compare("the state from the events", &state.from_events, &listed)?;
        Ok(state)
    })
    .await
}
