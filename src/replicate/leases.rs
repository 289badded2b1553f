//! Reads and writes the Lease with which the replicas of this server elect their leader.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};

/// The name of the `ClusterRole` that owns the Lease and the `APIService` of this server. This
/// `ClusterRole` is defined in `deploy/rbac/server.yaml`. If an administrator deletes the
/// `ClusterRole`, the garbage collector also deletes the Lease and the `APIService`.
///
/// The owner of an `APIService` must be cluster-scoped, so the owner is a `ClusterRole`.
pub const OWNER: &str = "ifo-apiserver-registration";

/// Reads and writes the Lease through a kube-apiserver.
#[derive(Clone, Debug)]
pub struct Leases {
    api: Api<Lease>,
    roles: Api<ClusterRole>,
    name: String,
}

impl Leases {
    /// Creates the access to the Lease `name` in `namespace`. `client` must not retry requests,
    /// because the election retries them itself.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            roles: Api::all(client),
            name: name.to_owned(),
        }
    }

    /// Reads the Lease. Returns None if it does not exist.
    pub(super) async fn get(&self) -> kube::Result<Option<Lease>> {
        self.api.get_opt(&self.name).await
    }

    /// Writes the Lease, and returns the stored Lease. If `lease` has a resourceVersion, replaces
    /// the Lease with this resourceVersion. Otherwise creates the Lease.
    pub(super) async fn write(&self, mut lease: Lease) -> kube::Result<Lease> {
        let params = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            return self.api.replace(&self.name, &params, &lease).await;
        }
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.owner_references = match owner(&self.roles).await {
            Ok(owner) => owner.map(|owner| vec![owner]),
            // The kube-apiserver refuses the read, for example because an RBAC permission is
            // missing. Then this replica creates the Lease without an owner, so the garbage
            // collector never deletes the Lease.
            Err(kube::Error::Api(_)) => None,
            Err(error) => return Err(error),
        };
        self.api.create(&params, &lease).await
    }
}

/// Returns a reference to the `ClusterRole` [`OWNER`], which owns the Lease and the `APIService`.
/// Fails if the `ClusterRole` does not exist.
pub async fn owner(roles: &Api<ClusterRole>) -> kube::Result<Option<OwnerReference>> {
    Ok(roles.get_metadata(OWNER).await?.owner_ref(&()))
}
