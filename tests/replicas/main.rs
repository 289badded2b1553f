//! Tests with several replicas (processes) of the server. Some tests disturb the replicas under
//! load.
//!
//! Each test starts its own Kubernetes control plane. In a test under load, three replicas run
//! behind one load balancer. VirtualMachines change 20 times a second, so operations start and end
//! all the time. Some clients read the operations through the kube-apiserver. Other clients connect
//! to the replicas directly. The test disturbs the replicas repeatedly, for example with a SIGKILL
//! of the leader (the replica that detects operations). At the end, each client must have exactly
//! the operations that the VirtualMachines have.
//!
//! These environment variables change the tests:
//!
//! - `IFO_DISTURBANCES=30` sets the number of disturbances (see `make soak`).
//! - `IFO_PLAN='Kill(Leader);Update'` lists the disturbances, and overrides `IFO_DISTURBANCES`.
//! - `IFO_SEED` repeats the random choices of an earlier run.
//! - `IFO_E2E_DIR` names a folder in which all files of the run are kept.
//!
//! If no control plane can be started, the tests skip themselves, like the tests in `tests/e2e`.

// The tests have many steps, so some functions are long. Comments contain names that look like
// code.
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

mod check_custom_resources;
mod cluster;
mod disturbance;
mod informers;
mod list_clients;
mod load;
mod load_balancer;
mod moving_watches;
mod operation_identity;
mod report;
mod usual_durations;
mod visibility;

use cluster::Replicas;
use disturbance::{CALM, Disturbance, PERSISTENCE_PLAN, parse_plan, plan};
use harness::{MANIFEST_FOLDERS, apart};
use informers::{ClientGo, wait_until_state_correct};
use load::Load;
use moving_watches::Events;
use report::Report;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

/// Number of replicas in the tests under load.
const REPLICAS: usize = 3;

/// Each test holds this lock, so only one test runs at a time. A test under load needs all
/// processors.
static TURNS: Mutex<()> = Mutex::new(());

#[test]
fn clients_of_three_replicas_converge_after_every_disturbance() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas", async |cluster| {
        let seed = seed();
        let count = env_number("IFO_DISTURBANCES").unwrap_or(6);
        let plan = match std::env::var("IFO_PLAN") {
            Ok(names) => parse_plan(&names),
            Err(_) => plan(
                usize::try_from(count).expect("IFO_DISTURBANCES must be a small number"),
                seed,
            ),
        };
        let mut replicas = Replicas::start(cluster, &MANIFEST_FOLDERS, &[], REPLICAS).await;
        run(&mut replicas, &plan, seed).await;
    });
}

// If a request of a leader is lost together with its answer, the next leader may write the custom
// resource again. So this test has a plan without such disturbances.
#[test]
fn custom_resources_match_the_operations_and_are_written_once() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas-persistence", async |cluster| {
        let folders = MANIFEST_FOLDERS.map(|folder| match folder {
            "deploy" => "deploy/persistence",
            other => other,
        });
        let folders = [&["deploy/crd-persistence"][..], &folders].concat();
        // The server deletes a custom resource when its operation has ended.
        let settings = ["RETAIN_COMPLETED_IFOS=false"];
        let mut replicas = Replicas::start(cluster, &folders, &settings, REPLICAS).await;
        run(&mut replicas, &PERSISTENCE_PLAN, seed()).await;
        check_custom_resources::wait_until_equal(&replicas).await;
        check_custom_resources::assert_written_once(&replicas);
    });
}

/// Returns the seed of all random choices, and prints the seed. The test harness shows the printed
/// text if the test fails.
fn seed() -> u64 {
    let seed = env_number("IFO_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("IFO_SEED={seed}");
    seed
}

/// Starts the load and the clients, applies each disturbance of the plan, and checks what the
/// clients have received.
async fn run(replicas: &mut Replicas<'_>, plan: &[Disturbance], seed: u64) {
    let report = Arc::new(Report::default());
    let mut load = Load::start(replicas.cluster, seed).await;
    let mut streaming = ClientGo::start(&replicas.cluster.control_plane, true);
    let mut listing = ClientGo::start(&replicas.cluster.control_plane, false);
    let (admin, endpoints) = (replicas.admin.clone(), replicas.endpoints.clone());
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        clients.spawn(list_clients::through_aggregator(
            admin.clone(),
            report.clone(),
        ));
        clients.spawn(list_clients::direct(endpoints.clone(), report.clone()));
    }
    let mut namespaces = JoinSet::new();
    for worker in 0..3 {
        namespaces.spawn(load::namespaces(admin.clone(), report.clone(), worker));
    }
    let events = Arc::new(Events::default());
    let roaming = moving_watches::start(&endpoints, &report, &events, &mut clients);

    for disturbance in plan.iter().copied() {
        let before = operation_identity::snapshot(replicas, &load).await;
        tokio::time::sleep(CALM).await;
        report.begin(disturbance);
        eprintln!("{disturbance:?}");
        disturbance.apply(replicas).await;
        replicas.wait_until_recovered().await;
        report.end();
        before.assert_unchanged(replicas, &load).await;
        tokio::time::sleep(CALM).await;
        report.check(replicas);
    }

    namespaces.abort_all();
    let expected = load.stop_and_wait(replicas).await;
    assert!(expected > 10, "the load has only {expected} operations");
    for client in &roaming {
        client.wait_until_equal(&admin).await;
    }
    clients.abort_all();
    while let Some(ended) = clients.join_next().await {
        assert!(
            ended.is_err_and(|error| error.is_cancelled()),
            "a client panicked"
        );
    }
    let may_lose_changes = plan.iter().copied().any(Disturbance::may_lose_changes);
    let informer_states = [
        wait_until_state_correct(&admin, &mut streaming).await,
        wait_until_state_correct(&admin, &mut listing).await,
    ];
    for informer in informer_states {
        load.assert_steady_never_ended(&informer.deleted_uids);
        for complaint in informer.violations {
            // A disturbance can lose the last changes of the old leader: a client has received
            // them, but no other replica has. The new leader then sends older versions of these
            // objects to the client.
            let is_about_version = complaint.contains(" after it ");
            assert!(
                may_lose_changes && is_about_version,
                "an informer reports: {complaint}"
            );
            report.count("objects whose resourceVersion decreased for an informer");
        }
    }
    events.check(&report);
    report.summarize();
    let disturbances = plan.len() as u64;
    report.check(replicas);
    for client in [
        load::NAMESPACE,
        list_clients::AGGREGATED,
        list_clients::DIRECT,
        moving_watches::COMPARED_WATCH_PAIRS,
    ] {
        let counted = report.count_of(client);
        assert!(counted > disturbances, "only {counted} {client}");
    }
}

/// Returns the number in an environment variable. Returns None if the variable is not set.
fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}
