//! Helpers of the tests of the demo. They start `ifo-apiserver demo`, send requests to it, and
//! write the manifests that the demo reads.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Time limit of every wait in these tests. A test that reaches the limit fails. The limit is long
/// enough for a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(3);

/// Pause between two checks of a condition that a test waits for.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// API path of the operations in all namespaces.
pub const OPERATIONS: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// API path of the rule sets.
pub const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";

/// The lines that a process has written to its standard output or standard error so far.
#[derive(Clone, Default)]
pub struct OutputLines(Arc<Mutex<Vec<String>>>);

impl OutputLines {
    /// Starts a task that reads the lines of `from` until its end.
    pub fn collect(from: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let written = Self::default();
        let lines = written.clone();
        tokio::spawn(async move {
            let mut from = BufReader::new(from).lines();
            while let Ok(Some(line)) = from.next_line().await {
                lines.0.lock().unwrap().push(line);
            }
        });
        written
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A running process of `ifo-apiserver`. Dropping this value kills the process.
pub struct Process {
    pub child: Child,
    out: OutputLines,
    log: OutputLines,
}

impl Process {
    /// Starts a command of [`demo_command`].
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        Self {
            out: OutputLines::collect(child.stdout.take().unwrap()),
            log: OutputLines::collect(child.stderr.take().unwrap()),
            child,
        }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child
            .id()
            .expect("no test uses the id of an exited process")
    }

    /// Returns the text that the process has written to its standard output so far.
    pub fn stdout(&self) -> String {
        self.out.lines().join("\n")
    }

    /// Returns the lines that the process has logged so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lines()
    }

    /// Waits until the log has a line that contains all `parts`, and returns the line.
    pub async fn wait_for_log(&self, parts: &[&str]) -> String {
        eventually(&format!("{parts:?} in the log"), async || {
            let found = |line: &String| parts.iter().all(|part| line.contains(part));
            self.log().into_iter().find(found)
        })
        .await
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let kill = std::process::Command::new("kill")
            .args(["-s", name, &self.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
    }

    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        timeout(DEADLINE, self.child.wait())
            .await
            .expect("the process must exit before the deadline")
            .unwrap()
    }

    /// Waits until the process has installed handlers for SIGTERM and SIGINT.
    pub async fn wait_for_signal_handlers(&self) {
        const SIGINT: u64 = 1 << (2 - 1);
        const SIGTERM: u64 = 1 << (15 - 1);
        let status = format!("/proc/{}/status", self.id());
        eventually("signal handlers", async || {
            let status = std::fs::read_to_string(&status).expect("the process must not exit");
            let mask = status
                .lines()
                .find_map(|line| line.strip_prefix("SigCgt:"))?;
            let mask =
                u64::from_str_radix(mask.trim(), 16).expect("Linux writes a hexadecimal mask");
            (mask & SIGINT != 0 && mask & SIGTERM != 0).then_some(())
        })
        .await;
    }
}

/// A running process of `ifo-apiserver demo`.
pub struct Demo {
    process: Process,
    pub kubeconfig: PathBuf,
    pub client: Client,
    pub config: Config,
    _folder: tempfile::TempDir,
}

impl Deref for Demo {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Demo {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Returns a command that runs `ifo-apiserver` with these arguments. The command gets no
/// environment variables, because they could configure the server.
pub fn demo_command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ifo-apiserver"));
    command
        .args(args)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Demo {
    /// Starts a demo with a kubeconfig in a temporary folder. Waits until the demo has written the
    /// kubeconfig and accepts connections. After that, the demo still answers 429 for a short time
    /// (see [`Self::items`]).
    pub async fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = demo_command(&["demo", "--kubeconfig-out"]);
        command.arg(&kubeconfig).args(args);
        let process = Process::spawn(command);
        // The demo first writes the kubeconfig, and then prints its introduction.
        eventually("the introduction of the demo", async || {
            (!process.out.lines().is_empty()).then_some(())
        })
        .await;
        let read = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .unwrap();
        Self {
            process,
            kubeconfig,
            client: Client::try_from(config.clone()).unwrap(),
            config,
            _folder: folder,
        }
    }

    /// Returns a client for the user of this context in the kubeconfig of the demo.
    pub async fn client_of(&self, context: &str) -> Client {
        let read = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = KubeConfigOptions {
            context: Some(context.to_owned()),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(read, &options).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    /// Sends a GET request as the default user of the demo's kubeconfig, who may read everything.
    /// Returns the JSON answer.
    pub async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request(request).await
    }

    /// Returns all operations. While the server answers 429, waits as [`Self::items`] does.
    pub async fn operations(&self) -> Vec<Value> {
        self.items(OPERATIONS).await
    }

    /// Waits until the server no longer answers 429, and returns the items of the list at `path`.
    pub async fn items(&self, path: &str) -> Vec<Value> {
        eventually("a list", async || match self.get(path).await {
            Ok(list) => Some(list["items"].as_array().unwrap().clone()),
            // At its start, the server answers 429 until it has read all targets (the resources
            // that the rule sets watch).
            Err(kube::Error::Api(status)) if status.code == 429 => None,
            Err(error) => panic!("{path}: {error}"),
        })
        .await
    }

    /// Waits until exactly the `expected` operations are in flight. An entry of `expected` has the
    /// name of an object and of its operation, such as `web Starting` (see [`active`]). The
    /// entries must be sorted.
    pub async fn wait_for_operations(&self, expected: &[&str]) {
        eventually(&format!("operations {expected:?}"), async || {
            (active(&self.operations().await) == expected).then_some(())
        })
        .await;
    }

    /// Starts a watch at `path`. `accept` is the value of the Accept header.
    pub async fn watch(&self, path: &str, accept: &str) -> Watch {
        let request = http::Request::get(path)
            .header("accept", accept)
            .body(Vec::new())
            .unwrap();
        let response = eventually("a watch", async || {
            match self.client.request_stream(request.clone()).await {
                Ok(stream) => Some(stream),
                Err(kube::Error::Api(status)) if status.code == 429 => None,
                Err(error) => panic!("{path}: {error}"),
            }
        })
        .await;
        Watch(Box::pin(futures::AsyncBufReadExt::lines(response)))
    }
}

/// Returns the operations that have not completed, sorted. Each is the name of its object and its name,
/// such as `web Starting`.
pub fn active(operations: &[Value]) -> Vec<String> {
    let line = |operation: &Value| {
        let text = |pointer: &str| operation.pointer(pointer)?.as_str();
        let (subject, name) = (text("/spec/subject/name")?, text("/spec/operation")?);
        (text("/status/phase")? == "Active").then(|| format!("{subject} {name}"))
    };
    let mut active: Vec<String> = operations.iter().filter_map(line).collect();
    active.sort();
    active
}

/// The stream of a watch. Each line is an event.
pub struct Watch(std::pin::Pin<Box<dyn futures::Stream<Item = std::io::Result<String>> + Send>>);

impl Watch {
    /// Waits for the next event. Returns None when the watch has ended.
    pub async fn next(&mut self) -> Option<Value> {
        let line = timeout(DEADLINE, futures::StreamExt::next(&mut self.0))
            .await
            .expect("the watch must send an event or end before the deadline")?
            .expect("the connection must not break");
        Some(serde_json::from_str(&line).expect("each event must be JSON"))
    }
}

/// Calls `check` repeatedly until it returns a value, and returns this value. After [`DEADLINE`],
/// the function panics. The panic message contains `what`, a description of the value.
pub async fn eventually<T>(what: &str, check: impl AsyncFn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(
            started.elapsed() < DEADLINE,
            "after {} s, the test still waits for: {what}",
            DEADLINE.as_secs()
        );
        sleep(POLL_INTERVAL).await;
    }
}

/// The two folders of manifests that a demo reads. Dropping this value deletes the folders.
pub struct Folders {
    pub objects: PathBuf,
    pub rules: PathBuf,
    _parent: tempfile::TempDir,
}

impl Folders {
    pub fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let folders = Self {
            objects: parent.path().join("objects"),
            rules: parent.path().join("rules"),
            _parent: parent,
        };
        std::fs::create_dir(&folders.objects).unwrap();
        std::fs::create_dir(&folders.rules).unwrap();
        folders
    }

    /// Returns the arguments for [`Demo::start`]. The arguments set the debounce period to 0, so an
    /// operation completes as soon as no rule detects it.
    pub fn args(&self) -> [&str; 5] {
        [
            "--objects",
            self.objects.to_str().unwrap(),
            "--rules",
            self.rules.to_str().unwrap(),
            "--debounce-threshold=0",
        ]
    }

    /// Replaces a file in one step, as editors do: writes the text to a new file and renames the
    /// new file.
    pub fn put(&self, folder: &Path, name: &str, text: &str) {
        // The demo reads only files with an extension of manifests, such as `.yaml`. So it does not
        // read the file with the extension `.new`.
        let temporary = folder.join(format!("{name}.new"));
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(&temporary, folder.join(name)).unwrap();
    }

    /// Writes the manifest of a VirtualMachine whose `printableStatus` is `state`.
    pub fn vm(&self, name: &str, state: &str) {
        self.put(&self.objects, &format!("{name}.yaml"), &vm(name, state));
    }

    /// Writes the manifest of a rule set that watches `virtualmachines` and has one rule.
    pub fn rule_set(&self, name: &str, operation: &str, expression: &str) {
        let text = rule_set(name, "virtualmachines", operation, expression);
        self.put(&self.rules, &format!("{name}.json"), &text);
    }
}

pub fn vm(name: &str, state: &str) -> String {
    format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: {name}\n  \
         namespace: shop\nstatus:\n  printableStatus: {state}\n"
    )
}

pub fn rule_set(name: &str, resource: &str, operation: &str, expression: &str) -> String {
    serde_json::json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1",
        "kind": "OperationRuleSet",
        "metadata": {"name": name},
        "spec": {
            "component": "tests",
            "target": {"group": "kubevirt.io", "version": "v1", "resource": resource},
            "rules": [{"operation": operation, "expression": expression}],
        },
    })
    .to_string()
}

/// Returns the condition of type `kind` of a rule set, or None if there is no such condition.
pub fn condition<'a>(rule_set: &'a Value, kind: &str) -> Option<&'a Value> {
    rule_set["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}
