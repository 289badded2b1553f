//! Creates error answers. Input: the error. Output: a response whose body is a `Status` (`v1`).
//! Clients depend on the error answers of the kube-apiserver. If the kube-apiserver has the same
//! error, the answer of this server has the same message, reason and details.

use super::responses::{clip, json};
use crate::auth::{Attributes, User};
use crate::store::VersionUnavailable;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    ListMeta, Status, StatusCause, StatusDetails,
};

/// Largest length of a message in bytes. The end of a longer message is cut off. A message can
/// still contain the longest possible name of an object several times.
const MAX_MESSAGE: usize = 2 << 10;

/// Largest length in bytes of a name in the details. The end of a longer name is cut off.
/// Kubernetes allows about half this length for names.
const MAX_DETAIL: usize = 512;

/// An error answer. The content is boxed, so that the type `Result<_, ErrorStatus>` is small.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.message.as_deref().unwrap_or_default())]
pub struct ErrorStatus(Box<Status>);

/// Returns the name of a resource for messages, such as `deployments.apps`. For the core group, the
/// name is the plural, such as `pods`.
fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// Returns details that name a kind and an object. An empty text is left out.
fn details_of(group: &str, plural: &str, name: &str) -> StatusDetails {
    let detail = |text: &str| (!text.is_empty()).then(|| clip(text.to_owned(), MAX_DETAIL));
    StatusDetails {
        name: detail(name),
        group: detail(group),
        kind: detail(plural),
        ..StatusDetails::default()
    }
}

impl ErrorStatus {
    fn new(code: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(Status {
            code: Some(code.as_u16().into()),
            message: Some(clip(message.into(), MAX_MESSAGE)),
            reason: Some(reason.to_owned()),
            status: Some("Failure".to_owned()),
            ..Status::default()
        }))
    }

    fn with(mut self, details: StatusDetails) -> Self {
        self.0.details = Some(details);
        self
    }

    /// Tells the client that it may retry after this number of seconds.
    fn retry_after(self, seconds: i32) -> Self {
        let details = self.0.details.clone().unwrap_or_default();
        self.with(StatusDetails {
            retry_after_seconds: Some(seconds),
            ..details
        })
    }

    /// Creates a 400: the request is not valid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Creates a 401: the credentials are not valid.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Creates a 403: `user` may not send a request with the attributes `asked`. `reason` is the
    /// authorizer's reason, or empty if there is none.
    pub fn forbidden(user: &User, asked: &Attributes, reason: &str) -> Self {
        let user = &user.name;
        let (mut message, details) = match asked {
            Attributes::NonResource { path, verb } => (
                format!("forbidden: User {user:?} cannot {verb} path {path:?}"),
                StatusDetails::default(),
            ),
            Attributes::Resource(it) => {
                let mut object = qualified(&it.resource, &it.group);
                if !it.name.is_empty() {
                    object = format!("{object} {:?}", it.name);
                }
                let resource = format!("{}/{}", it.resource, it.subresource);
                let scope = match &*it.namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let message = format!(
                    "{object} is forbidden: User {user:?} cannot {} resource \"{}\" in API group \
                     {:?} {scope}",
                    it.verb,
                    resource.trim_end_matches('/'),
                    it.group
                );
                (message, details_of(&it.group, &it.resource, &it.name))
            }
        };
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with(details)
    }

    /// Creates a 404: the object does not exist.
    pub fn no_object(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(plural, group));
        let details = details_of(group, plural, name);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(details)
    }

    /// Creates a 404: this server does not serve the group, the version or the resource.
    pub fn resource_not_found() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(StatusDetails::default())
    }

    /// Creates a 405: the resource does not support `verb`. The kube-apiserver sends the same
    /// message for custom resources.
    pub fn not_supported(verb: &str, group: &str, plural: &str) -> Self {
        let name = qualified(plural, group);
        let message = format!("{verb} is not supported on resources of kind {name:?}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
            .with(details_of(group, plural, ""))
    }

    /// Creates a 405: the HTTP method is not allowed on this path.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
            .with(StatusDetails::default())
    }

    /// Creates a 406: the server does not support any media type that the client accepts.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// Creates a 410 for a list: the state at the requested resourceVersion is no longer available.
    pub fn list_too_old() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Creates a 410 for a continue token: the state at its resourceVersion is no longer available.
    /// With `new_token`, the client gets the remaining objects at the newest resourceVersion.
    pub fn continue_token_too_old(new_token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result. You can start a new list without the continue parameter, or use the \
                       continue token in this response to retrieve the remainder of the results. \
                       Continuing with the provided token results in an inconsistent list - objects \
                       that were created, modified, or deleted between the time the first chunk was \
                       returned and now may show up in the list.";
        let mut failure = Self::new(StatusCode::GONE, "Expired", message);
        failure.0.metadata = ListMeta {
            continue_: Some(new_token),
            ..ListMeta::default()
        };
        failure
    }

    /// Creates a 410 for a watch: the changes after `asked` are not available. A watch can start at
    /// `oldest` or at the version of a later change.
    pub fn watch_too_old(VersionUnavailable { asked, oldest }: VersionUnavailable) -> Self {
        let newest_too_old = oldest.0.saturating_sub(1);
        let message = format!("too old resource version: {asked} ({newest_too_old})");
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Creates a 422: an option of a list or a watch is not valid. `reason` is
    /// `FieldValueForbidden` or `FieldValueNotSupported`.
    pub fn invalid_list_option(field: &str, reason: &str, why: String) -> Self {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {why}");
        let cause = StatusCause {
            reason: Some(reason.to_owned()),
            message: Some(why),
            field: Some(field.to_owned()),
        };
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(StatusDetails {
            causes: Some(vec![cause]),
            ..details_of("meta.k8s.io", "ListOptions", "")
        })
    }

    /// Creates a 429: the server has just started and does not have all objects yet. The client may
    /// retry after a second.
    pub fn initializing() -> Self {
        Self::too_many_requests("storage is (re)initializing")
    }

    /// Creates a 500: the server cannot process the request.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// Creates a 503: the server cannot answer now. The client may retry after 5 seconds.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        let code = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(code, "ServiceUnavailable", message).retry_after(5)
    }

    /// Creates a 429: a limit is reached, or the server cannot answer yet. The client may retry
    /// after a second.
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        let code = StatusCode::TOO_MANY_REQUESTS;
        Self::new(code, "TooManyRequests", message).retry_after(1)
    }

    /// Creates a 421: another replica must answer the request.
    pub fn misdirected(message: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "", message)
    }

    /// Creates a 504: the store did not reach the resourceVersion `requested` within the time
    /// limit. `current` is the newest resourceVersion of the store.
    pub fn version_not_reached(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        let cause = StatusCause {
            reason: Some("ResourceVersionTooLarge".to_owned()),
            message: Some("Too large resource version".to_owned()),
            field: None,
        };
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .with(StatusDetails {
                causes: Some(vec![cause]),
                ..StatusDetails::default()
            })
            .retry_after(1)
    }

    /// Creates a 504: the request was not answered within its time limit.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with(StatusDetails::default())
    }

    /// Returns the `Status` as JSON, without a line feed.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a Status has only string keys")
    }

    /// Returns the event `ERROR`, after which a watch ends.
    pub(in crate::serve) fn event(&self) -> Bytes {
        let mut out = b"{\"type\":\"ERROR\",\"object\":".to_vec();
        out.extend_from_slice(&self.json());
        out.extend_from_slice(b"}\n");
        out.into()
    }
}

/// Converts a `Status` that no function of this type creates, such as the answer with which the
/// kube-apiserver refuses the eviction of a pod.
impl From<Status> for ErrorStatus {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

impl IntoResponse for ErrorStatus {
    fn into_response(self) -> Response {
        let mut body = self.json();
        body.push(b'\n');
        let code = self.0.code.and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let no_sniff = [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
        let details = self.0.details.unwrap_or_default();
        let retry_after = details.retry_after_seconds;
        let retry_after = retry_after.map(|it| [(header::RETRY_AFTER, HeaderValue::from(it))]);
        (code, no_sniff, retry_after, json(body)).into_response()
    }
}
