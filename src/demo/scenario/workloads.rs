//! Ordinary workloads: Deployments that are rolled out, and namespaces that come and
//! go.

use super::Actor;
use super::conditions;
use super::deployment::{DEADLINE, Rollout};
use super::stage::Stage;
use crate::demo::kinds::NAMESPACE;
use futures::FutureExt;
use serde_json::json;

/// The actors of this file.
pub(super) fn actors(stage: &mut Stage) -> Vec<Actor> {
    let storefront = Rollout::present(stage.fork(), "team-a", "storefront");
    let checkout = Rollout::present(stage.fork(), "team-b", "checkout");
    vec![
        rolls_out(storefront).boxed(),
        stalls(checkout).boxed(),
        previews(stage.fork()).boxed(),
    ]
}

async fn rolls_out(mut deployment: Rollout) {
    deployment.stage.wait_seconds(5, 6).await;
    loop {
        let turn = deployment.stage.turn(1).await;
        deployment.begin().await;
        deployment.half_way().await;
        deployment.finish().await;
        drop(turn);
        deployment.stage.wait_seconds(75, 85).await;
    }
}

/// Every second rollout has an image that does not start: it stalls until the last
/// good one is brought back.
async fn stalls(mut deployment: Rollout) {
    deployment.stage.wait_seconds(40, 45).await;
    loop {
        deployment.begin().await;
        deployment.stage.wait_seconds(DEADLINE, DEADLINE).await;
        deployment.time_out();
        deployment.stage.wait_seconds(40, 50).await;
        deployment.roll_back().await;
        deployment.stage.wait_seconds(60, 70).await;
        let turn = deployment.stage.turn(1).await;
        deployment.begin().await;
        deployment.half_way().await;
        deployment.finish().await;
        drop(turn);
        deployment.stage.wait_seconds(60, 70).await;
    }
}

/// A namespace for each preview, deleted when it is no longer needed.
async fn previews(mut stage: Stage) {
    for number in 101_u64.. {
        let name = format!("preview-{number}");
        stage.world.put(
            &NAMESPACE,
            "kubectl-create",
            json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }),
        );
        stage.wait_seconds(120, 130).await;
        let now = stage.now();
        stage
            .world
            .edit(&NAMESPACE, "", &name, "kubectl-delete", |object| {
                object["metadata"]["deletionTimestamp"] = json!(now);
                object["status"]["phase"] = json!("Terminating");
            });
        stage.wait(4_900, 5_100).await;
        namespace_conditions(&stage, &name, "False");
        stage.wait(5_100, 5_300).await;
        namespace_conditions(&stage, &name, "True");
        stage.wait_seconds(5, 8).await;
        stage.world.delete(&NAMESPACE, "", &name);
        stage.wait_seconds(5, 8).await;
    }
}

/// The conditions of a namespace that is being deleted: all False at first, then what
/// remains is True.
fn namespace_conditions(stage: &Stage, name: &str, remaining: &str) {
    let now = stage.now();
    let message = if remaining == "True" {
        "Some resources are remaining: pods. has 1 resource instances"
    } else {
        "All content successfully removed"
    };
    let reason = if remaining == "True" {
        "SomeResourcesRemain"
    } else {
        "ContentRemoved"
    };
    stage
        .world
        .edit(&NAMESPACE, "", name, "kube-controller-manager", |object| {
            for (kind, reason, message) in [
                (
                    "NamespaceDeletionDiscoveryFailure",
                    "ResourcesDiscovered",
                    "All resources successfully discovered",
                ),
                (
                    "NamespaceDeletionGroupVersionParsingFailure",
                    "ParsedGroupVersions",
                    "All legacy kube types successfully parsed",
                ),
                (
                    "NamespaceDeletionContentFailure",
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
                (
                    "NamespaceFinalizersRemaining",
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                ),
            ] {
                conditions::set(
                    object,
                    &now,
                    None,
                    json!({
                        "type": kind, "status": "False", "reason": reason, "message": message,
                    }),
                );
            }
            conditions::set(
                object,
                &now,
                None,
                json!({
                    "type": "NamespaceContentRemaining", "status": remaining,
                    "reason": reason, "message": message,
                }),
            );
        });
}
