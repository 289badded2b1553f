//! Benchmarks of the whole server with a real kube-apiserver: start, memory, processor time for
//! each event of a subject, latency of operations compared with their subjects, lists, and many
//! watchers. They need a control plane that is used for nothing else:
//!
//!
//! ```text
//! program=$(tests/control-plane/build); "$program" run --detach --dir DIR
//! IFO_BENCH_KUBECONFIG=DIR/admin.kubeconfig cargo bench --bench cluster
//! ```
//!
//! | variable | default | meaning |
//! | --- | --- | --- |
//! | `IFO_BENCH_PARTS` | all | which of `start`, `load`, `operations`, `list`, `watchers`, `hostile`, `replicas`, `failover` |
//! | `IFO_BENCH_SUBJECTS` | 5000 | subjects, and operations where all of them have one |
//! | `IFO_BENCH_RATE` | 300 | updates a second |
//! | `IFO_BENCH_SECONDS` | 20 | length of each load |
//! | `IFO_BENCH_WATCHERS` | 1000 | watchers of `watchers` |
//! | `IFO_BENCH_KILLS` | 50 | how often `failover` kills the leader |
//! | `IFO_BENCH_SERVER` | built along | another program to measure |

mod api;
mod bare;
mod hostile;
mod latency;
mod list;
mod replicas;
mod server;
mod watchers;

use anyhow::Context as _;
use api::{Api, MACHINES};
use bare::BareWatch;
use latency::Seen;
use server::Server;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time in which the server settles before its memory is read.
const SETTLE: Duration = Duration::from_secs(4);
/// Number of starts. The fastest one counts, because the others waited for the machine.
const STARTS: usize = 5;

fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    bare::watch_if_started_for_it()?;
    tokio::runtime::Runtime::new()?.block_on(measure())
}

async fn measure() -> anyhow::Result<()> {
    let Some(kubeconfig) = std::env::var_os("IFO_BENCH_KUBECONFIG") else {
        println!("cluster: skipped; IFO_BENCH_KUBECONFIG names no control plane to throw away");
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

/// Returns true if a part is selected.
fn wanted(part: &str) -> bool {
    std::env::var("IFO_BENCH_PARTS").map_or(true, |parts| parts.split(',').any(|own| own == part))
}

struct Bench {
    api: Api,
    subjects: usize,
    rate: usize,
    seconds: usize,
    watchers: usize,
}

/// The change that an update makes.
#[derive(Clone, Copy)]
enum Load {
    /// A field that no rule reads.
    Heartbeat,
    /// A different status each time, so that an operation starts, settles or continues.
    Life,
}

impl Bench {
    /// Creates the CRDs, the shipped rule set, and the subjects.
    async fn prepare(&self) -> anyhow::Result<()> {
        self.api.install().await?;
        let start = Instant::now();
        self.api.make_machines(self.subjects).await?;
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
        if wanted("start") {
            let mut best = Duration::MAX;
            for _ in 0..STARTS {
                best = best.min(Server::start(&self.api).await?.started);
            }
            println!("start to serving discovery: {best:.0?}, the quickest of {STARTS}");
        }
        self.api.set_all(self.subjects, "Running").await?;
        let alone = ["load", "hostile", "operations", "list", "watchers"];
        if alone.into_iter().any(wanted) {
            self.alone().await?;
        }
        if wanted("replicas") {
            replicas::cost(self).await?;
        }
        if wanted("failover") {
            replicas::failover(&self.api, number("IFO_BENCH_KILLS", 50)?).await?;
        }
        Ok(())
    }

    /// Measures a server that runs alone.
    async fn alone(&self) -> anyhow::Result<()> {
        let server = Server::start(&self.api).await?;
        let synced = Instant::now();
        server.register(&self.api).await?;
        println!(
            "through the kube-apiserver, synced: after {:.0?}",
            synced.elapsed()
        );
        tokio::time::sleep(SETTLE).await;
        println!("idle: {}", server.memory()?);
        if wanted("load") {
            self.loads(&server).await?;
        }
        if wanted("hostile") {
            hostile::compare(self, &server).await?;
        }
        if wanted("operations") || wanted("list") || wanted("watchers") {
            self.operations(&server).await?;
        }
        if wanted("list") {
            list::compare(&self.api, &server).await?;
        }
        if wanted("watchers") {
            watchers::spread(self, &server).await?;
        }
        println!("at the end: {}", server.memory()?);
        Ok(())
    }

    /// Measures the processor time for each event, and the latency.
    async fn loads(&self, server: &Server) -> anyhow::Result<()> {
        let bare = BareWatch::start(&self.api.kubeconfig)?;
        tokio::time::sleep(SETTLE).await;
        let (before, bare_before) = (server.processor()?, bare.processor()?);
        let events = self.load(Load::Heartbeat, None).await?;
        let own = server.processor_since(before)?;
        let bare = bare.processor()?.saturating_sub(bare_before);
        let each = u32::try_from(events)?;
        println!(
            "processor time for each of {events} heartbeats: {:.1?}; a bare watch {:.1?}; {:.2} times",
            own / each,
            bare / each,
            own.as_secs_f64() / bare.as_secs_f64()
        );
        let before = server.processor()?;
        let seen = self.watched(Load::Life).await?;
        let events = self.rate * self.seconds;
        server.say_processor("changes of state, one watch of them", before, events)?;
        seen.report();
        println!("after both loads: {}", server.memory()?);
        Ok(())
    }

    /// Runs a load, with one watch of the subjects and one of their operations.
    async fn watched(&self, load: Load) -> anyhow::Result<Arc<Seen>> {
        // Operations of the previous load must have ended.
        self.api.set_all(self.subjects, "Running").await?;
        tokio::time::sleep(2 * SETTLE).await;
        let seen = Arc::new(Seen::default());
        let watches = seen.watch(&self.api).await?;
        tokio::time::sleep(SETTLE).await;
        seen.forget();
        self.load(load, Some(&seen)).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        for watch in watches {
            watch.abort();
        }
        Ok(seen)
    }

    /// Updates at the rate for this time. Returns the number of updates.
    async fn load(&self, load: Load, seen: Option<&Seen>) -> anyhow::Result<usize> {
        let total = self.rate * self.seconds;
        let start = Instant::now();
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
            let api = self.api.clone();
            running.spawn(async move { api.set(subject, status, n).await });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        #[allow(clippy::cast_precision_loss)] // some thousands
        let rate = total as f64 / start.elapsed().as_secs_f64();
        println!("{total} updates, {rate:.0} a second");
        Ok(total)
    }

    /// Measures the memory of operations in flight. After it, every subject has one.
    async fn operations(&self, server: &Server) -> anyhow::Result<()> {
        self.api.set_all(self.subjects, "Running").await?;
        tokio::time::sleep(2 * SETTLE).await;
        let none = server.memory()?;
        self.api.set_all(self.subjects, "Migrating").await?;
        tokio::time::sleep(SETTLE).await;
        let all = server.memory()?;
        println!("none in flight: {none}; {} in flight: {all}", self.subjects);
        #[allow(clippy::cast_precision_loss)] // kilobytes
        let each = (all.resident as f64 - none.resident as f64) / self.subjects as f64;
        println!("each operation in flight: {each:.2} KB");
        Ok(())
    }
}
