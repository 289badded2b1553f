//! Runs the program kubectl, in a current or an old version.

use crate::harness::{DEADLINE, Lines, TestCluster, eventually, ok_if};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// A version of kubectl, and the options with which it reaches the control plane of the tests.
pub struct Kubectl {
    program: PathBuf,
    options: Vec<String>,
}

/// The result of a command: its success and its output.
#[derive(Debug)]
pub struct KubectlOutput {
    pub succeeded: bool,
    pub out: String,
    pub err: String,
}

impl Kubectl {
    /// Returns the kubectl of the control plane. It uses only this control plane, so it needs no
    /// options.
    pub fn new(cluster: &TestCluster) -> Self {
        Self {
            program: cluster.control_plane.addresses.kubectl.clone(),
            options: Vec::new(),
        }
    }

    /// Returns version 1.20 of kubectl. If this machine cannot download this version, returns an
    /// error with the reason.
    pub async fn old(cluster: &TestCluster) -> Result<Self, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old-kubectl");
        let fetched = Command::new(&script)
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|error| format!("{}: {error}", script.display()))?;
        if !fetched.status.success() {
            return Err(String::from_utf8_lossy(&fetched.stderr).trim().to_owned());
        }
        let path = String::from_utf8(fetched.stdout).expect("the script prints a UTF-8 path");
        let addresses = &cluster.control_plane.addresses;
        Ok(Self {
            program: path.trim().into(),
            options: vec![
                format!("--kubeconfig={}", addresses.kubeconfig.display()),
                // The cache of kubectl is in the folder of the control plane, so that the cache is
                // deleted with this folder.
                format!(
                    "--cache-dir={}",
                    addresses.dir.join("old-kubectl-cache").display()
                ),
            ],
        })
    }

    /// Runs kubectl until it exits. Runs it again if discovery failed for a group of another test:
    /// the kube-apiserver lists such a group some moments before it serves it, and after it was
    /// removed.
    pub async fn run(&self, args: &[&str]) -> KubectlOutput {
        let is_failed_discovery = |line: &str| {
            line.contains("unable to retrieve the complete list of server APIs")
                && !line.contains("ifo.kubevirt.io")
        };
        eventually(
            &format!("kubectl {} succeeds", args.join(" ")),
            async || {
                let output = Command::new(&self.program)
                    .args(&self.options)
                    .args(args)
                    // `kubectl edit` runs this command as its editor.
                    .env("KUBE_EDITOR", "sed -i.bak s/Active/Completed/")
                    .stdin(Stdio::null())
                    .kill_on_drop(true)
                    .output();
                let output = tokio::time::timeout(DEADLINE, output).await;
                let output = output
                    .expect("kubectl must exit")
                    .expect("kubectl must start");
                let output = KubectlOutput {
                    succeeded: output.status.success(),
                    out: String::from_utf8_lossy(&output.stdout).into_owned(),
                    err: without_completeness(&String::from_utf8_lossy(&output.stderr)),
                };
                ok_if(!output.err.lines().any(is_failed_discovery), &output)?;
                Ok(output)
            },
        )
        .await
    }

    /// Starts kubectl, and returns the lines that it prints, including its log lines about
    /// requests. kubectl runs until the returned value is dropped.
    pub fn follow(&self, args: &[&str]) -> Lines {
        let options = self.options.iter().map(String::as_str);
        let shell = ["-c", "exec \"$@\" 2>&1", "sh"];
        let program = self.program.to_str().expect("the path of kubectl is UTF-8");
        let all: Vec<&str> = (shell.into_iter())
            .chain([program, "-v=6"])
            .chain(options)
            .chain(args.iter().copied())
            .collect();
        Lines::of(Path::new("/bin/sh"), &all)
    }
}

/// Returns the standard error `err` without the warning about rule sets that do not work. Other
/// tests create such rule sets, so the warning can appear at any time.
fn without_completeness(err: &str) -> String {
    let is_other = |line: &&str| !line.contains("operations may be missing");
    let lines = err.split_inclusive('\n').filter(is_other);
    lines.collect()
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
