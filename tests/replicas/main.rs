//! Three replicas of the server under load, while they and their surroundings are disturbed.
//!
//! The replicas run behind one address, on a control plane of their own. Machines change 20
//! times a second. Informers and readers follow the operations through the aggregator, and
//! others ask the replicas directly. The run is a series of disturbances, such as SIGKILL of
//! the leader. Afterwards all clients must hold the operations that the machines have.
//!
//! `IFO_DISTURBANCES=30` sets the number of disturbances (`make soak`). `IFO_SEED` repeats
//! the choices of an earlier run. `IFO_PLAN='Kill(Leader);Update'` sets the disturbances.
//! As in `tests/e2e`, the test is skipped where no control plane can be started, and
//! `IFO_E2E_DIR` keeps all files.

// Each test tells one story, so some tests are long and have unusual words.
#![allow(clippy::doc_markdown, clippy::too_many_lines)]

#[path = "../e2e/harness/mod.rs"]
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

mod balancer;
mod cluster;
mod comparison;
mod disturbance;
mod identity;
mod load;
mod neighbours;
mod readers;
mod records;
mod report;
mod roaming;
mod upgrade;

use cluster::Replicas;
use disturbance::{CALM, Disturbance, IN_PERSISTENCE_MODE, named, plan};
use harness::informers::{ClientGo, KubeRs, agrees_at_last};
use harness::relay::Link;
use harness::{FOLDERS, apart, eventually};
use load::Load;
use report::Report;
use roaming::Events;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

/// Number of replicas.
const REPLICAS: usize = 3;

/// Each test needs the whole machine.
static TURNS: Mutex<()> = Mutex::new(());

#[test]
fn clients_of_three_replicas_converge_after_every_disturbance() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas", async |control_plane| {
        let seed = seed();
        let count = number("IFO_DISTURBANCES").unwrap_or(6);
        let plan = match std::env::var("IFO_PLAN") {
            Ok(names) => named(&names),
            Err(_) => plan(usize::try_from(count).expect("a small number"), seed),
        };
        let mut replicas = Replicas::start(control_plane, &FOLDERS, &[], REPLICAS).await;
        run(&mut replicas, &plan, seed).await;
    });
}

#[test]
fn custom_resources_match_the_operations_after_every_disturbance() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas-persistence", async |control_plane| {
        let folders = FOLDERS.map(|folder| match folder {
            "deploy" => "deploy/persistence",
            other => other,
        });
        let folders = [&["deploy/crd-persistence"][..], &folders].concat();
        // A record is deleted when its operation has ended.
        let variables = [("RETAIN_COMPLETED_IFOS", "false")];
        let mut replicas = Replicas::start(control_plane, &folders, &variables, REPLICAS).await;
        run(&mut replicas, &IN_PERSISTENCE_MODE, seed()).await;
        records::agree(&replicas).await;
        records::were_written_once(&replicas);
    });
}

#[test]
fn a_follower_without_the_kube_apiserver_is_not_ready_while_another_replica_leads() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas-readiness", async |control_plane| {
        let replicas = Replicas::start(control_plane, &FOLDERS, &[], 2).await;
        let follower = 1 - replicas.leader().await;
        let follower = &replicas.all[follower];
        let becomes = async |ready: bool| {
            eventually(&format!("ready is {ready}"), async || {
                let now = follower.endpoint.is_ready();
                (now == ready).then_some(()).ok_or_else(String::new)
            })
            .await;
        };
        for link in [Link::Silent, Link::Refused] {
            follower.relay.set(link);
            becomes(false).await;
            follower.relay.set(Link::Open);
            becomes(true).await;
        }
    });
}

/// The seed of the load and of the plan. A failed test prints it.
fn seed() -> u64 {
    let seed = number("IFO_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("IFO_SEED={seed}");
    seed
}

/// Disturbs the replicas in each way, and compares the states of their clients.
async fn run(replicas: &mut Replicas<'_>, plan: &[Disturbance], seed: u64) {
    let report = Arc::new(Report::default());
    let mut load = Load::start(&replicas.admin, seed).await;
    let mut streaming = ClientGo::start(replicas.control_plane, true);
    let mut listing = ClientGo::start(replicas.control_plane, false);
    let mut rust_streaming = KubeRs::start(&replicas.admin, true);
    let mut rust_listing = KubeRs::start(&replicas.admin, false);
    let (admin, endpoints) = (replicas.admin.clone(), replicas.endpoints.clone());
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        clients.spawn(readers::through_aggregator(admin.clone(), report.clone()));
        clients.spawn(readers::direct(endpoints.clone(), report.clone()));
    }
    clients.spawn(comparison::lists(endpoints.clone(), report.clone()));
    clients.spawn(comparison::pages(endpoints.clone(), report.clone()));
    let mut namespaces = JoinSet::new();
    for worker in 0..3 {
        namespaces.spawn(load::namespaces(admin.clone(), report.clone(), worker));
    }
    let events = Arc::new(Events::default());
    let roaming = roaming::start(&endpoints, &report, &events, &mut clients);

    for disturbance in plan.iter().copied() {
        let held = identity::held(replicas, &load).await;
        tokio::time::sleep(CALM).await;
        report.begin(disturbance);
        eprintln!("{disturbance:?}");
        disturbance.apply(replicas).await;
        replicas.recovered().await;
        report.end();
        held.must_be_unchanged(replicas, &load).await;
        tokio::time::sleep(CALM).await;
        report.check(replicas);
    }

    namespaces.abort_all();
    let expected = load.settled(replicas).await;
    assert!(expected > 10, "{expected} operations are too few");
    for client in &roaming {
        client.agrees(&admin).await;
    }
    clients.abort_all();
    while let Some(ended) = clients.join_next().await {
        assert!(
            ended.is_err_and(|error| error.is_cancelled()),
            "a client panicked"
        );
    }
    let loses = plan.iter().copied().any(Disturbance::may_lose_changes);
    let beliefs = [
        agrees_at_last(&admin, &mut streaming).await,
        agrees_at_last(&admin, &mut listing).await,
        agrees_at_last(&admin, &mut rust_streaming).await,
        agrees_at_last(&admin, &mut rust_listing).await,
    ];
    for belief in beliefs {
        load.steady_never_ended(&belief.deleted);
        for complaint in belief.broken {
            // A client that has received changes of a killed leader lists a state before them.
            let is_of_version = complaint.contains(" after it ");
            assert!(loses && is_of_version, "an informer: {complaint}");
            report.count("versions of objects that fell for an informer");
        }
    }
    events.check(&report);
    report.summarize();
    let least = plan.len() as u64;
    report.check(replicas);
    for client in [
        load::NAMESPACE,
        readers::AGGREGATED,
        readers::DIRECT,
        comparison::LISTS,
        comparison::PAGES,
        roaming::WATCHES,
    ] {
        let counted = report.counted(client);
        assert!(counted > least, "{counted} {client} are too few");
    }
}

/// Reads a number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}
