//! Benchmarks of the whole server `ifo-apiserver` with a real kube-apiserver. `ifo-apiserver`
//! watches `VirtualMachine` objects (the subjects), and detects operations on them.
//!
//! The benchmarks measure the duration of the start, the memory, the processor time for each event
//! of a subject, and the latency of operations. They also measure the duration of lists, and the
//! costs of many watchers and of hostile rule sets (which have expensive expressions). The benchmarks
//! need a control plane that nothing else uses:
//!
//! ```text
//! program=$(tests/control-plane/build); "$program" run --detach --dir DIR
//! IFO_BENCH_KUBECONFIG=DIR/admin.kubeconfig cargo bench --bench cluster
//! ```
//!
//! | variable | default | meaning |
//! | --- | --- | --- |
//! | `IFO_BENCH_PARTS` | all | the measured parts: `start`, `load`, `records`, `operations`, `list`, `watchers`, `hostile` |
//! | `IFO_BENCH_SUBJECTS` | 5000 | number of subjects. A subject has at most one operation |
//! | `IFO_BENCH_RATE` | 300 | number of updates per second |
//! | `IFO_BENCH_SECONDS` | 20 | duration of each load in seconds |
//! | `IFO_BENCH_WATCHERS` | 1000 | number of watches in the part `watchers` |
//! | `IFO_BENCH_SERVER` | the server of this build | path of the measured program |

mod api_client;
mod bare_watch;
mod hostile_rule_sets;
mod latency;
mod list_duration;
mod server;
mod watchers;

use anyhow::Context as _;
use api_client::{Api, MACHINES};
use bare_watch::BareWatch;
use latency::Latencies;
use server::MeasuredServer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waiting time before a measurement. In this time, the server finishes the work that earlier
/// updates have caused, so that this work is not measured.
const SETTLE: Duration = Duration::from_secs(4);
/// Number of operations in flight at the end of the part `records`.
const IN_FLIGHT: usize = 2_000;
/// Number of measured starts. The fastest start is reported, because other processes can delay a
/// start.
const STARTS: usize = 5;

fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    bare_watch::run_if_bare_watch()?;
    tokio::runtime::Runtime::new()?.block_on(measure())
}

async fn measure() -> anyhow::Result<()> {
    let Some(kubeconfig) = std::env::var_os("IFO_BENCH_KUBECONFIG") else {
        println!(
            "cluster: skipped; IFO_BENCH_KUBECONFIG is not set: \
             it must name the kubeconfig of a control plane that nothing else uses"
        );
        return Ok(());
    };
    let bench = Bench {
        api: Api::connect(PathBuf::from(kubeconfig)).await?,
        subjects: number("IFO_BENCH_SUBJECTS", 5_000)?,
        rate: number("IFO_BENCH_RATE", 300)?,
        seconds: number("IFO_BENCH_SECONDS", 20)?,
        watchers: number("IFO_BENCH_WATCHERS", 1_000)?,
    };
    bench.prepare().await?;
    bench.run().await
}

/// Reads a number from the environment.
fn number(name: &str, default: usize) -> anyhow::Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

/// Returns true if `IFO_BENCH_PARTS` names the part or is not set.
fn is_selected(part: &str) -> bool {
    std::env::var("IFO_BENCH_PARTS").map_or(true, |parts| parts.split(',').any(|name| name == part))
}

/// The settings of the benchmarks.
struct Bench {
    api: Api,
    /// Number of subjects.
    subjects: usize,
    /// Number of updates per second.
    rate: usize,
    /// Duration of each load in seconds.
    seconds: usize,
    /// Number of watches in the part `watchers`.
    watchers: usize,
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

impl Bench {
    /// Creates the CRDs, the shipped rule set, and the subjects.
    async fn prepare(&self) -> anyhow::Result<()> {
        self.api.install().await?;
        let start = Instant::now();
        self.api.create_machines(self.subjects).await?;
        let one = self.api.get(&format!("{MACHINES}/vm-0")).await?;
        println!(
            "{} subjects of {} bytes, after {:.0?}",
            self.subjects,
            one.len(),
            start.elapsed()
        );
        Ok(())
    }

    async fn run(&self) -> anyhow::Result<()> {
        if is_selected("start") {
            let mut best = Duration::MAX;
            for _ in 0..STARTS {
                best = best.min(MeasuredServer::start(&self.api).await?.startup_time);
            }
            println!("start to serving discovery: {best:.0?}, the quickest of {STARTS}");
        }
        self.api.set_all(self.subjects, "Running").await?;
        let single_server = [
            "load",
            "records",
            "hostile",
            "operations",
            "list",
            "watchers",
        ];
        if single_server.into_iter().any(is_selected) {
            self.measure_single_server().await?;
        }
        Ok(())
    }

    /// Measures a running server.
    async fn measure_single_server(&self) -> anyhow::Result<()> {
        let server = MeasuredServer::start(&self.api).await?;
        let synced = Instant::now();
        server.register(&self.api).await?;
        println!(
            "through the kube-apiserver, synced: after {:.0?}",
            synced.elapsed()
        );
        tokio::time::sleep(SETTLE).await;
        println!("idle: {}", server.memory()?);
        if is_selected("load") {
            self.measure_loads(&server).await?;
        }
        if is_selected("records") {
            self.measure_records(&server).await?;
        }
        if is_selected("hostile") {
            hostile_rule_sets::measure_effect(self, &server).await?;
        }
        if is_selected("operations") || is_selected("list") || is_selected("watchers") {
            self.measure_operations(&server).await?;
        }
        if is_selected("list") {
            list_duration::compare(&self.api, &server).await?;
        }
        if is_selected("watchers") {
            watchers::measure_spread(self, &server).await?;
        }
        println!("at the end: {}", server.memory()?);
        Ok(())
    }

    /// Measures the processor time for each event, and the latency of operations.
    async fn measure_loads(&self, server: &MeasuredServer) -> anyhow::Result<()> {
        let bare = BareWatch::start(&self.api.kubeconfig)?;
        tokio::time::sleep(SETTLE).await;
        let (before, bare_before) = (server.processor_time()?, bare.processor_time()?);
        let events = self
            .load(Load::Heartbeat, self.rate * self.seconds, None)
            .await?;
        let own = server.processor_time_since(before)?;
        let bare = bare.processor_time()?.saturating_sub(bare_before);
        let each = u32::try_from(events)?;
        println!(
            "processor time for each of {events} heartbeats: {:.1?}; a bare watch {:.1?}; {:.2} times",
            own / each,
            bare / each,
            own.as_secs_f64() / bare.as_secs_f64()
        );
        let before = server.processor_time()?;
        let latencies = self.load_with_watches(Load::StatusChange).await?;
        let events = self.rate * self.seconds;
        server.print_processor(
            "status changes, with one watch of the operations",
            before,
            events,
        )?;
        latencies.print();
        println!("after both loads: {}", server.memory()?);
        Ok(())
    }

    /// Runs a load while one watch receives the subjects and another watch receives the operations.
    /// Returns the latencies of both.
    async fn load_with_watches(&self, load: Load) -> anyhow::Result<Arc<Latencies>> {
        // Wait until the operations of the previous load have ended. If a rule has no `debounce`,
        // its operations end 5 s after their last detection.
        self.api.set_all(self.subjects, "Running").await?;
        tokio::time::sleep(2 * SETTLE).await;
        let latencies = Arc::new(Latencies::default());
        let watches = latencies.watch(&self.api).await?;
        tokio::time::sleep(SETTLE).await;
        latencies.reset();
        let updates = self.rate * self.seconds;
        self.load(load, updates, Some(&latencies)).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        for watch in watches {
            watch.abort();
        }
        Ok(latencies)
    }

    /// Sends `total` updates to the subjects with the configured rate. Returns the number of updates.
    async fn load(
        &self,
        load: Load,
        total: usize,
        latencies: Option<&Latencies>,
    ) -> anyhow::Result<usize> {
        let start = Instant::now();
        let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(self.rate)?);
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
            let api = self.api.clone();
            running.spawn(async move { api.set(subject, status, n).await });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        #[allow(clippy::cast_precision_loss)] // A load has some thousands of updates.
        let rate = total as f64 / start.elapsed().as_secs_f64();
        println!("{total} updates, {rate:.0} a second");
        Ok(total)
    }

    /// Measures the memory of [`IN_FLIGHT`] operations in flight and of two records for each subject.
    async fn measure_records(&self, server: &MeasuredServer) -> anyhow::Result<()> {
        let updates = 4 * self.subjects + IN_FLIGHT;
        self.load(Load::StatusChange, updates, None).await?;
        tokio::time::sleep(2 * SETTLE).await;
        for plural in ["inflightoperations", "operationrecords"] {
            let path = format!("{}/{plural}?limit=1", api_client::LIVE_API_PATH);
            let page: serde_json::Value = serde_json::from_slice(&self.api.get(&path).await?)?;
            let remaining = page["metadata"]["remainingItemCount"].as_u64();
            println!("{plural}: {}", remaining.unwrap_or_default() + 1);
        }
        println!("with these operations and records: {}", server.memory()?);
        Ok(())
    }

    /// Measures the memory of operations in flight. At the end, every subject has an operation in
    /// flight. The parts `list` and `watchers` then use these operations.
    async fn measure_operations(&self, server: &MeasuredServer) -> anyhow::Result<()> {
        self.api.set_all(self.subjects, "Running").await?;
        tokio::time::sleep(2 * SETTLE).await;
        let none = server.memory()?;
        self.api.set_all(self.subjects, "Migrating").await?;
        tokio::time::sleep(SETTLE).await;
        let all = server.memory()?;
        println!("none in flight: {none}; {} in flight: {all}", self.subjects);
        #[allow(clippy::cast_precision_loss)] // The values are kilobytes.
        let each = (all.resident as f64 - none.resident as f64) / self.subjects as f64;
        println!("each operation in flight: {each:.2} KB");
        Ok(())
    }
}
