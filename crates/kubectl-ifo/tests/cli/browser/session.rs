//! Starts the demo and `kubectl ifo ui` for a test, a picture or a measurement.

use super::driver::DEADLINE;
use crate::binaries::other_binary;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A process that ends when this value is dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of a program of the workspace.
pub fn program(name: &str) -> PathBuf {
    other_binary(env!("CARGO_BIN_EXE_kubectl-ifo"), name)
}

/// Returns the command `kubectl ifo ui`.
pub fn plugin() -> Command {
    let mut command = Command::new(program("kubectl-ifo"));
    command.arg("ui");
    command
}

/// Starts `kubectl ifo ui`, and returns the address that it prints.
pub fn start(command: &mut Command) -> (Process, String) {
    let command = command.arg("--no-open").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let process = Process(child);
    let mut lines = out.lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line[line.find("http://")?..].trim().to_owned()));
    let address = address.expect("kubectl ifo ui prints its address");
    std::thread::spawn(move || lines.for_each(drop));
    (process, address)
}

/// A running demo.
pub struct Demo {
    process: Option<Process>,
    port: String,
    folder: TempDir,
}

impl Demo {
    /// Starts a demo, and waits until it accepts connections.
    pub fn start() -> Self {
        let mut demo = Self {
            process: None,
            port: "0".to_owned(),
            folder: tempfile::tempdir().unwrap(),
        };
        demo.start_again();
        demo
    }

    /// Ends the demo.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts the demo after [`Self::stop`], on the same port. It has a new certificate and new tokens.
    pub fn start_again(&mut self) {
        let path = self.file("demo");
        let mut command = Command::new(program("ifo-apiserver"));
        command.args(["demo", "--secure-port", &self.port, "--kubeconfig-out"]);
        command.arg(&path);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        self.process = Some(Process(child));
        out.read_line(&mut String::new()).unwrap();
        std::thread::spawn(move || out.lines().for_each(drop));
        let written: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let server = written["clusters"][0]["cluster"]["server"]
            .as_str()
            .unwrap();
        server
            .rsplit(':')
            .next()
            .unwrap()
            .clone_into(&mut self.port);
        self.write_kubeconfig(server, &written["users"][0]["user"]["token"]);
    }

    /// Writes a kubeconfig that stays valid when the demo starts again. It trusts each certificate, and
    /// reads the present token from a file before each request.
    fn write_kubeconfig(&self, server: &str, token: &Value) {
        let (version, credential) = ("client.authentication.k8s.io/v1", self.file("credential"));
        let exec = json!({
            "apiVersion": version, "command": "cat", "args": [credential], "interactiveMode": "Never",
        });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "demo",
            "clusters": [{"name": "demo", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "demo", "user": {"exec": exec}}],
            "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        });
        let status = json!({"token": token, "expirationTimestamp": "2020-01-01T00:00:00Z"});
        let response = json!({"apiVersion": version, "kind": "ExecCredential", "status": status});
        fs::write(credential, response.to_string()).unwrap();
        fs::write(self.kubeconfig(), kubeconfig.to_string()).unwrap();
    }

    /// Returns the path of a kubeconfig for the demo.
    pub fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command `kubectl ifo ui` for this demo.
    pub fn plugin(&self) -> Command {
        let mut command = plugin();
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Writes the page to a file. The demo answers some seconds after its start.
    pub fn export(&self) -> PathBuf {
        let path = self.file("operations.html");
        let _ = fs::remove_file(&path);
        let started = Instant::now();
        while !self
            .plugin()
            .arg("--export")
            .arg(&path)
            .status()
            .unwrap()
            .success()
        {
            assert!(started.elapsed() < DEADLINE, "the page is never exported");
            sleep(Duration::from_millis(500));
        }
        path
    }
}
