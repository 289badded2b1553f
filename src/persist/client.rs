//! Sends the requests for custom resources to the kube-apiserver. A custom resource
//! ([`InFlightOperation`]) stores one operation. A failed request returns a [`StoreFailure`].
//!
//! All writes except deletions are server-side apply. So the kube-apiserver keeps the labels and
//! annotations of other clients, and removes the fields and labels that this server no longer
//! sends.
//!
//! A change or a deletion names the uid and the resourceVersion that the leader last read or wrote.
//! So if such a write of a previous leader arrives late, it cannot overwrite a newer state. A
//! creation cannot name a uid, so a late creation of a previous leader can succeed. The watch then
//! delivers this custom resource to the current leader, which changes or deletes the custom
//! resource if it is wrong.

use super::failure::StoreFailure;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use ifo_api::persisted::{InFlightOperation, PLURAL};
use ifo_api::{GROUP, Gvr, Source, VERSION};
use ifo_observe::{Feed, Raw};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, ValidationDirective};
use kube::{Api, Client, ResourceExt as _};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The field manager of all writes, on every replica.
pub const FIELD_MANAGER: &str = "ifo-persistence";

/// Identifies one state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The `metadata.uid` of the object.
    pub uid: String,
    /// The `metadata.resourceVersion` of the object.
    pub resource_version: String,
}

impl Revision {
    /// Returns the revision in the metadata of an object. A kube-apiserver always sends both parts.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
        })
    }

    /// Returns true if this state is newer than the other state. If the uids differ, the states
    /// belong to two objects with the same name. Then `self` counts as newer, because callers pass
    /// the state that the watch delivered last as `self`.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        let number = |revision: &Self| revision.resource_version.parse::<u64>().ok();
        self.uid != other.uid || number(self) > number(other)
    }
}

/// The future result of a request.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, StoreFailure>>;

/// Sends requests for custom resources. [`ClusterStore`] sends them to a kube-apiserver. Tests use
/// a fake cluster.
pub trait Store: Send + Sync + 'static {
    /// Applies a custom resource, and returns its new revision. If `cr` has a uid and a
    /// resourceVersion, the stored object must have the same ones. If the stored object has others
    /// or does not exist, fails with [`StoreFailure::Conflict`]. If `cr` has no uid and no
    /// resourceVersion, creates the object, or overwrites any state of it.
    fn apply<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision>;

    /// Deletes the custom resource if it has the state `revision`. Fails with
    /// [`StoreFailure::Conflict`] if it has another state. Succeeds if the custom resource does not
    /// exist.
    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()>;

    /// Returns all custom resources, and then their changes, as a [`Feed`] does.
    fn follow(&self) -> BoxStream<'static, Raw>;
}

/// Sends the requests for custom resources to a kube-apiserver.
pub struct ClusterStore {
    api: Api<InFlightOperation>,
    feed: Arc<dyn Feed>,
}

impl ClusterStore {
    /// Creates a store that sends its writes with `client`, and watches the custom resources with
    /// `feed`. The store does not retry failed writes, because the callers retry them.
    pub fn new(client: Client, feed: Arc<dyn Feed>) -> Self {
        let api = Api::all(client);
        Self { api, feed }
    }
}

impl Store for ClusterStore {
    fn apply<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision> {
        async move {
            let params = PatchParams {
                // With strict validation, the kube-apiserver refuses a field that the CRD does not
                // have. Without strict validation, the kube-apiserver would drop the field and
                // report a success.
                field_validation: Some(ValidationDirective::Strict),
                ..PatchParams::apply(FIELD_MANAGER).force()
            };
            let patch = Patch::Apply(cr);
            let name = cr.name_any();
            let answer = self.api.patch_metadata(&name, &params, &patch).await?;
            let why = "the answer has no uid or no resourceVersion";
            Revision::of(&answer.metadata).ok_or_else(|| StoreFailure::Unreachable(why.to_owned()))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()> {
        async move {
            let params = DeleteParams::default().preconditions(Preconditions {
                uid: Some(revision.uid.clone()),
                resource_version: Some(revision.resource_version.clone()),
            });
            match self.api.delete(name, &params).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }

    fn follow(&self) -> BoxStream<'static, Raw> {
        let target = Arc::new(Gvr {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            resource: PLURAL.to_owned(),
        });
        let namespace = None;
        self.feed.follow(Source { target, namespace }, None)
    }
}
