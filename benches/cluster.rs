//! The whole server against a real kube-apiserver: start, memory, processor time for
//! each subject event, and how much later than the subject itself its operation can be
//! seen. Needs a control plane to throw away, and says so if it is given none:
//!
//! ```text
//! program=$(tests/control-plane/build); "$program" run --detach --dir DIR
//! IFO_BENCH_KUBECONFIG=DIR/admin.kubeconfig cargo bench --bench cluster
//! ```
//!
//! `IFO_BENCH_SUBJECTS` (5000) is the number of subjects, `IFO_BENCH_SECONDS` (20) the
//! length of each load, `IFO_BENCH_RATE` (300) updates a second, `IFO_BENCH_SERVER`
//! another program to measure.

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const VIRTUAL_MACHINE: &str = include_str!("../tests/fixtures/objects/virtualmachine.json");
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
/// Requests at once while objects are made.
const AT_ONCE: usize = 32;
/// How long the server gets to settle before its memory is read.
const SETTLE: Duration = Duration::from_secs(4);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(kubeconfig) = std::env::var_os("IFO_BENCH_KUBECONFIG") else {
        println!("cluster: skipped; IFO_BENCH_KUBECONFIG names no control plane to throw away");
        return Ok(());
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bench = Bench::connect(PathBuf::from(kubeconfig)).await?;
    bench.prepare().await?;
    bench.run().await
}

/// A number from the environment.
fn number(name: &str, default: usize) -> anyhow::Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

struct Bench {
    kubeconfig: PathBuf,
    client: Client,
    subjects: usize,
    rate: usize,
    seconds: usize,
}

/// What an update does to a subject.
#[derive(Clone, Copy)]
enum Load {
    /// Nothing that a rule looks at.
    Heartbeat,
    /// Each time another status, so that an operation starts, settles or goes on.
    Life,
}

impl Bench {
    async fn connect(kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        Ok(Self {
            kubeconfig,
            client: Client::try_from(config)?,
            subjects: number("IFO_BENCH_SUBJECTS", 5_000)?,
            rate: number("IFO_BENCH_RATE", 300)?,
            seconds: number("IFO_BENCH_SECONDS", 20)?,
        })
    }

    /// CRDs, and the subjects.
    async fn prepare(&self) -> anyhow::Result<()> {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.apply(
            &format!("{crds}/operationrulesets.ifo.kubevirt.io"),
            include_str!("../deploy/crd/operationrulesets.yaml"),
        )
        .await?;
        let machines = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "virtualmachines.kubevirt.io"},
            "spec": {
                "group": "kubevirt.io", "scope": "Namespaced",
                "names": {"kind": "VirtualMachine", "plural": "virtualmachines"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        self.apply(
            &format!("{crds}/virtualmachines.kubevirt.io"),
            &machines.to_string(),
        )
        .await?;
        self.apply(
            "/api/v1/namespaces/ifo-system",
            "{apiVersion: v1, kind: Namespace, metadata: {name: ifo-system}}",
        )
        .await?;
        self.until(&format!("{MACHINES}?limit=1")).await?;
        let rule_sets = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";
        self.until(rule_sets).await?;
        self.apply(
            &format!("{rule_sets}/vm-lifecycle-rules"),
            include_str!("../rules/kubevirt/virtualmachines.yaml"),
        )
        .await?;
        let start = Instant::now();
        self.each(|n| async move {
            let mut machine: Value = serde_json::from_str(VIRTUAL_MACHINE)?;
            let metadata = &mut machine["metadata"];
            *metadata = json!({"name": format!("vm-{n}"), "labels": metadata["labels"],
                "annotations": metadata["annotations"]});
            let made = self.send(
                Method::POST,
                MACHINES,
                "application/json",
                machine.to_string(),
            );
            match made.await {
                Err(error) if !error.to_string().contains("AlreadyExists") => Err(error),
                _ => Ok(()),
            }
        })
        .await?;
        let one = self.get(&format!("{MACHINES}/vm-0")).await?;
        println!(
            "{} subjects of {} bytes there, after {:.0?}",
            self.subjects,
            one.len(),
            start.elapsed()
        );
        Ok(())
    }

    async fn run(&self) -> anyhow::Result<()> {
        let server = Server::start(self).await?;
        println!("start to serving discovery: {:.0?}", server.started);
        self.register(server.port).await?;
        let synced = Instant::now();
        self.until(&format!("{LIVE}/inflightoperations")).await?;
        println!(
            "through the kube-apiserver, synced: after {:.0?}",
            synced.elapsed()
        );
        tokio::time::sleep(SETTLE).await;
        let idle = server.memory()?;
        println!("idle: {idle}");

        let (cpu, events) = (server.processor()?, self.load(Load::Heartbeat, None).await?);
        server.say_processor("heartbeats", cpu, events)?;

        let seen = Arc::new(Seen::default());
        let bare = self.watch(MACHINES, seen.clone(), Seen::subject).await?;
        let live = self
            .watch(
                &format!("{LIVE}/inflightoperations"),
                seen.clone(),
                Seen::operation,
            )
            .await?;
        tokio::time::sleep(SETTLE).await;
        seen.forget();
        let cpu = server.processor()?;
        let events = self.load(Load::Life, Some(&seen)).await?;
        server.say_processor("changes of state, one watch of them", cpu, events)?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        seen.report();
        bare.abort();
        live.abort();
        println!("after both loads: {}", server.memory()?);

        self.each(|n| self.patch(n, "Running", 0)).await?;
        tokio::time::sleep(2 * SETTLE).await;
        let none = server.memory()?;
        self.each(|n| self.patch(n, "Migrating", 0)).await?;
        tokio::time::sleep(SETTLE).await;
        let all = server.memory()?;
        println!("none in flight: {none}; {} in flight: {all}", self.subjects);
        #[allow(clippy::cast_precision_loss)] // kilobytes
        let each = (all.resident as f64 - none.resident as f64) / self.subjects as f64;
        println!("each operation in flight: {each:.2} KB");
        for (name, path) in [
            ("10,000 or fewer operations", LIVE),
            ("as many CRs, cached", "/apis/kubevirt.io/v1"),
        ] {
            let resource = if path == LIVE {
                "inflightoperations"
            } else {
                "virtualmachines"
            };
            let path = format!("{path}/{resource}?resourceVersion=0&limit=10000");
            let mut best = Duration::MAX;
            let mut bytes = 0;
            for _ in 0..5 {
                let start = Instant::now();
                bytes = self.get(&path).await?.len();
                best = best.min(start.elapsed());
            }
            println!("list of {name}, through the kube-apiserver: {best:.1?} for {bytes} bytes");
        }
        Ok(())
    }

    /// Updates at the rate, for the time. The number of updates.
    async fn load(&self, load: Load, seen: Option<&Seen>) -> anyhow::Result<usize> {
        let total = self.rate * self.seconds;
        let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(self.rate)?);
        let mut running = tokio::task::JoinSet::new();
        for n in 0..total {
            tick.tick().await;
            let (subject, round) = (n % self.subjects, n / self.subjects);
            let status = match (load, round % 2) {
                (Load::Life, 0) => "Migrating",
                _ => "Running",
            };
            if let Some(seen) = seen {
                seen.sent(subject);
            }
            running.spawn(patch(self.client.clone(), subject, status, n));
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(total)
    }

    async fn patch(&self, subject: usize, status: &str, round: usize) -> anyhow::Result<()> {
        patch(self.client.clone(), subject, status, round).await
    }

    /// Reads a watch through `take`, from now on.
    async fn watch(
        &self,
        path: &str,
        seen: Arc<Seen>,
        take: fn(&Seen, &[u8]),
    ) -> anyhow::Result<tokio::task::JoinHandle<()>> {
        let list: Value = serde_json::from_slice(&self.get(&format!("{path}?limit=1")).await?)?;
        let rv = list["metadata"]["resourceVersion"]
            .as_str()
            .context("a list has a version")?;
        let request =
            Request::get(format!("{path}?watch=1&resourceVersion={rv}")).body(Body::empty())?;
        let mut body = self.client.send(request).await?.into_body();
        Ok(tokio::spawn(async move {
            let mut begun = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                for &byte in frame.data_ref().into_iter().flatten() {
                    if byte == b'\n' {
                        take(&seen, &begun);
                        begun.clear();
                    } else {
                        begun.push(byte);
                    }
                }
            }
        }))
    }

    /// Points the APIService at the server on this machine.
    async fn register(&self, port: u16) -> anyhow::Result<()> {
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "ifo-apiserver", "namespace": "ifo-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}});
        self.apply(
            "/api/v1/namespaces/ifo-system/services/ifo-apiserver",
            &service.to_string(),
        )
        .await?;
        let name = "v1alpha1.live.ifo.kubevirt.io";
        let registration = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name}, "spec": {"group": "live.ifo.kubevirt.io", "version": "v1alpha1",
            "groupPriorityMinimum": 2000, "versionPriority": 100,
            "service": {"name": "ifo-apiserver", "namespace": "ifo-system", "port": port}}});
        self.apply(
            &format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}"),
            &registration.to_string(),
        )
        .await
    }

    async fn each<F>(&self, act: impl Fn(usize) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let mut acts = stream::iter((0..self.subjects).map(act)).buffer_unordered(AT_ONCE);
        while let Some(done) = acts.next().await {
            done?;
        }
        Ok(())
    }

    async fn apply(&self, path: &str, yaml: &str) -> anyhow::Result<()> {
        let path = format!("{path}?fieldManager=bench&force=true");
        self.send(Method::PATCH, &path, APPLY, yaml.to_owned())
            .await
            .map(drop)
    }

    async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.send(Method::GET, path, "", String::new()).await
    }

    /// Waits until a path is there.
    async fn until(&self, path: &str) -> anyhow::Result<()> {
        let mut last = String::new();
        for _ in 0..600 {
            match self.get(path).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{path} is not there within a minute: {last}")
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: String,
    ) -> anyhow::Result<Vec<u8>> {
        send(&self.client, method, path, kind, body).await
    }
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    kind: &str,
    body: String,
) -> anyhow::Result<Vec<u8>> {
    let mut request = Request::builder().method(method).uri(path);
    if !kind.is_empty() {
        request = request.header("content-type", kind);
    }
    let response = client
        .send(request.body(Body::from(body.into_bytes()))?)
        .await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body.to_vec())
}

async fn patch(client: Client, subject: usize, status: &str, round: usize) -> anyhow::Result<()> {
    let body = json!({"metadata": {"annotations": {"bench": round.to_string()}},
        "status": {"printableStatus": status}});
    let path = format!("{MACHINES}/vm-{subject}");
    send(&client, Method::PATCH, &path, MERGE, body.to_string())
        .await
        .map(drop)
}

/// When updates were sent, and how long after it they were seen.
#[derive(Default)]
struct Seen(Mutex<Times>);

#[derive(Default)]
struct Times {
    sent: HashMap<usize, Instant>,
    subjects: HashMap<usize, Duration>,
    operations: HashMap<usize, Duration>,
    done: Vec<(Duration, Duration)>,
}

impl Seen {
    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.0.lock().expect("nothing panics that holds it")
    }

    fn forget(&self) {
        *self.times() = Times::default();
    }

    fn sent(&self, subject: usize) {
        let mut times = self.times();
        times.close(subject);
        times.sent.insert(subject, Instant::now());
    }

    /// The subject's own event.
    fn subject(&self, line: &[u8]) {
        let now = Instant::now();
        let Some(subject) = machine(line, b"\"name\":\"vm-") else {
            return;
        };
        let mut times = self.times();
        if let Some(sent) = times.sent.get(&subject).copied() {
            times.subjects.entry(subject).or_insert(now - sent);
        }
    }

    /// The event of its operation: the first after the update; ends do not count, which
    /// come by themselves when the debounce is over.
    fn operation(&self, line: &[u8]) {
        let now = Instant::now();
        let over = memchr::memmem::find(line, b"\"phase\":\"Completed\"").is_some();
        let Some(subject) = machine(line, b"\"name\":\"vm-").filter(|_| !over) else {
            return;
        };
        let mut times = self.times();
        if let Some(sent) = times.sent.get(&subject).copied() {
            times.operations.entry(subject).or_insert(now - sent);
        }
    }

    fn report(&self) {
        let mut times = self.times();
        let open: Vec<usize> = times.sent.keys().copied().collect();
        let updates = times.done.len() + open.len();
        for subject in open {
            times.close(subject);
        }
        let at = |mut of: Vec<Duration>, percent: usize| {
            of.sort_unstable();
            of.get(of.len().saturating_sub(1) * percent / 100)
                .copied()
                .unwrap_or_default()
        };
        let bare: Vec<_> = times.done.iter().map(|pair| pair.0).collect();
        let live: Vec<_> = times.done.iter().map(|pair| pair.1).collect();
        println!(
            "seen on both watches: {} of {updates} updates",
            times.done.len()
        );
        for percent in [50, 90, 99] {
            let (bare, live) = (at(bare.clone(), percent), at(live.clone(), percent));
            println!(
                "p{percent}: subject after {bare:.2?}, operation after {live:.2?}, {:.2} times as long",
                live.as_secs_f64() / bare.as_secs_f64()
            );
        }
    }
}

impl Times {
    fn close(&mut self, subject: usize) {
        self.sent.remove(&subject);
        let both = (
            self.subjects.remove(&subject),
            self.operations.remove(&subject),
        );
        if let (Some(bare), Some(live)) = both {
            self.done.push((bare, live));
        }
    }
}

/// The number of the machine that a line is about.
fn machine(line: &[u8], before: &[u8]) -> Option<usize> {
    let at = memchr::memmem::find(line, before)? + before.len();
    let digits = line[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

/// The server under measurement. Ends with this.
struct Server {
    child: Child,
    port: u16,
    started: Duration,
}

struct Memory {
    resident: u64,
    peak: u64,
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} KB resident, {} KB at most so far",
            self.resident, self.peak
        )
    }
}

impl Server {
    async fn start(bench: &Bench) -> anyhow::Result<Self> {
        let program = std::env::var_os("IFO_BENCH_SERVER")
            .map_or_else(|| env!("CARGO_BIN_EXE_ifo-apiserver").into(), PathBuf::from);
        let file = std::env::temp_dir().join(format!("ifo-bench-{}.port", std::process::id()));
        let start = Instant::now();
        let child = Command::new(&program)
            .args([
                "--secure-port",
                "0",
                "--bind-address",
                "127.0.0.1",
                "--kubeconfig",
            ])
            .arg(&bench.kubeconfig)
            .arg("--port-file")
            .arg(&file)
            .env("DEBOUNCE_THRESHOLD", "5s")
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self {
            child,
            port: 0,
            started: Duration::ZERO,
        };
        server.port = read_port(&file).await?;
        let mut config = Config::new(format!("https://127.0.0.1:{}", server.port).parse()?);
        config.accept_invalid_certs = true;
        let direct = Client::try_from(config)?;
        send(&direct, Method::GET, LIVE, "", String::new()).await?;
        server.started = start.elapsed();
        let _ = std::fs::remove_file(file);
        Ok(server)
    }

    fn memory(&self) -> anyhow::Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
                .with_context(|| format!("/proc has no {name}"))
        };
        Ok(Memory {
            resident: kilobytes("VmRSS:")?,
            peak: kilobytes("VmHWM:")?,
        })
    }

    /// Processor time of all its threads so far.
    fn processor(&self) -> anyhow::Result<Duration> {
        let mut nanoseconds = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // A thread may end meanwhile.
            let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanoseconds += text
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    fn say_processor(&self, what: &str, before: Duration, events: usize) -> anyhow::Result<()> {
        let each = (self.processor()? - before) / u32::try_from(events)?;
        println!("processor time for each of {events} {what}: {each:.1?}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn read_port(file: &Path) -> anyhow::Result<u16> {
    for _ in 0..10_000 {
        if let Ok(text) = std::fs::read_to_string(file) {
            return Ok(text.trim().parse()?);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("the server did not write its port within 10 s")
}
