//! Reads and writes the Lease with which the replicas of this server elect their leader. This file
//! also has the time settings of the election, and checks them.

use super::lease_contents::{MAX_LEASE_DURATION, MIN_LEASE_DURATION};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_client::error_text::chain;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, Client};
use std::time::Duration;

/// The time settings of the election. The names and meanings are the same as in Kubernetes' own
/// components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// `--leader-elect-lease-duration`: if the Lease has not changed for this time, it expires, and
    /// another replica can acquire it.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`: if the leader has not renewed the Lease for this time, the
    /// leader stops leading.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: the time between two renewals, and between two reads of the
    /// Lease by a follower.
    pub retry_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(8),
            renew_deadline: Duration::from_secs(5),
            retry_period: Duration::from_secs(1),
        }
    }
}

impl Timing {
    /// Checks the settings with the rules of Kubernetes' own components, and checks that the lease
    /// duration is in the accepted range. If a setting is invalid, returns the name of its flag and
    /// the reason.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let (duration, deadline, retry) = (
            "--leader-elect-lease-duration",
            "--leader-elect-renew-deadline",
            "--leader-elect-retry-period",
        );
        if self.retry_period.is_zero() {
            return Err((retry, "expected a duration above zero"));
        }
        // client-go has the same rule, with its constant `JitterFactor`.
        if self.renew_deadline <= self.retry_period.mul_f64(1.2) {
            return Err((deadline, "expected more than 1.2 times the retry period"));
        }
        if self.lease_duration <= self.renew_deadline {
            return Err((duration, "expected more than the renew deadline"));
        }
        if !(MIN_LEASE_DURATION..=MAX_LEASE_DURATION).contains(&self.lease_duration) {
            return Err((duration, "expected a duration from 1s to 1m"));
        }
        Ok(())
    }
}

/// The reason why a request for the Lease failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another client has created or changed the Lease since this replica last read or wrote it. The
    /// write had no effect.
    #[error("the Lease has changed")]
    Conflict,
    /// The Lease does not exist.
    #[error("the Lease does not exist")]
    NotFound,
    /// The kube-apiserver refused the request.
    #[error("{0}")]
    Refused(String),
    /// The kube-apiserver did not answer, or its answer cannot be parsed. A write may have
    /// succeeded nevertheless.
    #[error("{0}")]
    Unanswered(String),
}

/// The name of the `ClusterRole` that owns the Lease and the `APIService`. This `ClusterRole` is
/// defined in `deploy/rbac/server.yaml`. If an administrator deletes the `ClusterRole`, the garbage
/// collector also deletes the Lease and the `APIService`.
///
/// The owner of an `APIService` must be cluster-scoped, so the owner is a `ClusterRole`.
pub const OWNER: &str = "ifo-apiserver-registration";

/// A request for the Lease.
#[derive(Clone, Debug)]
pub enum LeaseRequest {
    /// Reads the Lease.
    Get,
    /// Creates the Lease. Fails with [`LeaseError::Conflict`] if it exists.
    Create(Lease),
    /// Replaces the Lease. Fails with [`LeaseError::Conflict`] if the stored Lease has another UID or
    /// another `metadata.resourceVersion`.
    Update(Lease),
}

/// Reads and writes the Lease. Tests implement this trait with a simulated kube-apiserver.
pub trait LeaseStore: Send + Sync + 'static {
    /// Sends a request, and returns the stored Lease.
    fn send(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseError>>;
}

/// Reads and writes the Lease through a kube-apiserver.
#[derive(Clone, Debug)]
pub struct ClusterLeases {
    api: Api<Lease>,
    roles: Api<ClusterRole>,
    name: String,
}

impl ClusterLeases {
    /// Creates a store for the Lease `name` in `namespace`. `client` must not retry requests,
    /// because the election retries them itself.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            roles: Api::all(client),
            name: name.to_owned(),
        }
    }

    /// Returns the owner of a new Lease. Returns None if the kube-apiserver answers with an error,
    /// for example because a right is missing. Then the new Lease has no owner, so the garbage
    /// collector does not delete it.
    async fn owner(&self) -> Result<Option<OwnerReference>, LeaseError> {
        let role = match self.roles.get_metadata(OWNER).await {
            Ok(role) => role,
            Err(kube::Error::Api(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
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

impl LeaseStore for ClusterLeases {
    fn send(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseError>> {
        async {
            let params = PostParams::default();
            Ok(match request {
                LeaseRequest::Get => self.api.get(&self.name).await?,
                LeaseRequest::Create(mut lease) => {
                    lease.metadata.name = Some(self.name.clone());
                    lease.metadata.owner_references = self.owner().await?.map(|owner| vec![owner]);
                    self.api.create(&params, &lease).await?
                }
                LeaseRequest::Update(lease) => {
                    self.api.replace(&self.name, &params, &lease).await?
                }
            })
        }
        .boxed()
    }
}

impl From<kube::Error> for LeaseError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::NotFound,
            kube::Error::Api(_) => Self::Refused(chain(&error)),
            _ => Self::Unanswered(chain(&error)),
        }
    }
}
