//! A running demo, and a client for it.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Time limit of every wait. It is far longer than any wait, because the machine may be busy. Only
/// a failing test reaches it.
pub const DEADLINE: Duration = Duration::from_mins(3);

/// Interval at which a condition is checked.
pub const LOOK: Duration = Duration::from_millis(50);

/// The operations of all namespaces.
pub const OPERATIONS: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// The rule sets.
pub const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";

/// The lines that a process has written so far.
#[derive(Clone, Default)]
pub struct Written(Arc<Mutex<Vec<String>>>);

impl Written {
    pub fn of(from: impl AsyncRead + Send + Unpin + 'static) -> Self {
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

/// A running demo. Dropping it kills the process.
pub struct Demo {
    child: Child,
    out: Written,
    log: Written,
    pub kubeconfig: PathBuf,
    pub client: Client,
    pub config: Config,
    _folder: Option<tempfile::TempDir>,
}

/// The binary, without variables of this process that would configure it.
pub fn binary(args: &[&str]) -> Command {
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
    /// Starts a demo and waits until it is ready.
    pub async fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        Self::launch(&kubeconfig, Some(folder), args).await
    }

    /// The same with this kubeconfig. The file may exist already.
    pub async fn start_at(kubeconfig: &Path, args: &[&str]) -> Self {
        Self::launch(kubeconfig, None, args).await
    }

    async fn launch(kubeconfig: &Path, folder: Option<tempfile::TempDir>, args: &[&str]) -> Self {
        let mut command = binary(&["demo", "--kubeconfig-out"]);
        let mut child = command.arg(kubeconfig).args(args).spawn().unwrap();
        let out = Written::of(child.stdout.take().unwrap());
        let log = Written::of(child.stderr.take().unwrap());
        let started = Instant::now();
        // The introduction is printed after the kubeconfig is written.
        while out.lines().is_empty() {
            assert!(
                started.elapsed() < DEADLINE && child.try_wait().unwrap().is_none(),
                "no demo: {:#?}",
                log.lines()
            );
            sleep(LOOK).await;
        }
        let read = Kubeconfig::read_from(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .unwrap();
        Self {
            child,
            out,
            log,
            kubeconfig: kubeconfig.to_owned(),
            client: Client::try_from(config.clone()).unwrap(),
            config,
            _folder: folder,
        }
    }

    /// A client for another user, who belongs to this context of the kubeconfig.
    pub async fn client_of(&self, context: &str) -> Client {
        let read = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = KubeConfigOptions {
            context: Some(context.to_owned()),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(read, &options).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    /// The process of the demo.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// The lines on its standard output.
    pub fn said(&self) -> String {
        self.out.lines().join("\n")
    }

    /// The lines of its log.
    pub fn log(&self) -> Vec<String> {
        self.log.lines()
    }

    /// The first line of the log that contains all `parts`.
    pub async fn logged(&self, parts: &[&str]) -> String {
        eventually(&format!("{parts:?} in the log"), async || {
            let found = |line: &String| parts.iter().all(|part| line.contains(part));
            self.log().into_iter().find(found)
        })
        .await
    }

    /// Sends a GET with the token. Returns the JSON answer.
    pub async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request(request).await
    }

    /// The operations, after data is served.
    pub async fn operations(&self) -> Vec<Value> {
        self.items(OPERATIONS).await
    }

    /// The items of a list, after data is served.
    pub async fn items(&self, path: &str) -> Vec<Value> {
        eventually("a list", async || match self.get(path).await {
            Ok(list) => Some(list["items"].as_array().unwrap().clone()),
            // The targets have not been read completely.
            Err(kube::Error::Api(status)) if status.code == 429 => None,
            Err(error) => panic!("{path}: {error}"),
        })
        .await
    }

    /// Waits until the operations in flight are these. Each has the form `subject operation`.
    pub async fn shows(&self, expected: &[&str]) {
        let mut last = Vec::new();
        let started = Instant::now();
        while started.elapsed() < DEADLINE {
            last = self.operations().await.iter().filter_map(active).collect();
            last.sort();
            if last == expected {
                return;
            }
            sleep(LOOK).await;
        }
        panic!("{last:?} and not {expected:?}; log: {:#?}", self.log());
    }

    /// Returns one line for each object or event of a watch.
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

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Waits until the process ends.
    pub async fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child).await
    }
}

/// Sends a signal by its name.
pub fn signal(process: u32, name: &str) {
    let id = process.to_string();
    let sent = std::process::Command::new("kill")
        .args(["-s", name, &id])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Waits until a process ends.
pub async fn ended(child: &mut Child) -> ExitStatus {
    timeout(DEADLINE, child.wait())
        .await
        .expect("it ends")
        .unwrap()
}

/// Waits until a process has handlers for SIGTERM and SIGINT.
pub async fn catches_signals(child: &Child) {
    const SIGINT: u64 = 1 << (2 - 1);
    const SIGTERM: u64 = 1 << (15 - 1);
    let status = format!("/proc/{}/status", child.id().expect("it runs"));
    eventually("handlers of signals", async || {
        let status = std::fs::read_to_string(&status).expect("it runs");
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))?;
        let mask = u64::from_str_radix(mask.trim(), 16).expect("it is a mask");
        (mask & SIGINT != 0 && mask & SIGTERM != 0).then_some(())
    })
    .await;
}

/// Formats `subject operation` of an operation in flight. None if it has completed.
pub fn active(operation: &Value) -> Option<String> {
    let text = |pointer: &str| operation.pointer(pointer)?.as_str();
    (text("/status/phase")? == "Active").then(|| {
        format!(
            "{} {}",
            text("/spec/subject/name").unwrap_or_default(),
            text("/spec/operation").unwrap_or_default()
        )
    })
}

/// The lines of a watch.
pub struct Watch(std::pin::Pin<Box<dyn futures::Stream<Item = std::io::Result<String>> + Send>>);

impl Watch {
    /// The next event; None at the end of the watch.
    pub async fn next(&mut self) -> Option<Value> {
        let line = timeout(DEADLINE, futures::StreamExt::next(&mut self.0))
            .await
            .expect("an event or the end")?
            .expect("the connection does not break");
        Some(serde_json::from_str(&line).expect("an event is JSON"))
    }
}

/// Waits for a result of `look`.
pub async fn eventually<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "in vain: {what}");
        sleep(LOOK).await;
    }
}

/// Folders of manifests.
pub struct Folders {
    pub objects: PathBuf,
    pub rules: PathBuf,
    _both: tempfile::TempDir,
}

impl Folders {
    pub fn new() -> Self {
        let both = tempfile::tempdir().unwrap();
        let folders = Self {
            objects: both.path().join("objects"),
            rules: both.path().join("rules"),
            _both: both,
        };
        std::fs::create_dir(&folders.objects).unwrap();
        std::fs::create_dir(&folders.rules).unwrap();
        folders
    }

    /// Arguments for [`Demo::start`], with a short debounce period.
    pub fn args(&self) -> [&str; 5] {
        [
            "--objects",
            self.objects.to_str().unwrap(),
            "--rules",
            self.rules.to_str().unwrap(),
            "--debounce-threshold=0",
        ]
    }

    /// Replaces a file in one step, as editors do.
    pub fn put(&self, folder: &Path, name: &str, text: &str) {
        // The name must not be that of a manifest.
        let temporary = folder.join(format!("{name}.new"));
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(&temporary, folder.join(name)).unwrap();
    }

    /// A VM in a state.
    pub fn vm(&self, name: &str, state: &str) {
        self.put(&self.objects, &format!("{name}.yaml"), &vm(name, state));
    }

    /// A rule set on VMs with one rule.
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

/// A condition of a rule set.
pub fn condition<'a>(rule_set: &'a Value, kind: &str) -> Option<&'a Value> {
    rule_set["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}
