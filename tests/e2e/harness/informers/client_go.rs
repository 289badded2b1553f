//! The informer of client-go: the program in `tests/control-plane/informer`.

use super::{Belief, Informer, Objects};
use crate::harness::{ControlPlane, DEADLINE, OPERATION};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A running informer. It ends with its standard input.
pub struct ClientGo {
    name: String,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

/// The state that it prints.
#[derive(Debug, Deserialize)]
struct Answer {
    synced: bool,
    store: Objects,
    told: Objects,
    #[serde(deserialize_with = "or_none")]
    deleted: BTreeSet<String>,
    #[serde(deserialize_with = "or_none")]
    broken: Vec<String>,
    requests: Requests,
}

/// The number of requests of each type.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Requests {
    pub list: u32,
    /// Watches that begin with the whole state.
    pub stream: u32,
}

/// Go writes an empty list as null.
fn or_none<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl ClientGo {
    /// Starts an informer that streams its initial state, or lists it.
    pub fn start(control_plane: &ControlPlane, streaming: bool) -> Self {
        let state = &control_plane.state;
        let (group, version) = OPERATION.group_version();
        let name = if streaming { "streaming" } else { "listing" };
        // It prints many errors during an outage, as expected.
        let log = File::create(state.dir.join(format!("informer-{name}.log")));
        let mut child = Command::new(&control_plane.informer)
            .arg(&state.kubeconfig)
            .args([group, version, OPERATION.plural])
            .env("KUBE_FEATURE_WatchListClient", streaming.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.expect("the folder of the run is ours"))
            .spawn()
            .expect("the informer has been built with the control plane");
        let stdout = child.stdout.take().expect("it is piped");
        Self {
            name: format!("client-go's informer, {name}"),
            stdin: child.stdin.take().expect("it is piped"),
            lines: BufReader::new(stdout).lines(),
            _child: child,
        }
    }

    /// The number of requests of each type.
    pub async fn requests(&mut self) -> Requests {
        self.answer().await.requests
    }

    async fn answer(&mut self) -> Answer {
        let asked = self.stdin.write_all(b"\n").await;
        asked.unwrap_or_else(|error| panic!("{} has ended: {error}", self.name));
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{} does not answer", self.name));
        let line = line.expect("pipes can be read");
        let line = line.unwrap_or_else(|| panic!("{} has ended", self.name));
        serde_json::from_str(&line).expect("it answers as its source says")
    }
}

impl Informer for ClientGo {
    fn name(&self) -> &str {
        &self.name
    }

    async fn belief(&mut self) -> Belief {
        let answer = self.answer().await;
        Belief {
            synced: answer.synced,
            store: answer.store,
            told: answer.told,
            deleted: answer.deleted,
            broken: answer.broken,
        }
    }
}
