//! Sends the requests for custom resources to the kube-apiserver. A custom resource
//! ([`InFlightOperation`]) stores one operation. A failed request returns a [`StoreFailure`].
//!
//! Each write is conditional. A creation fails if the name exists. A change or a deletion fails if
//! the custom resource does not have the expected uid and resourceVersion. So if a write of a
//! previous leader arrives late, it cannot overwrite a newer state.

use super::redacted_failure::RedactedFailure;
use super::store_failure::StoreFailure;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Limited};
use ifo_api::persisted::InFlightOperation;
use ifo_client::list::{ListError, ListItems, ListPage, ListPager, ListRequest, ListStart};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::{Client, Resource as _, ResourceExt as _};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// The field manager of all writes, on every replica.
pub const FIELD_MANAGER: &str = "ifo-persistence";

/// The number of objects in a page of a list. A custom resource has about 4 KB, so a page has about
/// 2 MB.
const PAGE_OBJECTS: usize = 500;

/// The number of objects in a small page. If a page exceeds [`MAX_ANSWER_BYTES`], the store
/// requests a small page instead. The later pages of the same list are small, too. Ten objects fit
/// into one answer even if each object has 1.5 MiB, the largest size that etcd stores.
const SMALL_PAGE_OBJECTS: usize = 10;

/// The largest accepted size of an answer: 16 MiB. If a page of [`PAGE_OBJECTS`] objects is larger,
/// the store requests a small page. If any other answer is larger, the request fails with
/// [`StoreFailure::Unreachable`].
const MAX_ANSWER_BYTES: usize = 16 << 20;

const JSON: &str = "application/json";

/// The media type of an answer that contains only the metadata of an object. After a write, this
/// server needs only the uid and the resourceVersion.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The media type of a list with only the metadata of the objects.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The path of the namespaces.
const NAMESPACES: &str = "/api/v1/namespaces";

/// Identifies one state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The `metadata.uid` of the object.
    pub uid: Uuid,
    /// The `metadata.resourceVersion` of the object.
    pub resource_version: Box<str>,
}

impl Revision {
    /// Returns the revision in the metadata of an object. Returns None if the uid or the
    /// resourceVersion is missing, or if the uid is invalid. A kube-apiserver always sends both.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            uid: Uuid::parse_str(metadata.uid.as_deref()?).ok()?,
            resource_version: metadata.resource_version.as_deref()?.into(),
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
    /// Creates a custom resource, and returns its revision. Fails with [`StoreFailure::Conflict`]
    /// if the name exists.
    fn create<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision>;

    /// Applies a JSON merge patch, and returns the new revision. The patch must contain the uid and
    /// the resourceVersion of the state that it changes. If the object has another state or does
    /// not exist, fails with [`StoreFailure::Conflict`] or [`StoreFailure::ObjectDeleted`].
    fn patch<'a>(&'a self, name: &'a str, patch: &'a Value) -> Pending<'a, Revision>;

    /// Deletes the custom resource if it has the state `revision`. Fails with
    /// [`StoreFailure::Conflict`] if it has another state. Succeeds if the custom resource does not
    /// exist.
    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()>;

    /// Reads a custom resource. Returns None if it does not exist. Fails with
    /// [`StoreFailure::Invalid`] if it cannot be decoded.
    fn get<'a>(&'a self, name: &'a str) -> Pending<'a, Option<InFlightOperation>>;

    /// Lists one page of the custom resources that match a field selector. `token` is the continue
    /// token of the page, or None for the first page.
    ///
    /// Leaves out each custom resource that cannot be decoded. Another client has created such a
    /// custom resource, because this server writes only custom resources that it can decode.
    fn page<'a>(&'a self, selector: &'a str, token: Option<&'a str>) -> Pending<'a, StoredPage>;

    /// Returns the names and creation times of all namespaces.
    fn namespaces(&self) -> Pending<'_, HashMap<String, Timestamp>>;
}

/// Sends the requests for custom resources to a kube-apiserver.
pub struct ClusterStore {
    client: Client,
    path: String,
    custom_resources: ListPager,
    namespaces: ListPager,
}

impl ClusterStore {
    /// Creates a store that sends its requests with `client`. The store does not retry failed
    /// requests, because the callers retry them.
    pub fn new(client: Client) -> Self {
        let path = InFlightOperation::url_path(&(), None);
        let pager = |path: &str, media_type| {
            ListPager::new(client.clone(), path, Some(PAGE_OBJECTS))
                .accepting(media_type)
                .bounded(MAX_ANSWER_BYTES, SMALL_PAGE_OBJECTS)
        };
        Self {
            custom_resources: pager(&path, JSON),
            namespaces: pager(NAMESPACES, METADATA_LIST),
            client,
            path,
        }
    }

    /// Sends a request, and returns the body of a successful answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        media_types: [&str; 2],
        body: Vec<u8>,
    ) -> Result<Bytes, StoreFailure> {
        let [content_type, accept] = media_types;
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.path))
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, accept)
            .body(Body::from(body))
            .map_err(|error| StoreFailure::unanswered(&error))?;
        let sent = self.client.send(request).await;
        let answer = sent.map_err(|error| StoreFailure::unanswered(&error))?;
        if answer.status().is_success() {
            read(answer).await
        } else {
            Err(StoreFailure::of_answer(answer).await)
        }
    }

    /// Sends a creation or a change, and returns the revision of the object after this write.
    async fn write(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        object: &impl Serialize,
    ) -> Result<Revision, StoreFailure> {
        // With strict validation, the kube-apiserver refuses a write with a field that the CRD does
        // not have. Without strict validation, it would drop the field and report a success.
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
        let body = serde_json::to_vec(object).expect("maps with string keys always encode");
        let types = [content_type, METADATA_ONLY];
        let answer = self.send(method, &path, types, body).await?;
        let answer = serde_json::from_slice::<PartialObjectMeta<InFlightOperation>>(&answer).ok();
        let why = "the answer has no uid or no resourceVersion".into();
        answer
            .and_then(|answer| Revision::of(&answer.metadata))
            .ok_or(StoreFailure::Unreachable(why, None))
    }
}

/// Reads the body of an answer. Fails if the body has more than [`MAX_ANSWER_BYTES`] bytes.
pub(super) async fn read(answer: Response<Body>) -> Result<Bytes, StoreFailure> {
    let read = Limited::new(answer.into_body(), MAX_ANSWER_BYTES)
        .collect()
        .await;
    Ok(read
        .map_err(|error| StoreFailure::unanswered(&*error))?
        .to_bytes())
}

/// Returns the failure for a successful answer that cannot be decoded. A retry would get the same
/// answer, so the failure is [`StoreFailure::Invalid`], as for a request that is refused.
#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` needs"
)]
fn undecodable(error: serde_json::Error) -> StoreFailure {
    StoreFailure::Invalid(RedactedFailure::of_undecodable(&error))
}

/// Reads one page of a list. Each list starts with pages of [`PAGE_OBJECTS`] objects, even if the
/// previous list needed small pages.
async fn page(
    pager: &ListPager,
    field_selector: &str,
    token: Option<&str>,
) -> Result<ListPage, StoreFailure> {
    if token.is_none() {
        pager.reset_limit();
    }
    let request = ListRequest {
        field_selector,
        start: ListStart::after(token),
        ..ListRequest::default()
    };
    Err(match pager.page(request).await {
        Ok(page) => return Ok(page),
        Err(ListError::Refused(answer)) => StoreFailure::of_answer(*answer).await,
        Err(ListError::Request { source, .. }) => StoreFailure::unanswered(&source),
        Err(error) => StoreFailure::unanswered(&error),
    })
}

impl Store for ClusterStore {
    fn create<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision> {
        self.write(Method::POST, "", JSON, cr).boxed()
    }

    fn patch<'a>(&'a self, name: &'a str, patch: &'a Value) -> Pending<'a, Revision> {
        async move {
            let (path, kind) = (format!("/{name}"), "application/merge-patch+json");
            self.write(Method::PATCH, &path, kind, patch).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()> {
        async move {
            let options = json!({"preconditions": {
                "uid": revision.uid, "resourceVersion": revision.resource_version,
            }});
            let (path, body) = (format!("/{name}"), options.to_string().into_bytes());
            let types = [JSON, METADATA_ONLY];
            match self.send(Method::DELETE, &path, types, body).await {
                Ok(_) | Err(StoreFailure::ObjectDeleted) => Ok(()),
                Err(failure) => Err(failure),
            }
        }
        .boxed()
    }

    fn get<'a>(&'a self, name: &'a str) -> Pending<'a, Option<InFlightOperation>> {
        async move {
            let path = format!("/{name}");
            match self
                .send(Method::GET, &path, [JSON, JSON], Vec::new())
                .await
            {
                // This server writes only objects that it can decode. So if the decoding fails,
                // another client has created the object.
                Ok(answer) => serde_json::from_slice(&answer)
                    .map(Some)
                    .map_err(undecodable),
                Err(StoreFailure::ObjectDeleted) => Ok(None),
                Err(failure) => Err(failure),
            }
        }
        .boxed()
    }

    fn page<'a>(&'a self, selector: &'a str, token: Option<&'a str>) -> Pending<'a, StoredPage> {
        async move {
            let page = page(&self.custom_resources, selector, token).await?;
            // Each object is decoded separately, so that one invalid object does not make the whole
            // page fail.
            let list: ListItems<&RawValue> = ListItems::read(&page.body).map_err(undecodable)?;
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
                let page = page(&self.namespaces, "", token.as_deref()).await?;
                let list: ListItems<PartialObjectMeta<Namespace>> =
                    ListItems::read(&page.body).map_err(undecodable)?;
                let since = list
                    .items
                    .iter()
                    .map(|it| Some((it.name_any(), it.creation_timestamp()?.0)));
                all.extend(since.flatten());
                token = list.next;
                if token.is_none() {
                    return Ok(all);
                }
            }
        }
        .boxed()
    }
}
