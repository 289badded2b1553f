//! Servers that are killed, restarted and replaced while operations come and go, in virtual
//! time. The tracker, the index, persistence and restoring are the real ones; the cluster
//! that they watch and write to is in memory, and slow, forgetful and away as it likes.
//!
//! What happens is a function of the seed, but for what is due in the same millisecond:
//! tokio chooses among that. `IFO_SIMULATION_SEED` runs one seed, and tells what happens in
//! it with `IFO_SIMULATION_TRACE=1`; `IFO_SIMULATION_SEEDS` runs so many from that one on.

mod checks;
mod cluster;
mod server;
mod sources;
mod world;

use crate::clock;
use checks::Operation;
use cluster::Cluster;
use jiff::Timestamp;
use server::{Server, Site};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use world::World;

/// Seeds that are run if nobody says which: some 15 s.
const SEEDS: u64 = 14;

/// How long everything has to settle: past the longest pause after trouble, a comparison of
/// what is there, and what follows from it.
const SETTLE: Duration = Duration::from_mins(15);

/// What happened, if anybody wants to know.
pub struct Trace {
    wanted: bool,
    since: Instant,
    lines: Mutex<String>,
}

impl Trace {
    fn new(wanted: bool) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            since: Instant::now(),
            lines: Mutex::default(),
        })
    }

    pub fn add(&self, line: impl FnOnce() -> String) {
        if self.wanted {
            let mut lines = self.lines.lock().expect("nothing panics that holds it");
            let time = self.since.elapsed().as_secs_f64();
            let (now, line) = (clock::now(), line());
            writeln!(lines, "{time:8.3} {now:.3} {line}").expect("a string takes all");
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn restarts_and_hand_overs_lose_double_and_change_nothing() {
    let seed = variable("IFO_SIMULATION_SEED");
    let seeds = variable("IFO_SIMULATION_SEEDS");
    let seeds = seeds.unwrap_or(if seed.is_some() { 1 } else { SEEDS });
    let trace = std::env::var_os("IFO_SIMULATION_TRACE").is_some();
    let first = seed.unwrap_or(0);
    let mut failed = Vec::new();
    for seed in first..first + seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime can be made");
        let wrong = runtime.block_on(run(seed, trace));
        if !wrong.is_empty() {
            eprintln!("seed {seed}:\n{}", wrong.join("\n"));
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "these seeds fail: {failed:?}");
}

/// What is wrong in the end.
async fn run(seed: u64, trace: bool) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    // The queue's pauses are random, too.
    fastrand::seed(seed);
    let start = Timestamp::from_millisecond(1_798_761_600_000 + rng.i64(0..1_000));
    let _clock = clock::simulated::begin(start.expect("a time of this century"));
    let trace = Trace::new(trace);
    let failing = if rng.bool() { 0 } else { rng.u8(1..20) };
    let site = Site {
        world: Arc::new(World::new(rng.usize(3..8), trace.clone())),
        cluster: Cluster::new(failing, rng.bool(), trace.clone()),
        trace: trace.clone(),
        debounce: Duration::from_secs([0, 3, 10, 30][rng.usize(..4)]),
        resync: Duration::from_secs([30, 600][rng.usize(..2)]),
        retain: rng.u8(..3) > 0,
        ring: [8 << 10, 4 << 20][rng.usize(..2)],
        gaps: rng.u8(..3) == 0,
        wrong: Arc::default(),
        born: Arc::default(),
    };
    trace.add(|| {
        let Site {
            debounce, retain, ..
        } = &site;
        format!("debounce {debounce:?}, retain {retain}, {failing} % fail")
    });
    let over = Instant::now() + Duration::from_secs(rng.u64(120..600));
    let pace = Duration::from_millis([300, 1_500, 6_000][rng.usize(..3)]);
    let traffic = {
        let (world, rng) = (site.world.clone(), rng.fork());
        tokio::spawn(async move { world.move_on(rng, pace, over).await })
    };
    let mut server = Server::start(&site, None, &mut rng);
    while Instant::now() < over {
        let most = if rng.u8(..3) == 0 { 5_000 } else { 120_000 };
        tokio::time::sleep(Duration::from_millis(rng.u64(..most))).await;
        if rng.u8(..5) == 0 {
            let time = Duration::from_secs(rng.u64(1..60));
            site.cluster.leave_for(time);
        }
        server = restart(server, &site, &mut rng).await;
    }
    traffic.await.expect("the world goes on");
    site.cluster.calm();
    tokio::time::sleep(SETTLE).await;
    let mut wrong = verdict(&server, &site, false);
    // Of two servers that went on side by side each may have written the same time under
    // another start. Whoever starts next puts that right.
    server.stop().await;
    let server = Server::start(&site, None, &mut rng);
    tokio::time::sleep(SETTLE).await;
    wrong.extend(verdict(&server, &site, true));
    let writes = site.cluster.writes();
    tokio::time::sleep(SETTLE).await;
    let since = site.cluster.writes() - writes;
    if since > 0 {
        wrong.push(format!("{since} writes at rest"));
    }
    trace.add(|| "world: comes to rest".to_owned());
    site.world.rest();
    tokio::time::sleep(Duration::from_mins(3)).await;
    wrong.extend(verdict(&server, &site, true));
    let started = std::mem::take(&mut *site.wrong.lock().expect("nothing panics that holds it"));
    wrong.extend(started);
    wrong.sort();
    wrong.dedup();
    if !wrong.is_empty() {
        let lines = trace.lines.lock().expect("nothing panics that holds it");
        eprint!("{lines}");
    }
    wrong
}

/// One server takes the place of another.
async fn restart(old: Server, site: &Site, rng: &mut fastrand::Rng) -> Server {
    let some_time = |rng: &mut fastrand::Rng| {
        let most = [500, 10_000, 60_000][rng.usize(..3)];
        Duration::from_millis(rng.u64(..most))
    };
    let kind = rng.u8(..10);
    if kind < 4 {
        if kind < 3 {
            old.kill();
        } else {
            old.stop().await;
        }
        tokio::time::sleep(some_time(rng)).await;
        return Server::start(site, None, rng);
    }
    let mut new = Server::start(site, Some(&old), rng);
    if kind == 4 {
        // The new one does not come up.
        tokio::time::sleep(some_time(rng)).await;
        new.kill();
        return old;
    }
    if kind == 5 {
        // The old one goes before the new one is there.
        tokio::time::sleep(some_time(rng)).await;
        old.kill();
        return new;
    }
    let ready = new.ready.wait_for(|ready| *ready);
    ready.await.expect("it goes on");
    tokio::time::sleep(some_time(rng)).await;
    if kind == 6 {
        old.kill();
    } else {
        old.stop().await;
    }
    new
}

/// What is wrong with what is shown and written; `alone` is whether the server has started
/// when no other one was there.
fn verdict(server: &Server, site: &Site, alone: bool) -> Vec<String> {
    let crs: Vec<Operation> = site.cluster.all().iter().map(Operation::of_cr).collect();
    let live: Vec<Operation> = server.shown().iter().map(Operation::of_live).collect();
    let born = *site
        .born
        .lock()
        .expect("nothing panics that holds it")
        .get(server.number - 1)
        .expect("it was noted");
    let was_written = |uid: &str| site.cluster.lives(|lives| lives.contains_key(uid));
    let mut wrong = checks::active(&crs, &site.world.going_on());
    let ever = site.cluster.lives(checks::longest);
    wrong.extend(checks::agree(&crs, &live, &ever, born, was_written));
    if alone {
        wrong.extend(checks::overlaps("live operations", &live));
        wrong.extend(checks::overlaps("custom resources", &crs));
    }
    if site.retain {
        wrong.extend(checks::lost(&site.cluster, &live));
    } else {
        let over = crs.iter().chain(&live).filter(|it| it.completed.is_some());
        wrong.extend(over.map(|it| format!("not retained, and there: {it:?}")));
    }
    let starts = site.born.lock().expect("nothing panics that holds it");
    wrong.extend(checks::restless(&site.cluster, 4 + starts.len()));
    wrong
}
