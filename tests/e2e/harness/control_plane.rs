//! Starts a control plane (etcd, kube-apiserver and kube-controller-manager) with the program in
//! `tests/control-plane`.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

/// The addresses and paths of a control plane. When the control plane is ready, the program prints
/// them as one line of JSON. `tests/control-plane/state.go` describes the fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneAddresses {
    pub kubeconfig: PathBuf,
    #[serde(rename = "server")]
    pub apiserver_url: String,
    pub dir: PathBuf,
    pub kubectl: PathBuf,
    pub audit_log: PathBuf,
    pub controller_manager: bool,
    pub request_header_client_certificate: String,
    pub request_header_client_key: String,
    #[serde(rename = "clientCA")]
    pub client_ca: PathBuf,
}

/// A running control plane. Its program stops the control plane when the program's standard input
/// is closed. This happens when this value is dropped, and when the test process exits.
#[derive(Debug)]
pub struct ControlPlane {
    pub addresses: ControlPlaneAddresses,
    /// Path of the program in `tests/control-plane/informer`, which runs an informer of client-go.
    pub informer: PathBuf,
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
    _child: Child,
}

impl ControlPlane {
    /// Builds and starts a control plane. If the build fails, for example because this machine has
    /// no Go, returns an error with the reason. Panics if the start fails. If the environment
    /// variable `IFO_E2E_DIR` is set, the files of the control plane are kept in the folder `name`
    /// in `$IFO_E2E_DIR`.
    pub async fn start(name: &str) -> Result<Self, String> {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/control-plane/build");
        let built = Command::new(&build)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .await
            .map_err(|error| format!("{}: {error}", build.display()))?;
        match built.status.code() {
            Some(0) => {}
            Some(3) => return Err("Go is needed to build the test control plane".to_owned()),
            _ => return Err(format!("{} failed: {}", build.display(), built.status)),
        }
        let program = String::from_utf8(built.stdout).expect("the build prints a UTF-8 path");
        let program = Path::new(program.trim());
        let mut command = Command::new(program);
        command.args(["run", "--audit"]);
        if let Some(dir) = std::env::var_os("IFO_E2E_DIR") {
            command.arg("--dir").arg(Path::new(&dir).join(name));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was just built");
        let stdin = child.stdin.take().expect("standard input is piped");
        let stdout = child.stdout.take().expect("standard output is piped");
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next_line().await.expect("the pipe is readable");
        // If the start fails, the program has printed the reason to standard error.
        let line = line.expect("the control plane must start");
        let addresses: ControlPlaneAddresses = serde_json::from_str(&line)
            .expect("the program prints its addresses as JSON in its first line");
        assert!(
            addresses.controller_manager,
            "the folder KUBEBUILDER_ASSETS must contain a kube-controller-manager"
        );
        Ok(Self {
            addresses,
            informer: program.with_file_name("informer"),
            pipes: Mutex::new((stdin, lines)),
            _child: child,
        })
    }

    /// Sends a command, such as `restart kube-apiserver`, to the program, and waits until the
    /// program has executed the command. Returns the program's error if the command fails.
    pub async fn command(&self, command: &str) -> Result<(), String> {
        let mut pipes = self.pipes.lock().await;
        let (stdin, lines) = &mut *pipes;
        let line = format!("{command}\n");
        stdin
            .write_all(line.as_bytes())
            .await
            .expect("the control plane must be running");
        let reply = lines.next_line().await.expect("the pipe is readable");
        let reply = reply.expect("the control plane must be running");
        let reply: serde_json::Value =
            serde_json::from_str(&reply).expect("the program replies with JSON");
        if reply["ok"] == true {
            Ok(())
        } else {
            Err(reply["error"].to_string())
        }
    }
}
