//! What happens in the demo, and when: a small OpenShift cluster with virtual
//! machines, in which something is always under way.
//!
//! Each story is an actor: a task that owns some objects, writes them as their real
//! controllers do (fields, order and the short flaps in between follow recordings of
//! those controllers), rests, and begins again, for ever. The stories:
//!
//! | file | what happens |
//! | --- | --- |
//! | `machines` | start, stop, restart; live migration, one that fails, one that is stuck; memory hot-plug; migration and snapshot at once; a machine that no node has room for; one that is created from an image and deleted |
//! | `imports` | an image import with progress; one that retries for ever |
//! | `olm` | an operator upgrade: Subscription, InstallPlan, old and new CSV |
//! | `stack` | HyperConverged, KubeVirt and CDI follow that upgrade, then the workloads |
//! | `workloads` | Deployments rolled out, one of them stalled; a namespace that goes |
//! | `platform` | the cluster's own upgrade; a node that is drained |
//!
//! What these changes mean is not known here: operations come from the rule sets.

mod conditions;
mod csv;
mod deployment;
mod imports;
mod instance;
mod machine;
mod machines;
mod migration;
mod olm;
mod platform;
mod stack;
mod stage;
mod workloads;

use super::kinds::NAMESPACE;
use super::store::World;
use super::time::{WorldTime, whole_second};
use crate::clock;
use futures::future::{BoxFuture, join_all};
use serde_json::json;
use stage::Stage;

/// The namespaces that are there from the start.
pub const NAMESPACES: [&str; 5] = [
    "default",
    "team-a",
    "team-b",
    "openshift-cnv",
    "openshift-virtualization-os-images",
];

/// One actor, from now to the end of the demo.
type Actor = BoxFuture<'static, ()>;

/// The built-in scenario: a populated world, and the actors that change it.
pub struct Scenario {
    world: World,
    actors: Vec<Actor>,
}

impl Scenario {
    /// Populates a world in which several operations are already under way. The same
    /// `seed` gives the same names, durations and changes. `speed` 1 is real time, 2
    /// twice as fast; timestamps stay those of the clock, so other speeds are for
    /// tests. A speed that is not above 0 counts as 1.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, whose clock it reads.
    pub fn new(seed: u64, speed: f64) -> Self {
        Self::starting(seed, speed, clock::now())
    }

    /// The same at a time of the caller's choice.
    fn starting(seed: u64, speed: f64, at: jiff::Timestamp) -> Self {
        let speed = if speed.is_finite() && speed > 0.0 {
            speed
        } else {
            1.0
        };
        // Timestamps are in whole seconds, and a write that moves nothing but its
        // timestamp is a change only in another second. So a story is the same at any
        // time of the day only if its seconds begin with it.
        let world = World::new(seed, WorldTime::starting(whole_second(at)));
        let mut stage = Stage::new(world.clone(), seed, speed);
        for name in NAMESPACES {
            world.put(
                &NAMESPACE,
                "kubectl-create",
                json!({
                    "metadata": {
                        "name": name,
                        "creationTimestamp": world.time().ago(90 * 86_400),
                        "labels": {"kubernetes.io/metadata.name": name},
                    },
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                }),
            );
        }
        let mut actors = platform::actors(&mut stage);
        actors.extend(machines::actors(&mut stage));
        actors.extend(imports::actors(&mut stage));
        actors.extend(workloads::actors(&mut stage));
        actors.extend(stack::actors(&mut stage));
        Self { world, actors }
    }

    /// The world that this scenario plays in; a [`Feed`](crate::observe::Feed).
    pub fn world(&self) -> World {
        self.world.clone()
    }

    /// Plays for ever. Drop the future to stop; the world stays as it is then.
    pub async fn run(self) {
        join_all(self.actors).await;
    }
}

#[cfg(test)]
mod tests;
