//! Benchmarks of the whole server `ifo-apiserver` with a real kube-apiserver. `ifo-apiserver`
//! watches `VirtualMachine` objects (the subjects), and detects operations on them.
//!
//! The benchmarks measure the memory, the processor time for each event of a subject, the latency of
//! operations, and the duration of lists. They start a control plane and the server with the harness
//! of the end-to-end tests:
//!
//! ```text
//! cargo bench --bench cluster
//! ```
//!
//! | variable | default | meaning |
//! | --- | --- | --- |
//! | `IFO_BENCH_PARTS` | all | the measured parts: `load`, `records`, `list` |
//! | `IFO_BENCH_SUBJECTS` | 5000 | number of subjects. A subject has at most one operation |
//! | `IFO_BENCH_RATE` | 300 | number of updates per second |
//! | `IFO_BENCH_SECONDS` | 20 | duration of each load in seconds |
//! | `IFO_BENCH_SERVER` | the server of this build | path of the measured program |

#[path = "../../tests/e2e/harness/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::format_push_string,
    clippy::large_enum_variant,
    clippy::match_wild_err_arm,
    clippy::struct_field_names,
    reason = "it belongs to tests/e2e, which uses the rest of it"
)]
mod harness;
mod latency;
mod parts;
mod process;

use futures::{StreamExt as _, stream};
use harness::{Cluster, MANIFEST_FOLDERS, ServerProcess, VM};
use latency::Latencies;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waiting time before a measurement. In this time, the server finishes the work that earlier
/// updates have caused, so that this work is not measured.
const SETTLE: Duration = Duration::from_secs(4);
/// Maximum number of requests at the same time.
const AT_ONCE: usize = 32;
const NAMESPACE: &str = "default";
const VIRTUAL_MACHINE: &str = include_str!("../../tests/fixtures/objects/virtualmachine.json");

fn main() {
    process::run_if_bare_watch();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be created");
    runtime.block_on(async {
        match Cluster::start("bench").await {
            Ok(cluster) => run(cluster).await,
            Err(why) => println!("cluster: skipped: {why}"),
        }
    });
}

/// Reads a number from the environment.
fn number(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        Err(_) => default,
    }
}

/// Returns true if `IFO_BENCH_PARTS` names the part or is not set.
fn is_selected(part: &str) -> bool {
    std::env::var("IFO_BENCH_PARTS").map_or(true, |parts| parts.split(',').any(|name| name == part))
}

/// The cluster, and the settings of the benchmarks.
struct Bench {
    cluster: Arc<Cluster>,
    /// The Deployment with the flags of the server.
    deployment: Value,
    /// Number of subjects.
    subjects: usize,
    /// Number of updates per second.
    rate: usize,
    /// Duration of each load in seconds.
    seconds: usize,
}

/// The kind of a load. A load is a series of updates of the subjects, and its kind decides which
/// field each update changes.
#[derive(Clone, Copy)]
enum Load {
    /// Each update changes only a field that no rule reads.
    Heartbeat,
    /// Each update changes the subject's status from `Running` to `Migrating`, or back. The change
    /// to `Migrating` starts an operation, and the change to `Running` ends it.
    StatusChange,
}

async fn run(cluster: Cluster) {
    let installed = cluster.install(&MANIFEST_FOLDERS).await;
    let rules = "apply -f rules/kubevirt/virtualmachines.yaml";
    cluster.kubectl(rules).await;
    let bench = Bench {
        cluster: Arc::new(cluster),
        deployment: installed.deployment,
        subjects: number("IFO_BENCH_SUBJECTS", 5_000),
        rate: number("IFO_BENCH_RATE", 300),
        seconds: number("IFO_BENCH_SECONDS", 20),
    };
    bench.create_subjects().await;
    let mut server = bench
        .cluster
        .start_unready("server", &bench.deployment)
        .await;
    server.until_ready().await;
    let synced = Instant::now();
    bench
        .cluster
        .register(installed.registration, server.port())
        .await;
    bench.cluster.until_served().await;
    println!(
        "through the kube-apiserver, synced: after {:.0?}",
        synced.elapsed()
    );
    tokio::time::sleep(SETTLE).await;
    println!("idle: {}", process::memory(server.pid()));
    if is_selected("load") {
        bench.measure_loads(&server).await;
    }
    if is_selected("records") {
        bench.measure_records(&server).await;
    }
    if is_selected("list") {
        bench.measure_lists(&server).await;
    }
    println!("at the end: {}", process::memory(server.pid()));
}

/// Runs `action` for each number below `count`. Up to [`AT_ONCE`] actions run at the same time.
async fn for_each<F: Future<Output = ()>>(count: usize, action: impl Fn(usize) -> F) {
    let actions = stream::iter((0..count).map(action)).buffer_unordered(AT_ONCE);
    actions.collect::<()>().await;
}

/// Sets `printableStatus` of the subject. Also sets an annotation to `round`, so that the update is a
/// change even if the status stays the same.
async fn set(cluster: &Cluster, subject: usize, status: &str, round: usize) {
    let patch = json!({"metadata": {"annotations": {"bench": round.to_string()}},
        "status": {"printableStatus": status}});
    let name = format!("vm-{subject}");
    cluster.merge(&VM, NAMESPACE, &name, &patch).await;
}

impl Bench {
    async fn create_subjects(&self) {
        let start = Instant::now();
        let machine: Value = serde_json::from_str(VIRTUAL_MACHINE).expect("the file is JSON");
        for_each(self.subjects, async |number| {
            let mut machine = machine.clone();
            let metadata = &machine["metadata"];
            machine["metadata"] =
                json!({"labels": metadata["labels"], "annotations": metadata["annotations"]});
            // While `snapshotInProgress` exists, even with the value null, a rule detects an
            // operation. So the field is removed.
            let status = machine["status"].as_object_mut().expect("it has a status");
            status.remove("snapshotInProgress");
            status.insert("printableStatus".to_owned(), json!("Running"));
            let machine = VM.object(&format!("vm-{number}"), machine);
            self.cluster.create(&VM, Some(NAMESPACE), &machine).await;
        })
        .await;
        let (count, bytes) = (self.subjects, machine.to_string().len());
        println!(
            "{count} subjects of about {bytes} bytes, after {:.0?}",
            start.elapsed()
        );
    }

    async fn set_all(&self, status: &str) {
        for_each(self.subjects, async |subject| {
            set(&self.cluster, subject, status, 0).await;
        })
        .await;
    }

    /// Sends `total` updates to the subjects with the configured rate.
    async fn load(&self, load: Load, total: usize, latencies: Option<&Latencies>) {
        let start = Instant::now();
        let rate = u32::try_from(self.rate).expect("the rate is a small number");
        let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
        let mut running = tokio::task::JoinSet::new();
        for n in 0..total {
            tick.tick().await;
            let (subject, round) = (n % self.subjects, n / self.subjects);
            let status = match (load, round % 2) {
                (Load::StatusChange, 0) => "Migrating",
                _ => "Running",
            };
            if let Some(latencies) = latencies {
                latencies.sent(subject);
            }
            let cluster = self.cluster.clone();
            running.spawn(async move { set(&cluster, subject, status, n).await });
        }
        running.join_all().await;
        #[allow(clippy::cast_precision_loss)] // A load has some thousands of updates.
        let rate = total as f64 / start.elapsed().as_secs_f64();
        println!("{total} updates, {rate:.0} a second");
    }
}

/// Prints the processor time that the server has used for each of `events` since `before`.
fn print_processor(
    server: &ServerProcess,
    what: &str,
    before: Duration,
    events: usize,
) -> Duration {
    let used = process::processor_time(server.pid()).saturating_sub(before);
    let each = used / u32::try_from(events.max(1)).expect("there are few events");
    println!("processor time for each of {events} {what}: {each:.1?}");
    each
}
