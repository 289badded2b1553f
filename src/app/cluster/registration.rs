//! Maintains our `APIService`, with which the kube-apiserver finds this server.
//!
//! - Makes one of our `ClusterRole`s the owner of the `APIService`. When an administrator removes
//!   the server and thus the `ClusterRole`, the garbage collector also deletes the `APIService`.
//!   Without an owner, the administrator may forget the `APIService`. While an `APIService` is
//!   registered and no server answers for it, no namespace of the cluster can be deleted.
//! - With `--register`, also creates the `APIService`, and repairs it after changes of other
//!   clients. The leader does not create the `APIService` before a readiness probe of its Pod has
//!   succeeded. So a server that cannot become ready does not block the deletion of namespaces.
//!
//! The server creates the `APIService` only while its owner, the `ClusterRole`, exists. So after an
//! administrator has removed the `ClusterRole`, a server that still runs does not create the
//! `APIService` again.
//!
//! Another task updates the field `caBundle`, because each replica updates this field
//! ([`CaBundleUpdater`](aggregated_apiserver::certs::CaBundleUpdater)).

use crate::config::Serve;
use crate::replicate::{OWNER, owner};
use crate::telemetry::FailureLog;
use aggregated_apiserver::serve::Readiness;
use ifo_client::error_text::chain;
use k8s_openapi::ByteString;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The `APIService` that points to this server.
pub(super) const API_SERVICE: &str = "v1alpha1.live.ifo.kubevirt.io";

/// Interval at which the task checks the `APIService`. At any time, an administrator can change the
/// `APIService`, or grant missing permissions.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which the task checks whether a readiness probe of this replica has succeeded.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// Priorities of the `APIService`. `apiservice/apiservice.yaml` explains them, and a test compares
/// them.
const GROUP_PRIORITY_MINIMUM: i32 = 2_000;
const VERSION_PRIORITY: i32 = 100;

/// The CA bundle of this replica as PEM. `None` if the serving certificate does not come from the
/// server's own CA.
pub(super) type OwnCaBundle = Option<watch::Receiver<Arc<str>>>;

/// The task that maintains the `APIService`.
pub(super) struct Registration {
    registrations: Api<APIService>,
    roles: Api<ClusterRole>,
    /// The `spec`, the labels and the annotations of the `APIService`. `None` without `--register`.
    desired: Option<Value>,
    ca_bundle: OwnCaBundle,
    failures: FailureLog,
}

impl Registration {
    /// Creates the task. If `config` is `None`, the task only sets the owner.
    pub(super) fn new(client: Client, config: Option<&Serve>, ca_bundle: OwnCaBundle) -> Self {
        Self {
            registrations: Api::all(client.clone()),
            roles: Api::all(client),
            desired: config.map(desired),
            ca_bundle,
            failures: FailureLog::new("the check of the APIService succeeds again"),
        }
    }

    /// Checks the `APIService` regularly. Never ends.
    pub(super) async fn keep(mut self, readiness: Arc<Readiness>) {
        while self.desired.is_some() && !readiness.was_ready() {
            tokio::time::sleep(READINESS_INTERVAL).await;
        }
        loop {
            let checked = self.check().await;
            if let Some(error) = self.failures.record(&checked) {
                self.log(error);
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    fn log(&self, error: &kube::Error) {
        let is_missing = matches!(error, kube::Error::Api(status) if status.code == 404);
        match self.desired {
            // This also happens each time an administrator removes the server.
            Some(_) if is_missing => tracing::info!(
                name = API_SERVICE,
                "the APIService is not created, because the ClusterRole {OWNER} does not exist"
            ),
            Some(_) => tracing::warn!(
                name = API_SERVICE,
                error = chain(error),
                "the APIService cannot be created or repaired: apply the component register again"
            ),
            None => tracing::warn!(
                name = API_SERVICE,
                error = chain(error),
                "the APIService has no owner: delete the APIService before you remove this server"
            ),
        }
    }

    /// Reads the `APIService`. Creates or changes it if necessary.
    async fn check(&self) -> Result<(), kube::Error> {
        let found = self.registrations.get_opt(API_SERVICE).await?;
        let Some(mut object) = (self.desired.clone()).or(found.is_some().then(|| json!({}))) else {
            return Ok(());
        };
        let mut owners: Vec<_> = owner(&self.roles).await?.into_iter().collect();
        let written = if let Some(found) = found {
            let others = found.metadata.owner_references.iter().flatten();
            owners.extend(others.filter(|it| it.name != OWNER).cloned());
            object["metadata"]["ownerReferences"] = json!(owners);
            // The write fails if another client has changed the owners after the read.
            object["metadata"]["resourceVersion"] = json!(found.metadata.resource_version);
            let found = serde_json::to_value(found).map_err(kube::Error::SerdeError)?;
            let mut changed = found.clone();
            json_patch::merge(&mut changed, &object);
            if changed == found {
                return Ok(());
            }
            let (params, patch) = (PatchParams::default(), Patch::Merge(object));
            let patched = self.registrations.patch(API_SERVICE, &params, &patch).await;
            patched.map(|_| "changed")
        } else {
            object["metadata"]["ownerReferences"] = json!(owners);
            self.create(object).await
        };
        match written {
            Ok(how) => tracing::info!(name = API_SERVICE, "APIService {how}"),
            // Another client has deleted, created or changed the `APIService` after the read.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Creates the `APIService` with the CA bundle of this replica, so that the kube-apiserver can
    /// verify the server's certificate at once.
    async fn create(&self, mut object: Value) -> Result<&'static str, kube::Error> {
        if let Some(bundle) = &self.ca_bundle {
            let bundle = ByteString(bundle.borrow().as_bytes().to_vec());
            object["spec"]["caBundle"] = json!(bundle);
        }
        object["metadata"]["name"] = json!(API_SERVICE);
        let object: APIService = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let params = PostParams::default();
        let created = self.registrations.create(&params, &object).await;
        created.map(|_| "created")
    }
}

/// Returns the labels, the annotations and the spec of the `APIService`.
fn desired(config: &Serve) -> Value {
    let (version, group) = API_SERVICE.split_once('.').unwrap_or_default();
    let mut desired = json!({
        "metadata": {"labels": {"app.kubernetes.io/part-of": "ifo"}},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": GROUP_PRIORITY_MINIMUM,
            "versionPriority": VERSION_PRIORITY,
            "service": {
                "name": config.service_name,
                "namespace": config.namespace,
                "port": config.service_port,
            },
            "insecureSkipTLSVerify": null,
        },
    });
    // An empty map would count as a change, because the kube-apiserver does not store it.
    for (key, value) in &config.register_annotation {
        desired["metadata"]["annotations"][key] = json!(value);
    }
    desired
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
