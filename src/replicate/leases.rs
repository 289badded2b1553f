//! Reads and writes the Lease with which the replicas of this server elect their leader.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, Client};

/// The name of the `ClusterRole` that owns the Lease and the `APIService`. This `ClusterRole` is
/// defined in `deploy/rbac/server.yaml`. If an administrator deletes the `ClusterRole`, the garbage
/// collector also deletes the Lease and the `APIService`.
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
        match self.api.get(&self.name).await {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the Lease, and returns the stored Lease. If `lease` has a resourceVersion, replaces the
    /// Lease with this resourceVersion. Otherwise creates the Lease.
    pub(super) async fn write(&self, mut lease: Lease) -> kube::Result<Lease> {
        let params = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            return self.api.replace(&self.name, &params, &lease).await;
        }
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.owner_references = self.owner().await?.map(|owner| vec![owner]);
        self.api.create(&params, &lease).await
    }

    /// Returns the owner of a new Lease. Returns None if the kube-apiserver answers with an error,
    /// for example because a right is missing. Then the new Lease has no owner, so the garbage
    /// collector does not delete it.
    async fn owner(&self) -> kube::Result<Option<OwnerReference>> {
        let role = match self.roles.get_metadata(OWNER).await {
            Ok(role) => role,
            Err(kube::Error::Api(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(role.metadata.uid.map(|uid| OwnerReference {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: OWNER.to_owned(),
            uid,
            ..OwnerReference::default()
        }))
    }
}
