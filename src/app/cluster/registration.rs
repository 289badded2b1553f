//! Ties the registration of this server to the server's rights. Enters: our `APIService`
//! as it changes. Leaves: a patch that makes a `ClusterRole` of ours its owner.
//!
//! While an `APIService` is registered and no server answers for it, no namespace of the
//! cluster can be deleted. With an owner, the garbage collector deletes the `APIService`
//! when an administrator deletes the server with all its manifests and forgets the registration.

use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;

/// The owner, from `deploy/rbac/server.yaml`. It is cluster-scoped, as an owner of an
/// `APIService` must be, and it has no finalizer that could delay its deletion.
const OWNER: &str = "ifo-apiserver-registration";

/// How long to wait after a failure before the next attempt. The rights of the server may
/// be granted at any time, and no event tells of that.
const RETRY_AFTER: Duration = Duration::from_mins(1);

/// Makes [`OWNER`] the owner of the `APIService` `name`, whenever it is registered. Never
/// ends. A failure is logged once, and the server works without an owner.
pub(super) async fn keep_owner(client: Client, name: &str) {
    let registrations: Api<APIService> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(registrations.clone(), only)
        .default_backoff()
        .boxed();
    let mut said = false;
    while let Some(event) = events.next().await {
        // Errors of such a watch are logged where `caBundle` is kept and by discovery.
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
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
    std::future::pending::<()>().await;
}

fn is_owned(found: &APIService) -> bool {
    let mut owners = found.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "ClusterRole" && owner.name == OWNER)
}

/// With a strategic merge patch, which leaves other owners alone.
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
        // Deleted meanwhile. The watch shows when it is registered again.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
