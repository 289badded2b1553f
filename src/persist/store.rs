//! Where custom resources go. Enters: one to write or to delete. Leaves: what the
//! kube-apiserver says to that, in the few words that decide what to do next.

use crate::api::persisted::InFlightOperation;
use crate::observe::Connection;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Field manager of all writes, of every replica: what a second writer applies is what
/// the first one did, and changes nothing.
pub const FIELD_MANAGER: &str = "ifo-persistence";

/// Objects in a page of a list: at some 4 KB each, 2 MB.
const PAGE: usize = 500;

/// Longest answer that is read, in bytes. etcd holds objects of at most 1.5 MiB, and ours
/// have some KB; a page of larger ones is not ours.
const ANSWER: usize = 32 << 20;

/// What is waited after a 429 that does not say how long, as client-go does.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Of Kubernetes' metadata, all that is needed of a write's answer: the uid.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The resource is not served: its CRD is missing.
    #[error("the CRD inflightoperations.ifo.kubevirt.io is missing")]
    Missing,
    /// The server may not do it, or an admission plugin does not want it.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The object with the uid that was said is not there any more.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object itself is refused, and will be again.
    #[error("refused: {0}")]
    Invalid(String),
    /// Too many requests; nothing was done.
    #[error("too many requests, again in {} s", .0.as_secs())]
    Throttled(Duration),
    /// No answer, or that of a server in trouble: it may have been done all the same.
    #[error("{0}")]
    Unreachable(String, Option<Duration>),
}

impl Failure {
    /// Its name as a metric's label.
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

/// A part of a list.
#[derive(Debug, Default)]
pub struct Page {
    /// Those that have the form of ours.
    pub items: Vec<InFlightOperation>,
    /// Token of the next page, if there is one.
    pub next: Option<String>,
}

/// Where custom resources are.
pub trait Store: Send + Sync + 'static {
    /// Server-side apply, forced. With a uid in its metadata it changes that object, or
    /// nothing: it does not make a new one. Answers with the uid.
    fn apply<'a>(
        &'a self,
        cr: &'a InFlightOperation,
    ) -> BoxFuture<'a, Result<Option<Uuid>, Failure>>;

    /// Deletes; one that is not there is as good as deleted.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Failure>>;

    /// Reads one.
    fn get<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<InFlightOperation>, Failure>>;

    /// Lists, page by page.
    fn page<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>>;
}

/// Those of a cluster.
#[derive(Clone)]
pub struct ClusterStore {
    client: Client,
    path: String,
}

impl ClusterStore {
    /// Writes over a connection of its own, so that it does not stand in the way of
    /// anything else, and without anybody else's retries: the queue has its own.
    pub fn new(connection: &Connection) -> Self {
        Self {
            client: connection.without_retries(),
            path: InFlightOperation::url_path(&(), None),
        }
    }

    /// The answer's body, if the answer is a good one.
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
            .map_err(|error| Refusal::lost(error.to_string()))?;
        let sent = self.client.send(request).await;
        let answer = sent.map_err(|error| Refusal::lost(error.to_string()))?;
        let code = answer.status();
        let retry_after = retry_after(&answer);
        let read = Limited::new(answer.into_body(), ANSWER).collect().await;
        let body = read
            .map_err(|error| Refusal::lost(error.to_string()))?
            .to_bytes();
        if code.is_success() {
            return Ok(body.to_vec());
        }
        Err(Refusal {
            code: Some(code),
            message: message(code, &body),
            retry_after,
        })
    }

    fn of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// An answer that is no success, or none (no code).
struct Refusal {
    code: Option<StatusCode>,
    message: String,
    retry_after: Option<Duration>,
}

impl Refusal {
    fn lost(message: String) -> Self {
        Self {
            code: None,
            message,
            retry_after: None,
        }
    }

    fn is(&self, code: StatusCode) -> bool {
        self.code == Some(code)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.message;
        match refusal.code {
            Some(StatusCode::NOT_FOUND) => Self::Missing,
            Some(StatusCode::FORBIDDEN) => Self::Forbidden(message),
            Some(StatusCode::CONFLICT) => Self::Conflict(message),
            Some(StatusCode::TOO_MANY_REQUESTS) => {
                Self::Throttled(refusal.retry_after.unwrap_or(RETRY_AFTER))
            }
            Some(
                StatusCode::BAD_REQUEST
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::UNSUPPORTED_MEDIA_TYPE
                | StatusCode::UNPROCESSABLE_ENTITY,
            ) => Self::Invalid(message),
            _ => Self::Unreachable(message, refusal.retry_after),
        }
    }
}

/// The header, in seconds; the other form, a date, Kubernetes does not use.
fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let value = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// What a Status says, or the code.
fn message(code: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    match serde_json::from_slice::<Status>(body) {
        // Long enough for every message that names a field; short enough for a log.
        Ok(status) => status.message.chars().take(500).collect(),
        Err(_) => code.to_string(),
    }
}

impl Store for ClusterStore {
    fn apply<'a>(
        &'a self,
        cr: &'a InFlightOperation,
    ) -> BoxFuture<'a, Result<Option<Uuid>, Failure>> {
        async move {
            let name = cr.metadata.name.as_deref().unwrap_or_default();
            let uri = format!("{}?fieldManager={FIELD_MANAGER}&force=true", self.of(name));
            let headers = [
                (header::CONTENT_TYPE, "application/apply-patch+yaml"),
                (header::ACCEPT, METADATA_ONLY),
            ];
            let body = serde_json::to_vec(cr).expect("maps with string keys always encode");
            let answer = self.send(Method::PATCH, uri, &headers, body).await?;
            let metadata = serde_json::from_slice::<PartialObjectMeta<InFlightOperation>>(&answer);
            let uid = metadata.ok().and_then(|object| object.metadata.uid);
            Ok(uid.and_then(|uid| Uuid::parse_str(&uid).ok()))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            let headers = [(header::ACCEPT, METADATA_ONLY)];
            match self
                .send(Method::DELETE, self.of(name), &headers, Vec::new())
                .await
            {
                Err(refusal) if !refusal.is(StatusCode::NOT_FOUND) => Err(refusal.into()),
                _ => Ok(()),
            }
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<InFlightOperation>, Failure>> {
        async move {
            match self.send(Method::GET, self.of(name), &[], Vec::new()).await {
                Ok(answer) => Ok(serde_json::from_slice(&answer).ok()),
                Err(refusal) if refusal.is(StatusCode::NOT_FOUND) => Ok(None),
                Err(refusal) => Err(refusal.into()),
            }
        }
        .boxed()
    }

    fn page<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(default)]
            metadata: kube::core::ListMeta,
            // One that does not have the form of ours must not spoil the others.
            #[serde(borrow)]
            items: Vec<&'a RawValue>,
        }
        async move {
            let mut uri = format!("{}?limit={PAGE}", self.path);
            if let Some(token) = token {
                uri.push_str("&continue=");
                uri.extend(form_urlencoded::byte_serialize(token.as_bytes()));
            }
            let answer = self.send(Method::GET, uri, &[], Vec::new()).await?;
            let list: List<'_> = serde_json::from_slice(&answer)
                .map_err(|error| Failure::Unreachable(format!("no list: {error}"), None))?;
            let items = list.items.iter();
            Ok(Page {
                items: items
                    .filter_map(|item| serde_json::from_str(item.get()).ok())
                    .collect(),
                next: list.metadata.continue_.filter(|token| !token.is_empty()),
            })
        }
        .boxed()
    }
}
