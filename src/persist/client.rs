//! Sends the requests for custom resources to the kube-apiserver. A custom resource
//! ([`InFlightOperation`]) stores one operation. A failed request returns a [`StoreFailure`].
//!
//! All writes except deletions are server-side apply. So the kube-apiserver keeps the labels and
//! annotations of other clients, and removes the fields and labels that this server no longer sends.
//!
//! A change or a deletion names the uid and the resourceVersion that the leader last read or wrote.
//! So if such a write of a previous leader arrives late, it cannot overwrite a newer state. The
//! creation of a custom resource cannot name them. A comparison corrects a late creation.

use super::failure::StoreFailure;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::persisted::InFlightOperation;
use ifo_client::list::{ListItems, ListPage, ListPager, PageLimits};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, ValidationDirective};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::value::RawValue;
use std::collections::HashMap;

#[cfg(test)]
mod tests;

/// The field manager of all writes, on every replica.
pub const FIELD_MANAGER: &str = "ifo-persistence";

/// The limits of a page of a list. A custom resource has about 4 KB, so 500 objects have about 2 MB. Ten
/// objects fit into 16 MiB even if each object has 1.5 MiB, the largest size that etcd stores.
const PAGE_LIMITS: PageLimits = PageLimits {
    objects: 500,
    bytes: 16 << 20,
    reduced_objects: 10,
};

/// The media type of a list with only the metadata of the objects.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

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
}

/// One page of the list of custom resources.
#[derive(Debug)]
pub struct StoredPage {
    /// The objects on this page, except those that cannot be decoded.
    pub items: Vec<InFlightOperation>,
    /// The continue token of the next page. None on the last page.
    pub next: Option<String>,
}

/// The future result of a request.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, StoreFailure>>;

/// Sends requests for custom resources. [`ClusterStore`] sends them to a kube-apiserver. Tests use
/// a fake cluster.
pub trait Store: Send + Sync + 'static {
    /// Applies a custom resource, and returns its new revision. If `cr` has a uid and a
    /// resourceVersion, and the stored object has another state or does not exist, fails with
    /// [`StoreFailure::Conflict`]. Otherwise creates or changes the object.
    fn apply<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision>;

    /// Deletes the custom resource if it has the state `revision`. Fails with
    /// [`StoreFailure::Conflict`] if it has another state. Succeeds if the custom resource does not
    /// exist.
    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()>;

    /// Reads the revision of a custom resource. Returns None if it does not exist.
    fn get<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Revision>>;

    /// Lists one page of the custom resources. `token` is the continue token of the page, or None for
    /// the first page. Leaves out each custom resource that cannot be
    /// decoded, because another client has written it.
    fn page<'a>(&'a self, token: Option<&'a str>) -> Pending<'a, StoredPage>;

    /// Returns the names and creation times of all namespaces.
    fn namespaces(&self) -> Pending<'_, HashMap<String, Timestamp>>;
}

/// Sends the requests for custom resources to a kube-apiserver.
pub struct ClusterStore {
    api: Api<InFlightOperation>,
    custom_resources: ListPager,
    namespaces: ListPager,
}

impl ClusterStore {
    /// Creates a store that sends its requests with `client`. The store does not retry failed
    /// requests, because the callers retry them.
    pub fn new(client: Client) -> Self {
        let pager =
            |path: &str, media_type| ListPager::new(client.clone(), path, media_type, PAGE_LIMITS);
        Self {
            custom_resources: pager(&InFlightOperation::url_path(&(), None), "application/json"),
            namespaces: pager("/api/v1/namespaces", METADATA_LIST),
            api: Api::all(client),
        }
    }
}

async fn page(pager: &ListPager, token: Option<&str>) -> Result<ListPage, StoreFailure> {
    match pager.page(token).await {
        Ok(page) => Ok(page),
        Err(error) => Err(StoreFailure::of_list(error).await),
    }
}

impl Store for ClusterStore {
    fn apply<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision> {
        async move {
            let params = PatchParams {
                // With strict validation, the kube-apiserver refuses a field that the CRD does not
                // have. Without it, it would drop the field and report a success.
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

    fn get<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Revision>> {
        async move {
            let found = self.api.get_metadata_opt(name).await?;
            Ok(found.and_then(|found| Revision::of(&found.metadata)))
        }
        .boxed()
    }

    fn page<'a>(&'a self, token: Option<&'a str>) -> Pending<'a, StoredPage> {
        async move {
            let page = page(&self.custom_resources, token).await?;
            // Each object is decoded separately, so that one invalid object does not make the whole
            // page fail.
            let list: ListItems<&RawValue> = ListItems::read(&page.body)?;
            let items = list.items.iter();
            let items: Vec<_> = items
                .filter_map(|item| serde_json::from_str(item.get()).ok())
                .collect();
            let left_out = list.items.len() - items.len();
            if left_out > 0 {
                tracing::warn!(
                    left_out,
                    "custom resources that cannot be decoded are ignored"
                );
            }
            let next = list.next;
            Ok(StoredPage { items, next })
        }
        .boxed()
    }

    fn namespaces(&self) -> Pending<'_, HashMap<String, Timestamp>> {
        async move {
            let (mut all, mut token) = (HashMap::new(), None);
            loop {
                let page = page(&self.namespaces, token.as_deref()).await?;
                let list: ListItems<PartialObjectMeta<Namespace>> = ListItems::read(&page.body)?;
                let items = list.items.iter();
                let created = items.map(|it| Some((it.name_any(), it.creation_timestamp()?.0)));
                all.extend(created.flatten());
                token = list.next;
                if token.is_none() {
                    return Ok(all);
                }
            }
        }
        .boxed()
    }
}
