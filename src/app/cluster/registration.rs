//! Connects the registration of this server with its rights, so that both are deleted together.
//!
//! Input: our `APIService` as it changes. Output: a patch that sets one of our `ClusterRole`s as
//! its owner.
//!
//! While an `APIService` is registered and no server answers for it, no namespace of the cluster
//! can be deleted. An administrator may delete all manifests of the server but forget the
//! registration. With the owner reference, the garbage collector then deletes the `APIService`.

use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;

/// The owner, from `deploy/rbac/server.yaml`. The owner of an `APIService` must be cluster-scoped.
/// This object also has no finalizer that could delay its deletion.
const OWNER: &str = "ifo-apiserver-registration";

/// Delay after a failure before the next attempt. The rights of the server can be granted at any
/// time, and no event reports that.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// Sets [`OWNER`] as the owner of the `APIService` `name` each time it is registered. Never ends.
///
/// A failure is logged once. The server also works without an owner.
pub(super) async fn keep_owner(client: Client, name: &str) {
    let registrations: Api<APIService> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(registrations.clone(), only)
        .default_backoff()
        .boxed();
    let mut said = false;
    while let Some(event) = events.next().await {
        // Errors of this watch are logged by the `caBundle` updater and by discovery.
        let Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) = event else {
            continue;
        };
        if is_owned(&found) {
            continue;
        }
        while let Err(error) = set_owner(&registrations, &roles, name).await {
            if !std::mem::replace(&mut said, true) {
                tracing::warn!(
                    name,
                    %error,
                    "the APIService has no owner: delete it before this server is removed"
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

/// Sends a strategic merge patch, which keeps other owners.
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
        // The object was deleted in the meantime. The watch reports the next registration.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
