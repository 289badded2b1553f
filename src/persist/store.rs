//! The requests for custom resources. Enters: a custom resource to create, change or delete.
//! Leaves: the kube-apiserver's answer, reduced to the [`Failure`] that decides what to do
//! next.
//!
//! Every write is conditional. A creation fails if the name exists. A change and a deletion
//! name the uid and the resourceVersion that they are meant for. So a late write of a
//! previous leader cannot overwrite a newer state.

use super::explanation::{Explanation, status};
use crate::observe::Connection;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
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
use std::time::Duration;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Field manager of all writes, on every replica.
pub const FIELD_MANAGER: &str = "ifo-persistence";

/// Objects in a page of a list: at some 4 KB each, 2 MB.
const PAGE: usize = 500;

/// Objects in a page once one was too large: as many as fit into [`ANSWER`] even if each
/// is as large as etcd takes, 1.5 MiB.
const SMALL_PAGE: usize = 10;

/// Longest answer that is read, in bytes.
const ANSWER: usize = 16 << 20;

/// The pause after an answer 429 without the header `Retry-After`, as in client-go.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The only part of a write's answer that is needed: it has the uid and the
/// resourceVersion.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The same for a list.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Path of the namespaces.
const NAMESPACES: &str = "/api/v1/namespaces";

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The resource is not served: its CRD is missing.
    #[error("the CRD inflightoperations.ifo.kubevirt.io is missing")]
    Missing,
    /// The server lacks the right, or an admission plugin refuses the request.
    #[error("forbidden: inflightoperations.ifo.kubevirt.io: {0}")]
    Forbidden(Explanation),
    /// The object is not in the state that the write is conditional on: it exists already,
    /// has changed, or is gone.
    #[error("conflict: {0}")]
    Conflict(Explanation),
    /// The kube-apiserver refuses this object, and will refuse it again.
    #[error("refused: {0}")]
    Invalid(Explanation),
    /// There are too many requests. The request had no effect.
    #[error("too many requests, again in {} s", .0.as_secs())]
    Throttled(Duration),
    /// There is no answer, or an answer of the class 5xx. The request may have had an effect.
    #[error("{0}")]
    Unreachable(Explanation, Option<Duration>),
}

impl Failure {
    /// The value of the metrics' label `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Forbidden(_) => "forbidden",
            Self::Conflict(_) => "conflict",
            Self::Invalid(_) => "invalid",
            Self::Throttled(_) => "throttled",
            Self::Unreachable(..) => "unreachable",
        }
    }
}

/// One state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// metadata.uid.
    pub uid: Uuid,
    /// metadata.resourceVersion.
    pub resource_version: Box<str>,
}

impl Revision {
    /// Returns the state that an object with this metadata is in. None if the metadata is
    /// not from a kube-apiserver, which sets both fields.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            uid: Uuid::parse_str(metadata.uid.as_deref()?).ok()?,
            resource_version: metadata.resource_version.as_deref()?.into(),
        })
    }
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// The objects on this page.
    pub items: Vec<T>,
    /// The continue token of the next page, if there is one.
    pub next: Option<String>,
}

/// The answer to a request that has been sent or will be.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, Failure>>;

/// The API of the custom resources.
pub trait Store: Send + Sync + 'static {
    /// Creates it. If the name exists, this is a [`Failure::Conflict`].
    fn create<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision>;

    /// Applies a JSON merge patch. Its metadata has the uid and the resourceVersion of the
    /// state that it changes. If the object is in another state, or is gone, this is a
    /// [`Failure::Conflict`].
    fn patch<'a>(&'a self, name: &'a str, patch: &'a Value) -> Pending<'a, Revision>;

    /// Deletes it if it is in this state. If it is in another state, this is a
    /// [`Failure::Conflict`]. If it is gone, this is a success.
    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()>;

    /// Reads it. None if it does not exist.
    fn get<'a>(&'a self, name: &'a str) -> Pending<'a, Option<InFlightOperation>>;

    /// Lists the custom resources that have the form of ours, page by page.
    fn page<'a>(&'a self, token: Option<&'a str>) -> Pending<'a, Page<InFlightOperation>>;

    /// Lists the names and creation times of the namespaces, page by page.
    fn namespaces<'a>(&'a self, token: Option<&'a str>) -> Pending<'a, Page<(String, Timestamp)>>;
}

/// The API of the custom resources of a cluster.
pub struct ClusterStore {
    client: Client,
    path: String,
    custom_resources: ListPager,
    namespaces: ListPager,
}

impl ClusterStore {
    /// Uses a connection of its own, so that writes delay no other requests, and no retries,
    /// because the queue retries by itself.
    pub fn new(connection: &Connection) -> Self {
        let client = connection.without_retries();
        let path = InFlightOperation::url_path(&(), None);
        let pager = |path: &str, media_type| {
            ListPager::new(client.clone(), path, Some(PAGE))
                .accepting(media_type)
                .bounded(ANSWER, SMALL_PAGE)
        };
        Self {
            custom_resources: pager(&path, "application/json"),
            namespaces: pager(NAMESPACES, METADATA_LIST),
            client,
            path,
        }
    }

    /// Sends a request and returns the body of a successful answer.
    async fn send(
        &self,
        method: Method,
        uri: String,
        headers: &[(header::HeaderName, &str)],
        body: Vec<u8>,
    ) -> Result<Vec<u8>, Refusal> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|error| Refusal::lost(&error))?;
        let sent = self.client.send(request).await;
        let answer = sent.map_err(|error| Refusal::lost(&error))?;
        if answer.status().is_success() {
            read(answer.into_body()).await
        } else {
            Err(Refusal::read(answer).await)
        }
    }

    /// Sends a creation or a change, and reads the state that the object is in afterwards.
    async fn write(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        object: &impl Serialize,
    ) -> Result<Revision, Failure> {
        // Strict: if the CRD does not have a field, the write is refused. Otherwise the
        // kube-apiserver would drop the field and report a success.
        let uri = format!("{path}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
        let headers = [
            (header::CONTENT_TYPE, content_type),
            (header::ACCEPT, METADATA_ONLY),
        ];
        let body = serde_json::to_vec(object).expect("maps with string keys always encode");
        let answer = self.send(method, uri, &headers, body).await?;
        // Without a revision, the next write has nothing to be conditional on.
        let unusable = |why| Failure::Unreachable(why, None);
        let answer: PartialObjectMeta<InFlightOperation> = serde_json::from_slice(&answer)
            .map_err(|error| unusable(Explanation::garbled(&error)))?;
        let revision = Revision::of(&answer.metadata);
        revision.ok_or_else(|| unusable("the answer has no uid or no resourceVersion".into()))
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// Reads the body of an answer, up to [`ANSWER`] bytes.
async fn read(body: Body) -> Result<Vec<u8>, Refusal> {
    let read = Limited::new(body, ANSWER).collect().await;
    let read = read.map_err(|error| Refusal::lost(&*error))?;
    Ok(read.to_bytes().into())
}

/// Reads one page of a list. The first page has the usual number of objects. A page that is too
/// large is requested again at once, with fewer objects.
async fn page(pager: &ListPager, token: Option<&str>) -> Result<ListPage, Failure> {
    if token.is_none() {
        pager.reset_limit();
    }
    let request = ListRequest {
        start: ListStart::after(token),
        ..ListRequest::default()
    };
    loop {
        let refusal = match pager.page(request).await {
            Ok(page) => return Ok(page),
            Err(ListError::TooLarge {
                is_reduced: true, ..
            }) => continue,
            Err(ListError::TooLarge { source, .. }) => Refusal::lost(&source),
            Err(ListError::Request { source, .. }) => Refusal::lost(&source),
            Err(ListError::Transport(error)) => Refusal::lost(&error),
            Err(ListError::Refused(answer)) => Refusal::read(*answer).await,
        };
        return Err(refusal.into());
    }
}

/// An answer that is not a success, or, without a code, no answer.
struct Refusal {
    code: Option<StatusCode>,
    explanation: Explanation,
    retry_after: Option<Duration>,
    /// Whether the object of the request does not exist, or has another uid.
    is_gone: bool,
}

impl Refusal {
    fn lost(error: &dyn std::error::Error) -> Self {
        Self {
            code: None,
            explanation: Explanation::Connection(error.to_string()),
            retry_after: None,
            is_gone: false,
        }
    }

    /// Reads an answer that is not a success.
    async fn read(answer: Response<Body>) -> Self {
        let code = answer.status();
        let retry_after = retry_after(&answer);
        let body = match read(answer.into_body()).await {
            Ok(body) => body,
            Err(lost) => return lost,
        };
        let (explanation, is_gone) = status(code, &body);
        Self {
            code: Some(code),
            explanation,
            retry_after,
            is_gone,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let explanation = refusal.explanation;
        match refusal.code {
            _ if refusal.is_gone => Self::Conflict(explanation),
            // While a CRD is being deleted, creations are answered with 405.
            Some(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => Self::Missing,
            Some(StatusCode::FORBIDDEN) => Self::Forbidden(explanation),
            Some(StatusCode::CONFLICT) => Self::Conflict(explanation),
            Some(StatusCode::TOO_MANY_REQUESTS) => {
                Self::Throttled(refusal.retry_after.unwrap_or(RETRY_AFTER))
            }
            Some(
                StatusCode::BAD_REQUEST
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::UNSUPPORTED_MEDIA_TYPE
                | StatusCode::UNPROCESSABLE_ENTITY,
            ) => Self::Invalid(explanation),
            _ => Self::Unreachable(explanation, refusal.retry_after),
        }
    }
}

/// The header `Retry-After` in seconds. Kubernetes does not use its other form, a date.
fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let value = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

impl Store for ClusterStore {
    fn create<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision> {
        self.write(Method::POST, &self.path, "application/json", cr)
            .boxed()
    }

    fn patch<'a>(&'a self, name: &'a str, patch: &'a Value) -> Pending<'a, Revision> {
        async move {
            let kind = "application/merge-patch+json";
            self.write(Method::PATCH, &self.path_of(name), kind, patch)
                .await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()> {
        async move {
            let headers = [
                (header::CONTENT_TYPE, "application/json"),
                (header::ACCEPT, METADATA_ONLY),
            ];
            let options = json!({"preconditions": {
                "uid": revision.uid, "resourceVersion": revision.resource_version,
            }});
            let body = options.to_string().into_bytes();
            let path = self.path_of(name);
            match self.send(Method::DELETE, path, &headers, body).await {
                Err(refusal) if refusal.code != Some(StatusCode::NOT_FOUND) => Err(refusal.into()),
                _ => Ok(()),
            }
        }
        .boxed()
    }

    fn get<'a>(&'a self, name: &'a str) -> Pending<'a, Option<InFlightOperation>> {
        async move {
            let path = self.path_of(name);
            match self.send(Method::GET, path, &[], Vec::new()).await {
                // If it cannot be decoded, somebody else has created it under this name.
                Ok(answer) => serde_json::from_slice(&answer)
                    .map(Some)
                    .map_err(|error| Failure::Invalid(Explanation::garbled(&error))),
                Err(refusal) if refusal.is_gone => Ok(None),
                Err(refusal) => Err(refusal.into()),
            }
        }
        .boxed()
    }

    fn page<'a>(&'a self, token: Option<&'a str>) -> Pending<'a, Page<InFlightOperation>> {
        async move {
            let page = page(&self.custom_resources, token).await?;
            // An object that cannot be decoded must not make the whole page fail.
            let list = ListItems::<&RawValue>::read(&page.body)
                .map_err(|error| Failure::Unreachable(Explanation::garbled(&error), None))?;
            let items = list.items.iter();
            Ok(Page {
                items: items
                    .filter_map(|item| serde_json::from_str(item.get()).ok())
                    .collect(),
                next: list.next,
            })
        }
        .boxed()
    }

    fn namespaces<'a>(&'a self, token: Option<&'a str>) -> Pending<'a, Page<(String, Timestamp)>> {
        async move {
            let page = page(&self.namespaces, token).await?;
            let list = ListItems::<PartialObjectMeta<Namespace>>::read(&page.body)
                .map_err(|error| Failure::Unreachable(Explanation::garbled(&error), None))?;
            let since = |it: &PartialObjectMeta<Namespace>| {
                Some((it.name_any(), it.creation_timestamp()?.0))
            };
            Ok(Page {
                items: list.items.iter().filter_map(since).collect(),
                next: list.next,
            })
        }
        .boxed()
    }
}
