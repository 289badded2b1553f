//! Starts the demo and `kubectl ifo ui` for a test.

use super::binaries::other_binary;
use super::driver::DEADLINE;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-ifo");

/// A process that ends when this value is dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running demo.
pub struct Demo {
    process: Option<Process>,
    folder: TempDir,
}

impl Demo {
    /// Starts a demo, and waits until it accepts connections.
    pub fn start(args: &[&str]) -> Self {
        let mut demo = Self {
            process: None,
            folder: tempfile::tempdir().unwrap(),
        };
        demo.start_again(args);
        demo
    }

    /// Ends the demo.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts the demo after [`Self::stop`].
    pub fn start_again(&mut self, args: &[&str]) {
        let mut command = Command::new(other_binary(PLUGIN, "ifo-apiserver"));
        command
            .args(["demo", "--kubeconfig-out"])
            .arg(self.kubeconfig())
            .args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        self.process = Some(Process(child));
        out.read_line(&mut String::new()).unwrap();
        std::thread::spawn(move || out.lines().for_each(drop));
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts `kubectl ifo ui`, and returns the address that it prints.
    pub fn ui(&self, port: u16) -> (Process, String) {
        let mut command = Command::new(PLUGIN);
        command.args(["ui", "--no-open", "--port", &port.to_string()]);
        command
            .env("KUBECONFIG", self.kubeconfig())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let process = Process(child);
        let mut lines = out.lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line[line.find("http://")?..].trim().to_owned()));
        let address = address.expect("kubectl ifo ui prints its address");
        std::thread::spawn(move || lines.for_each(drop));
        (process, address)
    }

    /// Writes the page to a file. The demo answers some seconds after its start.
    pub fn export(&self) -> PathBuf {
        let path = self.folder().join("operations.html");
        let started = Instant::now();
        loop {
            let mut command = Command::new(PLUGIN);
            command
                .args(["ui", "--export"])
                .arg(&path)
                .env("KUBECONFIG", self.kubeconfig());
            if command.status().unwrap().success() {
                return path;
            }
            assert!(started.elapsed() < DEADLINE, "the page is never exported");
            sleep(Duration::from_millis(500));
        }
    }
}
