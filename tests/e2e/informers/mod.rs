//! Tests of informers, which most programs use. Machines are created, changed and deleted, and the
//! server is stopped and killed. Afterwards, the store of each informer equals a list.

mod traffic;

use crate::harness::informers::{ClientGo, Informer, KubeRs, agrees};
use crate::harness::{World, alone, eventually, so};
use std::collections::BTreeSet;
use traffic::Traffic;

/// The way in which the server ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// With SIGTERM, so that it shuts down in order.
    Asked,
    /// With SIGKILL.
    Killed,
}

async fn stop(world: &World, end: End) {
    let mut server = world.server.lock().await;
    match end {
        End::Asked => {
            let status = server.terminate().await;
            assert!(status.success(), "{status}");
        }
        End::Killed => server.kill().await,
    }
}

async fn start(world: &World) {
    let mut server = world.server.lock().await;
    server.start_again(&world.kubeconfig).await;
    drop(server);
    world.served().await;
}

/// One informer of each library and mode.
struct Informers {
    streaming: ClientGo,
    listing: ClientGo,
    rust_streaming: KubeRs,
    rust_listing: KubeRs,
}

impl Informers {
    async fn start(world: &World) -> Self {
        let mut informers = Self {
            streaming: ClientGo::start(&world.control_plane, true),
            listing: ClientGo::start(&world.control_plane, false),
            rust_streaming: KubeRs::start(&world.admin, true),
            rust_listing: KubeRs::start(&world.admin, false),
        };
        informers.agree(world).await;
        // Each informer uses its mode, and lists once if its connection was not lost.
        let streaming = informers.streaming.requests().await;
        assert!(streaming.stream >= 1 && streaming.list == 0);
        let listing = informers.listing.requests().await;
        assert!(listing.stream == 0 && listing.list >= 1);
        informers
    }

    /// Waits until the state of all informers is correct.
    async fn agree(&mut self, world: &World) {
        agrees(&world.admin, &mut self.streaming).await;
        agrees(&world.admin, &mut self.listing).await;
        agrees(&world.admin, &mut self.rust_streaming).await;
        agrees(&world.admin, &mut self.rust_listing).await;
    }

    /// Waits until the informers that report each deletion have reported these.
    async fn told_of(&mut self, doomed: &BTreeSet<String>) {
        for informer in [&mut self.streaming, &mut self.listing] {
            let what = format!("{} tells what went in the outage", informer.name());
            eventually(&what, async || {
                let told = informer.belief().await.deleted;
                so(doomed.is_subset(&told), (doomed, told))
            })
            .await;
        }
    }
}

#[test]
fn informers_match_the_server_after_any_traffic_and_restart() {
    alone(async |world| {
        let mut traffic = Traffic::start(world).await;
        traffic.steps(60).await;
        // Two times, because client-go doubles its delay after each failure.
        for _ in 0..2 {
            let mut informers = Informers::start(world).await;
            for end in [End::Asked, End::Killed] {
                traffic.steps(20).await;
                traffic.during(stop(world, end)).await;
                // Some operations end while no server is running.
                let streaming = informers.streaming.belief().await.told;
                let listing = informers.listing.belief().await.told;
                let doomed = traffic.doom([&streaming, &listing]).await;
                traffic.steps(20).await;
                traffic.during(start(world)).await;
                traffic.during(informers.told_of(&doomed)).await;
                informers.agree(world).await;
            }
        }
        let operations = traffic.settled().await;
        assert!(operations > 10, "{operations} are too few to tell anything");
    });
}
