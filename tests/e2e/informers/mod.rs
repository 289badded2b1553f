//! Informers, which most programs see a cluster through: while machines come, change and
//! go and the server is stopped and killed, each informer's store comes to hold exactly
//! what a list shows.

mod client_go;
mod kube_rs;
mod traffic;

use crate::harness::{OPERATION, World, alone, eventually, so, text};
use client_go::ClientGo;
use kube_rs::KubeRs;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use traffic::Traffic;

/// Objects by `namespace/name`.
type Objects = BTreeMap<String, Value>;

/// What an informer holds for true.
#[derive(Debug)]
struct Belief {
    /// Whether the initial state is there.
    synced: bool,
    /// The objects in its store.
    store: Objects,
    /// What its events alone amount to.
    told: Objects,
    /// Uids of the objects whose end was told by an event.
    deleted: BTreeSet<String>,
    /// Promises that were not kept, such as that no resourceVersion falls.
    broken: Vec<String>,
}

/// An informer of some library.
trait Informer {
    fn name(&self) -> &str;
    async fn belief(&mut self) -> Belief;
}

/// The key of an object in [`Objects`].
fn key(object: &Value) -> String {
    let (namespace, name) = ("/metadata/namespace", "/metadata/name");
    format!("{}/{}", text(object, namespace), text(object, name))
}

/// All operations, by a list.
async fn truth(world: &World) -> Result<Objects, String> {
    let answer = world.admin.get(&OPERATION.path(None)).await;
    so(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array();
    let items = items.ok_or("a list without items")?;
    Ok(items.iter().map(|it| (key(it), it.clone())).collect())
}

/// Where they differ, in short.
fn compare(what: &str, held: &Objects, truth: &Objects) -> Result<(), String> {
    let keys: BTreeSet<&String> = held.keys().chain(truth.keys()).collect();
    let differences: Vec<String> = keys
        .into_iter()
        .filter(|key| held.get(*key) != truth.get(*key))
        .map(|key| match (held.get(key), truth.get(key)) {
            (Some(held), Some(there)) => format!("{key}: {held} where {there} is"),
            (Some(_), None) => format!("{key}: is no more"),
            (None, _) => format!("{key}: is missing"),
        })
        .collect();
    so(differences.is_empty(), (what, differences))
}

/// Waits until an informer believes what is true.
async fn agrees(world: &World, informer: &mut impl Informer) -> Belief {
    let name = informer.name().to_owned();
    let belief = eventually(&format!("{name} holds what is there"), async || {
        let truth = truth(world).await?;
        let belief = informer.belief().await;
        so(belief.synced, "it is not synced")?;
        compare("its store", &belief.store, &truth)?;
        compare("what it was told", &belief.told, &truth)?;
        Ok(belief)
    })
    .await;
    assert_eq!(belief.broken, [""; 0], "{name}");
    belief
}

/// How the server ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// With SIGTERM: it says goodbye.
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
            streaming: ClientGo::start(world, true),
            listing: ClientGo::start(world, false),
            rust_streaming: KubeRs::start(world, true),
            rust_listing: KubeRs::start(world, false),
        };
        informers.agree(world).await;
        // Each asks as it was told to, and once if its connection was not lost.
        let streaming = informers.streaming.requests().await;
        assert!(streaming.stream >= 1 && streaming.list == 0);
        let listing = informers.listing.requests().await;
        assert!(listing.stream == 0 && listing.list >= 1);
        informers
    }

    /// Waits until all believe what is true.
    async fn agree(&mut self, world: &World) {
        agrees(world, &mut self.streaming).await;
        agrees(world, &mut self.listing).await;
        agrees(world, &mut self.rust_streaming).await;
        agrees(world, &mut self.rust_listing).await;
    }

    /// Waits until those that tell of each end have told of these.
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
fn informers_hold_what_is_there_after_any_traffic_and_any_restart() {
    alone(async |world| {
        let mut traffic = Traffic::start(world).await;
        traffic.steps(60).await;
        // Twice, and not four ends in a row: client-go waits twice as long after each.
        for _ in 0..2 {
            let mut informers = Informers::start(world).await;
            for end in [End::Asked, End::Killed] {
                traffic.steps(20).await;
                traffic.during(stop(world, end)).await;
                // Some operations end while nobody sees it.
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
