//! A test with several replicas (processes) of the server, which it disturbs under load.
//!
//! Three replicas run behind one load balancer, in persistence mode. VirtualMachines change 20 times
//! a second, so operations start and end all the time. Some clients read the operations through the
//! kube-apiserver. Other clients connect to the replicas directly. The test disturbs the replicas
//! repeatedly, for example with a SIGKILL of the leader (the replica that detects operations). At the
//! end, each client must have exactly the operations that the VirtualMachines have.
//!
//! The simulation in `src/replicate/simulation` disturbs replicas in many more ways. This test shows
//! what the simulation cannot show: real processes, connections, and a real kube-apiserver with its
//! clients.
//!
//! `IFO_DISTURBANCES=30` sets the number of disturbances (see `make soak`). `IFO_E2E_DIR` names a
//! folder in which all files of the run are kept. If no control plane can be started, the test skips
//! itself, like the tests in `tests/e2e`.

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

mod cluster;
mod disturbance;
mod informers;
mod list_clients;
mod load;
mod load_balancer;
mod moving_watches;
mod report;

use cluster::Replicas;
use disturbance::{CALM, Disturbance, plan};
use harness::{Kind, OPERATION, apart, eventually, items, ok_if, text};
use informers::{ClientGo, wait_until_state_correct};
use load::Load;
use report::Report;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The kind of the custom resource that the leader writes for an operation.
const CUSTOM_RESOURCE: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};

/// The ConfigMap in which a leader stores the usual durations of operations for the next leader.
const BASELINES: &str = "/api/v1/namespaces/ifo-system/configmaps/ifo-apiserver-baselines";

#[test]
fn clients_of_three_replicas_converge_after_every_disturbance() {
    apart("replicas", async |cluster| {
        let count = std::env::var("IFO_DISTURBANCES").unwrap_or_else(|_| "5".to_owned());
        let plan = plan(count.parse().expect("IFO_DISTURBANCES must be a number"));
        let mut replicas = Replicas::start(cluster, 3).await;
        run(&mut replicas, &plan).await;
        wait_until_custom_resources_are_equal(&replicas).await;
        let durations = replicas.admin.get(BASELINES).await.ok();
        let stored = text(&durations, "/data/baselines.json");
        assert!(stored.contains("Migrating"), "{durations}");
    });
}

/// Starts the load and the clients, applies each disturbance of the plan, and checks what the
/// clients have received.
async fn run(replicas: &mut Replicas<'_>, plan: &[Disturbance]) {
    let report = Arc::new(Report::default());
    let mut load = Load::start(replicas.cluster).await;
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
    let roaming = moving_watches::start(&endpoints, &report, &mut clients);

    for disturbance in plan.iter().copied() {
        tokio::time::sleep(CALM).await;
        report.begin(disturbance);
        eprintln!("{disturbance:?}");
        disturbance.apply(replicas).await;
        replicas.wait_until_recovered().await;
        report.end();
        tokio::time::sleep(CALM).await;
        report.check(replicas);
    }

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
    report.summarize();
    report.check(replicas);
    for client in [
        list_clients::AGGREGATED,
        list_clients::DIRECT,
        moving_watches::EVENTS,
    ] {
        let counted = report.count_of(client);
        assert!(counted > 100, "only {counted} {client}");
    }
}

/// Waits until the custom resources equal the operations.
async fn wait_until_custom_resources_are_equal(replicas: &Replicas<'_>) {
    let list = async |kind: Kind, fields: [&str; 2]| {
        let answer = replicas.admin.try_get(&kind.path(None)).await?;
        ok_if(answer.code == 200, &answer)?;
        let fields = |it: &Value| fields.map(|field| text(it, field).to_owned());
        Ok::<BTreeSet<_>, String>(items(&answer.body).iter().map(fields).collect())
    };
    eventually("the custom resources equal the operations", async || {
        let live = ["/metadata/uid", "/metadata/creationTimestamp"];
        let live = list(OPERATION, live).await?;
        let stored = list(CUSTOM_RESOURCE, ["/status/liveUID", "/status/started"]).await?;
        let differences: Vec<_> = live.symmetric_difference(&stored).collect();
        ok_if(differences.is_empty(), differences)
    })
    .await;
}
