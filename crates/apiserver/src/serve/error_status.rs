//! Creates error answers. Input: the error. Output: a response whose body is a `Status` (`v1`).
//! Clients depend on the error answers of the kube-apiserver. If the kube-apiserver has the same
//! error, its answer has the same message, reason, details and order of the keys.

mod body;

use self::body::{StatusBody, StatusCause, StatusDetails, StatusMeta, escape_html, go_json};
use super::create_responses::{Syntax, whole};
use super::quoting::{Quoted, clip, join_errors};
use crate::auth::{Attributes, User};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// Largest length of a message in bytes. The end of a longer message is cut off. A message can
/// still contain the longest possible name of an object several times.
const MAX_MESSAGE: usize = 2 << 10;

/// Largest length in bytes of a name, a group, a kind or the message of a cause in the details. The
/// end of a longer text is cut off. Kubernetes allows about half this length for names.
const MAX_DETAIL: usize = 512;

/// An error answer. An answer has at most 5 KB, or 20 KB if JSON escapes every character. The
/// content is boxed, so that the type `Result<_, ErrorStatus>` is small.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ErrorStatus(Box<ErrorParts>);

#[derive(Debug, Clone)]
struct ErrorParts {
    /// The HTTP status code, which the body also contains.
    code: StatusCode,
    message: String,
    details: Option<StatusDetails>,
    /// The new continue token for a client whose continue token has expired. With the new token,
    /// the client gets the remaining pages at a newer resourceVersion.
    continue_token: Option<String>,
}

/// An error in one of the options of a list or a watch.
#[derive(Debug, Clone)]
pub struct OptionProblem(StatusCause);

impl OptionProblem {
    /// Creates the error: the option `field` is not allowed in this request. `why` is the reason.
    pub fn forbidden(field: &'static str, why: &str) -> Self {
        Self(StatusCause {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
            field,
        })
    }

    /// Creates the error: the option `field` does not support `value`. `supported` is the list of
    /// the supported values.
    pub fn unsupported(field: &'static str, value: &str, supported: &str) -> Self {
        Self(StatusCause {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {}: supported values: {supported}",
                go_json(value)
            ),
            field,
        })
    }
}

/// Returns the name of a resource for messages, such as `deployments.apps`. For the core group, the
/// name is the plural, such as `pods`.
fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// Returns the reason in the `Status` (`metav1.StatusReason`) for an HTTP status code. The reason
/// is empty for a 421, because Kubernetes has no reason for this code. For a 410, Kubernetes has
/// the reasons `Gone` and `Expired`. This server uses only `Expired`.
fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
        StatusCode::GONE => "Expired",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "",
    }
}

impl ErrorStatus {
    fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        clip(&mut message, MAX_MESSAGE);
        Self(Box::new(ErrorParts {
            code,
            message,
            details: None,
            continue_token: None,
        }))
    }

    fn with(mut self, mut details: StatusDetails) -> Self {
        let StatusDetails {
            name, group, kind, ..
        } = &mut details;
        for text in [name, group, kind] {
            clip(text, MAX_DETAIL);
        }
        for cause in &mut details.causes {
            clip(&mut cause.message, MAX_DETAIL);
        }
        self.0.details = Some(details);
        self
    }

    /// Creates a 400: the request is not valid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Creates a 401: the credentials are not valid.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized")
    }

    /// Creates a 403: `user` does not have the access `asked`. `reason` is the reason that the
    /// authorizer gave. Empty if the authorizer gave no reason.
    pub fn forbidden(user: &User, asked: &Attributes, reason: &str) -> Self {
        let (mut message, details) = match asked {
            Attributes::NonResource { path, verb } => (
                format!(
                    "forbidden: User {} cannot {verb} path {}",
                    Quoted(&user.name),
                    Quoted(path)
                ),
                StatusDetails::default(),
            ),
            Attributes::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let quoted = if name.is_empty() {
                    String::new()
                } else {
                    format!(" {}", Quoted(name))
                };
                let slash = if subresource.is_empty() { "" } else { "/" };
                let scope = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {}", Quoted(namespace))
                };
                (
                    format!(
                        "{}{quoted} is forbidden: User {} cannot {verb} resource \
                         \"{resource}{slash}{subresource}\" in API group {} {scope}",
                        qualified(resource, group),
                        Quoted(&user.name),
                        Quoted(group)
                    ),
                    StatusDetails::of(group, resource, name),
                )
            }
        };
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(reason);
        }
        Self::new(StatusCode::FORBIDDEN, message).with(details)
    }

    /// Creates a 404: the object does not exist.
    pub fn no_object(group: &str, plural: &str, name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("{} {} not found", qualified(plural, group), Quoted(name)),
        )
        .with(StatusDetails::of(group, plural, name))
    }

    /// Creates a 404: this server does not serve the group, the version or the resource.
    pub fn resource_not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "the server could not find the requested resource",
        )
        .with(StatusDetails::default())
    }

    /// Creates a 405: the resource does not support `verb`. The kube-apiserver sends the same
    /// message for custom resources.
    pub fn not_supported(verb: &str, group: &str, plural: &str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!(
                "{verb} is not supported on resources of kind \"{}\"",
                qualified(plural, group)
            ),
        )
        .with(StatusDetails::of(group, plural, ""))
    }

    /// Creates a 405: the HTTP method is not allowed on this path.
    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "the server does not allow this method on the requested resource",
        )
        .with(StatusDetails::default())
    }

    /// Creates a 406: the server does not support any media type that the client accepts.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, message)
    }

    /// Creates a 410 for a list: the state at the requested resourceVersion is no longer available.
    pub fn list_too_old() -> Self {
        Self::new(
            StatusCode::GONE,
            "The resourceVersion for the provided list is too old.",
        )
    }

    /// Creates a 410 for a continue token: the state at its resourceVersion is no longer available.
    /// With `new_token`, the client gets the remaining objects at the newest resourceVersion.
    pub fn continue_token_too_old(new_token: String) -> Self {
        let mut failure = Self::new(
            StatusCode::GONE,
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter, or use the continue token in \
             this response to retrieve the remainder of the results. Continuing with the provided \
             token results in an inconsistent list - objects that were created, modified, or \
             deleted between the time the first chunk was returned and now may show up in the \
             list.",
        );
        failure.0.continue_token = Some(new_token);
        failure
    }

    /// Creates a 410 for a watch: the changes after the resourceVersion `requested` are no longer
    /// available. A watch can start at `oldest` or later.
    pub fn watch_too_old(requested: u64, oldest: u64) -> Self {
        // As in the kube-apiserver, the message contains the newest version at which a watch can no
        // longer start.
        let newest_too_old = oldest.saturating_sub(1);
        Self::new(
            StatusCode::GONE,
            format!("too old resource version: {requested} ({newest_too_old})"),
        )
    }

    /// Creates a 422: the options of a list or a watch are not valid. The message contains all
    /// `problems`.
    pub fn invalid_list_options(problems: Vec<OptionProblem>) -> Self {
        let causes: Vec<StatusCause> = problems
            .into_iter()
            .map(|OptionProblem(cause)| cause)
            .collect();
        let messages: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let message = join_errors(&messages);
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("ListOptions.meta.k8s.io \"\" is invalid: {message}"),
        )
        .with(StatusDetails {
            causes,
            ..StatusDetails::of("meta.k8s.io", "ListOptions", "")
        })
    }

    /// Creates a 429: the server has just started and does not have all objects yet. The client may
    /// retry after a second.
    pub fn initializing() -> Self {
        Self::too_many_requests("storage is (re)initializing")
    }

    /// Creates a 503: the server cannot answer now. The client may retry after 5 seconds.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).with(StatusDetails {
            retry_after_seconds: 5,
            ..StatusDetails::default()
        })
    }

    /// Creates a 429: a limit is reached, or the server cannot answer yet. The client may retry
    /// after a second.
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message).with(StatusDetails {
            retry_after_seconds: 1,
            ..StatusDetails::default()
        })
    }

    /// Creates a 421: another replica must answer the request.
    pub fn misdirected(message: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, message)
    }

    /// Creates a 504: the index (the server's store of objects in memory) did not reach the
    /// resourceVersion `requested` within the time limit. `current` is the newest resourceVersion
    /// of the index.
    pub fn version_not_reached(requested: u64, current: u64) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        )
        .with(StatusDetails {
            causes: vec![StatusCause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".to_owned(),
                field: "",
            }],
            retry_after_seconds: 1,
            ..StatusDetails::default()
        })
    }

    /// Creates a 504: the request was not answered within its time limit.
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout: request did not complete within the allotted timeout",
        )
        .with(StatusDetails::default())
    }

    /// Returns the `Status` as compact JSON, without a line feed.
    pub fn json(&self) -> Vec<u8> {
        let inner = &*self.0;
        let status = StatusBody {
            kind: "Status",
            api_version: "v1",
            metadata: StatusMeta {
                continue_token: inner.continue_token.as_deref(),
            },
            outcome: "Failure",
            message: &inner.message,
            reason: reason(inner.code),
            details: inner.details.as_ref(),
            code: inner.code.as_u16(),
        };
        let json = serde_json::to_vec(&status).expect("a Status has only string keys");
        escape_html(&json)
    }
}

impl IntoResponse for ErrorStatus {
    fn into_response(self) -> Response {
        self.response(Syntax::Compact)
    }
}

impl ErrorStatus {
    /// Returns the error as a response in this syntax.
    pub fn response(self, syntax: Syntax) -> Response {
        let mut json = self.json();
        json.push(b'\n');
        let mut response = whole(json, syntax);
        *response.status_mut() = self.0.code;
        let headers = response.headers_mut();
        if self.0.code == StatusCode::FORBIDDEN {
            headers.insert(
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            );
        }
        let retry_after = self
            .0
            .details
            .map_or(0, |details| details.retry_after_seconds);
        if retry_after > 0 {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
        }
        response
    }
}
