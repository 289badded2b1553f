//! Runs an informer of client-go, the Go library of Kubernetes. The informer runs in its own
//! process, with the program in `tests/control-plane/informer`. When this process reads a line from
//! its standard input, it prints the state of the informer as one line of JSON.

use super::{Informer, InformerState, Objects};
use crate::harness::{ControlPlane, DEADLINE, OPERATION};
use serde::Deserialize;
use std::collections::BTreeSet;
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

/// The state that the program prints. Its field `told` becomes [`InformerState::from_events`], and
/// its field `broken` becomes [`InformerState::violations`].
#[derive(Debug, Deserialize)]
struct InformerReport {
    synced: bool,
    store: Objects,
    told: Objects,
    #[serde(deserialize_with = "or_none")]
    deleted: BTreeSet<String>,
    #[serde(deserialize_with = "or_none")]
    broken: Vec<String>,
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

    async fn answer(&mut self) -> InformerReport {
        let asked = self.stdin.write_all(b"\n").await;
        asked.unwrap_or_else(|error| panic!("{} has ended: {error}", self.name));
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{} does not answer", self.name));
        let line = line.expect("the pipe is readable");
        let line = line.unwrap_or_else(|| panic!("{} has ended", self.name));
        serde_json::from_str(&line).expect("the program prints this type as JSON")
    }
}

impl Informer for ClientGo {
    fn name(&self) -> &str {
        &self.name
    }

    async fn state(&mut self) -> InformerState {
        let answer = self.answer().await;
        InformerState {
            synced: answer.synced,
            store: answer.store,
            from_events: answer.told,
            deleted_uids: answer.deleted,
            violations: answer.broken,
        }
    }
}
