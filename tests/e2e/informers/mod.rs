//! Test of informers, with which most programs watch objects. The test stops and kills the server
//! while VirtualMachines are created, changed and deleted. At the end, the store of each informer
//! must equal a new list of the InFlightOperations.

mod random_machine_changes;

use crate::harness::informers::{ClientGo, Informer, KubeRs, wait_until_correct};
use crate::harness::{TestCluster, alone, eventually, ok_if};
use random_machine_changes::Traffic;
use std::collections::BTreeSet;

/// How a test stops the server.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// SIGTERM: the server shuts down in order.
    Terminate,
    /// SIGKILL: the process ends at once.
    Kill,
}

async fn stop(cluster: &TestCluster, how: Stop) {
    let mut server = cluster.server.lock().await;
    match how {
        Stop::Terminate => {
            let status = server.terminate().await;
            assert!(status.success(), "{status}");
        }
        Stop::Kill => server.kill().await,
    }
}

async fn start(cluster: &TestCluster) {
    let mut server = cluster.server.lock().await;
    server.start_again(&cluster.kubeconfig).await;
    drop(server);
    cluster.wait_until_served().await;
}

/// Two informers of client-go, and two informers of kube-rs. A streaming informer reads the initial
/// state from a watch. A listing informer reads the initial state from a list.
struct Informers {
    streaming: ClientGo,
    listing: ClientGo,
    rust_streaming: KubeRs,
    rust_listing: KubeRs,
}

impl Informers {
    async fn start(cluster: &TestCluster) -> Self {
        let mut informers = Self {
            streaming: ClientGo::start(&cluster.control_plane, true),
            listing: ClientGo::start(&cluster.control_plane, false),
            rust_streaming: KubeRs::start(&cluster.admin, true),
            rust_listing: KubeRs::start(&cluster.admin, false),
        };
        informers.wait_until_correct(cluster).await;
        // The streaming informer must not list. The listing informer must not read its initial
        // state from a watch. If a connection is lost, an informer repeats its request, so there
        // can be more than one request.
        let streaming = informers.streaming.requests().await;
        assert!(streaming.stream >= 1 && streaming.list == 0);
        let listing = informers.listing.requests().await;
        assert!(listing.stream == 0 && listing.list >= 1);
        informers
    }

    /// Waits until the store of each informer equals a list of the operations.
    async fn wait_until_correct(&mut self, cluster: &TestCluster) {
        wait_until_correct(&cluster.admin, &mut self.streaming).await;
        wait_until_correct(&cluster.admin, &mut self.listing).await;
        wait_until_correct(&cluster.admin, &mut self.rust_streaming).await;
        wait_until_correct(&cluster.admin, &mut self.rust_listing).await;
    }

    /// Waits until the informers of client-go have reported the deletion of these operations.
    /// kube-rs does not report deletions that happened while it was not connected, so its informers
    /// are not checked.
    async fn wait_for_deletions(&mut self, deleted_uids: &BTreeSet<String>) {
        for informer in [&mut self.streaming, &mut self.listing] {
            let what = format!(
                "{} reports what was deleted while the server was stopped",
                informer.name()
            );
            eventually(&what, async || {
                let reported = informer.state().await.deleted_uids;
                ok_if(deleted_uids.is_subset(&reported), (deleted_uids, reported))
            })
            .await;
        }
    }
}

#[test]
fn informers_match_the_server_after_any_traffic_and_restart() {
    alone(async |cluster| {
        let mut traffic = Traffic::start(cluster).await;
        traffic.steps(60).await;
        // client-go doubles its retry delay after each failure. If the informers stayed the same
        // for all four stops, this delay would make the test slow. So the test replaces the
        // informers after two stops.
        for _ in 0..2 {
            let mut informers = Informers::start(cluster).await;
            for how in [Stop::Terminate, Stop::Kill] {
                traffic.steps(20).await;
                traffic.during(stop(cluster, how)).await;
                // While no server is running, the test deletes VirtualMachines whose operations the
                // informers know.
                let streaming = informers.streaming.state().await.from_events;
                let listing = informers.listing.state().await.from_events;
                let deleted_uids = traffic.delete_with_operations([&streaming, &listing]).await;
                traffic.steps(20).await;
                traffic.during(start(cluster)).await;
                traffic
                    .during(informers.wait_for_deletions(&deleted_uids))
                    .await;
                informers.wait_until_correct(cluster).await;
            }
        }
        let operations = traffic.wait_until_expected().await;
        assert!(operations > 10, "there are only {operations} operations");
    });
}
