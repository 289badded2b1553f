//! Makes one of our `ClusterRole`s the owner of our `APIService`. When an administrator removes the
//! server and thus the `ClusterRole`, the garbage collector also deletes the `APIService`.
//!
//! Without an owner, the administrator may forget the `APIService`, because it is in a separate
//! manifest. While an `APIService` is registered and no server answers for it, no namespace of the
//! cluster can be deleted.

use crate::replicate::OWNER;
use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;

/// Time between a failed attempt to set the owner and the next attempt. An administrator can grant
/// missing permissions at any time. The server receives no event about this, so it retries.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// Watches the `APIService` `name`. Adds the `ClusterRole` [`OWNER`] to its owners whenever this
/// owner is missing. Never ends.
///
/// Only the first failure is logged, because the server also works if its `APIService` has no
/// owner.
pub(super) async fn keep_owner(client: Client, name: &str) {
    let registrations: Api<APIService> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(registrations.clone(), only)
        .default_backoff()
        .boxed();
    let mut was_logged = false;
    while let Some(event) = events.next().await {
        // The errors of this watch are not logged, because other tasks also watch `APIService`s and
        // log the same causes. These tasks are discovery (at the level `debug`) and, if it runs,
        // the task `caBundle`.
        let Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) = event else {
            continue;
        };
        if is_owned(&found) {
            continue;
        }
        while let Err(error) = set_owner(&registrations, &roles, name).await {
            if !std::mem::replace(&mut was_logged, true) {
                tracing::warn!(
                    name,
                    %error,
                    "the APIService has no owner: delete the APIService before you remove this server"
                );
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
    std::future::pending::<()>().await;
}

fn is_owned(found: &APIService) -> bool {
    let mut owners = found.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "ClusterRole" && owner.name == OWNER)
}

/// Adds the owner with a strategic merge patch, which keeps other owners. Also succeeds if the
/// `APIService` does not exist any more.
async fn set_owner(
    registrations: &Api<APIService>,
    roles: &Api<ClusterRole>,
    name: &str,
) -> Result<(), kube::Error> {
    let owner = roles.get(OWNER).await?;
    let patch = Patch::Strategic(json!({"metadata": {"ownerReferences": [{
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "name": OWNER,
        "uid": owner.metadata.uid,
    }]}}));
    match registrations
        .patch_metadata(name, &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => Ok(()),
        // The `APIService` does not exist any more. If an administrator registers it again, the
        // watch delivers an event.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
