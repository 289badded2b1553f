//! One Deployment, and what the deployment controller writes while it is rolled out.

use super::conditions;
use super::machine::remove;
use super::stage::Stage;
use crate::demo::kinds::DEPLOYMENT;
use serde_json::{Value, json};

/// Replicas of each Deployment; with a surge of 25 % one more while it is rolled out.
const REPLICAS: u64 = 4;
/// How long a rollout may stand still before it counts as failed, in seconds.
pub(super) const DEADLINE: u64 = 60;

/// One Deployment; the order of its status writes is that of the deployment
/// controller with 4 replicas and 25 % of surge and of unavailability.
pub(super) struct Rollout {
    pub stage: Stage,
    namespace: &'static str,
    name: &'static str,
    image: u64,
    replica_set: String,
}

/// Counters of a Deployment's status, absent where they are 0 but for `terminating`.
#[derive(Clone, Copy, Default)]
struct Counters {
    replicas: u64,
    updated: u64,
    ready: u64,
    available: u64,
    unavailable: u64,
    terminating: u64,
}

/// All replicas are there and of the newest template.
const COMPLETE: Counters = Counters {
    replicas: REPLICAS,
    updated: REPLICAS,
    ready: REPLICAS,
    available: REPLICAS,
    unavailable: 0,
    terminating: 0,
};

impl Rollout {
    /// A Deployment that is complete.
    pub fn present(mut stage: Stage, namespace: &'static str, name: &'static str) -> Self {
        let time = stage.time();
        let replica_set = format!("{name}-{}", stage.dice.suffix(10));
        stage.world.put(
            &DEPLOYMENT,
            "kubectl-client-side-apply",
            json!({
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "creationTimestamp": time.ago(5 * 86_400),
                    "labels": {"app": name},
                    "annotations": {"deployment.kubernetes.io/revision": "41"},
                    "generation": 41,
                },
                "spec": {
                    "replicas": REPLICAS,
                    "minReadySeconds": 3,
                    "progressDeadlineSeconds": DEADLINE,
                    "revisionHistoryLimit": 10,
                    "selector": {"matchLabels": {"app": name}},
                    "strategy": {
                        "type": "RollingUpdate",
                        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                    },
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {
                            "containers": [{
                                "name": "server",
                                "image": image(name, 41),
                                "imagePullPolicy": "IfNotPresent",
                                "resources": {},
                            }],
                            "restartPolicy": "Always",
                            "terminationGracePeriodSeconds": 30,
                        },
                    },
                },
                // A Deployment without it is new, and rolls out.
                "status": {"observedGeneration": 41},
            }),
        );
        let deployment = Self {
            stage,
            namespace,
            name,
            image: 41,
            replica_set,
        };
        deployment.edit(|object, now| {
            conditions::set(
                object,
                now,
                Some("lastUpdateTime"),
                json!({
                    "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                    "message": "Deployment has minimum availability.",
                }),
            );
        });
        deployment.observe();
        deployment.count(COMPLETE, Some("NewReplicaSetAvailable"));
        deployment
    }

    /// A new image; up to the moment when the first new pods have been created.
    pub async fn begin(&mut self) {
        self.image += 1;
        self.set_image();
        self.replica_set = format!("{}-{}", self.name, self.stage.dice.suffix(10));
        // The condition comes before the generation is observed.
        self.stage.wait(5, 20).await;
        self.progressing("NewReplicaSetCreated");
        self.stage.wait(20, 60).await;
        self.observe();
        let counters = Counters {
            updated: 0,
            ..COMPLETE
        };
        self.count(counters, None);
        self.stage.wait(5, 12).await;
        self.count(
            Counters {
                unavailable: 1,
                ..counters
            },
            None,
        );
        self.stage.wait(8, 14).await;
        let first = Counters {
            updated: 1,
            ready: 3,
            available: 3,
            unavailable: 2,
            terminating: 1,
            ..COMPLETE
        };
        self.count(first, Some("ReplicaSetUpdated"));
        self.stage.wait(10, 20).await;
        let surge = Counters {
            replicas: 5,
            updated: 2,
            ..first
        };
        self.count(surge, None);
        self.stage.wait(700, 1_000).await;
        self.count(
            Counters {
                terminating: 0,
                ..surge
            },
            None,
        );
    }

    /// The first new pods are ready, the second half is created.
    pub async fn half_way(&mut self) {
        let waiting = Counters {
            replicas: 5,
            updated: 2,
            ready: 3,
            available: 3,
            unavailable: 2,
            terminating: 0,
        };
        self.become_available(waiting).await;
        let next = Counters {
            replicas: 3,
            terminating: 2,
            ..waiting
        };
        self.count(next, Some("ReplicaSetUpdated"));
        self.stage.wait(6, 12).await;
        self.count(
            Counters {
                replicas: 5,
                updated: 4,
                ..next
            },
            None,
        );
        self.stage.wait(700, 1_000).await;
        self.count(
            Counters {
                updated: 4,
                ..waiting
            },
            None,
        );
    }

    /// The second half of the new pods is ready.
    pub async fn finish(&mut self) {
        let waiting = Counters {
            replicas: 5,
            updated: 4,
            ready: 3,
            available: 3,
            unavailable: 2,
            terminating: 0,
        };
        self.become_available(waiting).await;
        self.complete().await;
    }

    /// Two pods get ready, one after the other, and then are available.
    async fn become_available(&mut self, waiting: Counters) {
        self.stage.wait(3_000, 5_000).await;
        self.count(
            Counters {
                ready: 4,
                ..waiting
            },
            None,
        );
        self.stage.wait(100, 900).await;
        self.count(
            Counters {
                ready: 5,
                ..waiting
            },
            None,
        );
        // minReadySeconds
        self.stage.wait(2_500, 3_000).await;
        let available = Counters {
            ready: 5,
            available: 5,
            unavailable: 0,
            ..waiting
        };
        self.count(available, Some("ReplicaSetUpdated"));
        self.stage.wait(10, 60).await;
    }

    async fn complete(&mut self) {
        self.count(
            Counters {
                terminating: 1,
                ..COMPLETE
            },
            Some("NewReplicaSetAvailable"),
        );
        self.stage.wait(600, 900).await;
        self.count(COMPLETE, None);
    }

    /// The new pods have not become ready within the deadline.
    pub fn time_out(&self) {
        let message = format!(
            "ReplicaSet \"{}\" has timed out progressing.",
            self.replica_set
        );
        self.edit(|object, now| {
            conditions::set(
                object,
                now,
                Some("lastUpdateTime"),
                json!({
                    "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
                    "message": message,
                }),
            );
        });
    }

    /// Back to the image before: its ReplicaSet is still there, three of its pods too.
    pub async fn roll_back(&mut self) {
        self.image -= 1;
        self.set_image();
        self.stage.wait(20, 60).await;
        self.observe();
        let back = Counters {
            replicas: 5,
            updated: 3,
            ready: 3,
            available: 3,
            unavailable: 2,
            terminating: 0,
        };
        self.count(back, Some("ReplicaSetUpdated"));
        self.stage.wait(8, 14).await;
        let alone = Counters {
            updated: 4,
            ready: 3,
            available: 3,
            unavailable: 1,
            terminating: 2,
            ..COMPLETE
        };
        self.count(alone, Some("ReplicaSetUpdated"));
        self.stage.wait(2_000, 3_000).await;
        self.count(
            Counters {
                ready: 4,
                terminating: 0,
                ..alone
            },
            None,
        );
        self.stage.wait(2_900, 3_100).await;
        self.complete().await;
    }

    fn set_image(&self) {
        let image = image(self.name, self.image);
        self.stage.world.edit(
            &DEPLOYMENT,
            self.namespace,
            self.name,
            "kubectl-set",
            |object| {
                object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            },
        );
    }

    fn observe(&self) {
        self.edit(|object, _| {
            object["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
            let revision = object["metadata"]["generation"].to_string();
            object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] =
                json!(revision);
        });
    }

    fn count(&self, counters: Counters, progressing: Option<&str>) {
        self.edit(|object, _| {
            let status = &mut object["status"];
            for (field, value) in [
                ("replicas", counters.replicas),
                ("updatedReplicas", counters.updated),
                ("readyReplicas", counters.ready),
                ("availableReplicas", counters.available),
                ("unavailableReplicas", counters.unavailable),
            ] {
                if value == 0 {
                    remove(status, field);
                } else {
                    status[field] = json!(value);
                }
            }
            status["terminatingReplicas"] = json!(counters.terminating);
        });
        if let Some(reason) = progressing {
            self.progressing(reason);
        }
    }

    fn progressing(&self, reason: &str) {
        let name = &self.replica_set;
        let message = match reason {
            "NewReplicaSetCreated" => format!("Created new replica set \"{name}\""),
            "NewReplicaSetAvailable" => {
                format!("ReplicaSet \"{name}\" has successfully progressed.")
            }
            _ => format!("ReplicaSet \"{name}\" is progressing."),
        };
        self.edit(|object, now| {
            conditions::set(
                object,
                now,
                Some("lastUpdateTime"),
                json!({
                    "type": "Progressing", "status": "True", "reason": reason, "message": message,
                }),
            );
        });
    }

    fn edit(&self, change: impl FnOnce(&mut Value, &str)) {
        let now = self.stage.now();
        let (world, namespace) = (&self.stage.world, self.namespace);
        world.edit(
            &DEPLOYMENT,
            namespace,
            self.name,
            "kube-controller-manager",
            |object| {
                change(object, &now);
            },
        );
    }
}

fn image(name: &str, number: u64) -> String {
    format!("registry.example.com/{name}:1.{number}.0")
}
